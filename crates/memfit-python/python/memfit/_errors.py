"""What can go wrong, each with what to do next."""

import json


class Error(Exception):
    """A job that cannot run as it was asked for. The message names the thing and ends in what to do next."""


class DoesNotFit(Error):
    """No plan fits the budget. Nothing was allocated, and the model is as it was.

    Fields: `budget` and `smallest` (the lowest budget that would do) in bytes, `peak_layer` and `peak_label` (where the smallest
    plan peaks), `needed` (what must be alive together there, and why), `dominant` (the layer that holds most of it) and `hints`
    (changes that make it fit, each tried by planning it: dicts with `kind`, `text` and `budget`).
    """

    def __init__(self, message, **figures):
        super().__init__(message)
        self.__dict__.update(figures)


class NotFinite(Error):
    """A loss, gradient or value is NaN or infinite. The model and its optimizer have the values of the last step that was finite."""


class OverBudget(Error):
    """Training is done, the model has its weights, and more memory was held than the budget. `history` is what `fit` would return."""

    def __init__(self, message, history=None):
        super().__init__(message)
        self.history = history


def _error(message, _figures=""):
    return Error(message)


def _not_finite(message, _figures=""):
    return NotFinite(message)


def _does_not_fit(message, figures):
    return DoesNotFit(message, **json.loads(figures))
