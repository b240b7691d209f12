"""Gradients that differ from TensorFlow's by intent, and the switch that reproduces those."""

import keras
import numpy as np
import pytest
from keras import layers

import memfit
import models

WORDS = np.random.default_rng(3).integers(0, 5, (16, 7))
SOFT = models.random(16, 4) + 0.2


def words(optimizer):
    model = keras.Sequential([keras.Input((7,), dtype="int32"), layers.Embedding(9, 6), layers.Flatten(), layers.Dense(1)])
    model.compile(optimizer, "mse")
    return model, WORDS, models.random(16, 1)


def shares(loss):
    model = keras.Sequential([keras.Input((6,)), layers.Dense(4, activation=None if loss.from_logits else "softmax")])
    model.compile(keras.optimizers.SGD(0.5), loss)
    return model, models.random(16, 6), SOFT


CASES = {
    "adam": lambda: words(keras.optimizers.Adam(0.05)),
    "adam_amsgrad": lambda: words(keras.optimizers.Adam(0.05, amsgrad=True)),
    "rmsprop": lambda: words(keras.optimizers.RMSprop(0.05)),
    "adagrad": lambda: words(keras.optimizers.Adagrad(0.05)),
    "nadam": lambda: words(keras.optimizers.Nadam(0.05)),
    "softmax": lambda: shares(keras.losses.CategoricalCrossentropy()),
    "logits": lambda: shares(keras.losses.CategoricalCrossentropy(from_logits=True)),
    "sum": lambda: shares(keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum")),
}


def gap(a, b):
    return max(float(abs(x - y).max()) for x, y in zip(a.get_weights(), b.get_weights()))


def trained(case, **arguments):
    keras.utils.set_random_seed(7)
    model, x, y = CASES[case]()
    # One micro-batch or several: squares add up over all of them.
    memfit.fit(model, x, y, batch_size=8, epochs=3, shuffle=False, verbose=0, **arguments)
    return model


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's gradients")
@pytest.mark.parametrize("case", CASES)
def test_the_switch_reproduces_keras_on_tensorflow(case):
    keras.utils.set_random_seed(7)
    theirs, x, y = CASES[case]()
    theirs.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
    assert gap(trained(case, like="tensorflow"), theirs) < 2e-4
    assert gap(trained(case), theirs) > 1e-3, "the case shows no difference"


def test_a_word_that_comes_once_is_the_same_either_way():
    keras.utils.set_random_seed(7)
    once = np.arange(8).reshape(8, 1)
    found = []
    for like in (None, "tensorflow"):
        keras.utils.set_random_seed(7)
        model = keras.Sequential([keras.Input((1,), dtype="int32"), layers.Embedding(9, 6), layers.Flatten(), layers.Dense(1)])
        model.compile("adam", "mse")
        memfit.fit(model, once, models.random(8, 1), batch_size=8, epochs=2, shuffle=False, verbose=0, like=like)
        found.append(model)
    assert gap(*found) < 1e-5


REFUSED = {
    "Adamax": lambda: words(keras.optimizers.Adamax()),
    "clipped gradients": lambda: words(keras.optimizers.Adam(clipnorm=1.0)),
    "is not known": lambda: words("adam"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_reproduced_is_refused(what):
    model, x, y = REFUSED[what]()
    like = "torch" if what == "is not known" else "tensorflow"
    with pytest.raises(memfit.Error, match=what):
        memfit.fit(model, x, y, batch_size=8, verbose=0, like=like)
