"""Models and layers within TimeDistributed, cells within RNN, adaptive pools and images of whole numbers, for wrapped.json.

    .venv/bin/python references/wrapped_cases.py

writes it beside itself: cases as in layers.json, each with the `places` of its weights in a .keras file.
"""

import pathlib
import tempfile
import zipfile

from make import write  # Sets the environment before Keras is loaded.

import h5py
import keras
import tensorflow as tf
from keras import layers

from layer_cases import Case, one

SEQUENCE = (5, 3)


def time_cases():
    def each(name, layer, shape=(3, 5, 4, 2), **options):
        return one(f"time_distributed_{name}", layers.TimeDistributed(layer, name="each"), shape, **options)

    def small():
        return [layers.Conv2D(3, 2, activation="relu", name="conv"), layers.GlobalAveragePooling2D(name="pool"),
                layers.Dense(4, activation="tanh", name="dense")]

    yield each("sequential", keras.Sequential([keras.Input((5, 4, 2)), *small()], name="frame"))
    yield each("sequential_without_input", keras.Sequential(small(), name="frame"))
    image = keras.Input((5, 4, 2), name="image")
    x = layers.BatchNormalization(name="norm")(layers.Conv2D(3, 2, use_bias=False, name="conv")(image))
    x = layers.Add(name="sum")([x, layers.Conv2D(3, 2, name="other")(image)])
    yield each("functional", keras.Model(image, layers.Flatten(name="flat")(x), name="frame"), batch=4)
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(3, name="a")], name="inner")
    yield each("nested", keras.Sequential([keras.Input((4,)), inner, layers.Dense(2, name="b")], name="outer"), (3, 4))
    yield each("bidirectional", layers.Bidirectional(layers.GRU(3)), (3, 4, 2))
    yield each("time_distributed", layers.TimeDistributed(layers.Conv1D(3, 2)), (2, 3, 4, 2))
    yield each("rnn", layers.RNN(layers.LSTMCell(3)), (3, 4, 2))
    words = keras.Input((3, 4), dtype="int32", name="words")
    x = layers.TimeDistributed(layers.Embedding(6, 3), name="each")(words)
    x = layers.TimeDistributed(layers.LSTM(3), name="sentences")(x)
    yield Case(keras.Model(words, layers.GRU(2, name="text")(x), name="time_distributed_words"), span=(0, 6))
    frames = keras.Input((3, 5, 4, 2), name="frames")
    x = layers.TimeDistributed(keras.Sequential(small(), name="frame"), name="each")(frames)
    yield Case(keras.Model(frames, layers.LSTM(3, name="video")(x), name="video"))


def cell_cases():
    for name, cell in (("lstm", layers.LSTMCell), ("gru", layers.GRUCell), ("simple_rnn", layers.SimpleRNNCell)):
        yield one(f"rnn_{name}", layers.RNN(cell(4), name="rnn"), SEQUENCE)
        yield one(f"rnn_{name}_sequences", layers.RNN(cell(4), return_sequences=True, go_backwards=True, name="rnn"), SEQUENCE)
        yield one(f"rnn_{name}_stacked", layers.RNN([cell(4), cell(3)], name="rnn"), SEQUENCE)
    yield one("rnn_gru_reset_before", layers.RNN(layers.GRUCell(4, reset_after=False, use_bias=False), name="rnn"), SEQUENCE)
    mixed = layers.StackedRNNCells([layers.LSTMCell(4), layers.GRUCell(2), layers.LSTMCell(3)])
    yield one("rnn_stacked_sequences", layers.RNN(mixed, return_sequences=True, name="rnn"), SEQUENCE)
    yield one("rnn_stack_of_one", layers.RNN(layers.StackedRNNCells([layers.LSTMCell(4)]), name="rnn"), SEQUENCE)
    words = keras.Input((6,), dtype="int32", name="words")
    x = layers.Embedding(4, 3, mask_zero=True, name="table")(words)
    x = layers.RNN([layers.LSTMCell(4), layers.GRUCell(3)], return_sequences=True, name="stack")(x)
    yield Case(keras.Model(words, layers.RNN(layers.SimpleRNNCell(2), name="last")(x), name="rnn_masked"), span=(0, 4), batch=3)
    x = keras.Input(SEQUENCE, name="x")
    y, *states = layers.RNN(layers.LSTMCell(3), return_state=True, name="first")(x)
    z = layers.RNN(layers.LSTMCell(3), name="second")(x, initial_state=states)
    yield Case(keras.Model(x, [y, z], name="rnn_states"))


def adaptive_cases():
    for kind, by_rank in (
        ("average", (layers.AdaptiveAveragePooling1D, layers.AdaptiveAveragePooling2D, layers.AdaptiveAveragePooling3D)),
        ("max", (layers.AdaptiveMaxPooling1D, layers.AdaptiveMaxPooling2D, layers.AdaptiveMaxPooling3D)),
    ):
        first, second, third = by_rank
        yield one(f"adaptive_{kind}_pooling1d", first(4, name="pool"), (8, 3))
        yield one(f"adaptive_{kind}_pooling1d_uneven", first(3, name="pool"), (7, 2))
        yield one(f"adaptive_{kind}_pooling2d", second((2, 3), name="pool"), (6, 6, 2))
        yield one(f"adaptive_{kind}_pooling2d_uneven", second((3, 2), name="pool"), (7, 5, 2))
        # Of a maximum over all, TensorFlow 2.21 gives a gradient with numbers of memory that nobody wrote.
        yield one(f"adaptive_{kind}_pooling2d_one", second(1, name="pool"), (5, 4, 3), inference_only=kind == "max")
        yield one(f"adaptive_{kind}_pooling3d", third((2, 3, 1), name="pool"), (4, 5, 3, 2))


def whole_number_cases():
    image = keras.Input((4, 4, 3), dtype="int32", name="image")
    x = layers.Rescaling(1 / 127.5, offset=-1.0, name="scale")(image)
    yield Case(keras.Model(image, layers.Conv2D(2, 3, name="conv")(x), name="whole_numbers_rescaled"), span=(0, 256))
    image = keras.Input((4, 4, 3), dtype="int32", name="image")
    x = keras.ops.cast(image, "float32") / 255.0
    yield Case(keras.Model(image, layers.Conv2D(2, 3, name="conv")(x), name="whole_numbers_cast"), span=(0, 256))


def places(model):
    """Where Keras stores each weight, in the order of `model.weights`."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.keras"
        # Values that tell the weights apart.
        values = [keras.ops.full(weight.shape, 1.0 + number) for number, weight in enumerate(model.weights)]
        before = model.get_weights()
        model.set_weights(values)
        model.save(path)
        model.set_weights(before)
        with zipfile.ZipFile(path) as archive, archive.open("model.weights.h5") as stored, h5py.File(stored) as file:
            stored_by = {}
            file.visititems(lambda name, item: stored_by.__setitem__(float(item[()].flat[0]), name)
                            if isinstance(item, h5py.Dataset) and item.size and name.startswith("layers/") else None)
            found = [stored_by[1.0 + number] for number in range(len(model.weights))]
    return found


def compute():
    """All cases of wrapped.json, in order."""
    made = []
    for group in (time_cases, cell_cases, adaptive_cases, whole_number_cases):
        for case in group():
            made.append({**case.compute(), "places": places(case.model)})
    return made


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    write(pathlib.Path(__file__).resolve().parent / "wrapped.json", compute())
