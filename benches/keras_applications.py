"""Trains architectures of keras.applications with TensorFlow and with memfit: peak resident memory and time of a step.

    python3 -m venv .venv && .venv/bin/pip install tensorflow==2.21.*
    cargo build --release
    .venv/bin/python benches/keras_applications.py [--only NAME…] [--quick] [--batch 8] [--side N] [--seconds 600]

All architectures of keras.applications, or with `--quick` the smallest of each family. Both train the same architecture on the same batch in the
same run, each in a process of its own: two steps of SGD after one that warms up, at the smallest input that the architecture accepts unless
`--side` says another. Memory is the peak resident set of the process, of which memfit may take 60 % of TensorFlow's; in brackets what
TensorFlow's takes less its import. A row that takes longer than `--seconds`, or runs out of memory, is a row that says so.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "references"))
sys.dont_write_bytecode = True

import applications

# The smallest of each family.
QUICK = [
    "MobileNet", "MobileNetV2", "MobileNetV3Small", "EfficientNetB0", "EfficientNetV2B0", "DenseNet121", "ResNet50", "ResNet50V2", "VGG16",
    "InceptionV3", "InceptionResNetV2", "Xception", "NASNetMobile", "ConvNeXtTiny",
]
STEPS = 3
GOAL = 0.60

JOB = """
[model]
file = "model.json"
[train]
loss = "categorical_crossentropy"
optimizer = "sgd"
batch = {batch}
steps = {steps}
[data]
x = "x.npy"
y = "y.npy"
"""


def prepare(name: str, side: int, batch: int, folder: str) -> None:
    """Runs in a process of its own: writes the model and the batch."""
    import numpy as np

    model = applications.build(name, side)
    Path(folder, "model.json").write_text(model.to_json())
    Path(folder, "job.toml").write_text(JOB.format(batch=batch, steps=STEPS))
    random = np.random.default_rng(0)
    np.save(Path(folder, "x.npy"), random.random((batch, side, side, 3), dtype=np.float32))
    np.save(Path(folder, "y.npy"), np.eye(1000, dtype=np.float32)[random.integers(0, 1000, batch)])


def tensorflow_steps(folder: str, threads: int) -> dict:
    """Runs in a process of its own: trains with TensorFlow and tells what it took."""
    import keras
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    imported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    model = keras.models.model_from_json(Path(folder, "model.json").read_text())
    model.compile(optimizer="sgd", loss="categorical_crossentropy", jit_compile=False)
    x, y = np.load(Path(folder, "x.npy")), np.load(Path(folder, "y.npy"))
    seconds = []
    for _ in range(STEPS):
        start = time.perf_counter()
        model.train_on_batch(x, y)
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": min(seconds[1:]), "bytes": peak, "bytes_own": peak - imported}


def run(command: list, seconds: float, **options) -> str:
    """What a process of its own prints; why not, where it fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, **options)
    except subprocess.TimeoutExpired:
        raise NoFigure(f"took longer than {seconds:.0f} s") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        raise NoFigure(said[0] if said[0].startswith("error") else said[-1][:120])
    return done.stdout


class NoFigure(Exception):
    """Why a row has no figures."""


def run_memfit(memfit: str, folder: str, threads: int, seconds: float) -> dict:
    command = [memfit, "train", str(Path(folder, "job.toml")), "--threads", str(threads), "--json"]
    # Nodes are timed anew, and not on another day.
    output = run(command, seconds, env=dict(os.environ, XDG_CACHE_HOME=folder))
    events = [json.loads(line) for line in output.splitlines()]
    times = [event["seconds"] for event in events if event["event"] == "step"]
    return {"seconds": min(times[1:]), "bytes": events[-1]["vm_hwm"]}


def row(name: str, arguments: argparse.Namespace) -> tuple:
    """The cells of an architecture, and its share of TensorFlow's memory."""
    side = arguments.side or applications.SIDES[name]
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    own = [sys.executable, __file__, "--only", name, "--batch", str(arguments.batch), "--side", str(side)]
    own += ["--threads", str(arguments.threads)]
    with tempfile.TemporaryDirectory() as folder:
        run([*own, "--prepare", folder], arguments.seconds, env=environment)
        output = run([*own, "--tensorflow", folder], arguments.seconds, env=environment)
        theirs = json.loads(output.strip().splitlines()[-1])
        ours = run_memfit(arguments.memfit, folder, arguments.threads, arguments.seconds)
    share = ours["bytes"] / theirs["bytes"]
    mib = lambda count: f"{count / 2**20:.0f}"
    cells = [
        name, str(side), f"{mib(theirs['bytes'])} ({mib(theirs['bytes_own'])})", mib(ours["bytes"]),
        f"{share:.0%} ({ours['bytes'] / theirs['bytes_own']:.0%})", f"{theirs['seconds'] * 1e3:.0f}",
        f"{ours['seconds'] * 1e3:.0f}", f"{ours['seconds'] / theirs['seconds']:.2f}",
    ]
    return cells, share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=applications.SIDES)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--memfit", default=str(HERE.parent / "target" / "release" / "memfit"))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--side", type=int)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    parser.add_argument("--tensorflow", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.prepare:
        return prepare(arguments.only[0], arguments.side, arguments.batch, arguments.prepare)
    if arguments.tensorflow:
        return print(json.dumps(tensorflow_steps(arguments.tensorflow, arguments.threads)))
    names = arguments.only or (QUICK if arguments.quick else list(applications.SIDES))
    print(f"batch {arguments.batch}, {arguments.threads} threads, load {os.getloadavg()[0]:.1f}; TensorFlow's memory: all, and without its import")
    print("| architecture | input | TensorFlow MiB | memfit MiB | share | TensorFlow ms | memfit ms | time |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    shares, without = {}, []
    for name in names:
        try:
            cells, shares[name] = row(name, arguments)
            print(f"| {' | '.join(cells)} |", flush=True)
        except NoFigure as reason:
            without.append(name)
            print(f"| {name} | {reason} |" + " |" * 6, flush=True)
    above = [name for name, share in shares.items() if GOAL < share]
    print(f"{len(shares) - len(above)} of {len(names)} within {GOAL:.0%} of TensorFlow's memory", end="")
    print(f"; above: {', '.join(above)}" if above else "", end="")
    print(f"; without figures: {', '.join(without)}" if without else "")


if __name__ == "__main__":
    main()
