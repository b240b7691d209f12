"""Every optimizer's state goes back and forth: training goes on in Keras where memfit stopped, and here where Keras did."""

import keras
import numpy as np
import pytest
from keras import layers, optimizers

import memfit
import models
from test_fit import STEPS

OPTIMIZERS = {
    "sgd": lambda: optimizers.SGD(0.05),
    "momentum": lambda: optimizers.SGD(0.05, momentum=0.9),
    "nesterov": lambda: optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "rmsprop": lambda: optimizers.RMSprop(0.01),
    "centered": lambda: optimizers.RMSprop(0.01, momentum=0.5, centered=True),
    "adam": lambda: optimizers.Adam(0.01),
    "amsgrad": lambda: optimizers.Adam(0.01, amsgrad=True),
    "adamw": lambda: optimizers.AdamW(0.01, weight_decay=0.01),
    "adagrad": lambda: optimizers.Adagrad(0.05),
    "adadelta": lambda: optimizers.Adadelta(0.5),
    "adamax": lambda: optimizers.Adamax(0.01),
    "nadam": lambda: optimizers.Nadam(0.01),
    "ftrl": lambda: optimizers.Ftrl(0.05, l1_regularization_strength=0.001),
    "lion": lambda: optimizers.Lion(0.003),
    "adafactor": lambda: optimizers.Adafactor(0.01),
    "lamb": lambda: optimizers.Lamb(0.01),
    "averaged": lambda: optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9),
    "accumulated": lambda: optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "accumulated to the end": lambda: optimizers.Adam(0.01, gradient_accumulation_steps=3),
    "schedule": lambda: optimizers.Adam(optimizers.schedules.ExponentialDecay(0.02, 3, 0.5)),
    "clipped": lambda: optimizers.SGD(0.05, global_clipnorm=0.1),
}


def model_of(name):
    model = keras.Sequential([
        keras.Input((6,)),
        layers.Dense(16, activation="tanh"),
        layers.Dense(3, activation="softmax"),
    ])
    model.compile(OPTIMIZERS[name](), "categorical_crossentropy")
    x = models.random(24, 6)
    return model, x, np.eye(3, dtype="float32")[models.labels(24, 3)]


def same(mine, theirs):
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs):
        one, other = keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(other)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_keras_goes_on_with_the_file_of_a_model_trained_here(name, tmp_path):
    model, x, y = model_of(name)
    theirs = models.twin(model)
    memfit.fit(model, x, y, **STEPS)
    theirs.fit(x, y, **STEPS)
    same(model.weights, theirs.weights)
    # The matrix between Adafactor's rows and columns is computed again in each step, whatever it was.
    if name != "adafactor":
        same(model.optimizer.variables, theirs.optimizer.variables)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.fit(x, y, **STEPS)
    theirs.fit(x, y, **STEPS)
    same(loaded.weights, theirs.weights)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_memfit_goes_on_with_the_file_of_a_model_trained_in_keras(name, tmp_path):
    theirs, x, y = model_of(name)
    theirs.fit(x, y, **STEPS)
    theirs.save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    memfit.fit(model, x, y, **STEPS)
    theirs.fit(x, y, **STEPS)
    same(model.weights, theirs.weights)
    assert int(model.optimizer.iterations) == int(theirs.optimizer.iterations)
