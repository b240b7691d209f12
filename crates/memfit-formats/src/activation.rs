//! Activations: by name, or as a layer that is one.

use memfit_ir::{Binary, Chain, Link, Unary};
use serde_json::{Map, Value};

use crate::argument::{ArgumentError, brief};
use crate::settings::Settings;
use crate::table::{Class, find};

/// A function that follows a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Activation {
    /// Nothing.
    Linear,
    /// Softmax over an axis, the batch being axis 0.
    Softmax { axis: i64 },
    /// An elementwise function.
    Unary(Unary),
    /// `relu6(x + 3) / 6`.
    HardSigmoid,
    /// `x · hard_sigmoid(x)`.
    HardSilu,
    /// `scale · elu(x, alpha)` with SELU's constants.
    Selu,
    /// `x · tanh(softplus(x))`.
    Mish,
}

const NAMED: &[(&str, Activation)] = &[
    ("linear", Activation::Linear),
    ("relu", Activation::Unary(Unary::Relu)),
    ("relu6", Activation::Unary(RELU6)),
    ("leaky_relu", Activation::Unary(Unary::LeakyRelu(0.2))),
    ("elu", Activation::Unary(Unary::Elu(1.0))),
    ("gelu", Activation::Unary(Unary::Gelu)),
    ("silu", Activation::Unary(Unary::Silu)),
    ("swish", Activation::Unary(Unary::Silu)),
    ("sigmoid", Activation::Unary(Unary::Sigmoid)),
    ("tanh", Activation::Unary(Unary::Tanh)),
    ("softplus", Activation::Unary(Unary::Softplus)),
    ("hard_sigmoid", Activation::HardSigmoid),
    ("hard_silu", Activation::HardSilu),
    ("hard_swish", Activation::HardSilu),
    ("selu", Activation::Selu),
    ("mish", Activation::Mish),
    ("softmax", Activation::Softmax { axis: -1 }),
];

const RELU6: Unary = Unary::ReluGeneral { negative_slope: 0.0, max_value: 6.0, threshold: 0.0 };
const SELU_ALPHA: f32 = 1.673_263_2;
const SELU_SCALE: f32 = 1.050_701;

impl Activation {
    /// The elementwise work that it is, where it is that.
    pub fn chain(self) -> Option<Chain> {
        let links = match self {
            Activation::Linear | Activation::Softmax { .. } => return None,
            Activation::Unary(function) => vec![Link::Unary(function, 0)],
            Activation::HardSigmoid | Activation::HardSilu => {
                let sigmoid = [
                    Link::Unary(Unary::Offset(3.0), 0),
                    Link::Unary(RELU6, 1),
                    Link::Unary(Unary::Scale(1.0 / 6.0), 2),
                ];
                let times_x = (self == Activation::HardSilu).then_some(Link::Binary(Binary::Multiply, 0, 3));
                sigmoid.into_iter().chain(times_x).collect()
            }
            Activation::Selu => {
                vec![Link::Unary(Unary::Elu(SELU_ALPHA), 0), Link::Unary(Unary::Scale(SELU_SCALE), 1)]
            }
            Activation::Mish => vec![
                Link::Unary(Unary::Softplus, 0),
                Link::Unary(Unary::Tanh, 1),
                Link::Binary(Binary::Multiply, 0, 2),
            ],
        };
        Some(Chain { inputs: 1, links })
    }

    /// An activation as an argument gives it.
    pub fn read(value: &Value) -> Result<Activation, ArgumentError> {
        match value {
            Value::Null => Ok(Activation::Linear),
            Value::String(name) => by_name(name),
            Value::Object(object) => by_object(object),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                Err(ArgumentError::wrong("the name of an activation", value))
            }
        }
    }

    /// The activation that a layer of such a class is.
    pub fn of_class(class: Class, settings: &Settings) -> Option<Activation> {
        let number = |name: &str| settings.number(name) as f32;
        match class {
            Class::Activation => Some(settings.activation("activation")),
            Class::ReLU => {
                let max_value = settings.maybe_number("max_value").map_or(f32::INFINITY, |max| max as f32);
                Some(relu(number("negative_slope"), max_value, number("threshold")))
            }
            Class::LeakyReLU => Some(relu(number("negative_slope"), f32::INFINITY, 0.0)),
            Class::Elu => Some(Activation::Unary(Unary::Elu(number("alpha")))),
            Class::Softmax => Some(Activation::Softmax { axis: settings.axis("axis") }),
            Class::InputLayer
            | Class::Dense
            | Class::Conv2D
            | Class::DepthwiseConv2D
            | Class::MaxPooling2D
            | Class::AveragePooling2D
            | Class::GlobalAveragePooling2D
            | Class::GlobalMaxPooling2D
            | Class::Flatten
            | Class::Reshape
            | Class::Dropout
            | Class::BatchNormalization
            | Class::LayerNormalization
            | Class::ZeroPadding2D
            | Class::UpSampling2D
            | Class::Add
            | Class::Subtract
            | Class::Multiply
            | Class::Average
            | Class::Maximum
            | Class::Concatenate
            | Class::Embedding
            | Class::Rescaling
            | Class::GlobalAveragePooling1D
            | Class::GlobalMaxPooling1D
            | Class::EinsumDense
            | Class::Attention
            | Class::MultiHeadAttention
            | Class::GroupQueryAttention
            | Class::Lstm
            | Class::Gru
            | Class::SimpleRnn
            | Class::Bidirectional
            | Class::TimeDistributed
            | Class::RandomFlip
            | Class::RandomCrop
            | Class::RandomRotation
            | Class::RandomTranslation
            | Class::RandomZoom
            | Class::RandomContrast
            | Class::RandomBrightness
            | Class::Spatial(_)
            | Class::Further(_) => None,
        }
    }
}

fn by_name(name: &str) -> Result<Activation, ArgumentError> {
    match NAMED.iter().find(|(known, _)| *known == name) {
        Some((_, activation)) => Ok(*activation),
        None => Err(unsupported(name)),
    }
}

/// A serialised function, `{"class_name": "function", "config": "relu"}`, or a serialised layer.
fn by_object(object: &Map<String, Value>) -> Result<Activation, ArgumentError> {
    let class = object.get("class_name").and_then(Value::as_str);
    match (class, object.get("config")) {
        (Some("function"), Some(Value::String(name))) => by_name(name),
        (Some(class), Some(Value::Object(arguments))) => {
            let row = find(class).ok_or_else(|| unsupported(class))?;
            let settings = Settings::read(row.arguments, arguments)?;
            Activation::of_class(row.class, &settings).ok_or_else(|| unsupported(class))
        }
        _ => Err(unsupported(&brief(&Value::Object(object.clone())))),
    }
}

fn unsupported(name: &str) -> ArgumentError {
    let known: Vec<&str> = NAMED.iter().map(|(known, _)| *known).collect();
    ArgumentError::unsupported(name, format!("one of {}", known.join(", ")))
}

/// The simplest function that equals Keras's general ReLU: simpler ones keep less for their gradient.
fn relu(negative_slope: f32, max_value: f32, threshold: f32) -> Activation {
    let plain = max_value == f32::INFINITY && threshold == 0.0;
    Activation::Unary(if plain && negative_slope == 0.0 {
        Unary::Relu
    } else if plain {
        Unary::LeakyRelu(negative_slope)
    } else {
        Unary::ReluGeneral { negative_slope, max_value, threshold }
    })
}
