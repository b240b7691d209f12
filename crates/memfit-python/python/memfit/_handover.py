"""Weights and the optimizer's state: from Keras's variables into the engine's slots, and back."""

from . import _engine
from ._errors import Error
from ._request import schedule_in_python


# As many bytes may pass before freed heap is given back.
_BYTES_KEPT = 4 << 20

_ELEMENTS = {"f32": "float32", "i64": "int64", "i32": "int32"}


class Handover:
    """Pairs the engine's variables with a model's by Keras's order."""

    def __init__(self, session, model, optimizer=None):
        self.session, self.bytes_passed = session, 0
        # A rate that Python computes is no variable of Keras's.
        computed = optimizer is not None and schedule_in_python(optimizer) is not None
        known = [(index, *one) for index, one in enumerate(session.variables()) if not (computed and one[2] == "learning_rate")]
        theirs = list(model.weights) + (list(optimizer.variables) if optimizer is not None else [])
        if len(known) != len(theirs):
            raise Error(
                f"the model and its optimizer have {len(theirs)} variables and memfit knows {len(known)}; "
                "please report this with the model's model.to_json()"
            )
        self.pairs = []
        for (index, name, dims, kind, dtype), variable in zip(known, theirs):
            self.pairs.append((index, kind, _ELEMENTS.get(dtype, "float32"), variable))
            if tuple(dims) != tuple(variable.shape):
                raise Error(
                    f"`{variable.path}` has the shape {tuple(variable.shape)} and memfit's `{name}` has {tuple(dims)}; "
                    "please report this with the model's model.to_json()"
                )

    def open(self):
        """Takes the arena and fills it with the model's values."""
        for _, kind, _, variable in self.pairs:
            if kind == "iteration":
                self.session.iteration = int(_numpy(variable))
        self.session.open()
        self.load()

    def load(self):
        """Model to arena."""
        import numpy as np

        for index, kind, dtype, variable in self.pairs:
            if kind in ("weight", "state"):
                value = np.ascontiguousarray(_numpy(variable), dtype=dtype)
                self.session.write(index, value.reshape(-1).view(np.uint8))
                self._passed(value.nbytes)

    def store(self):
        """Arena to model. Each array is a new one: a backend may keep it."""
        import numpy as np

        for index, kind, dtype, variable in self.pairs:
            if kind in ("weight", "state", "derived"):
                value = np.empty(tuple(variable.shape), dtype=dtype)
                self.session.read(index, value.reshape(-1).view(np.uint8))
                variable.assign(value)
                self._passed(value.nbytes)
            elif kind == "iteration":
                variable.assign(self.session.iteration)

    def _passed(self, size):
        """Gives freed heap back now and then: arrays of all sizes come and go here, and the allocator would keep them."""
        self.bytes_passed += size
        if _BYTES_KEPT < self.bytes_passed:
            self.bytes_passed = 0
            _engine.baseline()


def inner_optimizer(model):
    """The optimizer that holds the state, built for the model's weights."""
    optimizer = model.optimizer
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    return optimizer


def _numpy(variable):
    import keras

    return keras.ops.convert_to_numpy(variable)
