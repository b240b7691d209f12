"""What a budget costs in time: recompute overhead of known networks at shares of their activation memory.

    python3 -m venv .venv && .venv/bin/pip install tensorflow==2.21.*
    cargo build --release
    .venv/bin/python benches/recompute.py

Networks come from keras.applications (and a U-Net and a transformer of 12 blocks built here), are written as
`model.to_json()` files and planned by `memfit plan --sweep --json`; nothing is trained. Overhead is by the planner's costs.
BatchNormalization forbids splitting, so those networks show recomputing alone; for the U-Net and the first transformer the
batch is one row, so that nothing can be split either. The bound is a lower bound for any plan of the same order.
"""

import json
import os
import subprocess
import tempfile

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import keras
from keras import layers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHARES = (0.5, 0.4, 0.3, 0.2)


def unet() -> keras.Model:
    inputs = x = layers.Input((256, 256, 3))
    skips = []
    for filters in (64, 128, 256, 512):
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    for _ in range(2):
        x = layers.Conv2D(1024, 3, padding="same", activation="relu")(x)
    for filters, skip in zip((512, 256, 128, 64), reversed(skips)):
        x = layers.UpSampling2D()(x)
        x = layers.Conv2D(filters, 2, padding="same", activation="relu")(x)
        x = layers.Concatenate()([skip, x])
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    return keras.Model(inputs, layers.Conv2D(2, 1, activation="softmax")(x))


def transformer(blocks=12, width=384, heads=6, tokens=256) -> keras.Model:
    """Pre-norm blocks over tokens and their places, and a classifier."""
    inputs = [layers.Input((tokens,), dtype="int32", name=name) for name in ("tokens", "places")]
    tables = [layers.Embedding(entries, width)(ids) for entries, ids in zip((8000, tokens), inputs)]
    x = layers.Add()(tables)
    for _ in range(blocks):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(heads, width // heads)(y, y)])
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * width, activation="gelu")(y)
        x = layers.Add()([x, layers.Dense(width)(y)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))


def sweep(model: keras.Model, loss: str, batch: int) -> list:
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "model.json"), "w") as file:
            file.write(model.to_json())
        job = os.path.join(folder, "job.toml")
        with open(job, "w") as file:
            file.write(f'[model]\nfile = "model.json"\n[train]\nloss = "{loss}"\noptimizer = "sgd"\n')
            file.write(f'batch = {batch}\nsteps = 1\n[memory]\nbudget = "1TiB"\n')
        command = [os.path.join(ROOT, "target", "release", "memfit"), "plan", job, "--sweep", "--json"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["points"]


def main() -> None:
    classes = "sparse_categorical_crossentropy"
    networks = {
        "ResNet-50": (keras.applications.ResNet50(weights=None), classes, 32),
        "MobileNetV2": (keras.applications.MobileNetV2(weights=None), classes, 32),
        "DenseNet-121": (keras.applications.DenseNet121(weights=None), classes, 32),
        "U-Net": (unet(), "categorical_crossentropy", 1),
        "transformer": (transformer(), classes, 1),
        "transformer, batch 8": (transformer(), classes, 8),
    }
    print("| network | " + " | ".join(f"{share:.0%}" for share in SHARES) + " | smallest |")
    print("|---" * (len(SHARES) + 2) + "|")
    for name, (model, loss, batch) in networks.items():
        points = sweep(model, loss, batch)
        whole = points[0]["bytes_activations"]
        cells = []
        for share in SHARES:
            fitting = [point for point in points if point["bytes_activations"] <= share * whole]
            if fitting:
                time, bound = fitting[0]["time_relative"] - 1, fitting[0]["time_bound"] - 1
                cells.append(f"{time:.1%} (bound {bound:.1%})")
            else:
                cells.append("-")
        print(f"| {name} | " + " | ".join(cells) + f" | {points[-1]['bytes_activations'] / whole:.0%} |")


if __name__ == "__main__":
    main()
