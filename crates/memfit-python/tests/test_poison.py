"""Poisoned trainings: whatever the data and the rate, nothing that is not finite reaches the model or its optimizer."""

import itertools

import keras
import numpy as np
import pytest
from keras import layers

import memfit
import models


def dense(x):
    return layers.Dense(4, activation="relu")(layers.Flatten()(x))


def normed(x):
    return layers.BatchNormalization()(layers.Dense(4)(layers.Flatten()(x)))


NETWORKS = {
    "dense": dense,
    "batchnorm": normed,
    "lstm": lambda x: layers.LSTM(4)(x),
    "tanh": lambda x: layers.Dense(4, activation="tanh")(layers.Flatten()(x)),
}

VALUES = {"nan": np.nan, "inf": np.inf, "huge": 1e38, "none": 0.5}

OPTIMIZERS = {
    "sgd": lambda rate: keras.optimizers.SGD(rate, momentum=0.9),
    "adam": lambda rate: keras.optimizers.Adam(rate, use_ema=True),
    "adafactor": lambda rate: keras.optimizers.Adafactor(rate),
}

RATES = [1e-3, 1e10]


def cases():
    every = itertools.product(NETWORKS, VALUES, OPTIMIZERS, RATES)
    return [case for case in every if not (case[1] == "none" and case[3] < 1)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("network", NETWORKS)
def test_nothing_that_is_not_finite_is_left(network):
    for name, value, optimizer, rate in (case for case in cases() if case[0] == network):
        keras.utils.set_random_seed(7)
        rows = keras.Input((3, 2))
        model = keras.Model(rows, layers.Dense(1)(NETWORKS[name](rows)))
        model.compile(OPTIMIZERS[optimizer](rate), "mse")
        x = models.random(12, 3, 2)
        if value != "none":
            x[9, 1, 1] = VALUES[value]
        case = f"{name} {value} {optimizer} {rate}"
        try:
            memfit.fit(model, x, models.random(12, 1), batch_size=4, epochs=2, shuffle=False, verbose=0, costs="analytic")
        except memfit.NotFinite:
            pass
        for variable in [*model.weights, *model.optimizer.variables]:
            assert np.isfinite(np.asarray(variable, dtype=np.float64)).all(), f"{case}: {variable.path}"


@pytest.mark.parametrize("network", NETWORKS)
def test_a_guarded_step_changes_nothing_at_all(network):
    keras.utils.set_random_seed(7)
    rows = keras.Input((3, 2))
    model = keras.Model(rows, layers.Dense(2)(NETWORKS[network](rows)))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    before = model.get_weights()
    x, y = np.full((8, 3, 2), 0.5, np.float32), np.zeros((8, 2), np.float32)
    x[5] = np.inf
    with pytest.raises(memfit.NotFinite):
        memfit.fit(model, x, y, batch_size=8, budget="64MiB", guard="step", seed=1, verbose=0)
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
