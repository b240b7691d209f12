"""Checkpoints of `fit`: everything beside the variables that it takes to go on bit for bit, and signals that end training."""

import contextlib
import json
import os
import re
import signal
import threading
import time
import zlib

from ._errors import Error

# As the command's: what a terminal, a shell, a batch system or a time limit sends to a job that is to end.
_ENDING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGXCPU", "SIGUSR1")

_SECONDS = {"s": 1, "sec": 1, "second": 1, "seconds": 1, "min": 60, "minute": 60, "minutes": 60, "h": 3600, "hour": 3600, "hours": 3600}


class Checkpoints:
    """When a checkpoint is due, what it keeps beside the variables, and what training goes on from."""

    def __init__(self, folder, every, keep, resume):
        self.folder = os.path.abspath(os.fspath(folder))
        self.every = _interval(every)
        if keep is not None and not (isinstance(keep, int) and 1 <= keep):
            raise Error(f"keep is {keep!r}; give a count from 1 on")
        if resume not in (False, True, "force"):
            raise Error(f'resume is {resume!r}; give True, or "force" where the job may be another')
        self.options = {"checkpoints": self.folder, "keep": keep, "resume": {False: None, True: "newest"}.get(resume, resume)}
        self.resume, self.force = bool(resume), resume == "force"
        self.step, self.last, self.received, self.found = 0, time.monotonic(), None, None
        # What was done on a signal before it was noted here.
        self.handlers = {}

    def find(self, session, rows, seed):
        """What the checkpoint kept that a session goes on from, where there is one; it must be of the same rows."""
        found = session.goes_on_from()
        if found is None:
            return None
        path, text = found
        kept = json.loads(text)
        now = {"seed": seed, "rows": rows.digest()}
        differs = [f"{name} was {kept['run'].get(name)} and is {value}" for name, value in now.items() if kept["run"].get(name) != value]
        if differs and not self.force:
            raise Error(f"{path} is of another job: {'; '.join(differs)}; give what it had, another folder, or resume=\"force\"")
        self.step, self.found = kept["step"], kept
        return kept

    def is_due(self, epoch_ends):
        """Whether one is due after a step, by which an epoch ends or does not."""
        kind, count = self.every
        if kind == "steps":
            return self.step % count == 0
        if kind == "epochs":
            return epoch_ends is not None and (epoch_ends + 1) % count == 0
        return count <= time.monotonic() - self.last

    def write(self, session, learning_rate, kept):
        """Writes one, with what is kept."""
        session.write_checkpoint(self.step, float(learning_rate or 0.0), json.dumps({**kept, "step": self.step}))
        self.last = time.monotonic()

    @contextlib.contextmanager
    def signals(self):
        """Signals that would end the process, and Ctrl-C, are noted within; the first of them is sent again when training has ended."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        for name in _ENDING:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                self.handlers[number] = signal.signal(number, self._note)
        try:
            yield
        finally:
            for number, handler in self.handlers.items():
                signal.signal(number, handler)

    def _note(self, number, _frame):
        if self.received is not None:
            # The second one does not wait.
            signal.signal(number, self.handlers[number])
            os.kill(os.getpid(), number)
        self.received = number

    def send_again(self):
        """Ends the process as the signal that was noted would have, or raises KeyboardInterrupt after Ctrl-C."""
        if self.received is not None:
            os.kill(os.getpid(), self.received)


def _interval(text):
    """`500steps`, `10min`, `1epoch`."""
    found = re.fullmatch(r"(\d+)\s*([a-z]+)", text) if isinstance(text, str) else None
    count, unit = (int(found[1]), found[2]) if found else (0, "")
    if count and unit in ("step", "steps"):
        return "steps", count
    if count and unit in ("epoch", "epochs"):
        return "epochs", count
    if count and unit in _SECONDS:
        return "time", count * _SECONDS[unit]
    raise Error(f"every is {text!r}; give an interval such as \"500steps\", \"10min\" or \"1epoch\"")


def state_of_callbacks(callbacks):
    """Plain values among the attributes of each callback: patience, best values, the history."""
    def plain(one):
        return {name: value for name, value in vars(one).items() if name not in _THEIRS and _is_plain(value)}

    return [[type(one).__name__, plain(one), getattr(one, "monitor_op", None) is not None] for one in callbacks]


def restore_callbacks(callbacks, kept):
    """Gives callbacks of the same kinds, in the same order, their values back."""
    names, theirs = [type(one).__name__ for one in callbacks], [name for name, *_ in kept]
    if names != theirs:
        raise Error(f"the run had the callbacks {theirs} and has {names} now; give the same ones")
    for one, (_, values, compares) in zip(callbacks, kept):
        # Keras decides at the end of the first epoch whether smaller or larger values are better, and resets the best one then.
        if compares and getattr(one, "monitor_op", True) is None:
            one._set_monitor_op()
        for name, value in values.items():
            setattr(one, name, value)


# What a callback is given, and does not remember.
_THEIRS = {"params", "_model", "model", "verbose"}


def _is_plain(value):
    if isinstance(value, (bool, int, float, str, type(None))):
        return True
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, dict) and all(isinstance(name, str) and _is_plain(one) for name, one in value.items())


def checksum(batch, before):
    """The running checksum of the rows of batches."""
    for array, *_ in batch.arrays:
        before = zlib.crc32(array, before)
    return before


def digest_of(arrays):
    """Arrays by their elements, dimensions, first and last bytes: enough to notice other data, at no cost for large ones."""
    part, digest = 64 << 10, []
    for array, description, dims in arrays:
        digest.append([description, list(dims), zlib.crc32(array[-part:], zlib.crc32(array[:part]))])
    return digest
