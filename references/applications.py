"""Plans every architecture of keras.applications with memfit: which plan, which are refused, and why.

    cargo build --release && .venv/bin/python references/applications.py target/release/memfit [--keep FOLDER] [NAME…]

Each is built by Keras without weights, at the smallest input that it accepts, written as `model.to_json()`, and planned
for training at batch 2. `--keep` leaves the JSON files in a folder and takes those that are there already.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.dont_write_bytecode = True

# The smallest side of an input with three channels; every architecture ends in its own classifier of 1000 classes.
SIDES = {
    "ResNet50": 32, "ResNet101": 32, "ResNet152": 32,
    "ResNet50V2": 32, "ResNet101V2": 32, "ResNet152V2": 32,
    "VGG16": 32, "VGG19": 32,
    "InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71,
    "MobileNet": 32, "MobileNetV2": 32, "MobileNetV3Small": 32, "MobileNetV3Large": 32,
    "DenseNet121": 32, "DenseNet169": 32, "DenseNet201": 32,
    "NASNetMobile": 32, "NASNetLarge": 32,
    "EfficientNetB0": 32, "EfficientNetB1": 32, "EfficientNetB2": 32, "EfficientNetB3": 32,
    "EfficientNetB4": 32, "EfficientNetB5": 32, "EfficientNetB6": 32, "EfficientNetB7": 32,
    "EfficientNetV2B0": 32, "EfficientNetV2B1": 32, "EfficientNetV2B2": 32, "EfficientNetV2B3": 32,
    "EfficientNetV2S": 32, "EfficientNetV2M": 32, "EfficientNetV2L": 32,
    "ConvNeXtTiny": 32, "ConvNeXtSmall": 32, "ConvNeXtBase": 32, "ConvNeXtLarge": 32, "ConvNeXtXLarge": 32,
}

JOB = """
[model]
file = "{file}"
[train]
loss = "categorical_crossentropy"
optimizer = "sgd"
batch = 2
steps = 1
"""


def build(name, side=None, classes=1000):
    """The architecture as Keras makes it, with random weights."""
    import keras

    side = side or SIDES[name]
    return getattr(keras.applications, name)(weights=None, input_shape=(side, side, 3), classes=classes)


def plan(memfit, file):
    """What memfit says of a model: (whether it plans, the arena's peak or the reason)."""
    job = file.with_suffix(".toml")
    job.write_text(JOB.format(file=file.name))
    command = [memfit, "plan", str(job), "--costs", "analytic"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return False, done.stderr.strip().splitlines()[0]
    peak = re.search(r"its peak is (\d+) bytes", done.stdout)
    return True, f"{int(peak[1]) / 2**20:.1f} MiB" if peak else done.stdout.strip().splitlines()[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("memfit")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_intermixed_args()
    refused = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print("| architecture | input | plans | arena at batch 2, or why not |\n|---|---|---|---|", flush=True)
        for name in arguments.names or SIDES:
            file = folder / f"{name}.json"
            if not file.exists():
                file.write_text(build(name).to_json())
            fits, answer = plan(arguments.memfit, file)
            print(f"| {name} | {SIDES[name]} | {'yes' if fits else 'no'} | {answer} |", flush=True)
            if not fits:
                refused.append(name)
    if refused:
        sys.exit(f"refused: {', '.join(refused)}")


if __name__ == "__main__":
    main()
