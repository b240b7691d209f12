"""Metrics, weights and validation beside Keras: the same names, the same values."""

import keras
import numpy as np
import pytest
from keras import layers, metrics

import memfit
import models

STEPS = {"batch_size": 10, "epochs": 2, "shuffle": False, "verbose": 0}


def classifier(loss="categorical_crossentropy", units=4, activation="softmax", **compiled):
    model = keras.Sequential([keras.Input((6,)), layers.Dense(16, activation="relu"), layers.Dense(units, activation=activation)])
    model.compile(keras.optimizers.SGD(0.1), loss, **compiled)
    return model


def binary(rows, *dims):
    return np.random.default_rng(rows).integers(0, 2, (rows, *dims)).astype("float32")


def one_hot(rows, classes):
    return np.eye(classes, dtype="float32")[models.labels(rows, classes)]


def agree(mine, theirs, tolerance=2e-4):
    assert set(mine) == set(theirs)
    for name in theirs:
        np.testing.assert_allclose(mine[name], theirs[name], rtol=tolerance, atol=tolerance, err_msg=name)


def beside_keras(model, x, y, **arguments):
    """Trains both and evaluates both."""
    theirs = models.twin(model)
    mine = memfit.fit(model, x, y, **STEPS, **arguments).history
    agree(mine, theirs.fit(x, y, **STEPS, **arguments).history)
    weight = arguments.get("sample_weight")
    agree(
        memfit.evaluate(model, x, y, batch_size=10, sample_weight=weight, return_dict=True),
        theirs.evaluate(x, y, batch_size=10, sample_weight=weight, return_dict=True, verbose=0),
    )
    mine_listed = memfit.evaluate(model, x, y, batch_size=10, sample_weight=weight)
    listed = theirs.evaluate(x, y, batch_size=10, sample_weight=weight, verbose=0)
    # Keras reports a value twice where two metrics have one name.
    if len(mine_listed) == len(listed):
        np.testing.assert_allclose(mine_listed, listed, rtol=2e-4, atol=2e-4)
    return mine


def of_classes():
    return [
        "accuracy", "top_k_categorical_accuracy", metrics.TopKCategoricalAccuracy(k=2, name="top_2"), "AUC", metrics.AUC(),
        metrics.AUC(curve="PR", name="pr"), metrics.AUC(multi_label=True, num_labels=4, name="labels"), metrics.Precision(), metrics.Recall(), metrics.Precision(top_k=1, class_id=2),
        metrics.F1Score(average="macro"), metrics.FBetaScore(average="weighted", beta=0.5, threshold=0.3),
        metrics.OneHotMeanIoU(num_classes=4), "mse", "mae", keras.losses.kl_divergence, metrics.CategoricalCrossentropy(),
        metrics.CosineSimilarity(), metrics.RootMeanSquaredError(), metrics.CategoricalHinge(),
    ]


def of_sides():
    return [
        "accuracy", metrics.BinaryAccuracy(threshold=0.6), metrics.TruePositives(), metrics.FalsePositives(thresholds=0.4),
        metrics.TrueNegatives(), metrics.FalseNegatives(), metrics.AUC(num_thresholds=20), metrics.BinaryIoU(),
        metrics.SensitivityAtSpecificity(0.5), metrics.PrecisionAtRecall(0.4), metrics.BinaryCrossentropy(), "hinge",
    ]


def test_metrics_of_classes():
    beside_keras(classifier(metrics=of_classes()), models.random(33, 6), one_hot(33, 4))


def test_metrics_of_class_numbers():
    given = ["accuracy", "sparse_top_k_categorical_accuracy", metrics.SparseTopKCategoricalAccuracy(k=2),
             metrics.SparseCategoricalCrossentropy(), metrics.MeanIoU(num_classes=4, sparse_y_pred=False)]
    beside_keras(classifier("sparse_categorical_crossentropy", metrics=given), models.random(33, 6), models.labels(33, 4))


def test_metrics_of_two_sides():
    model = classifier("binary_crossentropy", 1, "sigmoid", metrics=of_sides())
    beside_keras(model, models.random(33, 6), binary(33, 1))


def test_weighted_metrics_count_by_weights_and_others_do_not():
    model = classifier(metrics=of_classes()[:6], weighted_metrics=["accuracy", metrics.AUC(name="area"), "mse", "mae"])
    x, y = models.random(33, 6), one_hot(33, 4)
    mine = beside_keras(model, x, y, sample_weight=models.random(33))
    assert "weighted_accuracy" in mine and mine["weighted_accuracy"] != mine["accuracy"]
    model = classifier(metrics=["accuracy"], weighted_metrics=["accuracy"])
    theirs = models.twin(model)
    weights = {0: 0.2, 1: 3.0, 3: 1.5}
    agree(memfit.fit(model, x, y, class_weight=weights, **STEPS).history, theirs.fit(x, y, class_weight=weights, **STEPS).history)


def test_metrics_are_the_same_in_micro_batches_and_in_half_types():
    x, y = models.random(2048, 6), one_hot(2048, 4)
    model = classifier(metrics=of_classes())
    low = memfit.plan(model, batch_size=2048, costs="analytic").bytes_smallest_budget + (4 << 20)
    evaluated = [
        memfit.evaluate(model, x, y, batch_size=2048, budget=budget, costs="analytic", return_dict=True)
        for budget in ("200MiB", low)
    ]
    agree(*evaluated, tolerance=1e-6)
    theirs = model.evaluate(x, y, batch_size=2048, return_dict=True, verbose=0)
    agree(evaluated[1], theirs)
    half = memfit.evaluate(model, x, y, batch_size=2048, precision="mixed_bfloat16", return_dict=True)
    for name in ("accuracy", "precision", "mse"):
        np.testing.assert_allclose(half[name], theirs[name], atol=0.02)


def two_outputs(**compiled):
    """Trained here in batches of one size: on TensorFlow, Keras's mean of an output's loss counts a short batch like a whole one."""
    x = keras.Input((6,))
    hidden = layers.Dense(12, activation="tanh")(x)
    left, right = layers.Dense(3, activation="softmax", name="left")(hidden), layers.Dense(1, name="right")(hidden)
    model = keras.Model(x, [left, right])
    model.compile(keras.optimizers.SGD(0.05), ["categorical_crossentropy", "mse"], **compiled)
    return model


OUTPUTS = {
    "none": {},
    "lists": {"metrics": [["accuracy", "mae"], ["mae"]], "loss_weights": [0.5, 2.0]},
    "names": {"metrics": {"right": ["mae", metrics.RootMeanSquaredError()]}},
    "plain": {"metrics": ["accuracy", "mae"]},
    "weighted": {"metrics": [["accuracy"], None], "weighted_metrics": [["accuracy", metrics.AUC()], ["mae"]]},
}


@pytest.mark.parametrize("compiled", OUTPUTS.values(), ids=OUTPUTS)
def test_several_outputs_have_keras_s_names(compiled):
    x, y = models.random(30, 6), [one_hot(30, 3), models.random(30, 1)]
    mine = beside_keras(two_outputs(**compiled), x, y)
    assert {"left_loss", "right_loss"} <= set(mine)


def test_several_outputs_have_weights_of_their_own():
    x, y = models.random(30, 6), [one_hot(30, 3), models.random(30, 1)]
    model = two_outputs(**OUTPUTS["weighted"])
    one, other = models.random(30), np.linspace(0, 1, 30).astype("float32")
    beside_keras(model, x, y, sample_weight=[one, other])
    # Keras itself repeats one array in its metrics alone; here it counts for all.
    shared = memfit.evaluate(model, x, y, sample_weight=one, return_dict=True)
    agree(shared, memfit.evaluate(model, x, y, sample_weight=[one, one], return_dict=True))
    partly = memfit.evaluate(model, x, y, sample_weight={"left": one}, return_dict=True)
    agree(partly, memfit.evaluate(model, x, y, sample_weight=[one, np.ones(30)], return_dict=True))
    with pytest.raises(memfit.Error, match="middle"):
        memfit.evaluate(model, x, y, sample_weight={"middle": one})


def test_validation_has_the_same_metrics():
    x, y = models.random(40, 6), one_hot(40, 4)
    model = classifier(metrics=of_classes()[:8], weighted_metrics=["mse"])
    theirs = models.twin(model)
    held = (x[:9], y[:9], models.random(9))
    agree(memfit.fit(model, x, y, validation_data=held, **STEPS).history, theirs.fit(x, y, validation_data=held, **STEPS).history)
    model = two_outputs(**OUTPUTS["lists"])
    theirs = models.twin(model)
    x, y = models.random(40, 6), [one_hot(40, 3), models.random(40, 1)]
    agree(memfit.fit(model, x, y, validation_split=0.25, **STEPS).history, theirs.fit(x, y, validation_split=0.25, **STEPS).history)


def test_what_is_no_metric_here_is_refused_by_name():
    x, y = models.random(8, 6), one_hot(8, 4)
    for one, said in [(metrics.R2Score(), "R2Score"), (metrics.AUC(curve="PRGAIN"), "prgain")]:
        with pytest.raises(memfit.Error, match=said):
            memfit.fit(classifier(metrics=[one]), x, y, verbose=0)


def test_the_loss_scale_goes_on_after_a_validation():
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = classifier()
    finally:
        keras.mixed_precision.set_global_policy("float32")
    x, y = models.random(20, 6), one_hot(20, 4)
    # Gradients of so large a loss overflow the first scales.
    model.compile(keras.optimizers.SGD(1e-6), "categorical_crossentropy", loss_weights=[200.0])
    steps = {"batch_size": 20, "epochs": 6, "verbose": 0, "shuffle": False}
    plain = models.twin(model)
    memfit.fit(plain, x, y, **steps)
    memfit.fit(model, x, y, validation_data=(x, y), **steps)
    assert 0 < int(model.optimizer.iterations) == int(plain.optimizer.iterations) < 6


@pytest.mark.parametrize("optimizer", [keras.optimizers.Nadam(0.01), keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)],
                         ids=lambda one: one.name)
def test_what_an_optimizer_computes_by_itself_goes_on_in_keras(optimizer):
    model, x, y = models.dense()
    model.compile(optimizer, "sparse_categorical_crossentropy")
    theirs = models.twin(model)
    memfit.fit(model, x, y, **STEPS)
    model.fit(x, y, **STEPS)
    theirs.fit(x, y, **{**STEPS, "epochs": 4})
    for mine, other in zip(model.get_weights(), theirs.get_weights()):
        np.testing.assert_allclose(mine, other, atol=1e-4)
