"""What a budget costs in time: recompute overhead of known networks at shares of their activation memory.

    python3 -m venv .venv && .venv/bin/pip install tensorflow==2.21.*
    cargo build --release
    .venv/bin/python benches/recompute.py

Networks come from keras.applications (and a U-Net and a transformer of 12 blocks built here), are written as
`model.to_json()` files and planned by `memfit plan --sweep --json`; nothing is trained. Overhead is by the planner's costs,
which are measured on this machine, all anew, before the curve is drawn; `--analytic` takes the estimates instead, which are the
same everywhere. BatchNormalization forbids splitting, so those networks show recomputing alone; so do the U-Net and the
transformer at a batch of one row, while at 8 they may be split. Beside each share stands the goal, and in brackets a lower
bound for any plan of the same order.
"""

import json
import os
import subprocess
import sys
import tempfile

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import keras
from keras import layers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MEMFIT = os.environ.get("MEMFIT", os.path.join(ROOT, "target", "release", "memfit"))
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


def sweep(model: keras.Model, loss: str, batch: int, costs: str) -> list:
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "model.json"), "w") as file:
            file.write(model.to_json())
        job = os.path.join(folder, "job.toml")
        with open(job, "w") as file:
            file.write(f'[model]\nfile = "model.json"\n[train]\nloss = "{loss}"\noptimizer = "sgd"\n')
            file.write(f'batch = {batch}\nsteps = 1\n[memory]\nbudget = "1TiB"\n')
        command = [MEMFIT, "plan", job, "--sweep", "--json", "--costs", costs]
        # Costs of this run alone: those that were measured at another time were measured under another load.
        environment = dict(os.environ, XDG_CACHE_HOME=folder)
        # Nodes are timed a few seconds at each start, until all of them are.
        while True:
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            answer = json.loads(done.stdout)
            if answer["seconds_measuring"] == 0:
                return answer["points"]


def main() -> None:
    classes = "sparse_categorical_crossentropy"
    pixels = "categorical_crossentropy"
    costs = "analytic" if "--analytic" in sys.argv[1:] else "measured"
    applications = keras.applications
    networks = {
        "ResNet-50, batch 32": (applications.ResNet50(weights=None), classes, 32, (5, 8, 11, 20)),
        "U-Net 256×256, batch 8": (unet(), pixels, 8, (2, 6, 12, 20)),
        "the same, batch 1": (unet(), pixels, 1, (2, 6, 12, 20)),
        "MobileNetV2, batch 32": (applications.MobileNetV2(weights=None), classes, 32, (5, 7, 10, 18)),
        "transformer of 12 blocks, batch 8": (transformer(), classes, 8, (6, 8, 12, 22)),
        "the same, batch 1 ": (transformer(), classes, 1, (6, 8, 12, 22)),
        "DenseNet-121, batch 32": (applications.DenseNet121(weights=None), classes, 32, (12, 17, 24, 36)),
    }
    print(f"{costs} costs; load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| network | " + " | ".join(f"{share:.0%}" for share in SHARES) + " | smallest |")
    print("|---" * (len(SHARES) + 2) + "|")
    for name, (model, loss, batch, goals) in networks.items():
        points = sweep(model, loss, batch, costs)
        whole = points[0]["bytes_activations"]
        cells = []
        for share, goal in zip(SHARES, goals):
            fitting = [point for point in points if point["bytes_activations"] <= share * whole]
            if fitting:
                time, bound = fitting[0]["time_relative"] - 1, fitting[0]["time_bound"] - 1
                pieces = fitting[0]["micro_batches"]
                split = f", {pieces} pieces" if pieces > 1 else ""
                cells.append(f"{time:.1%} of {goal} % ({bound:.1%}{split})")
            else:
                cells.append(f"– of {goal} %")
        smallest = points[-1]["bytes_activations"] / whole
        print(f"| {name.strip()} | " + " | ".join(cells) + f" | {smallest:.0%} |", flush=True)
    print(f"load behind: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
