"""Steps of a session in order, with a session that only notes what it is asked: the driver of the engine has tests of its own."""

import keras
import pytest
from memfit._rows import Batch
from memfit._steps import TRAIN_HOOKS, ahead_of, steps


class Session:
    """Ends every step when the next one is asked for, as a device that is one step ahead."""

    def __init__(self):
        self.asked, self.in_flight = [], []

    def steps_ahead(self):
        return 1

    def step(self, arrays, start, rows, order, after, rate, ahead):
        self.asked.append((start, after, rate, ahead))
        self.in_flight.append(start)
        return [self.in_flight.pop(0) for _ in range(len(self.in_flight) - ahead)]

    def finish_steps(self):
        ended, self.in_flight = self.in_flight, []
        return ended


@pytest.mark.parametrize("ahead", [0, 1])
def test_every_step_ends_once_and_in_order(ahead):
    session, rates = Session(), iter(range(10))
    batches = [Batch([], start, 4, None, (start + 4, 4) if start < 8 else None) for start in (0, 4, 8)]
    assert list(steps(session, iter(batches), ahead, rate=lambda: next(rates))) == [0, 4, 8]
    assert session.asked == [(0, (4, 4), 0, ahead), (4, (8, 4), 1, ahead), (8, None, 2, ahead)]


def test_no_step_is_ahead_of_a_callback_with_hooks_for_batches(tmp_path):
    class AtEpochs(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            pass

    class AtBatches(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            pass

    saves = keras.callbacks.ModelCheckpoint(str(tmp_path / "x.keras"))
    often = keras.callbacks.ModelCheckpoint(str(tmp_path / "x.keras"), save_freq=2)
    batches = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: None)
    for callback, ahead in [(AtEpochs(), 1), (keras.callbacks.EarlyStopping(), 1), (saves, 1), (AtBatches(), 0), (often, 0), (batches, 0)]:
        listed = keras.callbacks.CallbackList([callback], add_history=True, model=keras.Sequential())
        assert ahead_of(Session(), listed, TRAIN_HOOKS) == ahead, callback
