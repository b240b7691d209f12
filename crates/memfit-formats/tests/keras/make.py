"""Writes models.json: models whose structure is the test, as Keras 3 writes them down.

    python3 -m venv .venv && .venv/bin/pip install tensorflow==2.21.*
    .venv/bin/python crates/memfit-formats/tests/keras/make.py
"""

import json
import os
import pathlib

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
from keras import layers


def image(name="x"):
    return keras.Input((8, 8, 3), name=name)


def block(name):
    return keras.Sequential(
        [
            image("block_input"),
            layers.Conv2D(3, 3, padding="same", name="conv"),
            layers.BatchNormalization(name="norm"),
        ],
        name=name,
    )


def nested_shared_operators():
    """A nested model called twice, and operators between tensors.

    The `training=False` of one call is written down, and Keras overrides it when the model runs.
    """
    x = image()
    inner = block("inner")
    once = inner(x, training=False)
    twice = inner(once)
    return keras.Model(x, layers.Dropout(0.2, seed=5, name="drop")((once + twice) * x - x))


def sequential_of_functional():
    x = image()
    base = keras.Model(x, layers.Conv2D(2, 1, name="conv")(x), name="base")
    return keras.Sequential([base, layers.Flatten(name="flatten"), layers.Dense(2, name="dense")])


def two(name):
    """Two inputs and two outputs, as dictionaries; Keras sorts them by key."""
    inputs = {"b": keras.Input((4,), name="in_b"), "a": keras.Input((3,), name="in_a")}
    outputs = {
        "z": layers.Dense(1, name="out_z")(inputs["b"]),
        "y": layers.Dense(2, name="out_y")(inputs["a"]),
    }
    return keras.Model(inputs, outputs, name=name)


def dictionaries():
    return two("dictionaries")


def nested_dictionaries():
    p, q = keras.Input((3,), name="p"), keras.Input((4,), name="q")
    outputs = two("inner")({"a": p, "b": q})
    return keras.Model([p, q], [outputs["z"], outputs["y"]])


def nested_lists():
    b, a = keras.Input((4,), name="b"), keras.Input((3,), name="a")
    inner = keras.Model(
        [b, a], [layers.Dense(1, name="z")(b), layers.Dense(2, name="y")(a)], name="inner")
    p, q = keras.Input((4,), name="p"), keras.Input((3,), name="q")
    z, y = inner([p, q])
    return keras.Model([q, p], layers.Concatenate(name="joined")([y, z]))


def activation_objects():
    return keras.Sequential([
        keras.Input((3,), name="x"),
        layers.Dense(2, activation=layers.LeakyReLU(negative_slope=0.1), name="leaky"),
        layers.Dense(2, activation=keras.activations.relu6, kernel_initializer="he_normal", name="six"),
        layers.Activation(layers.ReLU(max_value=6.0), name="layer"),
        layers.Activation(keras.ops.relu, name="function"),
    ])


def frozen():
    inner = block("inner")
    inner.trainable = False
    return keras.Sequential([image(), inner, layers.Flatten(name="flatten"), layers.Dense(1, name="dense")])


def shared_out_of_order():
    """A(B(A(B(x)))): no order of the layers as a whole is one of their calls."""
    x = keras.Input((4,), name="x")
    a, b = layers.Dense(4, name="a"), layers.Dense(4, name="b")
    return keras.Model(x, a(b(a(b(x)))))


def shapes(tensors):
    return [list(tensor.shape[1:]) for tensor in tensors]


def case(make):
    keras.backend.clear_session()
    model = make()
    return {
        "name": make.__name__,
        "config": json.loads(model.to_json()),
        "inputs": shapes(model.inputs),
        "outputs": shapes(model.outputs),
        "weights": sorted(
            [{"path": "/".join(w.path.split("/")[-2:]), "shape": list(w.shape), "trainable": w.trainable}
             for w in model.weights], key=lambda weight: weight["path"]),
    }


MODELS = (
    nested_shared_operators, sequential_of_functional, dictionaries, nested_dictionaries, nested_lists,
    activation_objects, frozen, shared_out_of_order,
)

path = pathlib.Path(__file__).with_name("models.json")
lines = [json.dumps(case(make), separators=(",", ":")) for make in MODELS]
path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
