from os import PathLike
import os
from typing import Any, Iterable, Sequence

import keras
import numpy as np

__version__: str

_Size = str | int

class Error(Exception): ...

class DoesNotFit(Error):
    budget: int
    smallest: int
    bytes_runtime: int
    peak_step: int
    peak_label: str
    peak_layer: str
    needed: list[dict[str, Any]]
    needed_others: dict[str, int]
    dominant: dict[str, Any] | None
    hints: list[dict[str, Any]]
    untried: str | None

class NotFinite(Error): ...

class OverBudget(Error):
    history: keras.callbacks.History | None

class Plan:
    fits: bool
    budget: int
    bytes_peak: int
    bytes_arena: int
    bytes_bound: int
    bytes_runtime: int
    bytes_baseline: int
    runtime: list[dict[str, Any]]
    held: dict[str, int]
    layers: list[dict[str, Any]]
    nodes: int
    batch: int
    micro_batch: int
    micro_batches: int
    nodes_recomputed: int
    values_folded: int
    bytes_workspace: int
    launches_leaner: int
    bytes_offloaded: int
    precision: dict[str, Any] | None
    bytes_smallest_budget: int
    seconds_planning: float
    seconds_measuring: float
    share_measured: float
    costs: str
    seconds_measuring: float
    seconds_step: float
    time_relative: float
    peak_step: int
    peak_label: str
    peak_layer: str
    def to_html(self) -> str: ...
    def _repr_html_(self) -> str: ...

class Batches:
    budget: int
    largest: int | None
    points: list[tuple[int, int]]
    def __int__(self) -> int: ...

class Sweep:
    budget: int
    points: list[dict[str, Any]]
    costs: str
    def __len__(self) -> int: ...
    def to_html(self) -> str: ...
    def _repr_html_(self) -> str: ...

class Device:
    name: str
    processor: str
    threads: int
    bytes_available: int
    limited_by: str

class Memory:
    plan: Plan
    budget: int
    bytes_baseline: int
    bytes_process_peak: int
    @property
    def bytes_added(self) -> int: ...

def plan(
    model: keras.Model,
    *,
    batch_size: int = 32,
    budget: _Size | None = None,
    input_shape: Any = None,
    sample_weight: bool = False,
    disk: str | None = None,
    precision: str | None = None,
    allow_batchnorm_split: bool = False,
    costs: str | None = None,
    threads: int | None = None,
    device: str | None = None,
    like: str | None = None,
    validation_batch_size: int | None = None,
) -> Plan: ...
def fit(
    model: keras.Model,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: int | str = "auto",
    callbacks: Sequence[keras.callbacks.Callback] | None = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: bool = True,
    class_weight: dict[int, float] | None = None,
    sample_weight: Any = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int | Iterable[int] = 1,
    *,
    budget: _Size | None = None,
    disk: str | None = None,
    precision: str | None = None,
    allow_batchnorm_split: bool = False,
    costs: str | None = None,
    threads: int | None = None,
    device: str | None = None,
    seed: int | None = None,
    on_nan: str = "raise",
    like: str | None = None,
    guard: str | None = None,
    checkpoints: str | os.PathLike[str] | None = None,
    every: str = "1epoch",
    keep: int = 3,
    resume: bool | str = False,
) -> keras.callbacks.History: ...
def evaluate(
    model: keras.Model,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    verbose: int | str = "auto",
    sample_weight: Any = None,
    steps: int | None = None,
    callbacks: Sequence[keras.callbacks.Callback] | None = None,
    return_dict: bool = False,
    *,
    budget: _Size | None = None,
    disk: str | None = None,
    precision: str | None = None,
    costs: str | None = None,
    threads: int | None = None,
    device: str | None = None,
) -> float | list[float] | dict[str, float]: ...
def predict(
    model: keras.Model,
    x: Any,
    batch_size: int | None = None,
    verbose: int | str = "auto",
    steps: int | None = None,
    callbacks: Sequence[keras.callbacks.Callback] | None = None,
    *,
    budget: _Size | None = None,
    disk: str | None = None,
    precision: str | None = None,
    costs: str | None = None,
    threads: int | None = None,
    device: str | None = None,
) -> np.ndarray | list[np.ndarray] | dict[str, np.ndarray]: ...
def largest_batch(
    model: keras.Model,
    *,
    budget: _Size | None = None,
    input_shape: Any = None,
    precision: str | None = None,
    threads: int | None = None,
    device: str | None = None,
) -> Batches: ...
def sweep(
    model: keras.Model,
    *,
    batch_size: int = 32,
    budget: _Size | None = None,
    input_shape: Any = None,
    disk: str | None = None,
    precision: str | None = None,
    allow_batchnorm_split: bool = False,
    costs: str | None = None,
    threads: int | None = None,
    device: str | None = None,
) -> Sweep: ...
def load(path: str | PathLike[str], model: keras.Model | None = None) -> keras.Model: ...
def save(model: keras.Model, path: str | PathLike[str]) -> None: ...
def devices() -> list[Device]: ...
