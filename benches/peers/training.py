"""What the frameworks' programs share: the case's folder, its arrays, and the loop that times steps and tells of them as memfit does."""

import json
import sys
import time
from pathlib import Path
from typing import Callable


class Prepared:
    """What prepare.py wrote, and the options of this run. Made when the framework is imported: `imported` is its memory then."""

    def __init__(self):
        import numpy

        self.imported = resident("VmHWM")
        self.numpy = numpy
        self.folder = Path(sys.argv[1])
        self.options = json.loads(sys.argv[2])
        graph = json.loads((self.folder / "nodes.json").read_text())
        self.nodes = graph["nodes"]
        self.batch = (numpy.load(self.folder / "x.npy"), numpy.load(self.folder / "y.npy"))

    def array(self, number: int):
        return self.numpy.load(self.folder / "arrays" / f"{number}.npy")

    def readers(self) -> dict:
        """How many layers read each."""
        count = {}
        for node in self.nodes:
            for name in set(node["inputs"]):
                count[name] = count.get(name, 0) + 1
        return count

    def train(self, step: Callable) -> None:
        """Runs `step`, which returns the loss as a number, and prints an event for each, as `memfit train --json` does."""
        # What loading took does not count.
        Path("/proc/self/clear_refs").write_text("5")
        for number in range(1, self.options["steps"] + 1):
            start = time.perf_counter()
            loss = step()
            seconds = time.perf_counter() - start
            print(json.dumps({"event": "step", "step": number, "loss": loss, "seconds": seconds}), flush=True)
        print(json.dumps({"event": "end", "bytes_own": max(0, resident("VmHWM") - self.imported), "bytes_imported": self.imported}))


def resident(line: str) -> int:
    """A line of the process's memory, in bytes."""
    for text in Path("/proc/self/status").read_text().splitlines():
        if text.startswith(line):
            return int(text.split()[1]) * 1024
    raise SystemExit(f"error: /proc/self/status has no {line}")


def pairs(value) -> tuple:
    """Keras's padding as ((top, bottom), (left, right))."""
    if isinstance(value, int):
        return ((value, value), (value, value))
    return tuple((part, part) if isinstance(part, int) else tuple(part) for part in value)


def unknown(node: dict) -> SystemExit:
    return SystemExit(f"error: layer {node['name']} of class {node['class']} is not known here; write it beside the others")
