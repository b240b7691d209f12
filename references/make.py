"""Computes the reference numbers that the Rust tests are checked against.

Run it from the root of the repository:

    python3 -m venv .venv && .venv/bin/pip install tensorflow==2.21.* && .venv/bin/python references/make.py

It writes layers.json (one call and one gradient of each layer), training.json
(ten training steps of small models) and precision.json (the same under mixed
policies) beside itself. README.md describes the files. A second run writes the same bytes.
"""

import json
import os
import pathlib
import sys

# Plain float32 arithmetic on the processor, in one fixed order of summation.
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.dont_write_bytecode = True

import keras
import tensorflow as tf

import augmentation_cases
import layer_cases
import operation_cases
import precision_cases
import recurrent_cases
import spatial_cases
import training_cases


def write(path, cases):
    """Writes a JSON list with one case per line."""
    names = [case["name"] for case in cases]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ValueError(f"repeated case names: {sorted(repeated)}")
    lines = [json.dumps(case, separators=(",", ":"), allow_nan=False) for case in cases]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{path.name}: {len(cases)} cases, {path.stat().st_size} bytes")


def compute(module):
    """The cases of one file, with names and seeds counted from the start, so that no file depends on the cases of another."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    return module.compute()


def main():
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    folder = pathlib.Path(__file__).resolve().parent
    write(folder / "layers.json", compute(layer_cases))
    write(folder / "operations.json", compute(operation_cases))
    write(folder / "recurrent.json", compute(recurrent_cases))
    write(folder / "augmentation.json", compute(augmentation_cases))
    write(folder / "spatial.json", compute(spatial_cases))
    write(folder / "training.json", compute(training_cases))
    write(folder / "precision.json", compute(precision_cases))


if __name__ == "__main__":
    main()
