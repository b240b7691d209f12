"""A run that is stopped anywhere goes on bit for bit: with arrays, streams, validation, callbacks, and by a signal."""

import functools
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import textwrap

import keras
import memfit
import numpy as np
import pytest
from keras import layers


def model():
    # Names of layers decide what random layers draw: a new process begins to count them again, and so does this.
    keras.utils.clear_session()
    keras.utils.set_random_seed(7)
    made = keras.Sequential([
        keras.Input((6,)), layers.Dense(16, activation="relu"), layers.Dropout(0.3), layers.Dense(3, activation="softmax"),
    ])
    made.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return made


DRAW = np.random.default_rng(3)
X, Y = DRAW.normal(size=(50, 6)).astype("float32"), DRAW.integers(0, 3, 50)


class Stop(keras.callbacks.Callback):
    """Raises after some batches of all epochs of this process: a count that no checkpoint keeps."""

    def __init__(self, batches):
        super().__init__()
        self.counted = itertools.count(1)
        self.last = (batches,).__iter__

    def on_train_batch_end(self, batch, logs=None):
        if next(self.counted) == next(self.last()):
            raise RuntimeError("stopped")


class Batches:
    """A source that is iterated again in every epoch, always in the same order."""

    def __init__(self, x=X):
        self.x = x

    def __iter__(self):
        return iter([(self.x[start : start + 8], Y[start : start + 8]) for start in range(0, 48, 8)])


def arrays(**more):
    return dict(x=X, y=Y, batch_size=8, **more)


CASES = {
    "shuffled arrays": lambda: arrays(),
    "validation": lambda: arrays(validation_split=0.2),
    "steps per epoch": lambda: arrays(steps_per_epoch=5),
    "a stream": lambda: dict(x=Batches()),
    "early stopping": lambda: arrays(
        validation_split=0.2,
        callbacks=[keras.callbacks.EarlyStopping(patience=1), keras.callbacks.ReduceLROnPlateau("loss", patience=0, min_delta=1.0)],
    ),
}


def fit(made, folder, given, **more):
    callbacks = [*given.pop("callbacks", []), *more.pop("callbacks", [])]
    return memfit.fit(made, **given, epochs=4, seed=5, budget="64MiB", verbose=0, checkpoints=folder, every="1steps",
                      callbacks=callbacks, **more)


@functools.cache
def whole(case):
    """What a run that is never stopped ends with: the same for every test of a case."""
    made = model()
    with tempfile.TemporaryDirectory() as folder:
        history = fit(made, folder, CASES[case](), callbacks=[Stop(10**9)])
    return made.get_weights() + [np.asarray(v) for v in made.optimizer.variables], history.history


@pytest.mark.parametrize("batches", [1, 5, 6, 7, 12])
@pytest.mark.parametrize("case", CASES)
def test_a_stopped_run_goes_on_bit_for_bit(case, batches, tmp_path):
    wanted, history = whole(case)
    with pytest.raises(RuntimeError, match="stopped"):
        fit(model(), tmp_path / "parts", CASES[case](), callbacks=[Stop(batches)])
    made = model()
    went_on = fit(made, tmp_path / "parts", CASES[case](), callbacks=[Stop(10**9)], resume=True)
    got = made.get_weights() + [np.asarray(v) for v in made.optimizer.variables]
    for one, other in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(one, other)
    for name, values in went_on.history.items():
        assert values == history[name][-len(values):], name


def test_without_a_checkpoint_it_starts_from_the_beginning(tmp_path):
    wanted, _ = whole("shuffled arrays")
    made = model()
    fit(made, tmp_path / "new", CASES["shuffled arrays"](), callbacks=[Stop(10**9)], resume=True)
    for one, other in zip(wanted, made.get_weights()):
        np.testing.assert_array_equal(one, other)


def test_a_checkpoint_opens_in_keras(tmp_path):
    made = model()
    memfit.fit(made, X, Y, batch_size=8, epochs=1, seed=5, budget="64MiB", verbose=0, checkpoints=tmp_path, shuffle=False)
    [path] = sorted(tmp_path.glob("step-*.keras"))
    loaded = keras.models.load_model(path)
    for one, other in zip(made.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("change, words", [
    (dict(seed=6), "seed was 5 and is 6"),
    (dict(x=X + 1), "rows was"),
    (dict(batch_size=4), "batch was 8 and is 4"),
])
def test_another_job_is_refused_with_what_differs(change, words, tmp_path):
    memfit.fit(model(), X, Y, batch_size=8, seed=5, budget="64MiB", verbose=0, checkpoints=tmp_path)
    given = {**dict(x=X, y=Y, batch_size=8, seed=5), **change}
    with pytest.raises(memfit.Error, match=words):
        memfit.fit(model(), **given, budget="64MiB", verbose=0, checkpoints=tmp_path, resume=True)


def test_a_stream_that_comes_in_another_order_is_refused(tmp_path):
    with pytest.raises(RuntimeError, match="stopped"):
        fit(model(), tmp_path, dict(x=Batches()), callbacks=[Stop(3)])
    with pytest.raises(memfit.Error, match="not those that the checkpoint's run had seen"):
        fit(model(), tmp_path, dict(x=Batches(X[::-1].copy())), callbacks=[Stop(10**9)], resume=True)


@pytest.mark.parametrize("given", [dict(every="never"), dict(every="0steps"), dict(keep=0), dict(resume="perhaps")])
def test_what_means_nothing_is_refused(given, tmp_path):
    with pytest.raises(memfit.Error):
        memfit.fit(model(), X, Y, verbose=0, budget="64MiB", checkpoints=tmp_path, **given)


def test_checkpoints_of_an_earlier_run_are_not_overwritten(tmp_path):
    memfit.fit(model(), X, Y, seed=5, budget="64MiB", verbose=0, checkpoints=tmp_path)
    with pytest.raises(memfit.Error, match="earlier run"):
        memfit.fit(model(), X, Y, seed=5, budget="64MiB", verbose=0, checkpoints=tmp_path)


def test_a_signal_writes_a_checkpoint_and_ends_the_process(tmp_path):
    script = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from test_checkpoints import *
        print("ready", flush=True)
        memfit.fit(model(), X, Y, batch_size=8, epochs=10**6, seed=5, budget="64MiB", verbose=0, checkpoints={str(tmp_path)!r},
                   every="50steps")
    """)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    while not list(tmp_path.glob("step-*.keras")):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM
    steps = [int(path.stem.split("-")[1]) for path in tmp_path.glob("step-*.keras")]
    assert max(steps) % 50 != 0 or len(steps) == 1


def test_ctrl_c_writes_a_checkpoint_after_the_step_that_runs(tmp_path):
    wanted, _ = whole("shuffled arrays")
    # A shell that starts this in the background has it ignore Ctrl-C.
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)

    waits = [True]

    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 2 and waits:
                waits.pop()
                os.kill(os.getpid(), signal.SIGINT)

    given = dict(epochs=4, seed=5, budget="64MiB", verbose=0, checkpoints=tmp_path, every="50steps")
    with pytest.raises(KeyboardInterrupt):
        memfit.fit(model(), **arrays(), **given, callbacks=[Interrupt()])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, earlier)
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000003.keras"]
    made = model()
    memfit.fit(made, **arrays(), **given, resume=True, callbacks=[Interrupt()])
    for one, other in zip(wanted, made.get_weights()):
        np.testing.assert_array_equal(one, other)
