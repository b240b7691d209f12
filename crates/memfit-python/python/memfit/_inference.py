"""Loss, metrics and predictions within a budget."""

import contextlib

from . import _engine
from ._agree import require_agreement
from ._errors import Error
from ._handover import Handover
from ._request import describe, request, require_model
from ._rows import rows_of
from ._steps import TEST_HOOKS, ahead_of, steps


def evaluate(model, x=None, y=None, batch_size=None, verbose="auto", sample_weight=None, steps=None, callbacks=None,
             return_dict=False, *, budget=None, disk=None, precision=None, costs=None, threads=None, device=None):
    """Loss and metrics over all rows, as `model.evaluate` gives them, within a budget.

    `x` and `y` are what `memfit.fit` takes. Returns the loss, or a list of loss and metrics, or a dict with `return_dict=True`.
    `verbose` prints one line at the end.
    """
    require_model(model, compiled=True)
    options = {"budget": budget, "disk": disk, "precision": precision, "costs": costs, "threads": threads, "device": device}
    rows = rows_of(model, x, y, sample_weight, batch_size=batch_size, steps=steps)
    callbacks = _listed(callbacks, model, rows)
    rows.at_once = steps_at_once(model)
    options["config"] = describe(model, rows.dims)
    session = _engine.Session(request(model, rows.batch_size, options, sample_weights=rows.weighted), "evaluation")
    require_agreement(model, rows, options["config"])
    logs = evaluation(session, model, rows, callbacks, _opened(session, model))
    if verbose in ("auto", 1, 2):
        print(" - ".join(f"{name}: {value_text(value)}" for name, value in logs.items()))
    if return_dict:
        return dict(sorted(logs.items()))
    values = [logs[name] for name in _in_keras_order(model, logs)]
    return values[0] if len(values) == 1 else values


def steps_at_once(model):
    """How many steps come between two calls of callbacks."""
    return int(getattr(model, "steps_per_execution", None) or 1)


def logs_of(names, values):
    """Values by name. Numbers of one metric, `f1_score[0]` and so on, are an array, as Keras has them."""
    if not any(name.endswith("]") for name in names):
        return dict(zip(names, values))
    import numpy as np

    logs = {}
    for name, value in zip(names, values):
        plain, bracket, _ = name.partition("[")
        if bracket:
            logs.setdefault(plain, []).append(value)
        else:
            logs[name] = value
    return {name: np.asarray(value, dtype=np.float32) if isinstance(value, list) else value for name, value in logs.items()}


def value_text(value):
    """A number of the log, or several of one metric, as a progress line has them."""
    return f"{value:.4f}" if isinstance(value, float) else "[" + " ".join(f"{one:.4f}" for one in value) + "]"


def _listed(callbacks, model, rows):
    import keras

    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    return keras.callbacks.CallbackList(callbacks, model=model, verbose=0, epochs=1, steps=rows.steps)


def _in_keras_order(model, names):
    """Loss, then for one output its metrics; for several, the outputs' losses as the loss names them and then all metrics by name."""
    names = list(names)
    if len(model.outputs) == 1:
        return names
    first = 1 + len(model.outputs)
    losses = names[1:first]
    given = model.get_compile_config() or {}
    by_name = given.get("loss") if isinstance(given.get("loss"), dict) else {}
    order = [f"{name}_loss" for name in by_name]
    losses.sort(key=lambda name: order.index(name) if name in order else len(order))
    return [names[0], *losses, *sorted(names[first:])]


def evaluation(session, model, rows, callbacks, arena, watched=contextlib.nullcontext):
    """Names and values over all rows. The session takes its steps within `arena`; callbacks run within what `watched()` gives."""
    def call(hook, *arguments):
        with watched():
            getattr(callbacks, hook)(*arguments)

    names, logs, done, at_once = ["loss", *session.metrics()], {}, 0, rows.at_once
    begin = lambda number: call("on_test_batch_begin", number) if number % at_once == 0 else None
    model.stop_evaluating = False
    call("on_test_begin")
    rows.restart()
    with arena:
        ahead = ahead_of(session, callbacks, TEST_HOOKS)
        for done, (loss, metrics, *_) in enumerate(steps(session, _batches(model, rows), ahead, begin), start=1):
            logs = logs_of(names, [loss, *metrics])
            if done % at_once == 0:
                call("on_test_batch_end", done - 1, logs)
        if done % at_once:
            # Keras counts whole executions.
            call("on_test_batch_end", done - done % at_once + at_once - 1, logs)
    if not logs:
        raise Error("the data for the evaluation has ended; give data that can be iterated again, or steps")
    call("on_test_end", logs)
    return logs


def _batches(model, rows):
    """Batches up to the one after which a callback has had enough."""
    for number, batch in enumerate(rows.epoch()):
        yield batch
        if model.stop_evaluating and (number + 1) % rows.at_once == 0:
            return


@contextlib.contextmanager
def _opened(session, model):
    """The arena is there within, with the model's values."""
    handover = Handover(session, model)
    handover.open()
    try:
        yield
    finally:
        session.close()


def predict(model, x, batch_size=None, verbose="auto", steps=None, callbacks=None, *, budget=None, disk=None, precision=None, costs=None, threads=None, device=None):
    """What the model predicts for all rows, as `model.predict` gives it, within a budget.

    The predictions themselves are an array of yours, which the budget does not count. `verbose` is taken and prints nothing.
    """
    import keras
    import numpy as np

    require_model(model, compiled=False)
    options = {"budget": budget, "disk": disk, "precision": precision, "costs": costs, "threads": threads, "device": device}
    rows = rows_of(model, x, batch_size=batch_size, steps=steps, targets=False)
    callbacks = _listed(callbacks, model, rows)
    session = _engine.Session(request(model, rows.batch_size, {**options, "dims": rows.dims}), "prediction")
    outputs, micro_batch = session.outputs(), session.micro_batch()
    parts = [[] for _ in outputs]
    handover = Handover(session, model)
    model.stop_predicting = False
    at_once = rows.at_once = steps_at_once(model)
    callbacks.on_predict_begin()
    handover.open()
    made, number = [], -1
    try:
        for number, batch in enumerate(rows.epoch()):
            if number % at_once == 0:
                callbacks.on_predict_batch_begin(number)
            made.append(_predicted(session, batch, outputs, micro_batch))
            for part, array in zip(parts, made[-1]):
                part.append(array)
            if len(made) == at_once:
                callbacks.on_predict_batch_end(number, {"outputs": _joined(made)})
                made = []
                if model.stop_predicting:
                    break
        if made:
            callbacks.on_predict_batch_end(number - len(made) + at_once, {"outputs": _joined(made)})
    finally:
        session.close()
    callbacks.on_predict_end()
    if not parts[0]:
        raise Error("the data has no batch; give at least one")
    whole = [part[0] if len(part) == 1 else np.concatenate(part) for part in parts]
    return whole[0] if len(whole) == 1 else keras.tree.pack_sequence_as(model.output, whole)


def _predicted(session, batch, outputs, micro_batch):
    """An array for each output with the predictions of a batch, in micro-batches of `micro_batch` rows."""
    import numpy as np

    made = [np.empty((batch.rows, *dims), dtype=np.float32) for dims in outputs]
    parts = [(first, min(micro_batch, batch.rows - first)) for first in range(0, batch.rows, micro_batch)]
    then = [(batch.start + first, count) for first, count in parts[1:]]
    # The next batch begins with a micro-batch of its own.
    then.append(batch.next and (batch.next[0], min(micro_batch, batch.next[1])))
    for (first, count), after in zip(parts, then):
        # What is predicted is read before the next micro-batch overwrites it.
        session.step(batch.arrays, batch.start + first, count, batch.order, after)
        for output, array in enumerate(made):
            session.prediction(output, count, array[first : first + count].reshape(-1).view(np.uint8))
    return made


def _joined(made):
    """The predictions of several batches, as a callback sees them."""
    import numpy as np

    whole = [part[0] if len(part) == 1 else np.concatenate(part) for part in zip(*made)]
    return whole[0] if len(whole) == 1 else whole
