//! The part of the table that is about sequences, images and noise, and the layers that Keras's own applications bring.

use crate::argument::{Argument, Expects};
use crate::table::{
    ACTIVATION, ANY, BETA_INITIALIZER, BIAS_INITIALIZER, CENTER, Class, DATA_FORMAT, DILATION_RATE, EPSILON,
    FROM_ZERO, GAMMA_INITIALIZER, Inputs, LayerClass, NOISE_SHAPE, PADDING, SCALE, SHARE, STRIDES, USE_BIAS,
    optional, refused, required, row,
};

/// The classes of this part, as a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spatial {
    AlphaDropout,
    AveragePooling1D,
    CenterCrop,
    Conv1D,
    Conv1DTranspose,
    Conv2DTranspose,
    Cropping1D,
    Cropping2D,
    CustomScale,
    DepthwiseConv1D,
    GaussianDropout,
    GaussianNoise,
    GroupNormalization,
    Identity,
    LayerScale,
    MaxPooling1D,
    Normalization,
    PRelu,
    Permute,
    RepeatVector,
    Resizing,
    SeparableConv1D,
    SeparableConv2D,
    ChannelDropout1D,
    ChannelDropout2D,
    StochasticDepth,
    UpSampling1D,
    ZeroPadding1D,
}

const SEED: Argument = optional("seed", Expects::Seed, "null");
const SIZE_1D: Argument = required("kernel_size", Expects::Single);
const STRIDES_1D: Argument = optional("strides", Expects::Single, "1");
const DILATION_1D: Argument = optional("dilation_rate", Expects::Single, "1");
const CAUSAL_TOO: Argument = optional("padding", Expects::OneOf(&["valid", "same", "causal"]), r#""valid""#);
const KERNEL_INITIALIZER: Argument =
    optional("kernel_initializer", Expects::Initializer, r#""glorot_uniform""#);
const DEPTHWISE_INITIALIZER: Argument =
    optional("depthwise_initializer", Expects::Initializer, r#""glorot_uniform""#);
const POINTWISE_INITIALIZER: Argument =
    optional("pointwise_initializer", Expects::Initializer, r#""glorot_uniform""#);
const FILTERS: Argument = required("filters", Expects::Size);
const MULTIPLIER: Argument = optional("depth_multiplier", Expects::Size, "1");

const POOL_1D: &[Argument] = &[
    optional("pool_size", Expects::Single, "2"),
    optional("strides", Expects::Maybe(&Expects::Single), "null"),
    PADDING,
    DATA_FORMAT,
];

const fn spatial(
    class: Spatial,
    name: &'static str,
    inputs: Inputs,
    arguments: &'static [Argument],
) -> LayerClass {
    row(Class::Spatial(class), name, inputs, arguments)
}

pub(crate) const LAYERS: &[LayerClass] = &[
    spatial(
        Spatial::Conv1D,
        "Conv1D",
        Inputs::One,
        &[
            FILTERS,
            SIZE_1D,
            STRIDES_1D,
            CAUSAL_TOO,
            DATA_FORMAT,
            DILATION_1D,
            optional("groups", Expects::Size, "1"),
            ACTIVATION,
            USE_BIAS,
            KERNEL_INITIALIZER,
            BIAS_INITIALIZER,
            refused("kernel_regularizer"),
            refused("bias_regularizer"),
            refused("kernel_constraint"),
            refused("bias_constraint"),
        ],
    ),
    spatial(
        Spatial::DepthwiseConv1D,
        "DepthwiseConv1D",
        Inputs::One,
        &[
            SIZE_1D,
            STRIDES_1D,
            PADDING,
            MULTIPLIER,
            DATA_FORMAT,
            DILATION_1D,
            ACTIVATION,
            USE_BIAS,
            DEPTHWISE_INITIALIZER,
            BIAS_INITIALIZER,
            refused("depthwise_regularizer"),
            refused("bias_regularizer"),
            refused("depthwise_constraint"),
            refused("bias_constraint"),
        ],
    ),
    spatial(
        Spatial::SeparableConv1D,
        "SeparableConv1D",
        Inputs::One,
        &[
            FILTERS,
            SIZE_1D,
            STRIDES_1D,
            CAUSAL_TOO,
            DATA_FORMAT,
            DILATION_1D,
            MULTIPLIER,
            ACTIVATION,
            USE_BIAS,
            DEPTHWISE_INITIALIZER,
            POINTWISE_INITIALIZER,
            BIAS_INITIALIZER,
            refused("depthwise_regularizer"),
            refused("pointwise_regularizer"),
            refused("bias_regularizer"),
            refused("depthwise_constraint"),
            refused("pointwise_constraint"),
            refused("bias_constraint"),
        ],
    ),
    spatial(
        Spatial::SeparableConv2D,
        "SeparableConv2D",
        Inputs::One,
        &[
            FILTERS,
            required("kernel_size", Expects::Pair),
            STRIDES,
            PADDING,
            DATA_FORMAT,
            DILATION_RATE,
            MULTIPLIER,
            ACTIVATION,
            USE_BIAS,
            DEPTHWISE_INITIALIZER,
            POINTWISE_INITIALIZER,
            BIAS_INITIALIZER,
            refused("depthwise_regularizer"),
            refused("pointwise_regularizer"),
            refused("bias_regularizer"),
            refused("depthwise_constraint"),
            refused("pointwise_constraint"),
            refused("bias_constraint"),
        ],
    ),
    spatial(
        Spatial::Conv1DTranspose,
        "Conv1DTranspose",
        Inputs::One,
        &[
            FILTERS,
            SIZE_1D,
            STRIDES_1D,
            PADDING,
            refused("output_padding"),
            DATA_FORMAT,
            DILATION_1D,
            ACTIVATION,
            USE_BIAS,
            KERNEL_INITIALIZER,
            BIAS_INITIALIZER,
            refused("kernel_regularizer"),
            refused("bias_regularizer"),
            refused("kernel_constraint"),
            refused("bias_constraint"),
        ],
    ),
    spatial(
        Spatial::Conv2DTranspose,
        "Conv2DTranspose",
        Inputs::One,
        &[
            FILTERS,
            required("kernel_size", Expects::Pair),
            STRIDES,
            PADDING,
            refused("output_padding"),
            DATA_FORMAT,
            DILATION_RATE,
            ACTIVATION,
            USE_BIAS,
            KERNEL_INITIALIZER,
            BIAS_INITIALIZER,
            refused("kernel_regularizer"),
            refused("bias_regularizer"),
            refused("kernel_constraint"),
            refused("bias_constraint"),
        ],
    ),
    spatial(Spatial::MaxPooling1D, "MaxPooling1D", Inputs::One, POOL_1D),
    spatial(Spatial::AveragePooling1D, "AveragePooling1D", Inputs::One, POOL_1D),
    spatial(
        Spatial::Cropping1D,
        "Cropping1D",
        Inputs::One,
        &[optional("cropping", Expects::Ends, "1"), DATA_FORMAT],
    ),
    spatial(
        Spatial::Cropping2D,
        "Cropping2D",
        Inputs::One,
        &[optional("cropping", Expects::Margins, "0"), DATA_FORMAT],
    ),
    spatial(
        Spatial::ZeroPadding1D,
        "ZeroPadding1D",
        Inputs::One,
        &[optional("padding", Expects::Ends, "1"), DATA_FORMAT],
    ),
    spatial(Spatial::UpSampling1D, "UpSampling1D", Inputs::One, &[optional("size", Expects::Single, "2")]),
    spatial(Spatial::RepeatVector, "RepeatVector", Inputs::One, &[required("n", Expects::Size)]),
    spatial(Spatial::Permute, "Permute", Inputs::One, &[required("dims", Expects::Axes)]),
    spatial(Spatial::Identity, "Identity", Inputs::One, &[]),
    spatial(
        Spatial::Resizing,
        "Resizing",
        Inputs::One,
        &[
            required("height", Expects::Size),
            required("width", Expects::Size),
            optional("interpolation", Expects::OneOf(&["bilinear", "nearest"]), r#""bilinear""#),
            refused("crop_to_aspect_ratio"),
            refused("pad_to_aspect_ratio"),
            optional("fill_mode", Expects::Text, r#""constant""#),
            optional("fill_value", ANY, "0"),
            refused("antialias"),
            DATA_FORMAT,
        ],
    ),
    spatial(
        Spatial::CenterCrop,
        "CenterCrop",
        Inputs::One,
        &[required("height", Expects::Size), required("width", Expects::Size), DATA_FORMAT],
    ),
    spatial(
        Spatial::Normalization,
        "Normalization",
        Inputs::One,
        &[
            optional("axis", Expects::Axes, "-1"),
            optional("mean", Expects::Maybe(&Expects::Numbers), "null"),
            optional("variance", Expects::Maybe(&Expects::Numbers), "null"),
            optional("invert", Expects::Flag, "false"),
        ],
    ),
    spatial(
        Spatial::GroupNormalization,
        "GroupNormalization",
        Inputs::One,
        &[
            optional("groups", Expects::Number { least: -1.0, below: 65536.0 }, "32"),
            optional("axis", Expects::Axis, "-1"),
            EPSILON,
            CENTER,
            SCALE,
            BETA_INITIALIZER,
            GAMMA_INITIALIZER,
            refused("beta_regularizer"),
            refused("gamma_regularizer"),
            refused("beta_constraint"),
            refused("gamma_constraint"),
        ],
    ),
    spatial(
        Spatial::PRelu,
        "PReLU",
        Inputs::One,
        &[
            optional("alpha_initializer", Expects::Initializer, r#""zeros""#),
            refused("alpha_regularizer"),
            refused("alpha_constraint"),
            optional("shared_axes", Expects::Maybe(&Expects::Axes), "null"),
        ],
    ),
    spatial(Spatial::ChannelDropout1D, "SpatialDropout1D", Inputs::One, &[required("rate", SHARE), SEED]),
    spatial(
        Spatial::ChannelDropout2D,
        "SpatialDropout2D",
        Inputs::One,
        &[required("rate", SHARE), SEED, DATA_FORMAT],
    ),
    spatial(Spatial::GaussianDropout, "GaussianDropout", Inputs::One, &[required("rate", SHARE), SEED]),
    spatial(Spatial::GaussianNoise, "GaussianNoise", Inputs::One, &[required("stddev", FROM_ZERO), SEED]),
    spatial(
        Spatial::AlphaDropout,
        "AlphaDropout",
        Inputs::One,
        &[required("rate", SHARE), NOISE_SHAPE, SEED],
    ),
    spatial(
        Spatial::LayerScale,
        "LayerScale",
        Inputs::One,
        &[required("init_values", ANY), required("projection_dim", Expects::Size)],
    ),
    spatial(Spatial::StochasticDepth, "StochasticDepth", Inputs::One, &[required("drop_path_rate", SHARE)]),
    spatial(Spatial::CustomScale, "CustomScaleLayer", Inputs::Two, &[required("scale", ANY)]),
];

/// The module of a class, as Keras writes it down.
pub(crate) fn module(class: &str) -> &'static str {
    match class {
        "LayerScale" | "StochasticDepth" => "keras.src.applications.convnext",
        "CustomScaleLayer" => "keras.src.applications.inception_resnet_v2",
        _ => "keras.layers",
    }
}
