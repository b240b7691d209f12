"""Validation between epochs: planned with the training, within its budget, over rows in all forms, with callbacks as Keras calls them."""

import keras
import numpy as np
import pytest
from keras import layers

import memfit
import models
from test_fit import weights_agree

X, Y = models.random(24, 6), models.labels(24, 3)
HELD_X, HELD_Y = models.random(22, 6), models.labels(22, 3)


class Slices(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return HELD_X[8 * index:8 * index + 8], HELD_Y[8 * index:8 * index + 8]


def endless():
    while True:
        for start in (0, 8):
            yield HELD_X[start:start + 8], HELD_Y[start:start + 8]


def stream():
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((HELD_X, HELD_Y)).batch(8)


FORMS = {
    "arrays": lambda: {"validation_data": (HELD_X, HELD_Y)},
    "weighted": lambda: {"validation_data": (HELD_X, HELD_Y, models.random(22))},
    "another_batch": lambda: {"validation_data": (HELD_X, HELD_Y), "validation_batch_size": 5},
    "larger_batch": lambda: {"validation_data": (HELD_X, HELD_Y), "validation_batch_size": 22},
    "some_steps": lambda: {"validation_data": (HELD_X, HELD_Y), "validation_steps": 2},
    "some_epochs": lambda: {"validation_data": (HELD_X, HELD_Y), "validation_freq": 2},
    "listed_epochs": lambda: {"validation_data": (HELD_X, HELD_Y), "validation_freq": [1, 3]},
    "dataset": lambda: {"validation_data": Slices()},
    "generator": lambda: {"validation_data": endless(), "validation_steps": 2},
    "stream": lambda: {"validation_data": stream()},
    "class_weight": lambda: {"validation_data": (HELD_X, HELD_Y), "class_weight": {0: 2.0, 1: 0.5}},
    "split": lambda: {"validation_split": 0.3},
}

STEPS = {"batch_size": 8, "epochs": 3, "shuffle": False, "verbose": 0}

HOOKS = ["on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_train_batch_end", "on_test_begin", "on_test_batch_begin",
         "on_test_batch_end", "on_test_end", "on_epoch_end", "on_train_end"]


class Note(keras.callbacks.Callback):
    """Every call, with the batch where there is one."""

    def __init__(self):
        super().__init__()
        self.calls = []
        for name in HOOKS:
            setattr(self, name, lambda *given, name=name, logs=None: self.calls.append((name, *[one for one in given if isinstance(one, int)])))


@pytest.mark.parametrize("form", FORMS)
def test_it_gives_what_keras_gives_and_calls_back_alike(form):
    model, *_ = models.dense()
    theirs, notes = models.twin(model), [Note(), Note()]
    mine = memfit.fit(model, X, Y, callbacks=[notes[0]], **FORMS[form](), **STEPS).history
    expected = theirs.fit(X, Y, callbacks=[notes[1]], **FORMS[form](), **STEPS).history
    assert mine.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(mine[name], values, atol=1e-3, err_msg=name)
    assert notes[0].calls == notes[1].calls
    weights_agree(model, theirs)


def test_it_changes_no_bit_of_the_training():
    model, *_ = models.dense()
    plain = models.twin(model)
    memfit.fit(model, X, Y, validation_data=(HELD_X, HELD_Y), **STEPS)
    memfit.fit(plain, X, Y, **STEPS)
    for one, other in zip([*model.get_weights(), *model.optimizer.variables], [*plain.get_weights(), *plain.optimizer.variables]):
        np.testing.assert_array_equal(one, other)


def test_callbacks_see_the_weights_and_what_they_write_is_validated():
    model, *_ = models.dense()
    seen, losses = [], []

    class Zero(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            seen.append([np.abs(value).max() for value in self.model.get_weights()])

        def on_test_batch_end(self, batch, logs=None):
            losses.append(logs["loss"])
            self.model.set_weights([np.zeros_like(value) for value in self.model.get_weights()])

    memfit.fit(model, X, Y, batch_size=8, epochs=1, verbose=0, callbacks=[Zero()], validation_data=(HELD_X[:16], HELD_Y[:16]))
    assert all(seen[0][index] for index in (0, 2))
    # All classes are alike then: the second batch has the loss log 3.
    assert losses[1] * 2 - losses[0] == pytest.approx(np.log(3), abs=1e-4)
    assert not any(value.any() for value in model.get_weights())


def test_an_exception_in_it_leaves_the_weights_of_the_last_step():
    model, *_ = models.dense()
    plain = models.twin(model)

    def rows():
        yield HELD_X[:8], HELD_Y[:8]
        raise RuntimeError("no more rows")

    with pytest.raises(RuntimeError, match="no more rows"):
        memfit.fit(model, X, Y, validation_data=rows(), validation_steps=2, **STEPS)
    memfit.fit(plain, X, Y, **{**STEPS, "epochs": 1})
    for one, other in zip(model.get_weights(), plain.get_weights()):
        np.testing.assert_array_equal(one, other)
    assert int(model.optimizer.iterations) == 3


def of_any_length():
    model = keras.Sequential([
        keras.Input((None, 4)), layers.Conv1D(16, 3, padding="same", activation="tanh"), layers.GlobalAveragePooling1D(), layers.Dense(1),
    ])
    model.compile("adam", "mse")
    return model


def test_rows_of_other_dimensions_are_validated():
    model, x, y = of_any_length(), models.random(16, 10, 4), models.random(16, 1)
    theirs, held = models.twin(model), (models.random(6, 31, 4), models.random(6, 1))
    mine, expected = (run(one, x, y, validation_data=held, **STEPS).history for run, one in ((memfit.fit, model), (keras.Model.fit, theirs)))
    np.testing.assert_allclose(mine["val_loss"], expected["val_loss"], rtol=1e-3)


def test_one_that_does_not_fit_is_refused_before_the_first_step():
    model, x, y = of_any_length(), models.random(16, 10, 4), models.random(16, 1)
    held, note = (models.random(1, 2 << 20, 4), models.random(1, 1)), Note()
    before = model.get_weights()
    fits = memfit.plan(model, batch_size=8, input_shape=(10, 4)).bytes_smallest_budget + (32 << 20)
    memfit.fit(model, x, y, budget=fits, batch_size=8, verbose=0)
    with pytest.raises(memfit.DoesNotFit, match="validation") as refused:
        memfit.fit(model, x, y, budget=fits, batch_size=8, verbose=0, validation_data=held, callbacks=[note])
    assert fits < refused.value.smallest and note.calls == []
    assert len(before) == len(model.get_weights())


def test_a_plan_counts_it():
    model, *_ = models.dense()
    alone, both = (memfit.plan(model, batch_size=8, **given).bytes_smallest_budget for given in ({}, {"validation_batch_size": 4096}))
    assert alone <= both
    history = memfit.fit(model, X, Y, budget=both, validation_data=(HELD_X, HELD_Y), validation_batch_size=4096, **STEPS)
    assert history.memfit.bytes_added <= both
