"""Runs in a process of its own, in a Python with Keras: writes a case's model, weights and batch for all frameworks.

    prepare.py CASE BATCH FOLDER [model]

With `model`: model.keras for memfit; nodes.json, the graph that the others build from; arrays/N.npy, its weights in Keras's order. Always: x.npy, y.npy.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
if importlib.util.find_spec("tensorflow") is None:
    os.environ["KERAS_BACKEND"] = "torch" if importlib.util.find_spec("torch") else "jax"

import numpy as np

from cases import CASES, Case


def write_batch(case: Case, batch: int, folder: Path) -> None:
    random = np.random.default_rng(0)
    if case.vocabulary:
        # No id twice: where one is, TensorFlow's sparse gradients give Adam the sum of squares, not the square of the sum.
        x = random.permutation(case.vocabulary)[: batch * case.shape[0]].reshape(batch, *case.shape).astype(np.int32)
    else:
        x = random.random((batch, *case.shape), dtype=np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", np.eye(case.classes, dtype=np.float32)[random.integers(0, case.classes, batch)])


def write_model(case: Case, folder: Path) -> None:
    import keras

    keras.utils.set_random_seed(1)
    model = case.build(keras)
    model.compile(optimizer=keras.optimizers.Adam(case.learning_rate), loss=case.loss)
    model.save(folder / "model.keras")
    (folder / "arrays").mkdir()
    # The layers whose values hang on a weight, so that backward computes their gradients.
    nodes, flops, trained = [], 0, set()
    for layer in in_order(model):
        arrays = []
        for variable in layer.weights:
            arrays.append(sum(1 for _ in (folder / "arrays").iterdir()))
            np.save(folder / "arrays" / f"{arrays[-1]}.npy", keras.ops.convert_to_numpy(variable))
        config = {key: value for key, value in layer.get_config().items() if key in KEPT}
        if type(layer).__name__ == "Flatten":
            config["input_shape"] = list(layer.input.shape[1:])
        nodes.append({
            "class": type(layer).__name__, "name": layer.name, "inputs": parents(layer), "arrays": arrays, "config": config,
            "trainable": [bool(variable.trainable) for variable in layer.weights],
        })
        # Backward computes two products of the same size, or one where nobody asks for the input's gradient.
        first = trained.isdisjoint(parents(layer))
        flops += multiplications(layer) * 2 * (2 if first else 3)
        if layer.weights or not first:
            trained.add(layer.name)
    (folder / "nodes.json").write_text(json.dumps({"nodes": nodes, "flops_a_row": flops}))


# What the other frameworks' builders read.
KEPT = (
    "strides", "padding", "pool_size", "use_bias", "activation", "epsilon", "momentum", "num_heads", "key_dim", "negative_slope", "max_value",
)


def parents(layer) -> list:
    """The names of the layers that it reads; a name twice is one input read twice, as in self-attention."""
    return [node.operation.name for node in layer._inbound_nodes[0].parent_nodes]


def in_order(model) -> list:
    """Its layers, each behind those that it reads."""
    done, order = set(), []

    def visit(layer):
        if layer.name in done:
            return
        done.add(layer.name)
        for name in parents(layer):
            visit(model.get_layer(name))
        order.append(layer)

    sys.setrecursionlimit(10_000)
    visit(model.layers[-1])
    return order


def multiplications(layer) -> int:
    """Multiplications of a row, forward, of layers that are products."""
    kind = type(layer).__name__
    if kind in ("Conv2D", "DepthwiseConv2D"):
        _, height, width, channels = layer.output.shape
        return height * width * int(np.prod(layer.kernel.shape[:3])) * (channels if kind == "Conv2D" else 1)
    if kind == "Dense":
        return int(np.prod(layer.output.shape[1:])) * layer.kernel.shape[0]
    if kind == "MultiHeadAttention":
        tokens = layer.output.shape[1]
        products = sum(int(np.prod(variable.shape)) for variable in layer.weights if 2 < len(variable.shape))
        return tokens * (products + 2 * tokens * layer.num_heads * layer.key_dim)
    return 0


def main() -> None:
    case, batch, folder = CASES[sys.argv[1]], int(sys.argv[2]), Path(sys.argv[3])
    if "model" in sys.argv[4:]:
        write_model(case, folder)
    write_batch(case, batch, folder)


if __name__ == "__main__":
    main()
