"""Makes the corpus of frozen problems again: crates/memfit-testkit/corpus.

    .venv/bin/python tools/corpus.py                       make all problems and the table of their plans again
    python3 tools/corpus.py --migrate PATTERN TEXT …       replace a regular expression in every line of every problem

Keras writes the models (ten of keras.applications at small images, and recurrent ones) as `model.to_json()` to a folder that is
removed again; a test that is ignored otherwise turns them and the examples into problems, and plans each at four budgets. Needed where
a layer, a gradient or a cost has changed what problems there are, or an entry is added (crates/memfit-testkit/src/corpus.rs).

A change of the text's format alone is migrated instead, as in `--migrate '^memfit problem 1$' 'memfit problem 2' 'op=Sum' 'op=Add'`: the
corpus test then runs, and the digests in plans.tsv must not change.
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
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "references"))

SIDE = 64
APPLICATIONS = [
    "ConvNeXtTiny", "DenseNet121", "InceptionV3", "MobileNet", "MobileNetV2", "MobileNetV3Small",
    "ResNet50", "ResNet50V2", "VGG16", "Xception",
]


def models():
    """Every model by its name."""
    import keras
    from keras import layers

    from applications import SIDES, build

    for name in APPLICATIONS:
        yield name, build(name, side=max(SIDES[name], SIDE), classes=10)
    yield "lstm", keras.Sequential([
        keras.Input((64, 32)), layers.LSTM(64, return_sequences=True), layers.LSTM(64), layers.Dense(10, "softmax"),
    ])
    yield "gru", keras.Sequential([
        keras.Input((96,), dtype="int32"), layers.Embedding(2000, 64), layers.GRU(96, return_sequences=True),
        layers.GRU(96, reset_after=False), layers.Dropout(0.2), layers.Dense(10, "softmax"),
    ])
    yield "bidirectional", keras.Sequential([
        keras.Input((80,), dtype="int32"), layers.Embedding(3000, 48, mask_zero=True),
        layers.Bidirectional(layers.LSTM(48, return_sequences=True)), layers.Bidirectional(layers.GRU(32)),
        layers.Dense(10, "softmax"),
    ])


def test(*more, **environment):
    command = ["cargo", "test", "-p", "memfit-testkit", "--test", "engine", "corpus::", "--", *more]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=True)


def migrate(pairs):
    """Replaces patterns by texts in all problems, line by line."""
    changed = 0
    for file in sorted((ROOT / "crates/memfit-testkit/corpus").glob("*.txt")):
        lines = file.read_text().split("\n")
        for index, line in enumerate(lines):
            for pattern, text in pairs:
                lines[index] = re.sub(pattern, text, lines[index])
            changed += lines[index] != line
        file.write_text("\n".join(lines))
    print(f"{changed} lines changed", flush=True)
    test()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--migrate", nargs="+", metavar=("PATTERN", "TEXT"))
    words = parser.parse_args().migrate
    if words:
        if len(words) % 2:
            sys.exit("--migrate takes pairs of a pattern and a text")
        migrate(list(zip(words[::2], words[1::2])))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models():
            (Path(folder) / f"{name}.json").write_text(model.to_json())
            print(name, flush=True)
        test("--ignored", "--nocapture", MEMFIT_CORPUS_MODELS=folder)


if __name__ == "__main__":
    main()
