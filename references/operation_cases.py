"""Functions of `keras.ops` called on tensors of a functional model, for operations.json."""

import keras
from keras import layers, ops

from layer_cases import Case

SHAPE = (4, 6)


def of_one(name, function, shape=SHAPE, span=(-1.0, 1.0)):
    """Input -> function."""
    x = keras.Input(shape, name="x")
    return Case(keras.Model(x, function(x), name=name), span=span)


def of_two(name, function, first=SHAPE, second=SHAPE, span=(-1.0, 1.0)):
    a, b = keras.Input(first, name="a"), keras.Input(second, name="b")
    return Case(keras.Model([a, b], function(a, b), name=name), span=span)


def elementwise_cases():
    positive = (0.5, 2.0)
    for name in ("abs", "exp", "square", "negative", "relu", "relu6", "sigmoid", "tanh", "silu", "softplus", "log_sigmoid",
                 "hard_sigmoid", "selu", "softsign", "elu", "leaky_relu", "gelu", "sin", "cos"):
        yield of_one(f"ops_{name}", getattr(ops, name), span=(-3.0, 3.0))
    for name in ("log", "sqrt", "rsqrt", "reciprocal"):
        yield of_one(f"ops_{name}", getattr(ops, name), span=positive)
    yield of_one("ops_gelu_exact", lambda x: ops.gelu(x, approximate=False))
    yield of_one("ops_clip", lambda x: ops.clip(x, -0.5, 0.25))
    for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum"):
        function = getattr(ops, name)
        yield of_two(f"ops_{name}", function, span=positive)
        yield of_two(f"ops_{name}_stretched", function, second=(1, 6), span=positive)
        yield of_one(f"ops_{name}_number", lambda x, f=function: f(x, 0.8), span=positive)
        yield of_one(f"ops_number_{name}", lambda x, f=function: f(0.8, x), span=positive)
    numbers = {"channels": [[[0.5, -1.0, 2.0, 0.25, 1.5, -0.75]]], "steps": [[1.0], [0.5], [-2.0], [4.0]],
               "row": [[0.5 + 0.25 * place + 0.125 * step for place in range(6)] for step in range(4)]}
    for kind, listed in numbers.items():
        constant = ops.convert_to_tensor(listed)
        for name in ("add", "subtract", "multiply", "divide"):
            yield of_one(f"ops_{name}_{kind}", lambda x, f=getattr(ops, name), c=constant: f(x, c))
        yield of_one(f"ops_subtract_from_{kind}", lambda x, c=constant: c - x)
    for power in (2, 0.5, -1, 3.0):
        yield of_one(f"ops_power_{power}", lambda x, p=power: x ** p, span=positive)
    yield of_one("ops_power_of_2", lambda x: 2.0 ** x)
    yield of_two("ops_operators", lambda a, b: -(a / (b * 2 + 5.0) - 1) + 3.0 * abs(b), span=positive)


def reducing_cases():
    shape = (3, 4, 2)
    for name in ("sum", "mean", "max", "min", "var", "std"):
        function = getattr(ops, name)
        yield of_one(f"ops_{name}_last", lambda x, f=function: f(x, axis=-1), shape)
        yield of_one(f"ops_{name}_axes", lambda x, f=function: f(x, axis=(1, 3), keepdims=True), shape)
        yield of_one(f"ops_{name}_middle", lambda x, f=function: f(x, axis=2), shape)
    yield of_one("ops_logsumexp", lambda x: ops.logsumexp(x, axis=-1))
    yield of_one("ops_softmax", ops.softmax, span=(-3.0, 3.0))
    yield of_one("ops_softmax_axis_1", lambda x: ops.softmax(x, axis=1), span=(-3.0, 3.0))
    yield of_one("ops_log_softmax", ops.log_softmax, span=(-3.0, 3.0))


def shaping_cases():
    shape = (3, 4, 2)
    yield of_one("ops_reshape", lambda x: ops.reshape(x, (-1, 6, 4)), shape)
    yield of_one("ops_transpose", lambda x: ops.transpose(x, (0, 3, 1, 2)), shape)
    yield of_one("ops_swapaxes", lambda x: ops.swapaxes(x, 1, -1), shape)
    yield of_one("ops_moveaxis", lambda x: ops.moveaxis(x, 1, 3), shape)
    yield of_one("ops_expand_dims", lambda x: ops.expand_dims(x, 2), shape)
    yield of_one("ops_expand_dims_last", lambda x: ops.expand_dims(x, -1), shape)
    yield of_one("ops_squeeze", lambda x: ops.squeeze(x, 2), (3, 1, 2))
    yield of_two("ops_concatenate", lambda a, b: ops.concatenate([a, b], axis=1), (3, 2), (5, 2))
    yield of_two("ops_stack", lambda a, b: ops.stack([a, b], axis=1))
    yield of_two("ops_stack_last", lambda a, b: ops.stack([a, b], axis=-1))
    yield of_one("ops_repeat", lambda x: ops.repeat(x, 3, axis=1), shape)
    yield of_one("ops_tile", lambda x: ops.tile(x, (1, 2, 1, 3)), shape)
    yield of_one("ops_pad", lambda x: ops.pad(x, ((0, 0), (1, 2), (0, 1))))
    x = keras.Input(shape, name="x")
    first, second = ops.split(x, 2, axis=2)
    yield Case(keras.Model(x, [first * 2.0, second + 1.0], name="ops_split"))
    a, b, c = ops.split(x, [1, 3], axis=2)
    yield Case(keras.Model(x, [a, b * 2.0, c], name="ops_split_indices"))
    yield of_one("ops_slice", lambda x: x[:, 1:], shape)
    yield of_one("ops_slice_end", lambda x: x[:, :-1, 1:3], shape)
    yield of_one("ops_index", lambda x: x[:, 0], shape)
    yield of_one("ops_index_negative", lambda x: x[:, -1, :, 1], shape)
    yield of_one("ops_index_ellipsis", lambda x: x[..., 0], shape)
    yield of_one("ops_index_new_axis", lambda x: x[:, None, :, 1:2], shape)


def product_cases():
    yield of_two("ops_matmul", lambda a, b: ops.matmul(a, b), (4, 6), (6, 3))
    yield of_two("ops_matmul_heads", lambda a, b: a @ b, (2, 4, 6), (2, 6, 3))
    yield of_two("ops_einsum_scores", lambda a, b: ops.einsum("bqhd,bkhd->bhqk", a, b), (4, 2, 3), (5, 2, 3))
    yield of_two("ops_einsum_outer", lambda a, b: ops.einsum("bi,bj->bij", a, b), (4,), (3,))
    yield of_two("ops_einsum_elements", lambda a, b: ops.einsum("bij,bij->bij", a, b))
    yield of_two("ops_einsum_turned", lambda a, b: ops.einsum("bij,bjk->bki", a, b), (4, 6), (6, 3))

    x = keras.Input((5, 6), name="x")
    query, key = layers.Dense(4, name="query")(x), layers.Dense(4, name="key")(x)
    weights = ops.softmax(ops.matmul(query, ops.transpose(key, (0, 2, 1))) / 2.0)
    seen = ops.matmul(weights, layers.Dense(3, name="value")(x))
    yield Case(keras.Model(x, ops.mean(seen, axis=1), name="ops_attention_by_hand"))


def compute():
    """All cases of operations.json, in order."""
    groups = (elementwise_cases, reducing_cases, shaping_cases, product_cases)
    return [case.compute() for group in groups for case in group()]
