//! The table of layers: Keras's classes, their arguments and their defaults. What is not here is refused.

use crate::argument::{Argument, Expects};
use crate::further_table::{self, Further};
use crate::recurrent_table;
use crate::spatial_table::{self, Spatial};

/// A supported layer class.
#[derive(Clone, Copy, Debug)]
pub struct LayerClass {
    /// Keras's name of the class.
    pub name: &'static str,
    /// How many tensors it is called on.
    pub inputs: Inputs,
    /// What it takes, beside what every layer has: `name`, `trainable` and `dtype`.
    pub arguments: &'static [Argument],
    pub(crate) class: Class,
}

/// How many tensors a layer is called on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// None: it is fed.
    None,
    /// One.
    One,
    /// Two.
    Two,
    /// One to three: query, value and key.
    Attention,
    /// Two or more.
    Several,
    /// One, and the states to begin with.
    States,
}

/// The supported classes, as a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    InputLayer,
    Dense,
    Conv2D,
    DepthwiseConv2D,
    MaxPooling2D,
    AveragePooling2D,
    GlobalAveragePooling2D,
    GlobalMaxPooling2D,
    Flatten,
    Reshape,
    Dropout,
    BatchNormalization,
    LayerNormalization,
    Activation,
    ReLU,
    LeakyReLU,
    Elu,
    Softmax,
    ZeroPadding2D,
    UpSampling2D,
    Add,
    Subtract,
    Multiply,
    Average,
    Maximum,
    Concatenate,
    Embedding,
    Rescaling,
    GlobalAveragePooling1D,
    GlobalMaxPooling1D,
    EinsumDense,
    Attention,
    MultiHeadAttention,
    GroupQueryAttention,
    Lstm,
    Gru,
    SimpleRnn,
    Bidirectional,
    TimeDistributed,
    RandomFlip,
    RandomCrop,
    RandomRotation,
    RandomTranslation,
    RandomZoom,
    RandomContrast,
    RandomBrightness,
    Spatial(Spatial),
    Further(Further),
}

/// The row of a class, by Keras's name; `Input` is the function that makes an `InputLayer`.
pub(crate) fn find(name: &str) -> Option<&'static LayerClass> {
    let name = if name == "Input" { "InputLayer" } else { name };
    LAYERS.iter().find(|row| row.name == name)
}

pub(crate) const ANY: Expects = Expects::Number { least: f64::NEG_INFINITY, below: f64::INFINITY };
pub(crate) const FROM_ZERO: Expects = Expects::Number { least: 0.0, below: f64::INFINITY };
pub(crate) const SHARE: Expects = Expects::Number { least: 0.0, below: 1.0 };

pub(crate) const DATA_FORMAT: Argument =
    optional("data_format", Expects::Maybe(&Expects::OneOf(&["channels_last"])), "null");
pub(crate) const PADDING: Argument = optional("padding", Expects::OneOf(&["valid", "same"]), r#""valid""#);
pub(crate) const KEEPDIMS: Argument = optional("keepdims", Expects::Flag, "false");
pub(crate) const ACTIVATION: Argument = optional("activation", Expects::Activation, "null");
pub(crate) const USE_BIAS: Argument = optional("use_bias", Expects::Flag, "true");
pub(crate) const STRIDES: Argument = optional("strides", Expects::Pair, "1");
pub(crate) const DILATION_RATE: Argument = optional("dilation_rate", Expects::Pair, "1");
pub(crate) const BIAS_INITIALIZER: Argument =
    optional("bias_initializer", Expects::Initializer, r#""zeros""#);
pub(crate) const GAMMA_INITIALIZER: Argument =
    optional("gamma_initializer", Expects::Initializer, r#""ones""#);
pub(crate) const BETA_INITIALIZER: Argument =
    optional("beta_initializer", Expects::Initializer, r#""zeros""#);
pub(crate) const EPSILON: Argument = optional("epsilon", FROM_ZERO, "1e-3");
/// Dimensions of what is drawn: null where every index has a draw of its own, 1 where all share one.
pub(crate) const NOISE_SHAPE: Argument = optional("noise_shape", Expects::Maybe(&Expects::Dims), "null");
pub(crate) const CENTER: Argument = optional("center", Expects::Flag, "true");
pub(crate) const SCALE: Argument = optional("scale", Expects::Flag, "true");

/// Keras gets it with the call; a list of layers has it among the arguments.
const USE_CAUSAL_MASK: Argument = optional("use_causal_mask", Expects::Flag, "false");
pub(crate) const DROPOUT: Argument = optional("dropout", SHARE, "0");

const RANDOM_SEED: Argument = optional("seed", Expects::Seed, "null");
const VALUE_RANGE: Argument = optional("value_range", Expects::Range, "[0, 255]");
const FILL_MODE: Argument =
    optional("fill_mode", Expects::OneOf(&["reflect", "constant", "nearest", "wrap"]), r#""reflect""#);
const FILL_VALUE: Argument = optional("fill_value", ANY, "0");
const INTERPOLATION: Argument =
    optional("interpolation", Expects::OneOf(&["bilinear", "nearest"]), r#""bilinear""#);

pub(crate) const fn required(name: &'static str, expects: Expects) -> Argument {
    Argument::required(name, expects)
}

pub(crate) const fn optional(name: &'static str, expects: Expects, default: &'static str) -> Argument {
    Argument::optional(name, expects, default)
}

/// An argument that must be null; one that asks something of a weight is read as that.
pub(crate) const fn refused(name: &'static str) -> Argument {
    Argument::of_weight_or_refused(name)
}

pub(crate) const fn row(
    class: Class,
    name: &'static str,
    inputs: Inputs,
    arguments: &'static [Argument],
) -> LayerClass {
    LayerClass { name, inputs, arguments, class }
}

const POOL: &[Argument] = &[
    optional("pool_size", Expects::Pair, "2"),
    optional("strides", Expects::Maybe(&Expects::Pair), "null"),
    PADDING,
    DATA_FORMAT,
];

/// Every supported layer.
pub(crate) const LAYERS: &[LayerClass] =
    &joined::<
        _,
        {
            CORE.len()
                + recurrent_table::LAYERS.len()
                + spatial_table::LAYERS.len()
                + further_table::LAYERS.len()
        },
    >(&[CORE, recurrent_table::LAYERS, spatial_table::LAYERS, further_table::LAYERS]);

/// Lists in a row.
pub(crate) const fn joined<T: Copy, const LENGTH: usize>(lists: &[&[T]]) -> [T; LENGTH] {
    let mut all = [lists[0][0]; LENGTH];
    let (mut list, mut index, mut at) = (0, 0, 0);
    while at < LENGTH {
        if index == lists[list].len() {
            (list, index) = (list + 1, 0);
            continue;
        }
        all[at] = lists[list][index];
        (index, at) = (index + 1, at + 1);
    }
    all
}

const CORE: &[LayerClass] = &[
    row(
        Class::InputLayer,
        "InputLayer",
        Inputs::None,
        &[
            optional("shape", Expects::Maybe(&Expects::Dims), "null"),
            optional("batch_shape", Expects::Maybe(&Expects::Dims), "null"),
            optional("dtype", Expects::OneOf(INPUT_TYPES), r#""float32""#),
            refused("sparse"),
            refused("ragged"),
            refused("optional"),
        ],
    ),
    row(
        Class::Dense,
        "Dense",
        Inputs::One,
        &[
            required("units", Expects::Size),
            ACTIVATION,
            USE_BIAS,
            optional("kernel_initializer", Expects::Initializer, r#""glorot_uniform""#),
            BIAS_INITIALIZER,
            refused("kernel_regularizer"),
            refused("bias_regularizer"),
            refused("kernel_constraint"),
            refused("bias_constraint"),
            refused("lora_rank"),
            refused("quantization_config"),
        ],
    ),
    row(
        Class::Conv2D,
        "Conv2D",
        Inputs::One,
        &[
            required("filters", Expects::Size),
            required("kernel_size", Expects::Pair),
            STRIDES,
            PADDING,
            DATA_FORMAT,
            DILATION_RATE,
            optional("groups", Expects::Size, "1"),
            ACTIVATION,
            USE_BIAS,
            optional("kernel_initializer", Expects::Initializer, r#""glorot_uniform""#),
            BIAS_INITIALIZER,
            refused("kernel_regularizer"),
            refused("bias_regularizer"),
            refused("kernel_constraint"),
            refused("bias_constraint"),
        ],
    ),
    row(
        Class::DepthwiseConv2D,
        "DepthwiseConv2D",
        Inputs::One,
        &[
            required("kernel_size", Expects::Pair),
            STRIDES,
            PADDING,
            optional("depth_multiplier", Expects::Size, "1"),
            DATA_FORMAT,
            DILATION_RATE,
            ACTIVATION,
            USE_BIAS,
            optional("depthwise_initializer", Expects::Initializer, r#""glorot_uniform""#),
            BIAS_INITIALIZER,
            refused("depthwise_regularizer"),
            refused("bias_regularizer"),
            refused("depthwise_constraint"),
            refused("bias_constraint"),
        ],
    ),
    row(Class::MaxPooling2D, "MaxPooling2D", Inputs::One, POOL),
    row(Class::AveragePooling2D, "AveragePooling2D", Inputs::One, POOL),
    row(Class::GlobalAveragePooling2D, "GlobalAveragePooling2D", Inputs::One, &[DATA_FORMAT, KEEPDIMS]),
    row(Class::GlobalMaxPooling2D, "GlobalMaxPooling2D", Inputs::One, &[DATA_FORMAT, KEEPDIMS]),
    row(Class::Flatten, "Flatten", Inputs::One, &[DATA_FORMAT]),
    row(Class::Reshape, "Reshape", Inputs::One, &[required("target_shape", Expects::Dims)]),
    row(
        Class::Dropout,
        "Dropout",
        Inputs::One,
        &[required("rate", SHARE), NOISE_SHAPE, optional("seed", Expects::Seed, "null")],
    ),
    row(
        Class::BatchNormalization,
        "BatchNormalization",
        Inputs::One,
        &[
            optional("axis", Expects::Axis, "-1"),
            optional("momentum", FROM_ZERO, "0.99"),
            EPSILON,
            CENTER,
            SCALE,
            BETA_INITIALIZER,
            GAMMA_INITIALIZER,
            optional("moving_mean_initializer", Expects::Initializer, r#""zeros""#),
            optional("moving_variance_initializer", Expects::Initializer, r#""ones""#),
            refused("beta_regularizer"),
            refused("gamma_regularizer"),
            refused("beta_constraint"),
            refused("gamma_constraint"),
            refused("synchronized"),
            refused("renorm"),
            refused("renorm_clipping"),
            // Keras writes it even where renorm is off.
            optional("renorm_momentum", ANY, "0.99"),
        ],
    ),
    row(
        Class::LayerNormalization,
        "LayerNormalization",
        Inputs::One,
        &[
            optional("axis", Expects::Axes, "-1"),
            EPSILON,
            CENTER,
            SCALE,
            refused("rms_scaling"),
            BETA_INITIALIZER,
            GAMMA_INITIALIZER,
            refused("beta_regularizer"),
            refused("gamma_regularizer"),
            refused("beta_constraint"),
            refused("gamma_constraint"),
        ],
    ),
    row(Class::Activation, "Activation", Inputs::One, &[required("activation", Expects::Activation)]),
    row(
        Class::ReLU,
        "ReLU",
        Inputs::One,
        &[
            optional("max_value", Expects::Maybe(&FROM_ZERO), "null"),
            optional("negative_slope", FROM_ZERO, "0"),
            optional("threshold", FROM_ZERO, "0"),
        ],
    ),
    row(Class::LeakyReLU, "LeakyReLU", Inputs::One, &[optional("negative_slope", FROM_ZERO, "0.3")]),
    row(Class::Elu, "ELU", Inputs::One, &[optional("alpha", FROM_ZERO, "1")]),
    row(Class::Softmax, "Softmax", Inputs::One, &[optional("axis", Expects::Axis, "-1")]),
    row(
        Class::ZeroPadding2D,
        "ZeroPadding2D",
        Inputs::One,
        &[optional("padding", Expects::Margins, "1"), DATA_FORMAT],
    ),
    row(
        Class::UpSampling2D,
        "UpSampling2D",
        Inputs::One,
        &[
            optional("size", Expects::Pair, "2"),
            DATA_FORMAT,
            optional("interpolation", Expects::OneOf(&["nearest", "bilinear"]), r#""nearest""#),
        ],
    ),
    row(Class::Add, "Add", Inputs::Several, &[]),
    row(Class::Subtract, "Subtract", Inputs::Two, &[]),
    row(Class::Multiply, "Multiply", Inputs::Several, &[]),
    row(Class::Average, "Average", Inputs::Several, &[]),
    row(Class::Maximum, "Maximum", Inputs::Several, &[]),
    row(Class::Concatenate, "Concatenate", Inputs::Several, &[optional("axis", Expects::Axis, "-1")]),
    row(
        Class::Embedding,
        "Embedding",
        Inputs::One,
        &[
            required("input_dim", Expects::Size),
            required("output_dim", Expects::Size),
            optional("embeddings_initializer", Expects::Initializer, r#""uniform""#),
            refused("embeddings_regularizer"),
            refused("embeddings_constraint"),
            optional("mask_zero", Expects::Flag, "false"),
            refused("weights"),
            refused("lora_rank"),
            refused("quantization_config"),
        ],
    ),
    row(
        Class::Rescaling,
        "Rescaling",
        Inputs::One,
        &[required("scale", Expects::Numbers), optional("offset", Expects::Numbers, "0")],
    ),
    row(Class::GlobalAveragePooling1D, "GlobalAveragePooling1D", Inputs::One, &[DATA_FORMAT, KEEPDIMS]),
    row(Class::GlobalMaxPooling1D, "GlobalMaxPooling1D", Inputs::One, &[DATA_FORMAT, KEEPDIMS]),
    row(
        Class::EinsumDense,
        "EinsumDense",
        Inputs::One,
        &[
            required("equation", Expects::Text),
            required("output_shape", Expects::DimsOrOne),
            ACTIVATION,
            optional("bias_axes", Expects::Maybe(&Expects::Text), "null"),
            optional("kernel_initializer", Expects::Initializer, r#""glorot_uniform""#),
            BIAS_INITIALIZER,
            refused("kernel_regularizer"),
            refused("bias_regularizer"),
            refused("kernel_constraint"),
            refused("bias_constraint"),
            refused("lora_rank"),
            refused("quantization_config"),
        ],
    ),
    row(
        Class::Attention,
        "Attention",
        Inputs::Attention,
        &[
            USE_CAUSAL_MASK,
            refused("use_scale"),
            optional("score_mode", Expects::OneOf(&["dot"]), r#""dot""#),
            DROPOUT,
            optional("seed", Expects::Seed, "null"),
        ],
    ),
    row(
        Class::MultiHeadAttention,
        "MultiHeadAttention",
        Inputs::Attention,
        &[
            required("num_heads", Expects::Size),
            required("key_dim", Expects::Size),
            optional("value_dim", Expects::Maybe(&Expects::Size), "null"),
            optional("output_shape", Expects::Maybe(&Expects::DimsOrOne), "null"),
            optional("attention_axes", Expects::Maybe(&Expects::Axes), "null"),
            USE_CAUSAL_MASK,
            DROPOUT,
            USE_BIAS,
            optional("kernel_initializer", Expects::Initializer, r#""glorot_uniform""#),
            BIAS_INITIALIZER,
            refused("kernel_regularizer"),
            refused("bias_regularizer"),
            refused("kernel_constraint"),
            refused("bias_constraint"),
            refused("use_gate"),
            refused("sliding_window"),
            optional("seed", Expects::Seed, "null"),
        ],
    ),
    row(
        Class::GroupQueryAttention,
        "GroupQueryAttention",
        Inputs::Attention,
        &[
            required("head_dim", Expects::Size),
            required("num_query_heads", Expects::Size),
            required("num_key_value_heads", Expects::Size),
            USE_CAUSAL_MASK,
            DROPOUT,
            USE_BIAS,
            optional("kernel_initializer", Expects::Initializer, r#""glorot_uniform""#),
            BIAS_INITIALIZER,
            refused("kernel_regularizer"),
            refused("bias_regularizer"),
            refused("kernel_constraint"),
            refused("bias_constraint"),
            refused("use_gate"),
            refused("sliding_window"),
            optional("seed", Expects::Seed, "null"),
        ],
    ),
    row(
        Class::RandomFlip,
        "RandomFlip",
        Inputs::One,
        &[
            optional(
                "mode",
                Expects::OneOf(&["horizontal_and_vertical", "horizontal", "vertical"]),
                r#""horizontal_and_vertical""#,
            ),
            RANDOM_SEED,
            DATA_FORMAT,
        ],
    ),
    row(
        Class::RandomCrop,
        "RandomCrop",
        Inputs::One,
        &[required("height", Expects::Size), required("width", Expects::Size), RANDOM_SEED, DATA_FORMAT],
    ),
    row(
        Class::RandomRotation,
        "RandomRotation",
        Inputs::One,
        &[required("factor", Expects::Range), FILL_MODE, FILL_VALUE, INTERPOLATION, RANDOM_SEED, DATA_FORMAT],
    ),
    row(
        Class::RandomTranslation,
        "RandomTranslation",
        Inputs::One,
        &[
            required("height_factor", Expects::Range),
            required("width_factor", Expects::Range),
            FILL_MODE,
            FILL_VALUE,
            INTERPOLATION,
            RANDOM_SEED,
            DATA_FORMAT,
        ],
    ),
    row(
        Class::RandomZoom,
        "RandomZoom",
        Inputs::One,
        &[
            required("height_factor", Expects::Range),
            optional("width_factor", Expects::Maybe(&Expects::Range), "null"),
            FILL_MODE,
            FILL_VALUE,
            INTERPOLATION,
            RANDOM_SEED,
            DATA_FORMAT,
        ],
    ),
    row(
        Class::RandomContrast,
        "RandomContrast",
        Inputs::One,
        &[required("factor", Expects::Range), VALUE_RANGE, RANDOM_SEED, DATA_FORMAT],
    ),
    row(
        Class::RandomBrightness,
        "RandomBrightness",
        Inputs::One,
        &[required("factor", Expects::Range), VALUE_RANGE, RANDOM_SEED, DATA_FORMAT],
    ),
];

/// Types an input may be declared as; floats are fed as f32, the rest as i32.
const INPUT_TYPES: &[&str] = &[
    "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16",
    "uint32",
];

impl Inputs {
    /// Whether this number of tensors suits the layer.
    pub(crate) fn accept(self, count: usize) -> bool {
        match self {
            Inputs::None => count == 0,
            Inputs::One => count == 1,
            Inputs::Two => count == 2,
            Inputs::Attention => (1..=3).contains(&count),
            Inputs::Several => count >= 2,
            Inputs::States => (1..=5).contains(&count),
        }
    }

    /// How many, in words.
    pub fn describe(self) -> &'static str {
        match self {
            Inputs::None => "no input",
            Inputs::One => "one input",
            Inputs::Two => "two inputs",
            Inputs::Attention => "a query, or a query and a value, or also a key",
            Inputs::Several => "two or more inputs",
            Inputs::States => "one input, or also states to begin with",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn every_default_is_what_its_row_expects() {
        for row in LAYERS {
            let mut given = serde_json::Map::new();
            for argument in row.arguments.iter().filter(|argument| argument.default.is_none()) {
                let value = match argument.name {
                    "equation" => serde_json::json!("ab,bc->ac"),
                    "layer" => serde_json::json!({"class": "LSTM", "units": 2}),
                    "cell" => serde_json::json!({"class": "GRUCell", "units": 2}),
                    "target_shape" => serde_json::json!([1]),
                    "activation" => serde_json::json!("relu"),
                    "embedding" => serde_json::json!("token"),
                    "rate" | "drop_path_rate" => serde_json::json!(0.5),
                    _ => serde_json::json!(1),
                };
                given.insert(argument.name.to_owned(), value);
            }
            assert!(Settings::read(row.arguments, &given).is_ok(), "{}", row.name);
        }
    }
}
