"""memfit.fit beside model.fit: the same losses, the same weights, the same optimizer."""

import keras
import numpy as np
import pytest

import memfit
import models

STEPS = {"batch_size": 8, "epochs": 1, "shuffle": False, "verbose": 0}


def weights_agree(one, other, tolerance=1e-3):
    for mine, theirs in zip(one.weights, other.weights):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(mine), keras.ops.convert_to_numpy(theirs), atol=tolerance, err_msg=mine.path
        )


@pytest.mark.parametrize("make", models.ALL, ids=lambda make: make.__name__)
def test_three_steps_are_those_of_keras(make):
    model, x, y = make()
    theirs = models.twin(model)
    mine = memfit.fit(model, x, y, budget="200MiB", **STEPS).history
    expected = theirs.fit(x, y, **STEPS).history
    assert mine.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(mine[name], expected[name], atol=1e-4, err_msg=name)
    weights_agree(model, theirs)
    assert int(model.optimizer.iterations) == 3


@pytest.mark.parametrize("make", models.ALL, ids=lambda make: make.__name__)
def test_training_goes_on_in_keras_and_here(make):
    model, x, y = make()
    theirs = models.twin(model)
    memfit.fit(model, x, y, **STEPS)
    model.fit(x, y, **STEPS)
    memfit.fit(model, x, y, **STEPS)
    for _ in range(3):
        theirs.fit(x, y, **STEPS)
    weights_agree(model, theirs)
    assert int(model.optimizer.iterations) == 9


@pytest.mark.parametrize("make", models.ALL, ids=lambda make: make.__name__)
def test_evaluate_and_predict_are_those_of_keras(make):
    model, x, y = make()
    mine = memfit.evaluate(model, x, y, batch_size=10)
    np.testing.assert_allclose(mine, model.evaluate(x, y, batch_size=10, verbose=0), atol=1e-4)
    mine = memfit.predict(model, x, batch_size=10, budget="200MiB")
    np.testing.assert_allclose(mine, model.predict(x, batch_size=10, verbose=0), atol=1e-5)


def test_a_lower_budget_gives_the_same_training_in_micro_batches():
    model, _, _ = models.dense()
    x, y = models.random(4096, 6), models.labels(4096, 3)
    theirs = models.twin(model)
    smallest = memfit.plan(model, batch_size=4096, costs="analytic").bytes_smallest_budget
    history = memfit.fit(model, x, y, batch_size=4096, verbose=0, shuffle=False, budget=smallest + (4 << 20), costs="analytic")
    memory = history.memfit
    assert memory.bytes_added <= memory.budget, str(memory)
    theirs.fit(x, y, batch_size=4096, verbose=0, shuffle=False)
    weights_agree(model, theirs)


def test_weights_of_rows_and_classes_count_as_in_keras():
    model, x, y = models.dense()
    theirs = models.twin(model)
    weights, classes = models.random(24), {0: 0.5, 1: 2.0, 2: 1.0}
    for one in [{"sample_weight": weights}, {"class_weight": classes}]:
        mine = memfit.fit(model, x, y, **one, **STEPS).history["loss"]
        expected = theirs.fit(x, y, **one, **STEPS).history["loss"]
        np.testing.assert_allclose(mine, expected, atol=1e-4)
        weights_agree(model, theirs)


def test_a_schedule_decays_as_in_keras():
    model, x, y = models.dense()
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    model.compile(keras.optimizers.SGD(schedule), "sparse_categorical_crossentropy")
    theirs = models.twin(model)
    memfit.fit(model, x, y, **STEPS)
    memfit.fit(model, x, y, **STEPS)
    theirs.fit(x, y, **{**STEPS, "epochs": 2})
    weights_agree(model, theirs)


@pytest.mark.parametrize("policy, tolerance", [("mixed_float16", 5e-3), ("mixed_bfloat16", 2e-2)])
def test_half_types_train_as_in_keras(policy, tolerance):
    keras.mixed_precision.set_global_policy(policy)
    try:
        model, x, y = models.dense()
        theirs = models.twin(model)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    mine = memfit.fit(model, x, y, **STEPS).history["loss"]
    np.testing.assert_allclose(mine, theirs.fit(x, y, **STEPS).history["loss"], atol=tolerance)
    weights_agree(model, theirs, 5e-3)
    assert int(model.optimizer.iterations) == 3


def test_losses_and_metrics_as_functions_and_objects():
    model, x, y = models.two_inputs()
    model.compile("sgd", keras.losses.mean_squared_error, metrics=[keras.metrics.MeanAbsoluteError(name="off_by")])
    theirs = models.twin(model)
    mine, expected = memfit.fit(model, x, y, **STEPS).history, theirs.fit(x, y, **STEPS).history
    assert mine.keys() == expected.keys()
    np.testing.assert_allclose(mine["off_by"], expected["off_by"], atol=1e-4)


def test_frozen_layers_stay():
    model, x, y = models.convolution()
    model.layers[0].trainable = False
    model.compile("adam", "sparse_categorical_crossentropy")
    theirs = models.twin(model)
    theirs.layers[0].trainable = False
    theirs.compile("adam", "sparse_categorical_crossentropy")
    before = model.layers[0].get_weights()[0]
    memfit.fit(model, x, y, **STEPS)
    theirs.fit(x, y, **STEPS)
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], before)
    weights_agree(model, theirs)


def test_shuffling_sees_every_row_once_and_a_seed_repeats_it():
    found = []
    for _ in range(2):
        keras.utils.set_random_seed(3)
        model, x, y = models.dense()
        found.append(memfit.fit(model, x, y, batch_size=7, epochs=2, verbose=0).history["loss"])
    assert found[0] == found[1]


def test_a_trained_model_is_saved_with_its_optimizer(tmp_path):
    model, x, y = models.dense()
    memfit.fit(model, x, y, **STEPS)
    memfit.save(model, tmp_path / "trained.keras")
    again = memfit.load(tmp_path / "trained.keras")
    assert int(again.optimizer.iterations) == 3
    weights_agree(model, again, 0)
    memfit.fit(again, x, y, **STEPS)
    model.fit(x, y, **STEPS)
    weights_agree(model, again)


def test_weights_go_through_safetensors(tmp_path):
    model, _, _ = models.attention()
    memfit.save(model, tmp_path / "weights.safetensors")
    keras.backend.clear_session()
    other, _, _ = models.attention()
    other.set_weights([0 * value for value in other.get_weights()])
    memfit.load(tmp_path / "weights.safetensors", other)
    weights_agree(model, other, 0)


def test_a_loss_that_is_not_finite_stops_and_keeps_the_weights():
    model, x, y = models.dense()
    before = model.get_weights()
    x = x.copy()
    x[9, 0] = np.nan
    with pytest.raises(memfit.Error, match="finite|NaN|nan"):
        memfit.fit(model, x, y, **STEPS)
    assert all(np.isfinite(value).all() for value in model.get_weights())
    assert any((value != old).any() for value, old in zip(model.get_weights(), before)), "the first step was kept"
