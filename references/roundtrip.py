"""Loads files that memfit wrote in Keras: the same predictions, and training goes on as if Keras had never stopped.

    cargo build --release && .venv/bin/python references/roundtrip.py target/release/memfit

For each case of keras_files.py: Keras's file is trained by memfit for three steps, saved as .keras, .weights.h5 and
.safetensors, loaded here, and compared with Keras taking the same six steps alone. Layers listed in a job file are
trained and saved too: Keras must build that model and agree on its predictions. Last, a small model with every optimizer of the package's
tests, which needs the package and pytest: the command writes its state, Keras goes on with it.
"""

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

import counter

MEMFIT = sys.argv[1]
HERE = Path(__file__).parent / "keras"
RANDOM = {"dropout"}

JOB = """
[model]
layers = [
    {class = "Input", shape = [8, 8, 3], name = "image"},
    {class = "Conv2D", filters = 4, kernel_size = 3, activation = "relu"},
    {class = "MaxPooling2D"},
    {class = "Conv2D", filters = 4, kernel_size = 3, padding = "same", name = "a"},
    {class = "Conv2D", filters = 4, kernel_size = 1, inputs = ["max_pooling2d"], name = "b"},
    {class = "Add", inputs = ["b", "a"]},
    {class = "BatchNormalization"},
    {class = "Dropout", rate = 0.25},
    {class = "Flatten"},
    {class = "Dense", units = 5, activation = "gelu", repeat = 2},
    {class = "Dense", units = 3, activation = "softmax"},
]
[train]
loss = "sparse_categorical_crossentropy"
optimizer = {class = "Adam", learning_rate = 0.01}
metrics = ["accuracy"]
batch = 4
epochs = 1
[data]
x = "x0.npy"
y = "y0.npy"
"""


def run(*arguments):
    subprocess.run([MEMFIT, *map(str, arguments)], check=True, stdout=subprocess.PIPE)


def close(what, ours, theirs, tolerance):
    worst = max(float(np.max(np.abs(a - b) / (1 + np.abs(b)))) for a, b in zip(ours, theirs))
    print(f"  {what}: {worst:.2e}")
    if not worst <= tolerance:
        sys.exit(f"{what} differs by {worst}, more than {tolerance}")


def flat(value):
    return value if isinstance(value, list) else [value]


def only(values):
    return values[0] if len(values) == 1 else values


def state(optimizer):
    # Of a matrix, Adafactor keeps means over rows and columns; what it stores beside them it computes before it reads it.
    spent = [v.path for v in optimizer.variables if v.path.endswith("velocity") and len(v.shape) >= 2]
    spent = spent if isinstance(optimizer, keras.optimizers.Adafactor) else []
    return [v.numpy() for v in optimizer.variables[1:] if v.path not in spent]


def check(case, folder):
    name, batch = case["name"], case["batch"]
    x = [counter.tensor(spec) for spec in case["inputs"]]
    y = [counter.tensor(spec) for spec in case["targets"]]
    half = case["rows"] // 2
    files = []
    for index, array in enumerate(x + y):
        files.append(folder / f"{index}.npy")
        np.save(files[-1], array[half:])
    print(name)
    outputs = [folder / f"{name}{end}" for end in (".keras", ".weights.h5", ".safetensors")]
    for output in outputs:
        data = ",".join(map(str, files))
        run("train", HERE / f"{name}.keras", "--data", data, "--no-shuffle", "--batch", batch,
            "--output", output)

    def train(model, start):
        losses = []
        for first in range(start, start + 3 * batch, batch):
            part = lambda arrays: only([array[first:first + batch] for array in arrays])
            model.reset_metrics()
            losses.append(float(model.train_on_batch(part(x), part(y), return_dict=True)["loss"]))
        return [np.array(losses)]

    theirs = keras.models.load_model(HERE / f"{name}.keras")
    ours = keras.models.load_model(outputs[0])
    if name not in RANDOM:
        train(theirs, half)
        close("predictions", flat(ours.predict(only(x), verbose=0)), flat(theirs.predict(only(x), verbose=0)), 1e-5)
        # Steps, and not updates, of which `iterations` speaks where gradients are gathered over several steps.
        counts = [int(model.optimizer.variables[0].numpy()) for model in (ours, theirs)]
        assert counts == [6, 6], counts
        close("optimizer state", state(ours.optimizer), state(theirs.optimizer), 1e-5)
    by_weights = keras.models.load_model(HERE / f"{name}.keras")
    by_weights.load_weights(outputs[1])
    close(".weights.h5", [w.numpy() for w in by_weights.weights if "seed" not in w.path],
          [w.numpy() for w in ours.weights if "seed" not in w.path], 0)
    if name not in RANDOM:
        close("losses of three more steps", train(ours, 0), train(theirs, 0), 1e-4)
    # The header of a .safetensors file is JSON: no other reader is needed to look into it.
    raw = outputs[2].read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    stored = {key for key in header if key != "__metadata__"}
    paths = [w.path for w in by_weights.weights if "seed" not in w.path]
    # A model that was loaded does not name the layer around a layer.
    named = all(any(key == path or key.endswith(f"/{path}") for key in stored) for path in paths)
    assert len(stored) == len(paths) and named or name == "towers", stored
    predicted = [folder / f"p{index}.npy" for index in range(len(y))]
    run("predict", outputs[0], "--data", ",".join(map(str, files[:len(x)])), "--output", ",".join(map(str, predicted)))
    reloaded = keras.models.load_model(outputs[0])
    close("memfit predict", [np.load(file) for file in predicted],
          flat(reloaded.predict(only([array[half:] for array in x]), verbose=0)), 1e-5)


def listed(folder):
    x = counter.tensor(counter.uniform([16, 8, 8, 3], 7))
    y = counter.tensor(counter.integers([16], 8, 0, 3))
    np.save(folder / "x0.npy", x)
    np.save(folder / "y0.npy", y)
    (folder / "job.toml").write_text(JOB)
    output, predicted = folder / "listed.keras", folder / "listed.npy"
    print("layers listed in a job file")
    run("train", folder / "job.toml", "--output", output)
    run("predict", output, "--data", folder / "x0.npy", "--output", predicted)
    model = keras.models.load_model(output)
    close("predictions", [np.load(predicted)], [model.predict(x, verbose=0)], 1e-5)
    assert int(model.optimizer.iterations.numpy()) == 4
    model.fit(x, y, batch_size=4, verbose=0)
    model.save(folder / "again.keras")
    run("train", folder / "again.keras", "--data", f"{folder / 'x0.npy'},{folder / 'y0.npy'}", "--batch", 4)


def every_optimizer(folder):
    sys.path.insert(0, str(Path(__file__).parents[1] / "crates" / "memfit-python" / "tests"))
    from test_optimizers import OPTIMIZERS, STEPS, model_of

    for name in OPTIMIZERS:
        keras.utils.set_random_seed(7)
        theirs, x, y = model_of(name)
        theirs.fit(x, y, **STEPS)
        start, end = folder / "start.keras", folder / "end.keras"
        theirs.save(start)
        np.save(folder / "ox.npy", x)
        np.save(folder / "oy.npy", y)
        run("train", start, "--data", f"{folder / 'ox.npy'},{folder / 'oy.npy'}", "--no-shuffle", "--batch", 8,
            "--output", end)
        theirs.fit(x, y, **STEPS)
        ours = keras.models.load_model(end)
        print(f"{name}, by the command")
        close("weights", ours.get_weights(), theirs.get_weights(), 1e-5)
        for model in (ours, theirs):
            model.fit(x, y, **STEPS)
        close("weights after three more steps in Keras", ours.get_weights(), theirs.get_weights(), 2e-5)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for case in json.loads((HERE / "cases.json").read_text()):
            check(case, Path(folder))
        listed(Path(folder))
        every_optimizer(Path(folder))
    print("Keras and memfit agree")


if __name__ == "__main__":
    main()
