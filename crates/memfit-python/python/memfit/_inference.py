"""Loss, metrics and predictions within a budget."""

from . import _engine
from ._errors import Error
from ._handover import Handover
from ._request import request, require_model
from ._rows import rows_of


def evaluate(model, x=None, y=None, *, batch_size=None, sample_weight=None, steps=None, return_dict=False, budget=None,
             disk=None, precision=None, costs=None, threads=None, device=None):
    """Loss and metrics over all rows, as `model.evaluate` gives them, within a budget.

    `x` and `y` are what `memfit.fit` takes. Returns the loss, or a list of loss and metrics, or a dict with `return_dict=True`.
    """
    require_model(model, compiled=True)
    options = {"budget": budget, "disk": disk, "precision": precision, "costs": costs, "threads": threads, "device": device}
    rows = rows_of(model, x, y, sample_weight, batch_size=batch_size, steps=steps)
    logs = Evaluator(model, rows, options).run()
    if return_dict:
        return logs
    values = [logs[name] for name in _in_keras_order(model, logs)]
    return values[0] if len(values) == 1 else values


def _in_keras_order(model, names):
    """Loss, then for one output its metrics; for several, the outputs' losses and then all metrics by their names."""
    names = list(names)
    if len(model.outputs) == 1:
        return names
    first = 1 + len(model.outputs)
    return names[:first] + sorted(names[first:])


class Evaluator:
    """A planned evaluation, whose arena is there while it runs."""

    def __init__(self, model, rows, options, baseline=None):
        self.rows = rows
        text = request(model, rows.batch_size, options, sample_weights=rows.weighted, baseline=baseline)
        self.session = _engine.Session(text, "evaluation")
        self.handover = Handover(self.session, model)
        self.names = ["loss", *self.session.metrics()]

    def run(self, before_batch=None, after_batch=None):
        """Names and values over all rows."""
        logs = {}
        self.handover.open()
        try:
            for number, batch in enumerate(self.rows.epoch()):
                if before_batch:
                    before_batch(number)
                loss, metrics, *_ = self.session.step(*batch)
                logs = dict(zip(self.names, [loss, *metrics]))
                if after_batch:
                    after_batch(number, logs)
        finally:
            self.session.close()
        if not logs:
            raise Error("the data for the evaluation has ended; give data that can be iterated again, or steps")
        return logs


def predict(model, x, *, batch_size=None, steps=None, budget=None, disk=None, precision=None, costs=None, threads=None, device=None):
    """What the model predicts for all rows, as `model.predict` gives it, within a budget.

    The predictions themselves are an array of yours, which the budget does not count.
    """
    import keras
    import numpy as np

    require_model(model, compiled=False)
    options = {"budget": budget, "disk": disk, "precision": precision, "costs": costs, "threads": threads, "device": device}
    rows = rows_of(model, x, batch_size=batch_size, steps=steps, targets=False)
    session = _engine.Session(request(model, rows.batch_size, options), "prediction")
    outputs, piece = session.outputs(), session.micro_batch()
    parts = [[] for _ in outputs]
    handover = Handover(session, model)
    handover.open()
    try:
        for batch in rows.epoch():
            made = [np.empty((batch.rows, *dims), dtype=np.float32) for dims in outputs]
            for first in range(0, batch.rows, piece):
                count = min(piece, batch.rows - first)
                session.step(batch.arrays, batch.start + first, count, batch.order)
                for output, array in enumerate(made):
                    session.prediction(output, count, array[first : first + count].reshape(-1).view(np.uint8))
            for part, array in zip(parts, made):
                part.append(array)
    finally:
        session.close()
    if not parts[0]:
        raise Error("the data has no batch; give at least one")
    whole = [part[0] if len(part) == 1 else np.concatenate(part) for part in parts]
    return whole[0] if len(whole) == 1 else keras.tree.pack_sequence_as(model.output, whole)
