"""One case per layer and argument combination, for layers.json."""

import json

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import counter

# Seeds of the first input, target and weight of every case.
INPUT_SEED, TARGET_SEED, WEIGHT_SEED = 100, 200, 300

BATCH = 2
IMAGE = (5, 6, 3)


def digits(array):
    """A flat list of floats with nine significant digits, enough for float32."""
    return [float(f"{value:.9g}") for value in np.asarray(array, np.float64).ravel()]


def is_scale(path):
    """Whether a weight must stay positive, like a standard deviation."""
    return path.split("/")[-1] in ("gamma", "moving_variance")


class Case:
    """A model with the ranges its inputs are drawn from."""

    def __init__(self, model, span=(-1.0, 1.0), batch=BATCH, inference_only=False):
        self.model = model
        self.span = span
        self.batch = batch
        self.inference_only = inference_only

    def input_spec(self, index, tensor):
        shape = (self.batch, *tensor.shape[1:])
        if tensor.dtype == "int32":
            return counter.integers(shape, INPUT_SEED + index, *self.span)
        return counter.uniform(shape, INPUT_SEED + index, *self.span)

    def compute(self):
        model = self.model
        inputs = [self.input_spec(i, x) for i, x in enumerate(model.inputs)]
        weights = []
        for i, weight in enumerate(model.weights):
            span = (0.5, 1.5) if is_scale(weight.path) else (-0.5, 0.5)
            spec = counter.uniform(weight.shape, WEIGHT_SEED + i, *span)
            weight.assign(counter.tensor(spec))
            weights.append({"path": weight.path, **spec})
        result = {
            "name": model.name,
            "config": json.loads(model.to_json()),
            "inputs": inputs,
            "weights": weights,
        }
        x = [tf.constant(counter.tensor(spec)) for spec in inputs]
        if not self.inference_only:
            result |= self.training(x)
        for weight, spec in zip(model.weights, weights):
            weight.assign(counter.tensor(spec))
        result["outputs_inference"] = [digits(y) for y in self.call(x, training=False)]
        return result

    def call(self, x, training):
        outputs = self.model(x if len(x) > 1 else x[0], training=training)
        return outputs if isinstance(outputs, (list, tuple)) else [outputs]

    def training(self, x):
        """Outputs, loss and gradients of one call in training mode."""
        trainable = self.model.trainable_weights
        floats = [value for value in x if value.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            outputs = self.call(x, training=True)
            targets = [counter.uniform(y.shape, TARGET_SEED + i) for i, y in enumerate(outputs)]
            loss = tf.add_n([
                tf.reduce_mean(tf.square(y - counter.tensor(target)))
                for y, target in zip(outputs, targets)
            ])
        by_weight, by_input = tape.gradient(
            loss, ([weight.value for weight in trainable], floats))
        by_input = iter(by_input)
        result = {
            "outputs": [digits(y) for y in outputs],
            "targets": targets,
            "loss": digits(loss)[0],
            "weight_gradients": {
                weight.path: digits(tf.convert_to_tensor(gradient))
                for weight, gradient in zip(trainable, by_weight)
            },
            "input_gradients": [
                digits(next(by_input)) if value.dtype.is_floating else None for value in x
            ],
        }
        moving = {w.path: digits(w) for w in self.model.weights if "/moving_" in w.path}
        if moving:
            result["moving_after"] = moving
        return result


def one(name, layer, shape=IMAGE, **options):
    """Input -> layer, as a Sequential model."""
    return Case(keras.Sequential([keras.Input(shape, name="x"), layer], name=name), **options)


def merge(name, layer, *shapes):
    """Inputs -> layer, as a functional model."""
    inputs = [keras.Input(shape, name=f"x{i}") for i, shape in enumerate(shapes)]
    return Case(keras.Model(inputs, layer(inputs), name=name))


def dense_cases():
    dense = layers.Dense
    yield one("dense", dense(4, name="dense"), (5,), batch=3)
    yield one("dense_no_bias", dense(4, use_bias=False, name="dense"), (5,), batch=3)
    yield one("dense_relu", dense(6, activation="relu", name="dense"), (5,), batch=3)
    yield one("dense_tanh", dense(4, activation="tanh", name="dense"), (5,), batch=3)
    yield one("dense_softmax", dense(4, activation="softmax", name="dense"), (5,), batch=3)
    yield one("dense_3d", dense(4, name="dense"), (3, 5))


def convolution_cases():
    def conv(name, shape=IMAGE, filters=4, kernel=3, **arguments):
        layer = layers.Conv2D(filters, kernel, name="conv", **arguments)
        return one(f"conv2d_{name}", layer, shape)

    yield conv("valid")
    yield conv("same", padding="same")
    yield conv("kernel_1", kernel=1)
    yield conv("kernel_3_by_2_same", kernel=(3, 2), padding="same")
    yield conv("strides_2_valid", strides=2)
    yield conv("strides_2_same", shape=(6, 8, 3), strides=2, padding="same")
    yield conv("strides_2_same_odd", shape=(5, 7, 3), strides=2, padding="same")
    yield conv("strides_2_by_1", shape=(7, 6, 3), strides=(2, 1))
    yield conv("strides_2_by_1_same", shape=(7, 6, 3), strides=(2, 1), padding="same")
    yield conv("dilation_2_valid", shape=(7, 6, 3), dilation_rate=2)
    yield conv("dilation_2_same", dilation_rate=2, padding="same")
    yield conv("groups_2", shape=(5, 6, 4), groups=2)
    yield conv("no_bias", use_bias=False)
    yield conv("relu", activation="relu")

    def depthwise(name, shape=IMAGE, **arguments):
        layer = layers.DepthwiseConv2D(3, name="depthwise", **arguments)
        return one(f"depthwise_conv2d_{name}", layer, shape)

    yield depthwise("valid")
    yield depthwise("strides_2_same", shape=(6, 7, 3), strides=2, padding="same")
    yield depthwise("depth_multiplier_2", depth_multiplier=2)
    yield depthwise("dilation_2_valid", shape=(7, 6, 3), dilation_rate=2)
    yield depthwise("dilation_2_same", dilation_rate=2, padding="same")
    yield depthwise("no_bias_relu", use_bias=False, activation="relu")


def pooling_cases():
    for kind, layer in (("max", layers.MaxPooling2D), ("average", layers.AveragePooling2D)):
        yield one(f"{kind}_pooling2d", layer(2, name="pool"))
        yield one(f"{kind}_pooling2d_3_strides_2_same",
                  layer(3, strides=2, padding="same", name="pool"), (6, 7, 3))
        yield one(f"{kind}_pooling2d_2_by_3_strides_1",
                  layer((2, 3), strides=1, padding="valid", name="pool"))
    for kind, layer in (
        ("average", layers.GlobalAveragePooling2D),
        ("max", layers.GlobalMaxPooling2D),
    ):
        yield one(f"global_{kind}_pooling2d", layer(name="pool"))
        yield one(f"global_{kind}_pooling2d_keepdims", layer(keepdims=True, name="pool"))


def shape_cases():
    yield one("flatten", layers.Flatten(name="flatten"), (2, 3, 4))
    yield one("reshape", layers.Reshape((4, 6), name="reshape"), (2, 3, 4))
    yield one("reshape_inferred", layers.Reshape((-1, 8), name="reshape"), (2, 3, 4))
    for name, padding in (("1", 1), ("1_by_2", (1, 2)), ("four_sides", ((1, 2), (3, 0)))):
        yield one(f"zero_padding2d_{name}", layers.ZeroPadding2D(padding, name="pad"), (3, 4, 2))
    for name, arguments in (
        ("nearest_2", {"size": 2}),
        ("nearest_2_by_3", {"size": (2, 3)}),
        ("bilinear_2", {"size": 2, "interpolation": "bilinear"}),
        ("bilinear_2_by_3", {"size": (2, 3), "interpolation": "bilinear"}),
    ):
        yield one(f"up_sampling2d_{name}", layers.UpSampling2D(name="up", **arguments), (3, 4, 2))


def normalization_cases():
    def batch(name, shape=IMAGE, **arguments):
        layer = layers.BatchNormalization(name="norm", **arguments)
        return one(f"batch_normalization_{name}", layer, shape, batch=3)

    yield batch("2d", (4,))
    yield batch("4d")
    yield batch("momentum_epsilon", momentum=0.7, epsilon=0.05)
    yield batch("no_center", center=False)
    yield batch("no_scale", scale=False)
    yield batch("axis_1", axis=1)
    yield batch("frozen", trainable=False)

    def layer(name, shape=(4, 5), **arguments):
        norm = layers.LayerNormalization(name="norm", **arguments)
        return one(f"layer_normalization_{name}", norm, shape)

    yield layer("2d", (6,))
    yield layer("3d")
    yield layer("epsilon", epsilon=0.1)
    yield layer("axis_list", axis=[-1])
    yield layer("axis_1_2_3", (3, 4, 2), axis=[1, 2, 3])
    yield layer("no_center", center=False)
    yield layer("no_scale", scale=False)


def activation_cases():
    wide = {"shape": (3, 7), "span": (-3.0, 3.0)}
    for name in ("relu", "leaky_relu", "elu", "gelu", "silu", "sigmoid", "tanh",
                 "softplus", "softmax", "linear"):
        yield one(f"activation_{name}", layers.Activation(name, name="activation"), **wide)
    for name, layer in (
        ("relu", layers.ReLU(name="activation")),
        ("relu_max_value", layers.ReLU(max_value=1.5, name="activation")),
        ("relu_max_value_6", layers.ReLU(max_value=6.0, name="activation")),
        ("relu_negative_slope", layers.ReLU(negative_slope=0.1, name="activation")),
        ("relu_threshold", layers.ReLU(threshold=0.7, name="activation")),
        ("relu_max_value_slope_threshold",
         layers.ReLU(max_value=2.0, negative_slope=0.25, threshold=0.5, name="activation")),
        ("leaky_relu", layers.LeakyReLU(name="activation")),
        ("leaky_relu_negative_slope", layers.LeakyReLU(negative_slope=0.1, name="activation")),
        ("elu", layers.ELU(name="activation")),
        ("elu_alpha", layers.ELU(alpha=0.5, name="activation")),
        ("softmax", layers.Softmax(name="activation")),
        ("softmax_axis_1", layers.Softmax(axis=1, name="activation")),
    ):
        span = (-3.0, 9.0) if name == "relu_max_value_6" else (-3.0, 3.0)
        yield one(f"layer_{name}", layer, shape=(3, 7), span=span)
    yield one("dropout", layers.Dropout(0.4, name="dropout"), (5,), inference_only=True)
    yield one("rescaling", layers.Rescaling(1 / 127.5, offset=-1.0, name="rescaling"),
              (3, 4, 2), span=(0.0, 255.0))


def merge_cases():
    shape = (3, 4, 2)
    for kind in (layers.Add, layers.Multiply, layers.Average, layers.Maximum):
        name = kind.__name__.lower()
        yield merge(f"{name}_2", kind(name="merge"), shape, shape)
        yield merge(f"{name}_3", kind(name="merge"), shape, shape, shape)
    yield merge("subtract", layers.Subtract(name="merge"), shape, shape)
    yield merge("add_broadcast", layers.Add(name="merge"), (1, 1, 2), shape)
    yield merge("multiply_broadcast", layers.Multiply(name="merge"), (1, 1, 2), shape)
    yield merge("multiply_broadcast_second", layers.Multiply(name="merge"), shape, (1, 1, 2))
    yield merge("concatenate", layers.Concatenate(name="merge"), shape, (3, 4, 3))
    yield merge("concatenate_axis_1", layers.Concatenate(axis=1, name="merge"), shape, (2, 4, 2))
    yield merge("concatenate_3", layers.Concatenate(name="merge"), shape, (3, 4, 1), (3, 4, 3))


def embedding_cases():
    ids = keras.Input((4,), dtype="int32", name="x")
    model = keras.Model(ids, layers.Embedding(6, 3, name="embedding")(ids), name="embedding")
    yield Case(model, span=(0, 6), batch=3)


def attention_cases():
    def attend(name, layer, *shapes, names=("query", "value", "key"), **call):
        inputs = [keras.Input(shape, name=f"x{i}") for i, shape in enumerate(shapes)]
        given = dict(zip(names, inputs if len(inputs) > 1 else inputs * 2))
        return Case(keras.Model(inputs, layer(**given, **call), name=name))

    def multi_head(name, *shapes, heads=2, key_dim=3, call={}, **arguments):
        layer = layers.MultiHeadAttention(heads, key_dim, name="attention", **arguments)
        return attend(f"multi_head_attention_{name}", layer, *shapes, **call)

    yield multi_head("self", (5, 6))
    yield multi_head("causal", (5, 6), call={"use_causal_mask": True})
    yield multi_head("cross", (5, 6), (7, 4))
    yield multi_head("cross_causal", (5, 6), (7, 4), call={"use_causal_mask": True})
    yield multi_head("query_value_key", (4, 6), (7, 5), (7, 3))
    yield multi_head("no_bias", (5, 6), use_bias=False)
    yield multi_head("value_dim", (5, 6), value_dim=4)
    yield multi_head("output_shape", (5, 6), value_dim=2, output_shape=7)
    yield multi_head("output_shape_2d", (5, 6), output_shape=(2, 3))
    yield multi_head("one_head", (5, 6), heads=1)
    yield multi_head("one_query", (1, 6), (7, 4))
    yield multi_head("longer_than_a_tile", (30, 4), heads=1, key_dim=2)

    x = keras.Input((5, 6), name="x")
    layer = layers.MultiHeadAttention(2, 3, name="attention")
    twice = layer(layer(x, x), x, use_causal_mask=False)
    yield Case(keras.Model(x, twice, name="multi_head_attention_shared"))

    def grouped(name, *shapes, **call):
        layer = layers.GroupQueryAttention(3, 4, 2, name="attention")
        return attend(f"group_query_attention_{name}", layer, *shapes, **call)

    yield grouped("self", (5, 6))
    yield grouped("causal", (5, 6), use_causal_mask=True)
    yield grouped("cross", (5, 6), (7, 6))

    def dot(name, *shapes, **call):
        inputs = [keras.Input(shape, name=f"x{i}") for i, shape in enumerate(shapes)]
        given = inputs if len(inputs) > 1 else inputs * 2
        y = layers.Attention(name="attention")(given, **call)
        return Case(keras.Model(inputs, y, name=f"attention_{name}"))

    yield dot("self", (5, 6))
    yield dot("causal", (5, 6), use_causal_mask=True)
    yield dot("query_value", (5, 6), (7, 6))
    yield dot("query_value_key", (5, 6), (7, 4), (7, 6))

    def einsum(name, equation, output_shape, shape, bias_axes=None, **arguments):
        layer = layers.EinsumDense(equation, output_shape, bias_axes=bias_axes, name="einsum",
                                   **arguments)
        return one(f"einsum_dense_{name}", layer, shape)

    yield einsum("vector", "ab,bc->ac", 4, (5,), "c")
    yield einsum("last_axis", "abc,cd->abd", (None, 4), (3, 5), "d", activation="relu")
    yield einsum("heads", "abc,cde->abde", (None, 2, 3), (3, 5), "de")
    yield einsum("heads_back", "abcd,cde->abe", (None, 4), (3, 2, 5))
    yield einsum("ellipsis", "...x,xy->...y", 4, (3, 5), "y")


def sequence_pooling_cases():
    for kind, layer in (
        ("average", layers.GlobalAveragePooling1D),
        ("max", layers.GlobalMaxPooling1D),
    ):
        yield one(f"global_{kind}_pooling1d", layer(name="pool"), (5, 3))
        yield one(f"global_{kind}_pooling1d_keepdims", layer(keepdims=True, name="pool"), (5, 3))


def graph_cases():
    a, b = keras.Input((5,), name="a"), keras.Input((5,), name="b")
    shared = layers.Dense(4, activation="tanh", name="shared")
    total = layers.Add(name="sum")([shared(a), shared(b)])
    yield Case(keras.Model([a, b], total, name="shared_layer"))

    a, b = keras.Input((5,), name="a"), keras.Input((3,), name="b")
    left = layers.Dense(4, activation="relu", name="left")(a)
    right = layers.Dense(4, activation="tanh", name="right")(b)
    product = layers.Multiply(name="product")([left, right])
    joined = layers.Concatenate(name="joined")([product, left, b])
    first = layers.Dense(2, name="first")(joined)
    second = layers.Dense(3, activation="sigmoid", name="second")(product)
    yield Case(keras.Model([a, b], [first, second], name="two_inputs_two_outputs"))

    x = keras.Input((4, 5, 3), name="x")
    left = layers.Conv2D(3, 3, padding="same", activation="relu", name="left")(x)
    right = layers.Conv2D(3, 1, name="right")(x)
    total = layers.Add(name="sum")([left, right, x])
    yield Case(keras.Model(x, layers.ReLU(name="relu")(total), name="diamond_residual"))


def compute():
    """All cases of layers.json, in order."""
    groups = (
        dense_cases, convolution_cases, pooling_cases, shape_cases, normalization_cases,
        activation_cases, merge_cases, embedding_cases, graph_cases, attention_cases,
        sequence_pooling_cases,
    )
    return [case.compute() for group in groups for case in group()]
