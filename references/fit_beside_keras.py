"""Trains architectures of keras.applications for three steps in Keras and in memfit, from the same file on the same rows.

    cargo build --release && .venv/bin/python references/fit_beside_keras.py target/release/memfit [NAME…]

Each architecture has 10 classes, random weights, and no random layers (rates are set to 0), and is trained by SGD on 24 rows
in batches of 8. Losses must agree within 1e-4 relative; every weight, behind the last step, within 1e-3 of its own size.
The whole step from the first weights to the last must agree within 1e-2 of itself. Where that fails, Keras takes the same
steps in float64: memfit must be as near to those as Keras's own float32 is, within a factor of two. That says little where both are
far from float64, so the table shows both distances. Results depend on the seed: MobileNet fails with some draws of its weights.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
sys.dont_write_bytecode = True

import keras
import numpy as np

import applications
import counter

DEFAULT = [
    "MobileNet", "MobileNetV2", "MobileNetV3Small", "MobileNetV3Large", "EfficientNetB0", "EfficientNetV2B0",
    "DenseNet121", "ResNet50", "ResNet50V2", "NASNetMobile", "ConvNeXtTiny", "VGG16", "InceptionV3", "Xception",
    "InceptionResNetV2",
]
ROWS, BATCH, CLASSES = 24, 8, 10
# Small: normalised over the 8 values that are left of a small image, gradients of early layers are in the hundreds. At 1e-4,
# three steps of MobileNet and MobileNetV2 are 4 % and 60 % away from float64, in Keras's float32 as in memfit's.
RATE = 1e-5
RATES = {"Dropout": "rate", "StochasticDepth": "drop_path_rate"}


def without_chance(config):
    """The configuration with all rates 0."""
    if isinstance(config, list):
        return [without_chance(item) for item in config]
    if not isinstance(config, dict):
        return config
    config = {key: without_chance(value) for key, value in config.items()}
    rate = RATES.get(config.get("class_name"))
    if rate:
        config["config"][rate] = 0.0
    return config


def model_of(name):
    keras.utils.set_random_seed(1)
    config = json.loads(applications.build(name, classes=CLASSES).to_json())
    keras.backend.clear_session()
    model = keras.models.model_from_json(json.dumps(without_chance(config)))
    model.compile(optimizer=keras.optimizers.SGD(RATE), loss="categorical_crossentropy", run_eagerly=True)
    return model


def flat(model):
    for layer in model.layers:
        yield from flat(layer) if isinstance(layer, keras.Model) else [layer]


def train(model, x, y):
    """The losses of all batches."""
    losses = []
    for first in range(0, ROWS, BATCH):
        model.reset_metrics()
        part = slice(first, first + BATCH)
        losses.append(float(model.train_on_batch(x[part], y[part], return_dict=True)["loss"]))
    return losses


def in_float64(model, before, x, y):
    """The weights behind the same steps in double precision."""
    config = model.to_json().replace('"float32"', '"float64"')
    keras.config.set_floatx("float64")
    double = keras.models.model_from_json(config)
    double.compile(optimizer=keras.optimizers.SGD(RATE), loss="categorical_crossentropy", run_eagerly=True)
    double.set_weights([value for _, value in before])
    train(double, x.astype("float64"), y.astype("float64"))
    keras.config.set_floatx("float32")
    return weights_of(double)


def distance(a, b):
    return np.sqrt(sum(float(np.sum((x - y.astype("float64")) ** 2)) for (_, x), (_, y) in zip(a, b)))


def weights_of(model):
    return [(w.path, w.numpy()) for w in model.weights if "seed" not in w.path]


def compare(memfit, name, folder):
    side = applications.SIDES[name]
    start, end = folder / "start.keras", folder / "end.keras"
    model = model_of(name)
    # Some have their preprocessing within.
    low, high = (0, 255) if any(type(layer).__name__ in ("Rescaling", "Normalization") for layer in flat(model)) else (-1, 1)
    x = counter.tensor(counter.uniform([ROWS, side, side, 3], 11, low, high))
    y = counter.tensor(counter.one_hot([ROWS, CLASSES], 12))
    files = [folder / "x.npy", folder / "y.npy"]
    for file, array in zip(files, (x, y)):
        np.save(file, array)
    before = weights_of(model)
    model.save(start)
    theirs = train(model, x, y)
    command = [memfit, "train", str(start), "--data", ",".join(map(str, files)), "--batch", str(BATCH)]
    done = subprocess.run([*command, "--output", str(end), "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        return False, done.stderr.strip().splitlines()[0]
    events = [json.loads(line) for line in done.stdout.splitlines()]
    ours = [event["loss"] for event in events if event["event"] == "step"]
    assert len(ours) == len(theirs), ours
    loss_gap = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
    after, wanted = weights_of(keras.models.load_model(end)), weights_of(model)
    apart, moved = distance(after, wanted), distance(wanted, before)

    values = dict(wanted)

    def gap(pair):
        ((path, a), (_, b)) = pair
        size = float(np.linalg.norm(b))
        # Both are 0 but for rounding in front of a normalisation: the mean of what was normalised before, which counts by
        # the deviation it is divided by, and the gradient of a shift, which counts by what all weights moved.
        if path.endswith("moving_mean"):
            size = max(size, float(np.linalg.norm(np.sqrt(values[path.replace("moving_mean", "moving_variance")]))))
        return float(np.linalg.norm(a - b)) / max(size, 1e-3 * moved)

    worst = max(zip(after, wanted), key=gap)
    where, worst = worst[0][0], gap(worst)
    step_gap = apart / moved
    agrees = loss_gap <= 1e-4 and worst <= 1e-3 and step_gap <= 1e-2
    answer = f"{theirs[-1]:.5f} | {loss_gap:.1e} | {worst:.1e} ({where}) | {step_gap:.1e}"
    if not agrees:
        exact = in_float64(model, before, x, y)
        off, keras_off = distance(after, exact) / moved, distance(wanted, exact) / moved
        agrees = off <= 2 * keras_off
        answer += f", from float64 {off:.1e}, Keras's float32 {keras_off:.1e}"
    return agrees, answer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("memfit")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_intermixed_args()
    failed = []
    print("| architecture | agrees | third loss | losses differ by | weights differ by | steps differ by |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in arguments.names or DEFAULT:
        with tempfile.TemporaryDirectory() as folder:
            agrees, answer = compare(arguments.memfit, name, Path(folder))
        print(f"| {name} | {'yes' if agrees else 'NO'} | {answer} |", flush=True)
        if not agrees:
            failed.append(name)
        keras.backend.clear_session()
    if failed:
        sys.exit(f"disagree: {', '.join(failed)}")


if __name__ == "__main__":
    main()
