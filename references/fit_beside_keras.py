"""Trains architectures of keras.applications for three steps by `model.fit` and by `memfit.fit`, from the same weights on the same rows.

    .venv/bin/python references/fit_beside_keras.py [NAME…] [--without-float64] [--without NAME]

Needs the package (`pip install ./crates/memfit-python`); tools/keras-check makes an environment and runs it. Each architecture has 10
classes, random weights, and no random layers (rates are set to 0). Losses must agree within 1e-4 relative; every weight, behind the third
step, within 1e-3 of its own size, and all that the weights moved within 1e-2 of itself; the file that was saved must predict the same in a
Keras that loads it, within 1e-4. Nothing is forgiven.

Beside that stands how far Keras's own float32 is from Keras's float64 on the same steps: what the comparison can see at all. It is chosen to
see well. A deep network with batch normalisation as Keras initialises it is chaotic: half of all units stand at the edge between on and off, and
noise of the last digit grows from layer to layer, until Keras's float32 is 20 % away from its float64 behind three small steps of ResNet50 or
MobileNet, whatever the side and the batch; agreement would say nothing there. So the normalisations begin with scales of about 0.5 and shifts of
about 1, as training leaves them: most units are on. The optimizer is SGD, and not Adam, whose step has the same length for a gradient of
1e-12 as for one of 1: where a gradient is 0 but for rounding, two right answers then differ by two whole steps.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
sys.dont_write_bytecode = True

import keras
import memfit
import numpy as np

import applications
import counter

# Architecture, side of its input, rows of a batch.
CASES = {
    "MobileNet": (64, 8), "MobileNetV2": (64, 8), "MobileNetV3Small": (64, 8), "MobileNetV3Large": (64, 8),
    "EfficientNetB0": (64, 8), "EfficientNetV2B0": (64, 8), "DenseNet121": (64, 8), "ResNet50": (64, 8), "ResNet50V2": (64, 8),
    "NASNetMobile": (64, 4), "ConvNeXtTiny": (32, 8), "VGG16": (32, 8), "InceptionV3": (75, 8), "Xception": (71, 4),
    "InceptionResNetV2": (75, 8),
}
STEPS, CLASSES = 3, 10
RATE = 1e-3
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


def built(config, weights=None):
    """A model of a configuration, compiled; the same weights every time."""
    keras.utils.set_random_seed(1)
    model = keras.models.model_from_json(config)
    model.compile(optimizer=keras.optimizers.SGD(RATE), loss="categorical_crossentropy", run_eagerly=True)
    if weights is not None:
        model.set_weights(weights)
        return model
    random = np.random.default_rng(3)
    for layer in flat(model):
        if isinstance(layer, keras.layers.BatchNormalization):
            # Twice the scale, or more: what has no scale has 1.
            for weight, middle in ((layer.gamma, 0.5), (layer.beta, 1.0 if layer.scale else 3.0)):
                if weight is not None:
                    weight.assign(random.uniform(0.8 * middle, 1.2 * middle, weight.shape))
    return model


def flat(model):
    for layer in model.layers:
        yield from flat(layer) if isinstance(layer, keras.Model) else [layer]


class Losses(keras.callbacks.Callback):
    """The loss so far, behind every step."""

    def __init__(self):
        super().__init__()
        self.values = []

    def on_train_batch_end(self, batch, logs=None):
        self.values.append(float(logs["loss"]))


def trained(fit, x, y, batch):
    losses = Losses()
    fit(x, y, batch_size=batch, epochs=1, shuffle=False, verbose=0, callbacks=[losses])
    assert len(losses.values) == STEPS, losses.values
    return losses.values


def in_float64(config, start, names, x, y, batch):
    """The weights behind the same steps of Keras in double precision."""
    keras.config.set_floatx("float64")
    double = built(config.replace('"float32"', '"float64"'), start)
    trained(double.fit, x.astype("float64"), y.astype("float64"), batch)
    keras.config.set_floatx("float32")
    return weights_of(double, names)


def weights_of(model, names=None):
    """All weights by the names of the first model: Keras numbers those of its later copies otherwise."""
    weights = [w for w in model.weights if "seed" not in w.path]
    names = list(names or [w.path for w in weights])
    assert len(set(names)) == len(weights) == len(names)
    return {name: w.numpy().astype("float64") for name, w in zip(names, weights)}


def distance(a, b):
    return np.sqrt(sum(float(np.sum((a[path] - b[path]) ** 2)) for path in b))


def gaps(ours, theirs, before):
    """The worst difference of a weight from its size, its name, and the difference of all steps from their size.

    Statistics move by themselves, and far: steps are those of what learns.
    """
    learns = lambda weights: {path: value for path, value in weights.items() if "/moving_" not in path}
    moved = distance(learns(theirs), learns(before))

    def gap(path):
        wanted = theirs[path]
        size = float(np.linalg.norm(wanted))
        # Both are 0 but for rounding in front of a normalisation: the mean of what was normalised before, which counts by
        # the deviation it is divided by, and the gradient of a shift, which counts by what all weights moved.
        if path.endswith("moving_mean"):
            size = max(size, float(np.linalg.norm(np.sqrt(theirs[path.replace("moving_mean", "moving_variance")]))))
        return float(np.linalg.norm(ours[path] - wanted)) / max(size, 1e-3 * moved)

    worst = max(theirs, key=gap)
    return gap(worst), worst, distance(learns(ours), learns(theirs)) / moved


def compare(name, folder, with_float64):
    side, batch = CASES.get(name) or (applications.SIDES[name], 8)
    config = json.dumps(without_chance(json.loads(applications.build(name, side, CLASSES).to_json())))
    keras.backend.clear_session()
    model = built(config)
    # Some have their preprocessing within.
    low, high = (0, 255) if any(type(layer).__name__ in ("Rescaling", "Normalization") for layer in flat(model)) else (-1, 1)
    rows = STEPS * batch
    x = counter.tensor(counter.uniform([rows, side, side, 3], 11, low, high))
    y = counter.tensor(counter.one_hot([rows, CLASSES], 12))
    before, start = weights_of(model), model.get_weights()

    their_losses = trained(model.fit, x, y, batch)
    theirs = weights_of(model, before)
    model = built(config, start)
    our_losses = trained(lambda *data, **options: memfit.fit(model, *data, costs="analytic", **options), x, y, batch)
    ours = weights_of(model, before)

    file = folder / "trained.keras"
    model.save(file)
    probabilities = keras.models.load_model(file).predict(x[:batch], verbose=0)
    prediction_gap = float(np.max(np.abs(memfit.predict(model, x[:batch], batch_size=batch) - probabilities)))

    loss_gap = max(abs(a - b) / abs(b) for a, b in zip(our_losses, their_losses))
    worst, where, step_gap = gaps(ours, theirs, before)
    agrees = loss_gap <= 1e-4 and worst <= 1e-3 and step_gap <= 1e-2 and prediction_gap <= 1e-4
    answer = f"{side} | {batch} | {their_losses[-1]:.4f} | {loss_gap:.0e} | {worst:.0e} | {step_gap:.0e} | {prediction_gap:.0e}"
    if with_float64:
        exact = in_float64(config, start, before, x, y, batch)
        keras_worst, _, keras_steps = gaps(theirs, exact, before)
        answer += f" | {keras_worst:.0e} | {keras_steps:.0e}"
    return agrees, answer, where


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--without-float64", action="store_true", help="do not run Keras in double precision beside it")
    parser.add_argument("--without", metavar="NAME", help="leave one architecture out")
    arguments = parser.parse_intermixed_args()
    names = [name for name in arguments.names or CASES if name != arguments.without]
    failed = []
    print("| architecture | agrees | side | batch | loss | losses differ by | weights | steps | predictions", end="")
    print("" if arguments.without_float64 else " | Keras f32 from f64: weights | steps", end="")
    print(" | seconds |\n" + "|---" * (10 if arguments.without_float64 else 12) + "|", flush=True)
    for name in names:
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            agrees, answer, where = compare(name, Path(folder), not arguments.without_float64)
        verdict = "yes" if agrees else f"NO, {where}"
        print(f"| {name} | {verdict} | {answer} | {time.perf_counter() - begun:.0f} |", flush=True)
        if not agrees:
            failed.append(name)
        keras.backend.clear_session()
    print(f"{len(names) - len(failed)} of {len(names)} architectures agree with Keras after {STEPS} steps")
    if failed:
        sys.exit(f"disagree: {', '.join(failed)}")


if __name__ == "__main__":
    main()
