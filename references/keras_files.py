"""Small .keras files with what Keras predicts from them and how training goes on.

    .venv/bin/python references/keras_files.py

writes references/keras/: NAME.keras for each case, one .weights.h5, two in forms that Keras does not write, and cases.json.
"""

import json
import os
import sys
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.dont_write_bytecode = True
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import h5py
import keras
import numpy as np
import tensorflow as tf
from keras import layers

import counter

tf.config.threading.set_intra_op_parallelism_threads(1)
FOLDER = Path(__file__).parent / "keras"
ROWS, BATCH, STEPS = 24, 4, 3


def uniform(shape, seed, low=-1.0):
    return counter.uniform([ROWS, *shape], seed, low, 1.0)


def classes(count, seed):
    return counter.integers([ROWS], seed, 0, count)


def image():
    model = keras.Sequential([
        layers.Input((6, 6, 2), name="image"),
        # Without a bias: its gradient would be rounding noise, which Adam blows up to whole steps.
        layers.Conv2D(3, 3, padding="same", use_bias=False, name="first"),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.DepthwiseConv2D(3, depth_multiplier=2),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(4),
        layers.LayerNormalization(),
        layers.Dense(3, activation="softmax", name="second"),
    ])
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, [uniform((6, 6, 2), 11)], [classes(3, 12)]


def towers():
    shared = layers.Dense(4, activation="tanh", name="shared")
    tower = keras.Sequential([layers.Input((4,)), layers.Dense(4), layers.Dense(3, activation="relu")], name="tower")
    pair = layers.Input((3,), name="pair")
    left, right = layers.Input((5,), name="left"), layers.Input((5,), name="right")
    small = keras.Model(pair, layers.Dense(2, name="within")(pair), name="small")
    frozen = layers.Dense(3, trainable=False)(right)
    joined = layers.Add()([tower(shared(left)), tower(shared(right))]) + frozen
    joined = layers.Concatenate()([joined, layers.Dense(3)(left)])
    first = layers.Dense(2, name="first")(joined)
    second = small(layers.Dense(3)(joined))
    model = keras.Model([left, right], [first, second])
    model.compile(
        keras.optimizers.RMSprop(0.01, momentum=0.5, centered=True),
        loss={"first": "mse", "small": keras.losses.Huber(delta=0.3)},
        loss_weights={"first": 0.7, "small": 1.5},
        metrics={"first": ["mae"], "small": []},
    )
    return model, [uniform((5,), 21), uniform((5,), 22)], [uniform((2,), 23), uniform((2,), 24)]


def schedule():
    model = keras.Sequential([layers.Input((4,)), layers.Dense(5, activation="gelu"), layers.Dense(1)])
    rate = keras.optimizers.schedules.CosineDecay(0.2, 5, alpha=0.1)
    model.compile(keras.optimizers.SGD(rate, momentum=0.9, nesterov=True), keras.losses.MeanSquaredError())
    return model, [uniform((4,), 31)], [uniform((1,), 32)]


def words():
    model = keras.Sequential([
        layers.Input((6,), dtype="int32"),
        layers.Embedding(9, 4),
        layers.Flatten(),
        layers.Dense(3, use_bias=False),
    ])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metric = keras.metrics.SparseCategoricalAccuracy()
    model.compile(keras.optimizers.SGD(0.05), loss, metrics=[metric])
    return model, [counter.integers([ROWS, 6], 41, 0, 9)], [classes(3, 42)]


def amsgrad():
    model = keras.Sequential([layers.Input((4,)), layers.Dense(5, activation="relu"), layers.Dense(2)])
    model.compile(keras.optimizers.AdamW(0.01, amsgrad=True, clipnorm=1.0), "mae")
    return model, [uniform((4,), 61)], [uniform((2,), 62)]


def dropout():
    inputs = layers.Input((4,))
    x = layers.Dropout(0.5)(layers.Dense(6)(inputs))
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model, [uniform((4,), 51)], [uniform((1,), 52, 0.0)]


def sequence():
    words = layers.Input((6,), dtype="int32", name="words")
    x = layers.Embedding(9, 4)(words)
    x = layers.TimeDistributed(layers.Dense(4, activation="tanh", name="each"))(x)
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(x)
    x = keras.ops.concatenate([x, layers.SimpleRNN(3, return_sequences=True)(x)], axis=-1)
    x = layers.GRU(4)(x[:, 1:] * 2.0)
    model = keras.Model(words, layers.Dense(3, activation="softmax")(x))
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
    return model, [counter.integers([ROWS, 6], 71, 0, 9)], [classes(3, 72)]


def small(optimizer, **options):
    """A classifier under an optimizer whose state the file holds."""
    model = keras.Sequential([
        layers.Input((4,)),
        layers.Dense(5, activation="tanh", **options),
        layers.Dense(3, activation="softmax"),
    ])
    model.compile(optimizer, "sparse_categorical_crossentropy")
    return model, [uniform((4,), 71)], [classes(3, 72)]


def nadam():
    return small(keras.optimizers.Nadam(0.01, gradient_accumulation_steps=2))


def averaged():
    return small(keras.optimizers.Adagrad(0.05, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2))


def adafactor():
    return small(keras.optimizers.Adafactor(0.05))


def ftrl():
    return small(keras.optimizers.Ftrl(0.05, l1_regularization_strength=0.001), kernel_regularizer="l2")


def lamb():
    return small(keras.optimizers.Lamb(0.02, weight_decay=0.01), kernel_constraint="non_neg")


CASES = [image, towers, schedule, words, amsgrad, dropout, sequence, nadam, averaged, adafactor, ftrl, lamb]


def other_forms():
    """The same array compressed in chunks, and in a file of HDF5's latest form."""
    kernel = np.zeros((4, 5), np.float32)
    with h5py.File(FOLDER / "chunked.weights.h5", "w") as file:
        file.create_dataset("layers/dense/vars/0", data=kernel, chunks=(2, 5), compression="gzip")
        file["layers/dense/vars/1"] = np.zeros(5, np.float64)
    with h5py.File(FOLDER / "latest.weights.h5", "w", libver="latest") as file:
        file["layers/dense/vars/0"] = kernel


def main():
    FOLDER.mkdir(exist_ok=True)
    # Names of cases make these anew and leave the others as they are.
    wanted = sys.argv[1:]
    written = []
    if wanted:
        stored = json.loads((FOLDER / "cases.json").read_text())
        written = [case for case in stored if case["name"] not in wanted]
    else:
        other_forms()
    for build in CASES:
        if wanted and build.__name__ not in wanted:
            continue
        keras.utils.clear_session()
        keras.utils.set_random_seed(1)
        model, inputs, targets = build()
        x, y = [counter.tensor(spec) for spec in inputs], [counter.tensor(spec) for spec in targets]
        part = lambda arrays, step: [array[step * BATCH:(step + 1) * BATCH] for array in arrays]
        only = lambda arrays: arrays[0] if len(arrays) == 1 else arrays
        step = lambda index: model.train_on_batch(only(part(x, index)), only(part(y, index)), return_dict=True)
        for index in range(STEPS):
            step(index)
        model.save(FOLDER / f"{build.__name__}.keras")
        if build is image:
            model.save_weights(FOLDER / f"{build.__name__}.weights.h5")
        # What goes on is what was stored: Keras itself forgets, for example, the delta of a Huber loss.
        model = keras.models.load_model(FOLDER / f"{build.__name__}.keras")
        predictions = model.predict(only(x), verbose=0)
        predictions = predictions if isinstance(predictions, list) else [predictions]
        evaluated = model.evaluate(only(x), only(y), batch_size=BATCH + 1, verbose=0, return_dict=True)
        losses = []
        for index in range(STEPS, 2 * STEPS):
            model.reset_metrics()
            losses.append(float(step(index)["loss"]))
        written.append({
            "name": build.__name__,
            "inputs": inputs,
            "targets": targets,
            "rows": ROWS,
            "batch": BATCH,
            "weights": [weight.path for weight in model.weights if "seed_generator" not in weight.path],
            "predictions": [[float(f"{value:.9g}") for value in output.flatten()] for output in predictions],
            "loss": float(evaluated["loss"]),
            "losses": losses,
        })
    (FOLDER / "cases.json").write_text(json.dumps(written) + "\n")


if __name__ == "__main__":
    main()
