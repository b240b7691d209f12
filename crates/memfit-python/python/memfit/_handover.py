"""Weights and the optimizer's state: from Keras's variables into the engine's slots, and back."""

import contextlib
import signal
import threading

from . import _engine
from ._errors import Error
from ._request import schedule_in_python
from ._variables import numpy_of, offset, slices


# As many bytes may pass before freed heap is given back.
_BYTES_KEPT = 4 << 20

_ELEMENTS = {"f32": "float32", "i64": "int64", "i32": "int32"}


class Handover:
    """Pairs the engine's variables with a model's by Keras's order. An optimizer that Keras has not built yet has no variables for its
    state: it begins in the arena, and Keras builds them when the values leave it for good."""

    def __init__(self, session, model, optimizer=None):
        self.session, self.model, self.optimizer = session, model, optimizer
        self.bytes_passed = 0
        # A rate that Python computes is no variable of Keras's.
        computed = optimizer is not None and schedule_in_python(optimizer) is not None
        self.known = [(index, *one) for index, one in enumerate(session.variables())
                      if not (computed and one[2] == "learning_rate")]
        self.weights = len(model.weights)
        self.trains = optimizer is not None and bool(model.trainable_variables)
        self._pair()

    def _pair(self):
        theirs = list(self.model.weights) + (list(self.optimizer.variables) if self.optimizer is not None else [])
        self.is_whole = self.optimizer is None or self.optimizer.built
        if len(theirs) != len(self.known) if self.is_whole else len(self.known) < len(theirs):
            raise Error(
                f"the model and its optimizer have {len(theirs)} variables and memfit knows {len(self.known)}; "
                "please report this with the model's model.to_json()"
            )
        self.pairs = [self._one(known, variable) for known, variable in zip(self.known, theirs)]

    def _one(self, known, variable):
        index, name, dims, kind, dtype = known
        if tuple(dims) != tuple(variable.shape):
            raise Error(
                f"`{variable.path}` has the shape {tuple(variable.shape)} and memfit's `{name}` has {tuple(dims)}; "
                "please report this with the model's model.to_json()"
            )
        return index, kind, _ELEMENTS.get(dtype, "float32"), variable

    def open(self):
        """Takes the arena and fills it with the model's values."""
        if not self.is_whole and self.optimizer.built:
            self._pair()
        for _, kind, _, variable in self.pairs:
            if kind == "iteration":
                self.session.iteration = int(numpy_of(variable))
        self.session.open()
        self.load()
        if not self.is_whole:
            self.session.initialize_state()

    def load(self):
        """Model to arena."""
        import numpy as np

        for index, kind, dtype, variable in self.pairs:
            if kind not in ("weight", "state"):
                continue
            for rows in slices(variable):
                value = numpy_of(variable) if rows is None else variable._value[rows].numpy()
                value = np.ascontiguousarray(value, dtype=dtype)
                self.session.write(index, value.reshape(-1).view(np.uint8), offset(variable, rows, value))
                self._passed(value.nbytes)

    def store(self):
        """Arena to model. The arena stays as it is. Each array is a new one: a backend may keep it."""
        if not self.is_whole and self.optimizer.built:
            raise Error("the optimizer was built while memfit trains; build it before: model.optimizer.build(model.trainable_variables)")
        with uninterrupted():
            for pair in self.pairs:
                self._assign(*pair)

    def store_iteration(self):
        """The count of updates alone."""
        for pair in self.pairs:
            if pair[1] == "iteration":
                self._assign(*pair)

    def finish(self):
        """Arena to model, for good: each value leaves its slot, whose pages go back, before the next one comes. Variables that Keras
        has not built yet are built one by one with their values."""
        with uninterrupted():
            self.session.begin_handover()
            failed = None
            for pair in self.pairs:
                try:
                    self._assign(*pair)
                    self.session.give_back(pair[0])
                except Exception as error:
                    # The others are still written: a model with only some new values would be worse.
                    failed = failed or error
            if failed is not None:
                raise failed
            if not self.is_whole:
                self._build_with_values()

    def _build_with_values(self):
        """Lets Keras build the optimizer, and gives each variable its value as soon as it is there."""
        optimizer, track = self.optimizer, self.optimizer._track_variable
        done = {pair[0] for pair in self.pairs}

        def hand_over(pair):
            if pair[0] not in done:
                self._assign(*pair)
                self.session.give_back(pair[0])
                done.add(pair[0])

        def tracked(variable):
            track(variable)
            at = next(at for at, one in reversed(list(enumerate(optimizer._variables))) if one is variable)
            if len(self.known) <= self.weights + at:
                raise Error(f"memfit knows no `{variable.path}`; please report this with the model's model.to_json()")
            hand_over(self._one(self.known[self.weights + at], variable))

        object.__setattr__(optimizer, "_track_variable", tracked)
        try:
            build(optimizer, self.model)
        finally:
            object.__delattr__(optimizer, "_track_variable")
        self._pair()
        # Single numbers, which some optimizers add silently.
        for pair in self.pairs:
            hand_over(pair)

    def _assign(self, index, kind, dtype, variable):
        import numpy as np

        if kind in ("weight", "state", "derived"):
            for rows in slices(variable):
                shape = tuple(variable.shape)
                shape = shape if rows is None else (rows.stop - rows.start, *shape[1:])
                value = np.empty(shape, dtype=dtype)
                self.session.read(index, value.reshape(-1).view(np.uint8), offset(variable, rows, value))
                variable.assign(value) if rows is None else variable._value[rows].assign(value)
                self._passed(value.nbytes)
        elif kind == "iteration" and self.trains:
            variable.assign(self.session.iteration)

    def _passed(self, size):
        """Gives freed heap back now and then: arrays of all sizes come and go here, and the allocator would keep them."""
        self.bytes_passed += size
        if _BYTES_KEPT < self.bytes_passed:
            self.bytes_passed = 0
            _engine.baseline()


def inner_optimizer(model):
    """The optimizer that holds the state."""
    optimizer = model.optimizer
    return getattr(optimizer, "inner_optimizer", optimizer)


def build(optimizer, model):
    """Has Keras build the optimizer's variables, where the model's are."""
    with scope(model):
        optimizer.build(model.trainable_variables)


def scope(model):
    """The scope of the strategy under which the model was built, where there is one."""
    strategy = getattr(model, "distribute_strategy", None)
    return strategy.scope() if strategy is not None else contextlib.nullcontext()


@contextlib.contextmanager
def uninterrupted():
    """Ctrl-C waits until all values are in the model."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = []
    try:
        earlier = signal.signal(signal.SIGINT, lambda *which: came.append(which))
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier if earlier is not None else signal.SIG_DFL)
        if came and callable(earlier):
            earlier(*came[0])
