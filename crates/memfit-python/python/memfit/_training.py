"""Training: the loop of Keras's fit over the engine's steps."""

import contextlib
import sys
import time
import warnings
from dataclasses import dataclass

from . import _engine
from ._agree import require_agreement
from ._checkpoints import Checkpoints, restore_callbacks, state_of_callbacks
from ._errors import Error, NotFinite, OverBudget
from ._handover import Handover, build, inner_optimizer
from ._inference import evaluation, logs_of, steps_at_once, value_text
from ._plan import Plan
from ._request import describe, request, require_model, schedule_in_python
from ._rows import rows_of, split
from ._steps import TRAIN_HOOKS, ahead_of, steps
from ._variables import number
from ._watch import Watch, needs_state


def fit(model, x=None, y=None, batch_size=None, epochs=1, verbose="auto", callbacks=None, validation_split=0.0,
        validation_data=None, shuffle=True, class_weight=None, sample_weight=None, initial_epoch=0, steps_per_epoch=None,
        validation_steps=None, validation_batch_size=None, validation_freq=1, *, budget=None, disk=None, precision=None,
        allow_batchnorm_split=False, costs=None, threads=None, device=None, seed=None, on_nan="raise", like=None,
        guard=None, checkpoints=None, every="1epoch", keep=3, resume=False):
    """Trains a compiled Keras model inside a memory budget.

    The arguments up to `validation_freq` are those of `model.fit` and mean the same. `x` may be a NumPy array (a memory map too,
    read where it stands), a list or dict of them, a `tf.data.Dataset`, a `DataLoader`, a `keras.utils.PyDataset` or a generator.
    The others say how memory is used: see `memfit.plan`. `seed` is that of random layers; it is drawn from NumPy where it is not
    given, so that `keras.utils.set_random_seed` makes a run repeat itself. `on_nan="callback"` shows a loss that is not finite to the
    callbacks first, so that `TerminateOnNaN` can end training; without one that does, and by default, `memfit.NotFinite` is raised.
    `like="tensorflow"` computes gradients as Keras does on TensorFlow where memfit's differ by intent: docs/differences.md.

    `guard="step"` lets a step in which anything is not finite change nothing at all, for some more memory and time: by default nothing
    that is not finite is written, and the error names what such a step changed.

    `checkpoints` names a folder: a checkpoint is written there `every` "500steps", "10min" or "1epoch", and after the step that runs when
    Ctrl-C, SIGTERM, SIGHUP, SIGXCPU or SIGUSR1 comes; `keep` of them stay. `resume=True` goes on from the newest, bit for bit as the run that was
    never stopped, or starts from the beginning where there is none. Give the same `seed` again. Data that cannot be read from the middle
    (generators, DataLoaders) is read again from the start of its epoch, and must come in the same order.

    When it returns, the model's weights and its optimizer's state are the trained ones: call `model.fit`, `model.save` or
    `memfit.fit` again. Ctrl-C, and any other exception, ends training with the weights and the state of the last whole step.

    Returns a `keras.callbacks.History`, with what memory was used in its `memfit` attribute. Raises `memfit.DoesNotFit` before
    anything is allocated where no plan fits, and `memfit.OverBudget` when training is over and held more than the budget.
    """
    require_model(model, compiled=True)
    if on_nan not in ("raise", "callback"):
        raise Error(f'on_nan is {on_nan!r}; give "raise" or "callback"')
    _say_replicas(model)
    if validation_split and validation_data is None:
        (x, y, sample_weight), validation_data = split(model, x, y, sample_weight, validation_split)
    rows = rows_of(model, x, y, sample_weight, batch_size=batch_size, class_weight=class_weight, shuffle=shuffle,
                   steps=steps_per_epoch)
    options = {"budget": budget, "disk": disk, "precision": precision, "costs": costs, "threads": threads, "device": device,
               "allow_batchnorm_split": allow_batchnorm_split, "guard": guard, "seed": _drawn(seed), "like": like}
    validation_rows = None
    if validation_data is not None:
        validation_rows = _validation(model, validation_data, validation_batch_size or rows.batch_size, validation_steps)
    to = Checkpoints(checkpoints, every, keep, resume) if checkpoints is not None else None
    if to is None and resume:
        raise Error("resume needs the folder of the checkpoints; give checkpoints=")
    training = _Training(model, rows, options, validation_rows, validation_freq, callbacks, on_nan, to)
    with to.signals() if to else contextlib.nullcontext():
        history = training.run(epochs, initial_epoch, 1 if verbose == "auto" else verbose)
    if to:
        to.send_again()
    return history


@dataclass(frozen=True)
class Memory:
    """What a run of `fit` held. The budget counts what memfit added: the peak above the baseline."""

    plan: Plan
    budget: int
    bytes_baseline: int
    bytes_process_peak: int

    @property
    def bytes_added(self):
        """The peak of the process above what it held before. Data loaders and callbacks count here too."""
        return max(self.bytes_process_peak - self.bytes_baseline, 0)

    def __str__(self):
        size = _engine.size
        return (
            f"memory   {size(self.bytes_added)} added at the peak, budget {size(self.budget)}\n"
            f"process  {size(self.bytes_process_peak)} at its peak, of which {size(self.bytes_baseline)} were there before"
        )


class _Training:
    def __init__(self, model, rows, options, validation_rows, validation_freq, callbacks, on_nan, checkpoints=None):
        self.checkpoints, self.seed = checkpoints, options["seed"]
        rows.sums = checkpoints is not None and not hasattr(rows, "lent")
        self.model, self.rows, self.validation_freq, self.on_nan = model, rows, validation_freq, on_nan
        self.given = callbacks
        self.optimizer = inner_optimizer(model)
        rows.at_once = steps_at_once(model)
        self.validation_rows = validation_rows
        options = {**options, "config": describe(model, rows.dims), "validation": self._of_validation(rows)}
        _wake_backend(self.optimizer)
        self.baseline = _engine.baseline()
        require_agreement(model, rows, options["config"])
        # Where Keras's variables of the optimizer's state are needed while training runs, they are there before the plan, which
        # counts them. Else Keras builds them when the arena gives its values up.
        listed = getattr(callbacks, "callbacks", callbacks) or []
        if not self.optimizer.built and needs_state(listed):
            build(self.optimizer, model)
        ours = {**options, **(checkpoints.options if checkpoints else {})}
        text = request(model, rows.batch_size, ours, sample_weights=rows.weighted, baseline=self.baseline)
        self.session = _engine.Session(text, "training")
        self.kept = checkpoints.find(self.session, rows, self.seed) if checkpoints else None
        self.handover = Handover(self.session, model, self.optimizer)
        self.names = ["loss", *self.session.metrics()]
        kinds = [kind for _, _, kind, _ in self.session.variables()]
        self.rate_is_given, self.schedule = "learning_rate" in kinds, schedule_in_python(self.optimizer)
        self.plan = Plan(self.session.table(), self.session.json())
        self.peak = 0

    def _of_validation(self, rows):
        """What is said of the rows of a validation, which is planned with the training, before they come."""
        of = self.validation_rows
        if of is None:
            return None
        of.at_once = rows.at_once
        config = describe(self.model, of.dims) if of.dims != rows.dims else None
        return {"batch": of.batch_size, "weights_of_samples": list(of.weighted), "config": config}

    def run(self, epochs, initial_epoch, verbose):
        import keras

        model, callbacks = self.model, self.given
        if not isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks = keras.callbacks.CallbackList(callbacks, add_history=True, add_progbar=False, model=model, verbose=verbose,
                                                     epochs=epochs, steps=self.rows.steps)
        self.callbacks = callbacks
        self.watch = Watch(model, self.handover)
        self.progress = _Progress(verbose, epochs, self.rows.steps, self.plan.budget, self.baseline)
        model.stop_training = False
        callbacks.on_train_begin()
        # BackupAndRestore says there where it goes on.
        initial_epoch = getattr(model, "_initial_epoch", None) or initial_epoch
        logs = {}
        self.initial_epoch = initial_epoch
        if self.kept:
            initial_epoch = self._go_on()
        try:
            if not self.is_open:
                self.handover.open()
                self.is_open = True
            for epoch in range(initial_epoch, epochs):
                logs = self._epoch(epoch)
                if self.is_interrupted:
                    break
                if logs is None:
                    warnings.warn("the data ended before the last epoch; give epochs or steps_per_epoch that it has", stacklevel=3)
                    break
                if model.stop_training:
                    break
        finally:
            self._end()
        # Where averages are kept, they become the weights now.
        if epochs:
            self.optimizer.finalize_variable_values(model.trainable_variables)
        self._look_at_peak()
        callbacks.on_train_end(logs)
        history = model.history
        history.memfit = Memory(self.plan, self.plan.budget, self.baseline, self.peak)
        self.progress.end(history.memfit)
        self._require_budget(history)
        return history

    def _epoch(self, epoch):
        """Logs of an epoch; none where there was no batch."""
        model = self.model
        with self._watched():
            self.callbacks.on_epoch_begin(epoch)
        self.progress.epoch_begin(epoch)
        kept, self.kept = self.kept, None
        if kept is None:
            self.session.begin_epoch()
        logs, done, is_over = (kept["logs"], kept["done"], kept["is_over"]) if kept else ({}, 0, False)
        if not is_over:
            logs, done = self._steps(epoch, logs, done)
        if self.is_interrupted:
            return logs
        if not logs:
            return None
        if self.checkpoints and not is_over and self.checkpoints.is_due(epoch):
            self._write_checkpoint(epoch, logs, done, is_over=True)
        limit = self.rows.limit
        if limit is not None and done < limit and not model.stop_training:
            warnings.warn(f"the data ended at step {done} of {limit}; give epochs or steps_per_epoch that it has", stacklevel=4)
        if self.validation_rows is not None and _is_due(epoch, self.validation_freq):
            found = self._validate()
            logs.update({f"val_{name}": value for name, value in found.items()})
        self.progress.epoch_end(logs)
        with self._watched():
            self.callbacks.on_epoch_end(epoch, logs)
        return logs

    # Whether a signal has ended training.
    is_interrupted = False

    def _go_on(self):
        """Goes on from what a checkpoint kept; returns its epoch."""
        kept, model = self.kept, self.model
        self.initial_epoch = kept["initial_epoch"]
        restore_callbacks(self.callbacks.callbacks, kept["callbacks"])
        if self.rate_is_given and self.schedule is None:
            self.optimizer.learning_rate = kept["learning_rate"]
        self.session.open_from_checkpoint()
        self.is_open = True
        if hasattr(self.rows, "seed"):
            self.rows.seed = kept["shuffle"]
        self.rows.skip(kept["epoch"] - self.initial_epoch, kept["done"], kept["crc"], kept["is_over"])
        model.stop_training = kept["stop_training"]
        return kept["epoch"]

    def _write_checkpoint(self, epoch, logs, done, is_over=False):
        """`is_over` says that the epoch is over but for its validation and callbacks."""
        plain = {name: _plain(value) for name, value in logs.items()}
        self.checkpoints.write(self.session, self._rate(), {
            "run": {"seed": self.seed, "rows": self.rows.digest()},
            "epoch": epoch, "initial_epoch": self.initial_epoch, "done": done, "logs": plain, "is_over": is_over, "crc": self.rows.crc,
            "shuffle": getattr(self.rows, "seed", None),
            "learning_rate": number(self.optimizer.learning_rate) if self.rate_is_given and self.schedule is None else None,
            "callbacks": state_of_callbacks(self.callbacks.callbacks),
            "stop_training": bool(self.model.stop_training),
        })

    def _after_step(self, epoch, logs, done):
        """Writes a checkpoint where one is due; says whether training ends here."""
        to = self.checkpoints
        if to is None:
            return False
        to.step += 1
        if done % self.rows.at_once:
            return False
        if to.received is not None or to.is_due(None):
            self._write_checkpoint(epoch, logs, done)
        self.is_interrupted = to.received is not None
        return self.is_interrupted

    def _steps(self, epoch, logs, done):
        """The steps of an epoch after those that are done: their logs, and how many there were in all."""
        at_once = self.rows.at_once
        # A checkpoint is written when nothing is in flight.
        ahead = ahead_of(self.session, self.callbacks, TRAIN_HOOKS) if self.checkpoints is None else 0
        run = steps(self.session, self._batches(), ahead, self._before, self._rate)
        while True:
            try:
                answer = next(run, None)
            except NotFinite:
                self._show_not_finite(done)
                return logs or {"loss": float("nan")}, done
            if answer is None:
                break
            loss, metrics, _, held, _ = answer
            logs = logs_of(self.names, [loss, *metrics])
            done += 1
            if done % at_once == 0:
                self._after(done - 1, logs)
            self.progress.step(done - 1, logs, held)
            if self._after_step(epoch, logs, done):
                run.close()
                return logs, done
        if done % at_once:
            # Keras counts whole executions.
            self._after(done - done % at_once + at_once - 1, logs)
        return logs, done

    def _show_not_finite(self, done):
        """Lets callbacks see a loss that is not finite; what none of them ends is an error."""
        if self.on_nan == "callback":
            logs = {name: float("nan") for name in self.names}
            self._after(done, logs)
        if self.on_nan != "callback" or not self.model.stop_training:
            raise

    def _before(self, number):
        if number % self.rows.at_once == 0:
            with self._watched():
                self.callbacks.on_train_batch_begin(number)

    def _after(self, number, logs):
        with self._watched():
            self.callbacks.on_train_batch_end(number, logs)

    def _watched(self):
        """Callbacks run within: what they ask the model for is current."""
        return self.watch.callbacks(self.is_open)

    def _validate(self):
        """Loss and metrics over the rows of the validation, which runs in the bytes that no two steps share."""
        return evaluation(self.session, self.model, self.validation_rows, self.callbacks, self._validating(), self._watched)

    @contextlib.contextmanager
    def _validating(self):
        self.session.begin_validation()
        try:
            yield
        finally:
            self.session.end_validation()

    def _batches(self):
        """Batches of an epoch, up to the one after which a callback has had enough."""
        for number, batch in enumerate(self.rows.rest_of_epoch()):
            yield batch
            if self.model.stop_training and (number + 1) % self.rows.at_once == 0:
                return

    def _rate(self):
        """The learning rate of the next step, where it is not the engine that knows it."""
        if self.schedule is not None:
            return float(self.schedule(self.session.iteration))
        return number(self.optimizer.learning_rate) if self.rate_is_given else None

    is_open = False

    def _end(self):
        """Whatever ended training, the model gets what was learnt, and the arena goes."""
        if not self.is_open:
            return
        self._look_at_peak()
        try:
            self.handover.finish()
        finally:
            self._look_at_peak()
            self.session.close()
            self.is_open = False

    def _look_at_peak(self):
        self.peak = max(self.peak, _engine.resident_peak())

    def _require_budget(self, history):
        """More than the budget is an error of memfit's where nothing else ran in between."""
        memory = history.memfit
        if memory.bytes_added <= memory.budget:
            return
        size = _engine.size
        said = f"memfit added {size(memory.bytes_added)} at the peak and the budget is {size(memory.budget)}"
        if self.given or not hasattr(self.rows, "lent"):
            warnings.warn(f"{said}; callbacks and data that is made while training runs count too", stacklevel=4)
            return
        raise OverBudget(f"{said}; please report this with the model's model.to_json()", history)


def _plain(value):
    """A number, or the numbers of an array."""
    return value.tolist() if hasattr(value, "tolist") else value


def _wake_backend(optimizer):
    """Reads and writes one small variable, so that what a backend sets up with the first use is no part of what training adds."""
    variable = optimizer._iterations
    variable.assign(int(number(variable)))


def _say_replicas(model):
    """A model that a strategy mirrors trains once, and all copies get its weights."""
    strategy = getattr(model, "distribute_strategy", None)
    replicas = getattr(strategy, "num_replicas_in_sync", 1)
    if 1 < replicas:
        warnings.warn(f"the model was built for {replicas} replicas; memfit trains one, and all of them get its weights", stacklevel=3)


class _Progress:
    """A line that grows, and what memory is used beside the budget."""

    def __init__(self, verbose, epochs, steps, budget, baseline):
        self.verbose, self.epochs, self.steps = verbose, epochs, steps
        self.budget, self.baseline = budget, baseline
        self.line = ""

    def epoch_begin(self, epoch):
        self.start, self.shown = time.monotonic(), 0.0
        self.done, self.held = 0, 0
        if self.verbose == 1:
            print(f"Epoch {epoch + 1}/{self.epochs}")
        self.epoch = epoch

    def step(self, number, logs, held):
        self.done, self.held = number + 1, max(held - self.baseline, 0)
        now = time.monotonic()
        if self.verbose == 1 and (0.1 < now - self.shown or self.done == self.steps):
            self.shown = now
            self._show(logs, "\r")

    def epoch_end(self, logs):
        if self.verbose == 1:
            self._show(logs, "\r")
            print()
        elif self.verbose == 2:
            print(f"Epoch {self.epoch + 1}/{self.epochs}")
            self._show(logs, "")
            print()
        self.line = ""

    def end(self, memory):
        if self.verbose in (1, 2):
            print(memory)

    def _show(self, logs, begin):
        seconds = time.monotonic() - self.start
        values = " - ".join(f"{name}: {value_text(value)}" for name, value in logs.items())
        size = _engine.size
        line = f"{self.done}/{self.steps or '?'}  {seconds:.0f}s  {values}  [{size(self.held)} of {size(self.budget)}]"
        print(begin + line.ljust(len(self.line)), end="")
        sys.stdout.flush()
        self.line = line


def _validation(model, data, batch_size, steps):
    if isinstance(data, (list, tuple)):
        if len(data) not in (2, 3):
            raise Error(f"validation_data has {len(data)} parts; give (x, y) or (x, y, sample_weight)")
        return rows_of(model, *data, batch_size=batch_size, steps=steps)
    return rows_of(model, data, batch_size=None, steps=steps)


def _is_due(epoch, frequency):
    """As Keras's validation_freq: every `frequency` epochs, or those that are listed, counted from 1."""
    if isinstance(frequency, int):
        return (epoch + 1) % frequency == 0
    return epoch + 1 in frequency


def _drawn(seed):
    if seed is not None:
        return int(seed)
    import numpy as np

    return int(np.random.randint(0, 2**31))
