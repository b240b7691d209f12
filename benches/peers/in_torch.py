"""Runs in a process of its own: trains a case with PyTorch, written as PyTorch's users write it; eager, channels_last, or compiled.

Images are NCHW, in either memory format. What a user would do for memory is done: ReLU in place where nobody else reads its input, padding inside the
convolution, one kernel for attention, the fused optimizer, gradients set to none.
"""

import math
import os

import torch
from torch.nn import functional

from training import Prepared, pairs, unknown


class Network(torch.nn.Module):
    def __init__(self, prepared: Prepared, channels_last: bool):
        super().__init__()
        self.nodes, self.readers, self.channels_last = prepared.nodes, prepared.readers(), channels_last
        self.by_name = {node["name"]: node for node in self.nodes}
        self.shapes = {}
        for node in self.nodes:
            for place, number in enumerate(node["arrays"]):
                value = torch.from_numpy(prepared.array(number))
                value = self.converted(node, value)
                if node["trainable"][place]:
                    self.register_parameter(key(node, place), torch.nn.Parameter(value))
                else:
                    self.register_buffer(key(node, place), value)

    def converted(self, node: dict, value: torch.Tensor) -> torch.Tensor:
        """A weight of Keras in PyTorch's axes."""
        kind = node["class"]
        if kind == "Conv2D" and value.dim() == 4:
            value = value.permute(3, 2, 0, 1)
        elif kind == "DepthwiseConv2D" and value.dim() == 4:
            value = value.permute(2, 3, 0, 1)
        elif kind == "Dense" and value.dim() == 2:
            flat = self.by_name[node["inputs"][0]]
            if flat["class"] == "Flatten" and not self.channels_last:
                # Flattened as channels, lines, columns: the rows stand in another order.
                height, width, channels = flat["config"]["input_shape"]
                value = value.reshape(height, width, channels, -1).permute(2, 0, 1, 3).reshape(value.shape)
            value = value.t()
        elif kind == "MultiHeadAttention" and value.dim() == 3:
            # The last kernel is heads, depth, width; the first three are width, heads, depth.
            out = value.shape[0] == node["config"]["num_heads"]
            value = value.reshape(-1, value.shape[2]).t() if out else value.reshape(value.shape[0], -1).t()
        elif kind == "MultiHeadAttention":
            value = value.reshape(-1)
        if self.channels_last and value.dim() == 4:
            return value.contiguous(memory_format=torch.channels_last)
        return value.contiguous()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values, left = {}, dict(self.readers)
        for node in self.nodes:
            if node["class"] == "InputLayer":
                values[node["name"]] = x
                continue
            inputs = [values[name] for name in node["inputs"]]
            for name in set(node["inputs"]):
                left[name] -= 1
                if left[name] == 0:
                    del values[name]
            values[node["name"]] = self.layer(node, inputs)
            del inputs
        (logits,) = values.values()
        return logits

    def weights(self, node: dict) -> list:
        return [getattr(self, key(node, place)) for place in range(len(node["arrays"]))]

    def padded(self, node: dict, x: torch.Tensor, kernel: torch.Tensor) -> tuple:
        """A convolution's input and padding; Keras pads by one more at the end where the sides differ, which PyTorch's convolution cannot."""
        if node["config"]["padding"] == "valid":
            return x, node["config"].get("folded", 0)
        ends = []
        for size, window, stride in zip(x.shape[2:], kernel.shape[2:], node["config"]["strides"]):
            whole = max((-(-size // stride) - 1) * stride + window - size, 0)
            ends.append((whole // 2, whole - whole // 2))
        (top, bottom), (left, right) = ends
        if top == bottom and left == right:
            return x, (top, left)
        return functional.pad(x, (left, right, top, bottom)), 0

    def layer(self, node: dict, inputs: list) -> torch.Tensor:
        kind, config, x, weights = node["class"], node["config"], inputs[0], self.weights(node)
        if kind in ("Conv2D", "DepthwiseConv2D"):
            kernel, bias = weights[0], weights[1] if config["use_bias"] else None
            x, padding = self.padded(node, x, kernel)
            groups = x.shape[1] if kind == "DepthwiseConv2D" else 1
            y = functional.conv2d(x, kernel, bias, config["strides"], padding, 1, groups)
        elif kind == "Dense":
            y = functional.linear(x, weights[0], weights[1])
        elif kind == "MultiHeadAttention":
            return attention(config, x, weights)
        elif kind == "Embedding":
            return functional.embedding(x, weights[0])
        elif kind == "MaxPooling2D":
            return functional.max_pool2d(x, config["pool_size"], config["strides"], config.get("folded", 0))
        elif kind == "GlobalAveragePooling2D":
            return x.mean((2, 3))
        elif kind == "GlobalAveragePooling1D":
            return x.mean(1)
        elif kind == "Flatten":
            return (x.permute(0, 2, 3, 1) if self.channels_last else x).flatten(1)
        elif kind == "ZeroPadding2D":
            (top, bottom), (left, right) = pairs(config["padding"])
            return x if config.get("folded") else functional.pad(x, (left, right, top, bottom))
        elif kind == "BatchNormalization":
            scale, shift, mean, variance = weights
            return functional.batch_norm(x, mean, variance, scale, shift, True, 1 - config["momentum"], config["epsilon"])
        elif kind == "LayerNormalization":
            return functional.layer_norm(x, x.shape[-1:], weights[0], weights[1], config["epsilon"])
        elif kind == "Add":
            return inputs[0] + inputs[1]
        elif kind == "Activation":
            y = x
        elif kind == "ReLU":
            alone = self.readers[node["inputs"][0]] == 1
            return functional.hardtanh(x, 0.0, config["max_value"], alone) if config["max_value"] else functional.relu(x, alone)
        else:
            raise unknown(node)
        match config["activation"]:
            case "relu":
                return functional.relu(y, kind != "Activation" or self.readers[node["inputs"][0]] == 1)
            case "gelu":
                return functional.gelu(y)
            # The softmax at the end is the loss's.
            case "linear" | "softmax":
                return y
        raise unknown(node)


def key(node: dict, place: int) -> str:
    return f"{node['name']}_{place}"


def attention(config: dict, x: torch.Tensor, weights: list) -> torch.Tensor:
    query, query_bias, keys, keys_bias, value, value_bias, out, out_bias = weights
    batch, tokens, width = x.shape
    heads = lambda kernel, bias: functional.linear(x, kernel, bias).view(batch, tokens, config["num_heads"], -1).transpose(1, 2)
    y = functional.scaled_dot_product_attention(heads(query, query_bias), heads(keys, keys_bias), heads(value, value_bias))
    return functional.linear(y.transpose(1, 2).reshape(batch, tokens, -1), out, out_bias)


def fold_padding(nodes: list) -> None:
    """Equal padding on all sides goes into the convolution behind it, or into a pool of values that a ReLU made."""
    by_name = {node["name"]: node for node in nodes}
    for node in nodes:
        before = by_name[node["inputs"][0]] if node["inputs"] else None
        if before is None or before["class"] != "ZeroPadding2D" or node["config"]["padding"] != "valid":
            continue
        widths = {width for pair in pairs(before["config"]["padding"]) for width in pair}
        rectified = by_name[before["inputs"][0]]["config"].get("activation") == "relu"
        if len(widths) == 1 and (node["class"] in ("Conv2D", "DepthwiseConv2D") or node["class"] == "MaxPooling2D" and rectified):
            before["config"]["folded"] = node["config"]["folded"] = widths.pop()


def loss_of(name: str, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if name == "mean_squared_error":
        return functional.mse_loss(logits.softmax(1), y)
    return functional.cross_entropy(logits, y)


def main() -> None:
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    prepared = Prepared()
    options = prepared.options
    channels_last = options["variant"] in ("channels_last", "compiled")
    fold_padding(prepared.nodes)
    network = Network(prepared, channels_last)
    x, y = (torch.from_numpy(array) for array in prepared.batch)
    if x.dim() == 4:
        x = x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    prepared.batch = None
    optimizer = torch.optim.Adam(network.parameters(), lr=options["learning_rate"], fused=True)
    compute = lambda x, y: loss_of(options["loss"], network(x), y)
    compute = torch.compile(compute) if options["variant"] == "compiled" else compute
    steps = 0

    def step() -> float:
        nonlocal steps
        steps += 1
        optimizer.zero_grad(set_to_none=True)
        loss = compute(x, y)
        loss.backward()
        # Keras adds its epsilon before the correction of the second moment, PyTorch behind it.
        optimizer.param_groups[0]["eps"] = 1e-7 / math.sqrt(1 - 0.999**steps)
        optimizer.step()
        return loss.item()

    prepared.train(step)


if __name__ == "__main__":
    main()
