"""Times memfit beside TensorFlow on the same job, in fresh processes, and prints the ratio.

    python3 -m venv .venv && .venv/bin/pip install tensorflow==2.21.*
    cargo build --release
    .venv/bin/python benches/beside_tensorflow.py [--steps 12] [--threads 2]

The job is examples/reduced.toml: Conv2D 64, pool, Conv2D 128, GlobalAveragePooling2D, Dense on 128x128x3, batch 32, Adam.
Time is the median step behind the first two; memory is the peak resident set, for TensorFlow less what it takes to
import it.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
WARM_UP = 2


def tensorflow_steps(steps: int, threads: int) -> dict:
    """Runs in a process of its own: trains with TensorFlow and tells what it took."""
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    import keras
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    imported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    model = keras.Sequential([
        keras.Input((128, 128, 3)),
        keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(128, 3, padding="same", activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(10, activation="softmax"),
    ])
    model.compile(optimizer="adam", loss="categorical_crossentropy", metrics=["accuracy"])
    random = np.random.default_rng(0)
    x = random.random((32, 128, 128, 3), dtype=np.float32)
    y = np.eye(10, dtype=np.float32)[random.integers(0, 10, 32)]
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        model.train_on_batch(x, y)
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": statistics.median(seconds[WARM_UP:]), "bytes": peak - imported}


def run_tensorflow(steps: int, threads: int, onednn: str) -> dict:
    command = [sys.executable, __file__, "--tensorflow", "--steps", str(steps), "--threads", str(threads)]
    environment = dict(os.environ, TF_ENABLE_ONEDNN_OPTS=onednn)
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return json.loads(output.strip().splitlines()[-1])


def run_memfit(steps: int, threads: int) -> dict:
    binary = os.path.join(ROOT, "target", "release", "memfit")
    job = os.path.join(ROOT, "examples", "reduced.toml")
    command = [binary, "train", job, "--steps", str(steps), "--threads", str(threads), "--json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    events = [json.loads(line) for line in output.splitlines()]
    seconds = [event["seconds"] for event in events if event["event"] == "step"]
    return {"seconds": statistics.median(seconds[WARM_UP:]), "bytes": events[-1]["vm_hwm"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--tensorflow", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.tensorflow:
        print(json.dumps(tensorflow_steps(arguments.steps, arguments.threads)))
        return
    rows = {
        "TensorFlow, oneDNN": run_tensorflow(arguments.steps, arguments.threads, "1"),
        "TensorFlow, plain": run_tensorflow(arguments.steps, arguments.threads, "0"),
        "memfit": run_memfit(arguments.steps, arguments.threads),
    }
    best = min(row["seconds"] for name, row in rows.items() if name != "memfit")
    least = min(row["bytes"] for name, row in rows.items() if name != "memfit")
    print(f"reduced network, batch 32, {arguments.threads} threads; memory is the peak above the imported framework")
    print("| | ms a step | MiB | time ratio | memory ratio |\n|---|---|---|---|---|")
    for name, row in rows.items():
        time_ratio, memory_ratio = row["seconds"] / best, row["bytes"] / least
        print(f"| {name} | {row['seconds'] * 1e3:.0f} | {row['bytes'] / 2**20:.0f} | {time_ratio:.2f} | {memory_ratio:.2f} |")


if __name__ == "__main__":
    main()
