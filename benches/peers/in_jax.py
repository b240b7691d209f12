"""Runs in a process of its own: trains a case with JAX, the whole step jitted and its state donated. Images are NHWC."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
from jax import lax, nn
from jax import numpy as jnp

from training import Prepared, pairs, unknown

AXES = ("NHWC", "HWIO", "NHWC")


def layer(node: dict, inputs: list, weights: list) -> jax.Array:
    kind, config, x = node["class"], node["config"], inputs[0]
    if kind == "Conv2D":
        y = lax.conv_general_dilated(x, weights[0], config["strides"], config["padding"].upper(), dimension_numbers=AXES)
        y = y + weights[1] if config["use_bias"] else y
    elif kind == "DepthwiseConv2D":
        kernel, channels = weights[0], x.shape[3]
        kernel = kernel.reshape(*kernel.shape[:2], 1, channels)
        y = lax.conv_general_dilated(
            x, kernel, config["strides"], config["padding"].upper(), dimension_numbers=AXES, feature_group_count=channels
        )
        y = y + weights[1] if config["use_bias"] else y
    elif kind == "Dense":
        y = x @ weights[0] + weights[1]
    elif kind == "MultiHeadAttention":
        query, query_bias, keys, keys_bias, value, value_bias, out, out_bias = weights
        heads = lambda kernel, bias: jnp.einsum("btd,dhe->bthe", x, kernel) + bias
        y = nn.dot_product_attention(heads(query, query_bias), heads(keys, keys_bias), heads(value, value_bias))
        return jnp.einsum("bthe,hed->btd", y, out) + out_bias
    elif kind == "Embedding":
        return weights[0][x]
    elif kind == "MaxPooling2D":
        window, strides = (1, *config["pool_size"], 1), (1, *config["strides"], 1)
        return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, config["padding"].upper())
    elif kind == "GlobalAveragePooling2D":
        return x.mean((1, 2))
    elif kind == "GlobalAveragePooling1D":
        return x.mean(1)
    elif kind == "Flatten":
        return x.reshape(x.shape[0], -1)
    elif kind == "ZeroPadding2D":
        return jnp.pad(x, ((0, 0), *pairs(config["padding"]), (0, 0)))
    elif kind == "BatchNormalization":
        scale, shift = weights
        mean = x.mean((0, 1, 2))
        variance = jnp.square(x).mean((0, 1, 2)) - jnp.square(mean)
        factor = lax.rsqrt(variance + config["epsilon"]) * scale
        return x * factor + (shift - mean * factor), (mean, variance)
    elif kind == "LayerNormalization":
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + config["epsilon"]) * weights[0] + weights[1]
    elif kind == "Add":
        return inputs[0] + inputs[1]
    elif kind == "Activation":
        y = x
    elif kind == "ReLU":
        return jnp.clip(x, 0.0, config["max_value"])
    else:
        raise unknown(node)
    match config["activation"]:
        case "relu":
            return nn.relu(y)
        case "gelu":
            return nn.gelu(y, approximate=False)
        # The softmax at the end is the loss's.
        case "linear" | "softmax":
            return y
    raise unknown(node)


def logits_of(nodes: list, weights: dict, x: jax.Array) -> tuple:
    """What the network gives before its softmax, and the statistics of its batch normalisations."""
    values, statistics = {}, {}
    for node in nodes:
        name = node["name"]
        if node["class"] == "InputLayer":
            values[name] = x
            continue
        values[name] = layer(node, [values[each] for each in node["inputs"]], weights.get(name, []))
        if node["class"] == "BatchNormalization":
            values[name], statistics[name] = values[name]
    return values[nodes[-1]["name"]], statistics


def main() -> None:
    prepared = Prepared()
    options, nodes = prepared.options, prepared.nodes
    weights, averages = {}, {}
    for node in nodes:
        arrays = [jnp.asarray(prepared.array(number)) for number in node["arrays"]]
        normalised = node["class"] == "BatchNormalization"
        if normalised:
            averages[node["name"]] = tuple(arrays[2:])
        if arrays:
            weights[node["name"]] = arrays[:2] if normalised else arrays
    momenta = {node["name"]: node["config"].get("momentum") for node in nodes}
    x, y = (jnp.asarray(array) for array in prepared.batch)
    prepared.batch = None

    def loss_of(weights, x, y):
        logits, statistics = logits_of(nodes, weights, x)
        if options["loss"] == "mean_squared_error":
            return jnp.square(nn.softmax(logits) - y).mean(), statistics
        return -(y * nn.log_softmax(logits)).sum(1).mean(), statistics

    def step(state, x, y):
        weights, first, second, averages, count = state
        (loss, statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights, x, y)
        count = count + 1
        rate = options["learning_rate"] * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        first = jax.tree.map(lambda m, g: m + (g - m) * 0.1, first, gradients)
        second = jax.tree.map(lambda v, g: v + (g * g - v) * 0.001, second, gradients)
        weights = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-7), weights, first, second)
        averages = {
            name: tuple(old * momenta[name] + new * (1 - momenta[name]) for old, new in zip(averages[name], statistics[name])) for name in averages
        }
        return (weights, first, second, averages, count), loss

    step = jax.jit(step, donate_argnums=0)
    zeros = lambda: jax.tree.map(jnp.zeros_like, weights)
    state = (weights, zeros(), zeros(), averages, jnp.float32(0))
    del weights

    def once() -> float:
        nonlocal state
        state, loss = step(state, x, y)
        jax.block_until_ready(state)
        return float(loss)

    prepared.train(once)


if __name__ == "__main__":
    main()
