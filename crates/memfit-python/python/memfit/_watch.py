"""Callbacks that look at the model while it trains: its weights are in the arena, and come when they are asked for."""

import contextlib

# What callbacks read and set all the time, and what needs no weights.
_HARMLESS = {
    "stop_training", "stop_evaluating", "stop_predicting", "optimizer", "history", "metrics", "metrics_names", "name", "loss",
    "built", "compiled", "steps_per_execution", "_initial_epoch", "inputs", "outputs", "input_shape", "output_shape",
    "output_names", "input_names", "distribute_strategy", "jit_compile", "run_eagerly", "_compile_metrics", "_compile_loss",
}

# Callbacks of Keras that never look at the optimizer's state.
_WITHOUT_STATE = {
    "EarlyStopping", "ReduceLROnPlateau", "LearningRateScheduler", "CSVLogger", "TerminateOnNaN", "History", "ProgbarLogger",
    "RemoteMonitor", "TensorBoard",
}


def needs_state(callbacks):
    """Whether a callback may read the optimizer's state: those of Keras are known, and any other may."""
    known = lambda one: type(one).__module__.startswith("keras.") and type(one).__name__ in _WITHOUT_STATE
    return not all(map(known, callbacks))


class Watch:
    """While callbacks run, whatever they ask the model for brings its current values first. Afterwards, if they asked, what the model
    holds goes on, since they may have changed it."""

    def __init__(self, model, handover):
        self.model, self.handover = model, handover
        self.kind = type(model)
        self.asked = False
        self.lazy = self._lazy()

    @contextlib.contextmanager
    def callbacks(self, is_open):
        """Callbacks run within. `is_open` says whether the values are in the arena; the model has them otherwise."""
        if not is_open:
            yield
            return
        self.asked = False
        object.__setattr__(self.model, "__class__", self.lazy)
        try:
            yield
        finally:
            self._wake()
            if self.asked:
                self.handover.load()

    def _wake(self):
        object.__setattr__(self.model, "__class__", self.kind)

    def _bring(self):
        self._wake()
        self.asked = True
        self.handover.store()

    def _lazy(self):
        watch, kind = self, self.kind

        def __getattribute__(model, name):
            if name == "optimizer":
                watch.handover.store_iteration()
            elif name not in _HARMLESS and not name.startswith("__"):
                watch._bring()
            return kind.__getattribute__(model, name)

        def __call__(model, *arguments, **named):
            watch._bring()
            return kind.__call__(model, *arguments, **named)

        return type(kind.__name__, (kind,), {
            "__getattribute__": __getattribute__, "__call__": __call__, "__module__": kind.__module__, "__doc__": kind.__doc__,
        })
