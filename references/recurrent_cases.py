"""Recurrent layers and the layers around them, for recurrent.json."""

import keras
from keras import layers

from layer_cases import Case, one

SEQUENCE = (5, 3)


def cell_cases():
    for name, layer in (("lstm", layers.LSTM), ("gru", layers.GRU), ("simple_rnn", layers.SimpleRNN)):
        yield one(name, layer(4), SEQUENCE)
        yield one(f"{name}_sequences", layer(4, return_sequences=True), SEQUENCE)
        yield one(f"{name}_without_bias", layer(4, use_bias=False, return_sequences=True), SEQUENCE)
        yield one(f"{name}_backwards", layer(4, go_backwards=True), SEQUENCE)
        yield one(f"{name}_backwards_sequences", layer(4, go_backwards=True, return_sequences=True), SEQUENCE)
        yield one(f"{name}_relu", layer(4, activation="relu", return_sequences=True), SEQUENCE)
        yield one(f"{name}_one_step", layer(4), (1, 3))
        # More rows than one thread takes at once.
        yield one(f"{name}_rows", layer(3), (4, 2), batch=37)
    yield one("lstm_gates", layers.LSTM(3, activation="sigmoid", recurrent_activation="tanh"), SEQUENCE)
    yield one("gru_gates", layers.GRU(3, activation="linear", recurrent_activation="tanh"), SEQUENCE)
    yield one("gru_reset_before", layers.GRU(4, reset_after=False), SEQUENCE)
    yield one("gru_reset_before_sequences", layers.GRU(4, reset_after=False, return_sequences=True), SEQUENCE)
    yield one("simple_rnn_linear", layers.SimpleRNN(4, activation=None), SEQUENCE)


def wrapper_cases():
    for mode in ("concat", "sum", "ave", "mul"):
        yield one(f"bidirectional_{mode}", layers.Bidirectional(layers.LSTM(3), merge_mode=mode), SEQUENCE)
        yield one(f"bidirectional_{mode}_sequences",
                  layers.Bidirectional(layers.GRU(3, return_sequences=True), merge_mode=mode), SEQUENCE)
    yield one("bidirectional_named", layers.Bidirectional(layers.SimpleRNN(3, name="mine")), SEQUENCE)
    own = layers.Bidirectional(layers.LSTM(3, return_sequences=True),
                               backward_layer=layers.LSTM(2, go_backwards=True, return_sequences=True))
    yield one("bidirectional_two_layers", own, SEQUENCE)
    yield one("time_distributed_dense", layers.TimeDistributed(layers.Dense(4, activation="tanh")), SEQUENCE)
    yield one("time_distributed_named", layers.TimeDistributed(layers.Dense(4, name="mine")), (3, 2, 5))
    yield one("time_distributed_normalization", layers.TimeDistributed(layers.LayerNormalization()), SEQUENCE)
    yield one("time_distributed_flatten", layers.TimeDistributed(layers.Flatten()), (3, 2, 2))

    words = keras.Input((6,), dtype="int32", name="words")
    x = layers.Embedding(7, 4, name="table")(words)
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True), name="both")(x)
    x = layers.GRU(4, name="second")(x)
    model = keras.Model(words, layers.Dense(2, activation="sigmoid", name="head")(x), name="words_to_classes")
    yield Case(model, span=(0, 7))


def state_cases():
    """States that one layer hands to the next, as an encoder does to its decoder, and that are read themselves."""
    for name, layer in (("lstm", layers.LSTM), ("gru", layers.GRU), ("simple_rnn", layers.SimpleRNN)):
        for kind, first, second in (
            ("", {}, {"return_sequences": True}),
            ("_backwards", {"go_backwards": True, "return_sequences": True}, {"go_backwards": True}),
        ):
            x = keras.Input(SEQUENCE, name="x")
            _, *states = layer(4, return_state=True, name="encoder", **first)(x)
            y, *ends = layer(4, return_state=True, name="decoder", **second)(x, initial_state=states)
            y = y if kind else layers.Flatten(name="flat")(y)
            joined = layers.Concatenate(name="joined")([y, *states, *ends])
            yield Case(keras.Model(x, joined, name=f"{name}_states{kind}"))
    x = keras.Input(SEQUENCE, name="x")
    _, *states = layers.Bidirectional(layers.LSTM(3, return_state=True), name="encoder")(x)
    y = layers.Bidirectional(layers.LSTM(3, return_sequences=True), name="decoder")(x, initial_state=states)
    joined = layers.Concatenate(name="joined")([layers.Flatten(name="flat")(y), *states])
    yield Case(keras.Model(x, joined, name="bidirectional_states"))
    x = keras.Input(SEQUENCE, name="x")
    _, state = layers.GRU(4, return_state=True, reset_after=False, name="encoder")(x)
    y = layers.GRU(4, reset_after=False, name="decoder")(x, initial_state=state)
    yield Case(keras.Model(x, y, name="gru_states_reset_before"))


def compute():
    """All cases of recurrent.json, in order."""
    return [case.compute() for group in (cell_cases, wrapper_cases, state_cases) for case in group()]
