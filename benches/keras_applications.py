"""Trains architectures of keras.applications with TensorFlow and with memfit: peak resident memory and time of a step.

    python3 -m venv .venv && .venv/bin/pip install tensorflow==2.21.*
    cargo build --release
    .venv/bin/python benches/keras_applications.py [--memfit target/release/memfit] [--batch 8] [--side N] [NAME…]

Both train the same architecture on the same batch in the same run, each in a process of its own: two steps of SGD after
one that warms up, at the smallest input that the architecture accepts unless `--side` says another. Memory is the peak resident set of
the process; for TensorFlow also less what importing it takes.
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

# One of each family.
DEFAULT = [
    "MobileNetV2", "MobileNetV3Small", "EfficientNetB0", "EfficientNetV2B0", "DenseNet121", "ResNet50", "VGG16",
    "InceptionV3", "Xception", "NASNetMobile", "ConvNeXtTiny",
]
STEPS = 3

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


def run_memfit(memfit: str, folder: str, threads: int) -> dict:
    command = [memfit, "train", str(Path(folder, "job.toml")), "--threads", str(threads), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    seconds = [event["seconds"] for event in events if event["event"] == "step"]
    return {"seconds": min(seconds[1:]), "bytes": events[-1]["vm_hwm"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--memfit", default=str(HERE.parent / "target" / "release" / "memfit"))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--side", type=int)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    parser.add_argument("--tensorflow", help=argparse.SUPPRESS)
    arguments = parser.parse_intermixed_args()
    if arguments.prepare:
        return prepare(arguments.names[0], arguments.side, arguments.batch, arguments.prepare)
    if arguments.tensorflow:
        return print(json.dumps(tensorflow_steps(arguments.tensorflow, arguments.threads)))
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    print(f"batch {arguments.batch}, {arguments.threads} threads; TensorFlow's memory: all, and without its import")
    print("| architecture | input | TensorFlow MiB | memfit MiB | ratio | TensorFlow ms | memfit ms | ratio |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in arguments.names or DEFAULT:
        side = arguments.side or applications.SIDES[name]
        with tempfile.TemporaryDirectory() as folder:
            own = [sys.executable, __file__, name, "--batch", str(arguments.batch), "--side", str(side)]
            own += ["--threads", str(arguments.threads)]
            subprocess.run([*own, "--prepare", folder], env=environment, check=True, capture_output=True)
            output = subprocess.run(
                [*own, "--tensorflow", folder], env=environment, check=True, capture_output=True, text=True
            ).stdout
            theirs = json.loads(output.strip().splitlines()[-1])
            ours = run_memfit(arguments.memfit, folder, arguments.threads)
        mib = lambda count: f"{count / 2**20:.0f}"
        print(
            f"| {name} | {side} | {mib(theirs['bytes'])} ({mib(theirs['bytes_own'])}) | {mib(ours['bytes'])} "
            f"| {ours['bytes'] / theirs['bytes']:.2f} ({ours['bytes'] / theirs['bytes_own']:.2f}) "
            f"| {theirs['seconds'] * 1e3:.0f} | {ours['seconds'] * 1e3:.0f} "
            f"| {ours['seconds'] / theirs['seconds']:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
