"""Small models, each with rows to train it on."""

import keras
import numpy as np
from keras import layers


def dense():
    model = keras.Sequential([
        keras.Input((6,)),
        layers.Dense(16, activation="relu"),
        layers.Dense(3, activation="softmax"),
    ])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, random(24, 6), labels(24, 3)


def convolution():
    model = keras.Sequential([
        keras.Input((12, 12, 3)),
        layers.Conv2D(8, 3, padding="same", use_bias=False),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(4, activation="softmax"),
    ])
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, random(24, 12, 12, 3), labels(24, 4)


def two_inputs():
    left, right = keras.Input((5,), name="left"), keras.Input((7,), name="right")
    joined = layers.Concatenate()([layers.Dense(8, activation="tanh")(left), layers.Dense(8)(right)])
    model = keras.Model([left, right], layers.Dense(1)(joined))
    model.compile(keras.optimizers.RMSprop(0.01), "mse", metrics=["mae"])
    return model, [random(24, 5), random(24, 7)], random(24, 1)


def attention():
    words = keras.Input((9,), dtype="int32")
    x = layers.Embedding(20, 16)(words)
    x = layers.Add()([x, layers.MultiHeadAttention(2, 8)(x, x)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    model = keras.Model(words, layers.Dense(2, activation="softmax")(x))
    # TensorFlow squares an embedding's gradients before it adds up those of one word, so that Adam differs there.
    model.compile(keras.optimizers.SGD(0.1), "categorical_crossentropy", metrics=["accuracy"])
    x = np.random.default_rng(1).integers(0, 20, (24, 9))
    return model, x, np.eye(2, dtype="float32")[labels(24, 2)]


ALL = [dense, convolution, two_inputs, attention]


def random(*shape):
    return np.random.default_rng(sum(shape)).random(shape, dtype=np.float32)


def labels(rows, classes):
    return np.random.default_rng(rows).integers(0, classes, rows)


def twin(model):
    """The same model with the same weights, compiled alike."""
    other = keras.models.clone_model(model)
    other.set_weights(model.get_weights())
    other.compile_from_config(model.get_compile_config())
    return other
