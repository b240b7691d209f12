"""Answers before anything runs: the plan, the largest batch, time against bytes, and what there is to run on."""

import html
import json
from dataclasses import dataclass

from . import _engine
from ._request import knows_input, request, require_batch_size, require_input, require_model


class Plan:
    """What training would hold and how, to the byte. `print` it for the table; a notebook shows its timeline.

    `fits`, `budget`, `bytes_peak` (the arena's highest byte), `bytes_arena`, `bytes_bound` (no packing of this schedule is lower),
    `bytes_runtime` (what memfit holds besides), `bytes_baseline` (what the process held before, which the budget does not count),
    `bytes_smallest_budget`, `held` (bytes at the peak by kind), `layers` (by layer), `batch`, `micro_batch`, `micro_batches`,
    `nodes_recomputed`, `values_folded`, `gradients_applied`, `bytes_workspace`, `launches_leaner`, `bytes_offloaded`, `seconds_planning`, `seconds_measuring`, `share_measured` (of a step's time), `seconds_step`, `time_relative`, `peak_layer`, `peak_label`.
    """

    def __init__(self, table, figures, page=None):
        self.__dict__.update(json.loads(figures))
        self._table, self._page = table, page

    def __str__(self):
        return self._table

    def __repr__(self):
        split = f"{self.micro_batches} micro-batches of {self.micro_batch}" if 1 < self.micro_batches else "whole"
        return f"<memfit.Plan: batch {self.batch}, {split}, {_engine.size(self.bytes_peak)} of {_engine.size(self.budget)}>"

    def to_html(self):
        """The whole report as one page that refers to nothing outside itself."""
        return self._page() if self._page else f"<pre>{html.escape(self._table)}</pre>"

    def _repr_html_(self):
        return _frame(self.to_html())


@dataclass(frozen=True)
class Batches:
    """The answer to `largest_batch`: `largest` trains without a split within `budget`; `points` are pairs of batch and bytes."""

    budget: int
    largest: "int | None"
    points: list

    def __int__(self):
        return self.largest or 0

    def __str__(self):
        if self.largest is None:
            return f"not even a batch of 1 fits {_engine.size(self.budget)} without a split"
        return f"largest batch without a split within {_engine.size(self.budget)}: {self.largest}"


class Sweep:
    """Time against bytes: `points` are dicts with `budget`, `time_relative`, `micro_batches`, … from the fastest plan to the
    smallest."""

    def __init__(self, figures, page):
        self.__dict__.update(json.loads(figures))
        self._page = page

    def __len__(self):
        return len(self.points)

    def __str__(self):
        lines = [f"{'budget':>12}  {'time':>6}  {'split':>6}  {'recomputed':>14}"]
        for point in self.points:
            lines.append(
                f"{_engine.size(point['budget']):>12}  {point['time_relative']:>5.2f}x  {point['micro_batches']:>6}"
                f"  {point['nodes_recomputed']:>14}"
            )
        return "\n".join(lines)

    def to_html(self):
        """The curve as one page."""
        return self._page

    def _repr_html_(self):
        return _frame(self._page)


@dataclass(frozen=True)
class Device:
    """Something to run on."""

    name: str
    processor: str
    threads: int
    bytes_available: int
    limited_by: str

    def __str__(self):
        held = _engine.size(self.bytes_available)
        return f"{self.name}: {self.processor}, {self.threads} threads, {held} by {self.limited_by}"


def plan(model, *, batch_size=32, budget=None, input_shape=None, sample_weight=False, disk=None, precision=None, allow_batchnorm_split=False,
         costs=None, threads=None, device=None, like=None, validation_batch_size=None):
    """Plans training a compiled model without running it.

    `budget` is a size such as "3GiB", or bytes; what the machine allows where it is not given. `disk="/scratch:20GiB"` lets values
    be copied out to a file. `precision` is a Keras policy for layers that have none of their own. `costs="analytic"` plans by
    estimates and gives the same plan on every machine; by default nodes are timed where the choice hangs on time: what says the most
    of the rest, for a twentieth of a second each time, until all are known. `fit` takes up to about 3 seconds for them, and all
    is remembered. The table says how much was measured.

    `input_shape` is the shape of a row, `(200,)`, where the model leaves dimensions open, as `keras.Input((None,))` does; a list or
    dict of them for several inputs.

    `validation_batch_size` plans the validation between epochs too, as `fit` does where it has validation data: both fit, or neither.

    Raises `memfit.DoesNotFit` where nothing fits.
    """
    require_batch_size(batch_size)
    dims = _dims(model, input_shape)
    options = {"dims": dims, "budget": budget, "disk": disk, "precision": precision, "costs": costs, "threads": threads, "device": device,
               "allow_batchnorm_split": allow_batchnorm_split, "like": like}
    if validation_batch_size is not None:
        require_batch_size(validation_batch_size)
        options["validation"] = {"batch": int(validation_batch_size), "weights_of_samples": [], "config": None}
    answer = _engine.plan(request(model, batch_size, options, sample_weights=[False] * bool(sample_weight)))
    return Plan(answer.table(), answer.json(), answer.html)


def largest_batch(model, *, budget=None, input_shape=None, precision=None, threads=None, device=None):
    """The largest batch that trains without a split within a budget, and what smaller and larger ones need."""
    options = {"dims": _dims(model, input_shape), "budget": budget, "precision": precision, "threads": threads, "device": device}
    answer = json.loads(_engine.largest_batch(request(model, 1, options)))
    return Batches(answer["budget"], answer["largest_batch"], [tuple(point) for point in answer["points"]])


def sweep(model, *, batch_size=32, budget=None, input_shape=None, disk=None, precision=None, allow_batchnorm_split=False, costs=None, threads=None, device=None):
    """Every plan worth having, from the fastest to the smallest: what each budget buys."""
    options = {"dims": _dims(model, input_shape), "budget": budget, "disk": disk, "precision": precision, "costs": costs,
               "threads": threads, "device": device, "allow_batchnorm_split": allow_batchnorm_split}
    return Sweep(*_engine.sweep(request(model, batch_size, options), model.name))


def _dims(model, input_shape):
    """The shape of a row for each input, where it was given; a model that was not built yet is built for it."""
    require_model(model, compiled=True)
    if input_shape is None:
        require_input(model)
        return None
    if isinstance(input_shape, dict):
        require_input(model)
        return input_shape
    several = bool(input_shape) and all(isinstance(one, (list, tuple)) for one in input_shape)
    if not several and not knows_input(model):
        model.build((None, *input_shape))
    require_input(model)
    return list(input_shape) if several else [list(input_shape)]


def devices():
    """What there is to run on: the CPU, with the threads and the memory that this process may use, and every GPU."""
    found = [Device("cpu", *_engine.cpu())]
    for gpu in json.loads(_engine.devices())["gpus"]:
        free = gpu["bytes_free"] if gpu["bytes_free"] is not None else gpu["bytes_total"]
        found.append(Device(gpu["device"], gpu["name"], 1, free, "what others leave of the device"))
    return found


def _frame(page):
    """A page within a page: its styles and scripts stay its own."""
    return f'<iframe srcdoc="{html.escape(page)}" style="width:100%;height:900px;border:0" loading="lazy"></iframe>'
