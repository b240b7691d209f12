"""Layers of sequences and images, noise, and what keras.applications brings along, for spatial.json."""

import keras
from keras import layers
from keras.src.applications.convnext import LayerScale, StochasticDepth
from keras.src.applications.inception_resnet_v2 import CustomScaleLayer

from layer_cases import Case, merge, one

SEQUENCE = (7, 3)


def sequence_cases():
    def conv(name, kind=layers.Conv1D, shape=SEQUENCE, filters=4, kernel=3, **arguments):
        return one(f"{kind.__name__.lower()}_{name}", kind(filters, kernel, name="conv", **arguments), shape)

    yield conv("valid")
    yield conv("same_strides_2", strides=2, padding="same")
    yield conv("causal", padding="causal", activation="relu")
    yield conv("causal_dilation_2", padding="causal", dilation_rate=2, use_bias=False)
    yield conv("causal_strides_2", padding="causal", strides=2)
    yield conv("groups_2", shape=(7, 4), groups=2)
    separable = layers.SeparableConv1D
    yield conv("valid", separable)
    yield conv("same_multiplier_2", separable, padding="same", depth_multiplier=2, activation="tanh")
    yield one("depthwise_conv1d", layers.DepthwiseConv1D(3, depth_multiplier=2, name="conv"), SEQUENCE)
    backwards = layers.Conv1DTranspose
    yield conv("valid", backwards)
    yield conv("valid_strides_2", backwards, strides=2)
    yield conv("same_strides_3", backwards, strides=3, padding="same", activation="relu")
    yield conv("kernel_2_strides_3", backwards, kernel=2, strides=3)
    for kind, layer in (("max", layers.MaxPooling1D), ("average", layers.AveragePooling1D)):
        yield one(f"{kind}_pooling1d", layer(2, name="pool"), SEQUENCE)
        yield one(f"{kind}_pooling1d_3_strides_2_same", layer(3, strides=2, padding="same", name="pool"), SEQUENCE)
    yield one("cropping1d", layers.Cropping1D((1, 2), name="crop"), SEQUENCE)
    yield one("zero_padding1d", layers.ZeroPadding1D((1, 2), name="pad"), SEQUENCE)
    yield one("up_sampling1d", layers.UpSampling1D(3, name="up"), SEQUENCE)
    yield one("repeat_vector", layers.RepeatVector(3, name="repeat"), (4,))


def image_cases():
    def backwards(name, shape=(4, 5, 3), filters=2, kernel=3, **arguments):
        layer = layers.Conv2DTranspose(filters, kernel, name="conv", **arguments)
        return one(f"conv2d_transpose_{name}", layer, shape)

    yield backwards("valid")
    yield backwards("same")
    yield backwards("strides_2_valid", strides=2)
    yield backwards("strides_2_same", strides=2, padding="same", activation="relu")
    yield backwards("strides_2_by_3_same", strides=(2, 3), padding="same", use_bias=False)
    yield backwards("kernel_2_strides_3", kernel=2, strides=3)
    yield backwards("kernel_4_by_2_strides_2", kernel=(4, 2), strides=2, padding="same")

    def separable(name, shape=(5, 6, 3), **arguments):
        layer = layers.SeparableConv2D(4, 3, name="conv", **arguments)
        return one(f"separable_conv2d_{name}", layer, shape)

    yield separable("valid")
    yield separable("strides_2_same", strides=2, padding="same", use_bias=False)
    yield separable("multiplier_2_relu", depth_multiplier=2, activation="relu")
    yield separable("dilation_2_same", dilation_rate=2, padding="same")
    for name, cropping in (("1", 1), ("1_by_2", (1, 2)), ("four_sides", ((1, 0), (0, 2)))):
        yield one(f"cropping2d_{name}", layers.Cropping2D(cropping, name="crop"), (5, 6, 2))
    for order in ((2, 1, 3), (3, 1, 2), (1, 3, 2)):
        name = "_".join(map(str, order))
        yield one(f"permute_{name}", layers.Permute(order, name="permute"), (3, 4, 2))
    yield one("permute_sequence", layers.Permute((2, 1), name="permute"), (3, 4))
    for how in ("bilinear", "nearest"):
        for size in ((5, 7), (2, 3), (8, 2)):
            layer = layers.Resizing(*size, interpolation=how, name="resize")
            yield one(f"resizing_{how}_{size[0]}_by_{size[1]}", layer, (4, 5, 2))
    yield one("center_crop", layers.CenterCrop(3, 2, name="crop"), (6, 5, 2))
    yield one("identity", layers.Identity(name="identity"), (4,))


def scale_cases():
    yield one("normalization", layers.Normalization(mean=[0.5, -0.25], variance=[4.0, 0.25], name="norm"), (3, 4, 2))
    yield one("normalization_one_number", layers.Normalization(mean=0.5, variance=4.0, name="norm"), (3, 2))
    yield one("normalization_invert",
              layers.Normalization(mean=[0.5, -0.25], variance=[4.0, 0.25], invert=True, name="norm"), (3, 2))
    yield one("rescaling_list", layers.Rescaling([0.5, 2.0], offset=[1.0, -1.0], name="rescaling"), (3, 4, 2))
    for name, shape, arguments in (
        ("2_groups", (3, 4, 4), {"groups": 2}),
        ("1_group", (3, 4, 4), {"groups": 1}),
        ("each_channel", (3, 4, 4), {"groups": -1}),
        ("sequence", (5, 6), {"groups": 3, "epsilon": 0.1}),
        ("no_scale", (3, 4, 4), {"groups": 2, "scale": False}),
        ("plain", (3, 4, 4), {"groups": 2, "scale": False, "center": False}),
    ):
        yield one(f"group_normalization_{name}", layers.GroupNormalization(name="norm", **arguments), shape)
    yield one("prelu", layers.PReLU(name="prelu"), (3, 4, 2))
    yield one("prelu_shared", layers.PReLU(shared_axes=[1, 2], name="prelu"), (3, 4, 2))
    # The weight has no name in Keras but the one that it is given here.
    yield merge("custom_scale_layer", CustomScaleLayer(0.3, name="scale"), (3, 4, 2), (3, 4, 2))
    for name in ("hard_sigmoid", "hard_silu", "relu6", "selu", "mish"):
        yield one(f"activation_{name}", layers.Activation(name, name="activation"), (3, 7), span=(-5.0, 8.0))
    x = keras.Input((3, 4), name="x")
    yield Case(keras.Model(x, layers.ReLU(6.0, name="relu")(x + 3.0) * (1.0 / 6.0), name="tensor_and_number"))
    yield Case(keras.Model(x, (1.5 - x) - 0.25, name="number_minus_tensor"))


def noise_cases():
    for name, layer in (
        ("dropout_noise_shape", layers.Dropout(0.4, noise_shape=(None, 1, 1, 2), name="noise")),
        ("spatial_dropout2d", layers.SpatialDropout2D(0.4, name="noise")),
        ("gaussian_dropout", layers.GaussianDropout(0.4, name="noise")),
        ("gaussian_noise", layers.GaussianNoise(0.4, name="noise")),
        ("alpha_dropout", layers.AlphaDropout(0.4, name="noise")),
        ("stochastic_depth", StochasticDepth(0.4, name="noise")),
    ):
        yield one(name, layer, (3, 4, 2), inference_only=True)
    yield one("spatial_dropout1d", layers.SpatialDropout1D(0.4, name="noise"), (3, 2), inference_only=True)


def compute():
    """All cases of spatial.json, in order."""
    groups = (sequence_cases, image_cases, scale_cases, noise_cases)
    return [case.compute() for group in groups for case in group()]
