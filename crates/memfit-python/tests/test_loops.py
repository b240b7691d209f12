"""Steps, epochs and ends as Keras counts them."""

import keras
import numpy as np
import pytest
from keras import layers

import memfit
import models
from test_fit import weights_agree


class Heard(keras.callbacks.Callback):
    """Every call with its number."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __getattribute__(self, name):
        parts = name.split("_")
        if name.startswith("on_") and ("batch" in parts or "epoch" in parts) and parts[1] in ("train", "test", "predict", "epoch"):
            return lambda number, logs=None: self.calls.append((name, number))
        return super().__getattribute__(name)


def runs_of(make, call, *data, **arguments):
    """What callbacks hear, here and in Keras."""
    heard = []
    for run in (getattr(memfit, call), getattr(keras.Model, call)):
        callback = Heard()
        run(make(), *data, callbacks=[callback], verbose=0, **arguments)
        heard.append(callback.calls)
    return heard


def model(steps_per_execution=1):
    made = keras.Sequential([keras.Input((6,)), layers.Dense(1)])
    made.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    return made


X, Y = models.random(20, 6), models.random(20, 1)

FITS = {
    "longer_than_the_data": dict(steps_per_epoch=7, epochs=3),
    "shorter_than_the_data": dict(steps_per_epoch=3, epochs=3),
    "as_long_as_the_data": dict(steps_per_epoch=5, epochs=2),
    "without": dict(epochs=2),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at_once", [1, 2, 3])
@pytest.mark.parametrize("case", FITS)
def test_steps_per_epoch_and_per_execution_are_those_of_keras(case, at_once):
    mine, expected = runs_of(lambda: model(at_once), "fit", X, Y, batch_size=4, **FITS[case])
    assert mine == expected


@pytest.mark.parametrize("call", ["evaluate", "predict"])
@pytest.mark.parametrize("at_once", [1, 2])
def test_steps_per_execution_without_training(call, at_once):
    data = (X, Y) if call == "evaluate" else (X,)
    mine, expected = runs_of(lambda: model(at_once), call, *data, batch_size=4)
    assert mine == expected


class Stop(keras.callbacks.Callback):
    def on_test_batch_end(self, batch, logs=None):
        self.model.stop_evaluating = batch == 2

    def on_predict_batch_end(self, batch, logs=None):
        self.model.stop_predicting = batch == 2


def endless(targets=True):
    while True:
        yield (X[:4], Y[:4]) if targets else (X[:4],)


def test_callbacks_end_evaluation_and_prediction_of_endless_data():
    assert memfit.evaluate(model(), endless(), callbacks=[Stop()], verbose=0) >= 0
    assert memfit.predict(model(), endless(False), callbacks=[Stop()]).shape == (12, 1)


class ByNumber(keras.utils.PyDataset):
    num_batches = 5

    def __getitem__(self, index):
        return X[4 * index:4 * index + 4], Y[4 * index:4 * index + 4]


def test_a_dataset_may_have_a_number_of_batches_and_no_length():
    mine, theirs = model(), model()
    theirs.set_weights(mine.get_weights())
    memfit.fit(mine, ByNumber(), epochs=2, shuffle=False, verbose=0)
    theirs.fit(ByNumber(), epochs=2, shuffle=False, verbose=0)
    weights_agree(mine, theirs)


def test_a_callable_learning_rate_is_asked_before_every_step():
    asked = []

    def rate():
        asked.append(1)
        return 0.01 * len(asked)

    mine = model()
    mine.compile(keras.optimizers.SGD(rate), "mse")
    theirs = model()
    theirs.set_weights(mine.get_weights())
    before = mine.optimizer._learning_rate
    memfit.fit(mine, X, Y, batch_size=4, shuffle=False, verbose=0)
    assert mine.optimizer._learning_rate is before
    assert len(asked) == 5
    rates = iter(0.01 * (step + 1) for step in range(5))
    for start in range(0, 20, 4):
        theirs.compile(keras.optimizers.SGD(next(rates)), "mse")
        theirs.train_on_batch(X[start:start + 4], Y[start:start + 4])
    weights_agree(mine, theirs)


def test_a_model_without_trainable_weights_runs_and_stays_as_it_is():
    frozen = model()
    frozen.trainable = False
    frozen.compile("adam", "mse", metrics=["mae"])
    before = frozen.get_weights()
    history = memfit.fit(frozen, X, Y, batch_size=4, epochs=2, verbose=0).history
    with pytest.warns(UserWarning, match="trainable"):
        expected = frozen.fit(X, Y, batch_size=4, epochs=2, verbose=0).history
    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-5)
    assert int(frozen.optimizer.iterations) == 0
    for value, old in zip(frozen.get_weights(), before):
        np.testing.assert_array_equal(value, old)


class Mine(keras.Model):
    pass


class Row(keras.Sequential):
    pass


SUBCLASSES = {
    "functional": lambda: Mine(*(lambda x: (x, layers.Dense(1)(x)))(keras.Input((6,)))),
    "sequential": lambda: Row([keras.Input((6,)), layers.Dense(1)]),
}


@pytest.mark.parametrize("kind", SUBCLASSES)
def test_a_model_whose_class_is_a_subclass_trains_as_its_graph(kind):
    mine = SUBCLASSES[kind]()
    mine.compile("adam", "mse")
    theirs = model()
    theirs.compile("adam", "mse")
    theirs.set_weights(mine.get_weights())
    memfit.fit(mine, X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    theirs.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    weights_agree(mine, theirs)
    assert type(mine) in (Mine, Row)


NOTHING = {
    "identity": lambda x: layers.Identity()(x),
    "dropout": lambda x: layers.Dropout(0.5)(x),
    "noise": lambda x: layers.GaussianNoise(0.5)(x),
    "two": lambda x: [layers.Dropout(0.5)(x), layers.Identity()(x)],
    "beside": lambda x: [layers.Dropout(0.5)(x), layers.Dense(2)(x)],
}


@pytest.mark.parametrize("case", NOTHING)
def test_an_output_that_is_the_input_is_predicted(case):
    x = keras.Input((6,))
    one = keras.Model(x, NOTHING[case](x))
    mine, expected = memfit.predict(one, X, batch_size=8), one.predict(X, verbose=0)
    for a, b in zip(mine if isinstance(mine, list) else [mine], expected if isinstance(expected, list) else [expected]):
        np.testing.assert_allclose(a, b, atol=1e-6)


def poisoned():
    x = X.copy()
    x[9] = np.nan
    return x


@pytest.mark.parametrize("on_nan", ["raise", "callback"])
def test_a_loss_that_is_not_finite_is_an_error(on_nan):
    one = model()
    with pytest.raises(memfit.NotFinite):
        memfit.fit(one, poisoned(), Y, batch_size=4, shuffle=False, verbose=0, on_nan=on_nan)
    assert all(np.isfinite(value).all() for value in one.get_weights())
    assert int(one.optimizer.iterations) == 2


def test_terminate_on_nan_ends_training_where_it_is_asked():
    one = model()
    history = memfit.fit(one, poisoned(), Y, batch_size=4, epochs=3, shuffle=False, verbose=0, on_nan="callback",
                         callbacks=[keras.callbacks.TerminateOnNaN()])
    assert len(history.epoch) == 1
    assert all(np.isfinite(value).all() for value in one.get_weights())
