"""Keras's own callbacks, validation, and Ctrl-C."""

import _thread
import signal

import keras
import numpy as np
import pytest

import memfit
import models
from test_fit import weights_agree


def test_validation_split_is_that_of_keras():
    model, x, y = models.convolution()
    theirs = models.twin(model)
    arguments = {"batch_size": 8, "epochs": 3, "validation_split": 0.25, "shuffle": False, "verbose": 0}
    mine = memfit.fit(model, x, y, **arguments).history
    expected = theirs.fit(x, y, **arguments).history
    assert mine.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(mine[name], expected[name], atol=1e-3, err_msg=name)
    weights_agree(model, theirs)


def test_checkpoints_hold_the_weights_of_their_epoch(tmp_path):
    model, x, y = models.dense()
    theirs = models.twin(model)
    arguments = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}
    for name, one in [("mine", model), ("theirs", theirs)]:
        path = str(tmp_path / (name + "-{epoch}.weights.h5"))
        checkpoint = keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
        run = memfit.fit if one is model else keras.Model.fit
        run(one, x, y, callbacks=[checkpoint], **arguments)
    model.load_weights(tmp_path / "mine-1.weights.h5")
    theirs.load_weights(tmp_path / "theirs-1.weights.h5")
    weights_agree(model, theirs)


def test_rates_are_set_between_epochs():
    model, x, y = models.dense()
    theirs = models.twin(model)
    arguments = {"batch_size": 8, "epochs": 4, "shuffle": False, "verbose": 0}
    halved = lambda epoch, rate: rate * 0.5
    memfit.fit(model, x, y, callbacks=[keras.callbacks.LearningRateScheduler(halved)], **arguments)
    theirs.fit(x, y, callbacks=[keras.callbacks.LearningRateScheduler(halved)], **arguments)
    weights_agree(model, theirs)
    plateau = keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=100.0)
    history = memfit.fit(model, x, y, callbacks=[plateau], **arguments)
    assert history.history["learning_rate"][-1] < history.history["learning_rate"][0]


def test_early_stopping_stops_and_restores():
    model, x, y = models.dense()
    seen = []
    stop = keras.callbacks.EarlyStopping("loss", patience=1, min_delta=100.0, restore_best_weights=True)
    look = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(model.get_weights()))
    history = memfit.fit(model, x, y, batch_size=8, epochs=9, verbose=0, callbacks=[look, stop])
    assert len(history.epoch) == 2
    for value, first in zip(model.get_weights(), seen[0]):
        np.testing.assert_array_equal(value, first)


def test_a_callback_may_change_the_weights():
    model, x, y = models.dense()

    class Reset(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.set_weights(start)

    start = model.get_weights()
    losses = memfit.fit(model, x, y, batch_size=24, epochs=2, shuffle=False, verbose=0, callbacks=[Reset()]).history["loss"]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_ctrl_c_ends_after_the_step_with_its_weights():
    model, x, y = models.dense()
    before = model.get_weights()
    # A shell that starts this in the background has it ignore Ctrl-C.
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)

    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 2:
                _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        memfit.fit(model, x, y, batch_size=2, verbose=0, callbacks=[Interrupt()])
    signal.signal(signal.SIGINT, earlier)
    assert int(model.optimizer.iterations) in (2, 3)
    assert any((value != old).any() for value, old in zip(model.get_weights(), before))
    memfit.fit(model, x, y, batch_size=8, verbose=0)


def test_progress_says_what_is_held(capsys):
    model, x, y = models.dense()
    memfit.fit(model, x, y, batch_size=8, epochs=2, budget="200MiB", verbose=2, validation_split=0.5)
    text = capsys.readouterr().out
    assert "Epoch 2/2" in text and "val_loss" in text and "of 200.00 MiB]" in text
    assert "were there before" in text
