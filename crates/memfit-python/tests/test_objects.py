"""Losses, metrics and optimizers are what the live objects are, and not what their configuration says."""

import keras
import numpy as np
import pytest
from keras import layers

import memfit
import models
from test_fit import weights_agree


def both(make, x, y, **fit):
    """A model trained here, its twin trained by Keras, and both histories."""
    mine, theirs = make(), make()
    theirs.set_weights(mine.get_weights())
    arguments = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0, **fit}
    return mine, theirs, memfit.fit(mine, x, y, **arguments).history, theirs.fit(x, y, **arguments).history


def regression(loss="mse", metrics=(), optimizer=None, steps=False):
    shape = (4, 6) if steps else (6,)
    model = keras.Sequential([keras.Input(shape), layers.Dense(5, activation="tanh"), layers.Dense(3)])
    model.compile(optimizer or keras.optimizers.SGD(0.1), loss, metrics=list(metrics))
    return model


LEFT_OUT = {
    "huber_delta": dict(loss=lambda: keras.losses.Huber(delta=0.1)),
    "cosine_last_axis": dict(loss=lambda: keras.losses.CosineSimilarity(axis=1)),
    "cosine_metric_last_axis": dict(loss=lambda: "mse", metrics=lambda: [keras.metrics.CosineSimilarity(axis=1)]),
    "huber_metric": dict(loss=lambda: "mse", metrics=lambda: [keras.metrics.MeanMetricWrapper(keras.losses.huber, name="huber", delta=0.2)]),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_arguments_that_get_config_leaves_out_count(case):
    given = LEFT_OUT[case]
    make = lambda: regression(given["loss"](), given.get("metrics", list)())
    mine, theirs, history, expected = both(make, models.random(16, 6), models.random(16, 3))
    for name in expected:
        np.testing.assert_allclose(history[name], expected[name], rtol=1e-4, err_msg=name)
    weights_agree(mine, theirs)


def test_another_axis_is_refused_by_name():
    model = regression(keras.losses.CosineSimilarity(axis=1), steps=True)
    with pytest.raises(memfit.Error, match="axis"):
        memfit.fit(model, models.random(16, 4, 6), models.random(16, 4, 3), verbose=0)


EXCLUDED = {
    "by_name": lambda optimizer, model: optimizer.exclude_from_weight_decay(var_names=["bias"]),
    "by_variable": lambda optimizer, model: optimizer.exclude_from_weight_decay(var_list=[model.weights[0]]),
    "not_at_all": lambda optimizer, model: None,
}


@pytest.mark.parametrize("case", EXCLUDED)
def test_weights_that_do_not_decay_are_those_of_the_optimizer(case):
    def make():
        optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.5)
        model = regression(optimizer=optimizer)
        model.layers[0].bias.assign(np.ones(5))
        EXCLUDED[case](optimizer, model)
        return model

    weights_agree(*both(make, models.random(16, 6), models.random(16, 3))[:2])


def classes(metric, weighted=False):
    model = keras.Sequential([keras.Input((6,)), layers.Dense(4, activation="softmax")])
    lists = {"weighted_metrics" if weighted else "metrics": [metric]}
    model.compile("sgd", "sparse_categorical_crossentropy", **lists)
    return model


@pytest.mark.parametrize("ignored", [0, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_an_ignored_class_counts_in_a_metric_as_in_keras(ignored, weighted):
    make = lambda: classes(keras.metrics.SparseCategoricalCrossentropy(ignore_class=ignored), weighted)
    x, y = models.random(16, 6), models.labels(16, 4)
    weights = {"sample_weight": models.random(16)} if weighted else {}
    _, _, history, expected = both(make, x, y, **weights)
    for name in expected:
        np.testing.assert_allclose(history[name], expected[name], rtol=1e-4, err_msg=name)


@pytest.mark.parametrize("width", ["bfloat16", "float16"])
def test_a_loss_of_another_width_is_refused_by_name(width):
    model = regression(keras.losses.MeanSquaredError(dtype=width, name="narrow"))
    with pytest.raises(memfit.Error, match=f"`narrow` asks for dtype=\"{width}\""):
        memfit.fit(model, models.random(16, 6), models.random(16, 3), verbose=0)


class Doubled(keras.losses.MeanSquaredError):
    """Its module is set to Keras's, so that only its numbers differ from Keras's class."""

    def call(self, y_true, y_pred):
        return 2 * super().call(y_true, y_pred)


class Shifted(keras.metrics.MeanAbsoluteError):
    def result(self):
        return 1 + super().result()


Doubled.__module__ = Shifted.__module__ = "keras.src.losses.losses"
Doubled.__name__, Shifted.__name__ = "MeanSquaredError", "MeanAbsoluteError"

OTHER_NUMBERS = {
    "the loss": lambda: regression(Doubled()),
    "the metric `mean_absolute_error`": lambda: regression(metrics=[Shifted()]),
}


@pytest.mark.parametrize("what", OTHER_NUMBERS)
@pytest.mark.parametrize("call", [memfit.fit, memfit.evaluate])
def test_an_object_that_says_another_number_is_an_error_that_names_it(what, call):
    model = OTHER_NUMBERS[what]()
    model._compile_config.config["loss"] = "mse"
    before = model.get_weights()
    with pytest.raises(memfit.Error, match=what):
        call(model, models.random(16, 6), models.random(16, 3), verbose=0)
    for value, old in zip(model.get_weights(), before):
        np.testing.assert_array_equal(value, old)
