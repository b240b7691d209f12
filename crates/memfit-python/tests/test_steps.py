"""Steps that are begun ahead, with a session that only writes down what it is told: a CPU is never ahead."""

import keras
import pytest
from memfit._rows import Batch
from memfit._steps import TRAIN_HOOKS, ahead_of, steps


class Session:
    def __init__(self):
        self.told = []

    def steps_ahead(self):
        return 1

    def begin(self, arrays, start, rows, order, after, rate):
        self.told.append(("begin", start, after, rate))

    def end(self, arrays, start, order):
        self.told.append(("end", start))
        return start


@pytest.mark.parametrize("ahead", [0, 1])
def test_steps_end_in_order(ahead):
    session, rates = Session(), iter(range(10))
    batches = [Batch([], start, 4, None, (start + 4, 4) if start < 8 else None) for start in (0, 4, 8)]
    assert list(steps(session, iter(batches), ahead, rate=lambda: next(rates))) == [0, 4, 8]
    begun = [("begin", 0, (4, 4), 0), ("begin", 4, (8, 4), 1), ("begin", 8, None, 2)]
    ended = [("end", 0), ("end", 4), ("end", 8)]
    apart = [one for pair in zip(begun, ended) for one in pair]
    assert session.told == (apart if ahead == 0 else [begun[0], begun[1], ended[0], begun[2], ended[1], ended[2]])


def test_nobody_is_ahead_of_a_callback_that_is_told_of_batches(tmp_path):
    class AtEpochs(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            pass

    class AtBatches(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            pass

    saves = keras.callbacks.ModelCheckpoint(str(tmp_path / "x.keras"))
    often = keras.callbacks.ModelCheckpoint(str(tmp_path / "x.keras"), save_freq=2)
    told = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: None)
    for callback, ahead in [(AtEpochs(), 1), (keras.callbacks.EarlyStopping(), 1), (saves, 1), (AtBatches(), 0), (often, 0), (told, 0)]:
        listed = keras.callbacks.CallbackList([callback], add_history=True, model=keras.Sequential())
        assert ahead_of(Session(), listed, TRAIN_HOOKS) == ahead, callback
