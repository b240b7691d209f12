"""Volumes, masks and layers of a few operations, for further.json; and losses and penalties on values, for further_training.json.

    .venv/bin/python references/further_cases.py

writes both beside itself: cases as in layers.json and as in training.json.
"""

import pathlib

from make import write  # Sets the environment before Keras is loaded.

import keras
import tensorflow as tf
from keras import layers, losses, regularizers

import counter
from compile_cases import CompileCase
from layer_cases import Case, merge, one
from training_cases import (
    INPUT_SEED, SAMPLE_SEED, TARGET_SEED, classes, mlp, one_hot, sequential, sgd, uniform_input,
)

VOLUME = (4, 5, 6, 2)


def volume_cases():
    def conv(name, kind=layers.Conv3D, shape=VOLUME, filters=3, kernel=2, **arguments):
        return one(f"{kind.__name__.lower()}_{name}", kind(filters, kernel, name="conv", **arguments), shape)

    yield conv("valid")
    yield conv("same_relu", kernel=3, padding="same", activation="relu")
    yield conv("strides_same", kernel=(2, 3, 3), strides=(1, 2, 3), padding="same", use_bias=False)
    yield conv("dilation_2", dilation_rate=2)
    yield conv("groups_2", filters=4, groups=2)
    backwards = layers.Conv3DTranspose
    yield conv("valid", backwards)
    yield conv("valid_strides_2", backwards, shape=(2, 3, 2, 2), kernel=3, strides=2)
    yield conv("same_strides", backwards, shape=(2, 3, 2, 2), kernel=3, strides=(2, 1, 3), padding="same")
    for kind, layer in (("max", layers.MaxPooling3D), ("average", layers.AveragePooling3D)):
        yield one(f"{kind}_pooling3d", layer(2, name="pool"), VOLUME)
        yield one(f"{kind}_pooling3d_same", layer((2, 3, 3), strides=(1, 2, 2), padding="same", name="pool"), VOLUME)
        yield one(f"{kind}_pooling3d_flat", layer((1, 2, 2), name="pool"), VOLUME)
    for kind, layer in (("max", layers.GlobalMaxPooling3D), ("average", layers.GlobalAveragePooling3D)):
        yield one(f"global_{kind}_pooling3d", layer(name="pool"), VOLUME)
        yield one(f"global_{kind}_pooling3d_keepdims", layer(keepdims=True, name="pool"), VOLUME)
    yield one("up_sampling3d", layers.UpSampling3D((2, 1, 3), name="up"), (2, 2, 3, 2))
    yield one("zero_padding3d", layers.ZeroPadding3D(((1, 2), (0, 1), (2, 0)), name="pad"), (2, 2, 3, 2))
    yield one("zero_padding3d_one", layers.ZeroPadding3D(1, name="pad"), (2, 2, 3, 2))
    yield one("cropping3d", layers.Cropping3D(((1, 0), (0, 2), (1, 1)), name="crop"), VOLUME)
    yield one("spatial_dropout3d", layers.SpatialDropout3D(0.4, name="noise"), (2, 2, 3, 2), inference_only=True)


def few_operations_cases():
    yield one("unit_normalization", layers.UnitNormalization(name="norm"), (3, 4))
    yield one("unit_normalization_axes", layers.UnitNormalization(axis=[1, 2], name="norm"), (3, 4, 2))
    yield one("unit_normalization_axis_1", layers.UnitNormalization(axis=1, name="norm"), (3, 4))
    yield one("rms_normalization", layers.RMSNormalization(name="norm"), (3, 4))
    yield one("rms_normalization_epsilon", layers.RMSNormalization(epsilon=0.1, name="norm"), (3, 2, 4))
    yield merge("minimum", layers.Minimum(name="minimum"), (3, 4), (3, 4), (3, 4))
    yield merge("dot_vectors", layers.Dot(axes=1, name="dot"), (4,), (4,))
    yield merge("dot_vectors_normalize", layers.Dot(axes=-1, normalize=True, name="dot"), (4,), (4,))
    yield merge("dot_matrices", layers.Dot(axes=(1, 2), name="dot"), (3, 4), (5, 3))
    yield merge("dot_matrices_last", layers.Dot(axes=-1, name="dot"), (3, 4), (5, 4))
    yield merge("dot_matrices_first", layers.Dot(axes=(2, 1), normalize=True, name="dot"), (3, 4), (4, 5))
    yield merge("dot_matrix_and_vector", layers.Dot(axes=(2, 1), name="dot"), (3, 4), (4,))


def mask_cases():
    def masked(name, *stack, shape=(6,), entries=4, batch=3):
        words = keras.Input(shape, dtype="int32", name="words")
        x = layers.Embedding(entries, 3, mask_zero=True, name="table")(words)
        for layer in stack:
            x = layer(x)
        return Case(keras.Model(words, x, name=f"mask_{name}"), span=(0, entries), batch=batch)

    for name, layer in (("lstm", layers.LSTM), ("gru", layers.GRU), ("simple_rnn", layers.SimpleRNN)):
        yield masked(name, layer(4, name="cell"))
        yield masked(f"{name}_sequences", layer(4, return_sequences=True, name="cell"))
        yield masked(f"{name}_backwards", layer(4, go_backwards=True, name="cell"))
    yield masked("lstm_zero_output", layers.LSTM(4, return_sequences=True, zero_output_for_mask=True, name="cell"))
    yield masked("gru_reset_before", layers.GRU(4, reset_after=False, return_sequences=True, name="cell"))
    yield masked("bidirectional", layers.Bidirectional(layers.LSTM(3, return_sequences=True), name="both"),
                 layers.Bidirectional(layers.GRU(2), name="second"))
    yield masked("through_layers", layers.Dense(4, activation="tanh", name="first"), layers.LayerNormalization(name="norm"),
                 layers.TimeDistributed(layers.Dense(3), name="each"), layers.GRU(4, name="cell"))
    yield masked("lost_by_a_convolution", layers.Conv1D(3, 2, padding="same", name="conv"), layers.GRU(4, name="cell"))
    yield masked("global_average_pooling1d", layers.GlobalAveragePooling1D(name="pool"))
    yield masked("global_average_pooling1d_keepdims", layers.GlobalAveragePooling1D(keepdims=True, name="pool"))
    yield masked("global_max_pooling1d", layers.GlobalMaxPooling1D(name="pool"))
    yield one("masking", keras.Sequential([layers.Masking(0.25, name="mask"), layers.LSTM(3, name="cell")], name="inner"), (4, 2))

    words = keras.Input((6,), dtype="int32", name="words")
    values = keras.Input((5, 3), name="values")
    x = layers.Embedding(3, 4, mask_zero=True, name="table")(words)
    sums = layers.Add(name="sum")([x, layers.Dense(4, name="dense")(x)])
    joined = layers.Concatenate(name="joined")([sums, x])
    model = keras.Model(words, layers.LSTM(3, name="cell")(joined), name="mask_merged")
    yield Case(model, span=(0, 3), batch=3)
    for name, arguments in (("", {}), ("_causal", {"use_causal_mask": True})):
        attention = layers.MultiHeadAttention(2, 3, name="attention")
        y = attention(x, x, **arguments)
        y = layers.LayerNormalization(name="norm")(layers.Add(name="sum")([x, y]))
        model = keras.Model(words, layers.GlobalAveragePooling1D(name="pool")(y), name=f"mask_attention{name}")
        yield Case(model, span=(0, 3), batch=3)
        y = layers.GroupQueryAttention(3, 4, 2, name="attention")(x, x, **arguments)
        yield Case(keras.Model(words, y, name=f"mask_grouped_attention{name}"), span=(0, 3), batch=3)
    y = layers.Attention(name="attention")([x, x])
    yield Case(keras.Model(words, y, name="mask_dot_attention"), span=(0, 3), batch=3)


def time_cases():
    def each(name, layer, shape=(3, 5, 4, 2), **options):
        return one(f"time_distributed_{name}", layers.TimeDistributed(layer, name="each"), shape, **options)

    yield each("conv2d", layers.Conv2D(3, 2, activation="relu"))
    yield each("max_pooling2d", layers.MaxPooling2D(2))
    yield each("global_average_pooling2d", layers.GlobalAveragePooling2D())
    yield each("batch_normalization", layers.BatchNormalization(), batch=4)
    yield each("conv1d", layers.Conv1D(3, 2, padding="same"), (3, 4, 2))
    yield each("lstm", layers.LSTM(3), (3, 4, 2))
    yield each("reshape", layers.Reshape((4, 2)), (3, 8))
    yield each("one_step", layers.Conv2D(3, 2), (1, 5, 4, 2))


def compute_layers():
    """All cases of further.json, in order."""
    groups = (volume_cases, few_operations_cases, mask_cases, time_cases)
    return [case.compute() for group in groups for case in group()]


def activity_cases():
    """Penalties on what layers give."""
    def active():
        return sequential(
            (20,),
            layers.Dense(16, activation="relu", activity_regularizer=regularizers.L1L2(0.02, 0.03), name="hidden1"),
            layers.ActivityRegularization(l2=0.05, name="active"),
            layers.Dense(16, activation="tanh", kernel_regularizer="l2", name="hidden2"),
            layers.Dense(5, activation="softmax", activity_regularizer="l1", name="output"),
        )

    def pooled():
        return sequential(
            (6, 6, 3),
            layers.Conv2D(4, 3, activation="relu", activity_regularizer="l2", name="conv"),
            layers.MaxPooling2D(2, name="pool"),
            layers.Flatten(name="flatten"),
            layers.Dense(5, activation="softmax", name="output"),
        )

    def orthogonal():
        return sequential(
            (20,),
            layers.Dense(6, activation="relu", kernel_regularizer=regularizers.OrthogonalRegularizer(0.5), name="hidden1"),
            layers.Dense(8, activation="relu",
                         kernel_regularizer=regularizers.OrthogonalRegularizer(0.3, mode="columns"), name="hidden2"),
            layers.Dense(5, activation="softmax", name="output"),
        )

    loss = "sparse_categorical_crossentropy"
    yield CompileCase("orthogonal", orthogonal(), sgd(0.05), loss, uniform_input(16, 20), classes(16, 5))
    yield CompileCase("activity", active(), sgd(0.05), loss, uniform_input(16, 20), classes(16, 5))
    yield CompileCase("activity_before_a_pool", pooled(), sgd(0.05), loss, uniform_input(8, 6, 6, 3), classes(8, 5))


def loss_cases():
    """Losses, and how their samples are added up."""
    def case(name, loss, activation, targets, **options):
        return CompileCase(f"loss_{name}", mlp(activation), sgd(options.pop("rate", 0.05)), loss,
                           uniform_input(16, 20), targets, **options)

    yes_or_no = [counter.integers((16, 5), TARGET_SEED, 0, 2)]
    numbers = [counter.uniform((16, 5), TARGET_SEED, -3.0, 3.0)]
    weights = counter.uniform((16,), SAMPLE_SEED, 0.0, 2.0)
    focal = losses.CategoricalFocalCrossentropy
    yield case("focal", focal(), "softmax", one_hot(16, 5))
    yield case("focal_arguments", focal(alpha=0.6, gamma=1.5, from_logits=True, label_smoothing=0.1), None, one_hot(16, 5),
               sample_weights=weights)
    yield case("dice", losses.Dice(), "sigmoid", yes_or_no)
    yield case("dice_rows", losses.Dice(axis=(1,)), "sigmoid", yes_or_no, sample_weights=weights)
    yield case("tversky", losses.Tversky(alpha=0.3, beta=0.6), "sigmoid", yes_or_no)
    yield case("tversky_rows", losses.Tversky(alpha=0.3, beta=0.6, axis=(1,)), "sigmoid", yes_or_no)
    sparse = losses.SparseCategoricalCrossentropy
    for reduction in ("sum", "mean_with_sample_weight"):
        yield case(f"{reduction}", losses.MeanSquaredError(reduction=reduction), None, numbers, rate=0.005)
        yield case(f"{reduction}_weights", losses.MeanSquaredError(reduction=reduction), None, numbers, rate=0.005,
                   sample_weights=weights)
        yield case(f"{reduction}_sparse", sparse(reduction=reduction), "softmax", classes(16, 5), rate=0.005,
                   sample_weights=weights)
    yield case("ignore_class", sparse(ignore_class=2), "softmax", classes(16, 5))
    yield case("ignore_class_weights", sparse(ignore_class=2, from_logits=True), None, classes(16, 5),
               sample_weights=weights)
    yield case("ignore_class_beyond", sparse(ignore_class=5, from_logits=True, reduction="sum"), None,
               [counter.integers((16,), TARGET_SEED, 0, 6)], rate=0.005)
    yield case("ignore_class_probabilities", sparse(ignore_class=5, reduction="mean_with_sample_weight"), "softmax",
               [counter.integers((16,), TARGET_SEED, 0, 6)])

    def masked_words(last):
        words = keras.Input((6,), dtype="int32", name="words")
        x = layers.Embedding(4, 3, mask_zero=True, name="table")(words)
        x = layers.LSTM(4, return_sequences=True, name="cell")(x)
        return keras.Model(words, layers.Dense(5, activation=last, name="output")(x), name="tagger")

    ids = [counter.integers((8, 6), INPUT_SEED, 0, 4)]
    tags = [counter.integers((8, 6), TARGET_SEED, 0, 5)]
    yield CompileCase("masked_loss", masked_words("softmax"), sgd(0.1), sparse(), ids, tags)
    yield CompileCase("masked_loss_sum", masked_words(None), sgd(0.005), losses.MeanSquaredError(reduction="sum"), ids,
                      [counter.uniform((8, 6, 5), TARGET_SEED, -1.0, 1.0)])
    yield CompileCase("masked_loss_ignore_class", masked_words(None), sgd(0.1),
                      sparse(from_logits=True, ignore_class=1), ids, tags)


def compute_training():
    """All cases of further_training.json, in order."""
    groups = (activity_cases, loss_cases)
    return [case.compute() for group in groups for case in group()]


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    folder = pathlib.Path(__file__).resolve().parent
    write(folder / "further.json", compute_layers())
    write(folder / "further_training.json", compute_training())
