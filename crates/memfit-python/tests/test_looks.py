"""Callbacks that look at the model while it trains see it as it is."""

import keras
import numpy as np
import pytest
from keras import layers

import memfit
import models
from test_fit import weights_agree

X, Y = models.random(24, 6), models.random(24, 1)


def fresh():
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((6,)), layers.Dense(4, activation="tanh"), layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae", keras.metrics.CosineSimilarity()])
    return model


LOOKS = {
    "weights": lambda model: model.get_weights(),
    "called": lambda model: [np.asarray(model(X[:3]))],
    "predict": lambda model: [model.predict(X[:3], verbose=0)],
    "layer": lambda model: model.layers[0].get_weights(),
    "iterations": lambda model: [np.asarray(model.optimizer.iterations)],
    "state": lambda model: (model.weights, [np.asarray(one) for one in model.optimizer.variables])[1],
}


class Look(keras.callbacks.Callback):
    def __init__(self, hook, look):
        super().__init__()
        self.seen = []
        setattr(self, hook, lambda number, logs=None: self.seen.append(look(self.model)))


@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_epoch_end", "on_train_batch_begin", "on_epoch_begin"])
@pytest.mark.parametrize("what", LOOKS)
def test_what_a_callback_sees_is_what_it_would_see_in_keras(hook, what):
    seen = []
    for run in (memfit.fit, keras.Model.fit):
        callback = Look(hook, LOOKS[what])
        model = fresh()
        model.optimizer.build(model.trainable_variables)
        run(model, X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=[callback])
        seen.append(callback.seen)
    mine, expected = seen
    assert len(mine) == len(expected)
    for one, other in zip(mine, expected):
        for a, b in zip(one, other):
            np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_callback_may_change_weights_between_steps():
    class Half(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.set_weights([value * 0.5 for value in self.model.get_weights()])

    mine, theirs = fresh(), fresh()
    memfit.fit(mine, X, Y, batch_size=8, shuffle=False, verbose=0, callbacks=[Half()])
    theirs.fit(X, Y, batch_size=8, shuffle=False, verbose=0, callbacks=[Half()])
    weights_agree(mine, theirs)


MONITORS = {
    "early_stopping": lambda path: keras.callbacks.EarlyStopping("val_mae", patience=1, min_delta=100.0),
    "plateau": lambda path: keras.callbacks.ReduceLROnPlateau("val_cosine_similarity", patience=1),
    "checkpoint": lambda path: keras.callbacks.ModelCheckpoint(f"{path}/best.keras", "val_mae", save_best_only=True),
    "early_stopping_up": lambda path: keras.callbacks.EarlyStopping("cosine_similarity", patience=1, min_delta=100.0),
}


@pytest.mark.parametrize("case", MONITORS)
def test_a_metric_is_monitored_without_a_mode(case, tmp_path):
    lengths, directions = [], []
    for run in (memfit.fit, keras.Model.fit):
        callback = MONITORS[case](tmp_path)
        history = run(fresh(), X, Y, batch_size=8, epochs=4, shuffle=False, verbose=0, validation_data=(X[:8], Y[:8]),
                      callbacks=[callback])
        lengths.append(len(history.epoch))
        directions.append(callback.monitor_op)
    assert lengths[0] == lengths[1] and directions[0] is directions[1]


def test_backup_and_restore_goes_on_where_keras_would(tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2 and stops:
                raise KeyboardInterrupt

    ends = []
    for name, run in (("mine", memfit.fit), ("theirs", keras.Model.fit)):
        arguments = {"batch_size": 8, "epochs": 4, "shuffle": False, "verbose": 0}
        backup = lambda: keras.callbacks.BackupAndRestore(str(tmp_path / name))
        stops, first = True, fresh()
        with pytest.raises(KeyboardInterrupt):
            run(first, X, Y, callbacks=[backup(), Stop()], **arguments)
        stops, second = False, fresh()
        history = run(second, X, Y, callbacks=[backup(), Stop()], **arguments)
        ends.append((second, history.epoch, history.history["loss"]))
    (mine, epochs, losses), (theirs, expected, expected_losses) = ends
    assert epochs == expected == [2, 3]
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-4)
    weights_agree(mine, theirs)
