//! The part of the table that is about volumes and masks, and layers of a few ops that belong nowhere else.

use crate::argument::{Argument, Expects};
use crate::recurrent_table::STEPS;
use crate::table::{
    ACTIVATION, ANY, BIAS_INITIALIZER, Class, DATA_FORMAT, FROM_ZERO, Inputs, KEEPDIMS, LayerClass, PADDING,
    SHARE, USE_BIAS, joined, optional, refused, required, row,
};

/// The classes of this part, as a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Further {
    /// The number of axes.
    AdaptiveAveragePooling(usize),
    AdaptiveMaxPooling(usize),
    ActivityRegularization,
    AveragePooling3D,
    Conv3D,
    Conv3DTranspose,
    Cropping3D,
    Dot,
    GlobalAveragePooling3D,
    GlobalMaxPooling3D,
    Masking,
    MaxPooling3D,
    Minimum,
    RmsNormalization,
    Rnn,
    ChannelDropout3D,
    /// A class of memfit alone: with Keras, users tie weights in a class of their own.
    TiedDense,
    UnitNormalization,
    UpSampling3D,
    ZeroPadding3D,
}

const STRIDES: Argument = optional("strides", Expects::Triple, "1");
const DILATION_RATE: Argument = optional("dilation_rate", Expects::Triple, "1");
const KERNEL_INITIALIZER: Argument =
    optional("kernel_initializer", Expects::Initializer, r#""glorot_uniform""#);

const POOL: &[Argument] = &[
    optional("pool_size", Expects::Triple, "2"),
    optional("strides", Expects::Maybe(&Expects::Triple), "null"),
    PADDING,
    DATA_FORMAT,
];

const fn further(
    class: Further,
    name: &'static str,
    inputs: Inputs,
    arguments: &'static [Argument],
) -> LayerClass {
    row(Class::Further(class), name, inputs, arguments)
}

/// An adaptive pool, whose size is said as its axes are counted.
const fn adaptive(class: Further, name: &'static str, arguments: &'static [Argument]) -> LayerClass {
    further(class, name, Inputs::One, arguments)
}

const OUTPUT_1D: &[Argument] = &[required("output_size", Expects::Single), DATA_FORMAT];
const OUTPUT_2D: &[Argument] = &[required("output_size", Expects::Pair), DATA_FORMAT];
const OUTPUT_3D: &[Argument] = &[required("output_size", Expects::Triple), DATA_FORMAT];

pub(crate) const LAYERS: &[LayerClass] = &[
    adaptive(Further::AdaptiveAveragePooling(1), "AdaptiveAveragePooling1D", OUTPUT_1D),
    adaptive(Further::AdaptiveAveragePooling(2), "AdaptiveAveragePooling2D", OUTPUT_2D),
    adaptive(Further::AdaptiveAveragePooling(3), "AdaptiveAveragePooling3D", OUTPUT_3D),
    adaptive(Further::AdaptiveMaxPooling(1), "AdaptiveMaxPooling1D", OUTPUT_1D),
    adaptive(Further::AdaptiveMaxPooling(2), "AdaptiveMaxPooling2D", OUTPUT_2D),
    adaptive(Further::AdaptiveMaxPooling(3), "AdaptiveMaxPooling3D", OUTPUT_3D),
    further(
        Further::Rnn,
        "RNN",
        Inputs::States,
        &joined::<_, { 1 + STEPS.len() }>(&[&[required("cell", Expects::Cells)], STEPS]),
    ),
    further(
        Further::Conv3D,
        "Conv3D",
        Inputs::One,
        &[
            required("filters", Expects::Size),
            required("kernel_size", Expects::Triple),
            STRIDES,
            PADDING,
            DATA_FORMAT,
            DILATION_RATE,
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
    further(
        Further::Conv3DTranspose,
        "Conv3DTranspose",
        Inputs::One,
        &[
            required("filters", Expects::Size),
            required("kernel_size", Expects::Triple),
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
    further(Further::TiedDense, "TiedDense", Inputs::One, &[required("embedding", Expects::Text)]),
    further(Further::MaxPooling3D, "MaxPooling3D", Inputs::One, POOL),
    further(Further::AveragePooling3D, "AveragePooling3D", Inputs::One, POOL),
    further(Further::GlobalAveragePooling3D, "GlobalAveragePooling3D", Inputs::One, &[DATA_FORMAT, KEEPDIMS]),
    further(Further::GlobalMaxPooling3D, "GlobalMaxPooling3D", Inputs::One, &[DATA_FORMAT, KEEPDIMS]),
    further(
        Further::UpSampling3D,
        "UpSampling3D",
        Inputs::One,
        &[optional("size", Expects::Triple, "2"), DATA_FORMAT],
    ),
    further(
        Further::ZeroPadding3D,
        "ZeroPadding3D",
        Inputs::One,
        &[optional("padding", Expects::Sides, "1"), DATA_FORMAT],
    ),
    further(
        Further::Cropping3D,
        "Cropping3D",
        Inputs::One,
        &[optional("cropping", Expects::Sides, "1"), DATA_FORMAT],
    ),
    further(
        Further::ChannelDropout3D,
        "SpatialDropout3D",
        Inputs::One,
        &[required("rate", SHARE), optional("seed", Expects::Seed, "null"), DATA_FORMAT],
    ),
    further(
        Further::UnitNormalization,
        "UnitNormalization",
        Inputs::One,
        &[optional("axis", Expects::Axes, "-1")],
    ),
    further(
        Further::RmsNormalization,
        "RMSNormalization",
        Inputs::One,
        &[optional("axis", Expects::Axes, "-1"), optional("epsilon", FROM_ZERO, "1e-6")],
    ),
    further(Further::Minimum, "Minimum", Inputs::Several, &[]),
    further(
        Further::Dot,
        "Dot",
        Inputs::Two,
        &[required("axes", Expects::Axes), optional("normalize", Expects::Flag, "false")],
    ),
    further(Further::Masking, "Masking", Inputs::One, &[optional("mask_value", ANY, "0")]),
    further(
        Further::ActivityRegularization,
        "ActivityRegularization",
        Inputs::One,
        &[optional("l1", FROM_ZERO, "0"), optional("l2", FROM_ZERO, "0")],
    ),
];
