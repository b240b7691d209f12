"""Whatever is raised by Python code that training calls, the model and its optimizer are those of a whole step."""

import keras
import numpy as np
import pytest
from keras import layers

import memfit
import models

X, Y = models.random(12, 6), models.random(12, 1)


class Stop(Exception):
    pass


class Raises:
    """Raises at the call of this number."""

    def __init__(self, at):
        self.at, self.calls = at, 0

    def __call__(self, *arguments, **named):
        self.calls += 1
        if self.calls == self.at:
            raise Stop


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, then):
        self.then = then

    def __call__(self, step):
        self.then()
        return 0.1


class Slices(keras.utils.PyDataset):
    def __init__(self, then):
        super().__init__()
        self.then = then

    def __len__(self):
        return 3

    def __getitem__(self, index):
        self.then()
        return X[4 * index:4 * index + 4], Y[4 * index:4 * index + 4]


def hook(name):
    def make(then):
        callback = keras.callbacks.Callback()
        setattr(callback, name, then)
        return {"callbacks": [callback], "validation_data": (X[:4], Y[:4])}
    return make


def stream(then):
    def rows():
        while True:
            then()
            yield X[:4], Y[:4]
    return {"x": rows(), "y": None, "batch_size": None, "steps_per_epoch": 3}


HOOKS = ["on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_train_batch_end", "on_test_begin", "on_test_batch_begin",
         "on_test_batch_end", "on_test_end", "on_epoch_end", "on_train_end"]

CALLS = {
    **{name: hook(name) for name in HOOKS},
    "data": stream,
    "dataset": lambda then: {"x": Slices(then), "y": None, "batch_size": None},
    "rate": lambda then: {"schedule": Schedule(then)},
    "look": lambda then: {"callbacks": [keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: (MODEL[0].get_weights(), then()))]},
}

MODEL = []


def fresh(schedule=None):
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((6,)), layers.Dense(4, activation="tanh"), layers.Dense(1)])
    optimizer = keras.optimizers.SGD(schedule or 0.1, momentum=0.9)
    model.compile(optimizer, "mse")
    MODEL[:] = [model]
    return model


def run(model, then, make):
    arguments = {"x": X, "y": Y, "batch_size": 4, "epochs": 2, "shuffle": False, "verbose": 0, **make(then)}
    arguments.pop("schedule", None)
    return memfit.fit(model, arguments.pop("x"), arguments.pop("y"), **arguments)


def state(model):
    return [np.array(value) for value in model.get_weights() + [np.asarray(one) for one in model.optimizer.variables]]


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_an_exception_leaves_a_whole_step(case):
    make = CALLS[case]
    rate = lambda then: make(then).get("schedule")
    count = Raises(0)
    run(fresh(rate(count)), count, make)
    assert count.calls, "the call is never made"
    # The weights and the state after each step, as a run that is not stopped has them.
    steps = {}

    class Steps(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.weights
            steps[int(self.model.optimizer.iterations)] = state(self.model)

    whole, quiet = fresh(rate(Raises(0))), Raises(0)
    given = make(quiet)
    run(whole, quiet, lambda then: {**given, "callbacks": [*given.get("callbacks", []), Steps()]})
    for at in range(1, count.calls + 1):
        then = Raises(at)
        model = fresh(rate(then))
        first = state(model)
        rate_before, kind = model.optimizer._learning_rate, type(model)
        with pytest.raises(Stop):
            run(model, then, make)
        assert model.optimizer._learning_rate is rate_before and type(model) is kind
        assert "_track_variable" not in vars(model.optimizer)
        done = int(model.optimizer.iterations)
        found = state(model)
        expected = steps[done] if done else first
        for value, old in zip(found, expected):
            np.testing.assert_array_equal(value, old, err_msg=f"{case} {at}")
        # And training goes on from there, here and in Keras.
        if at == count.calls:
            memfit.fit(model, X, Y, verbose=0)
            model.fit(X, Y, verbose=0)
