"""Runs a training in a process of its own, within limits of time and memory, and reads its events."""

import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

WARM_UP = 2


class NoFigure(Exception):
    """Why a cell has no figures."""


@dataclass
class Limits:
    seconds: float
    cores: list
    # Resident bytes of the process; none: what the machine has.
    bytes: int = 0
    environment: dict = field(default_factory=dict)


@dataclass
class Run:
    """What a training took. `bytes` is its peak above the imported framework, for memfit all of the process."""

    seconds: float
    bytes: int
    first_step: float
    losses: list
    batch: int = 0
    bytes_imported: int = 0


def train(command: list, limits: Limits, warm_up: int = WARM_UP) -> Run:
    """Runs `command`, which prints events as `memfit train --json` does."""
    events, arrivals = [], []

    def read(stream) -> None:
        for line in stream:
            if line.startswith('{"event"'):
                arrivals.append(time.monotonic())
                events.append(json.loads(line))

    with tempfile.TemporaryFile("w+") as errors:
        start = time.monotonic()
        child = subprocess.Popen(
            [str(part) for part in command], stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
            env={**os.environ, **limits.environment}, preexec_fn=lambda: os.sched_setaffinity(0, limits.cores),
        )
        reader = threading.Thread(target=read, args=(child.stdout,))
        reader.start()
        reason = watch(child, start, limits)
        reader.join()
        if reason:
            raise NoFigure(reason)
        if child.returncode != 0:
            errors.seek(0)
            raise NoFigure(why(child.returncode, errors.read()))
    steps = [event for event in events if event["event"] == "step"]
    if len(steps) <= warm_up or events[-1]["event"] != "end":
        raise NoFigure("ended before its last step")
    end = events[-1]
    return Run(
        seconds=statistics.median([event["seconds"] for event in steps[warm_up:]]),
        bytes=end["bytes_own"] if "bytes_own" in end else end["vm_hwm"],
        bytes_imported=end.get("bytes_imported", 0),
        first_step=arrivals[0] - start,
        losses=[event["loss"] for event in steps[:3]],
    )


def watch(child: subprocess.Popen, start: float, limits: Limits) -> str:
    """Waits for its end; ends it at a limit, and says which."""
    most = limits.bytes or available() + resident(child.pid)
    try:
        while child.poll() is None:
            if limits.seconds < time.monotonic() - start:
                return f"took longer than {limits.seconds:.0f} s"
            if most < resident(child.pid):
                return f"out of memory: over {most / 2**30:.1f} GiB"
            time.sleep(0.02)
        return ""
    finally:
        # Also what it started itself, as compilers; and also where this program is being ended.
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()


def resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def available() -> int:
    """What the machine has left, less some for everybody else."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return max(0, int(line.split()[1]) * 1024 - 2**29)
    raise SystemExit("error: /proc/meminfo has no MemAvailable")


def why(status: int, errors: str) -> str:
    lines = [line for line in errors.strip().splitlines() if line.strip()]
    for line in reversed(lines):
        if "No module named" in line:
            return "missing: " + line.split("named")[-1].strip().strip("'")
    if status == -signal.SIGKILL or any("MemoryError" in line or "RESOURCE_EXHAUSTED" in line for line in lines):
        return "out of memory"
    told = [line for line in lines if line.startswith("error")]
    return (told or lines[-1:] or [f"ended with {status}"])[0][:160]
