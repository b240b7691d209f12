//! Cells of recurrent layers: what `RNN` runs over a sequence. They are no layers of their own here.

use serde_json::Value;

use crate::argument::{Argument, ArgumentError, Expects};
use crate::settings::Inner;
use crate::table::{
    BIAS_INITIALIZER, Class, DROPOUT, Inputs, LayerClass, SHARE, USE_BIAS, optional, refused, required, row,
};

/// What an `RNN` runs.
#[derive(Clone, Debug)]
pub(crate) struct Cells {
    /// One, or those of a stack, each behind the other.
    pub cells: Vec<Inner>,
    /// Whether they are a stack, which may be one of one.
    pub stacked: bool,
}

/// The most cells of a stack.
const MOST: usize = 64;

impl Cells {
    /// From a cell as Keras writes it.
    pub fn read(value: &Value) -> Result<Cells, ArgumentError> {
        let wrong = || ArgumentError::wrong(Expects::Cells.describe(), value);
        if value.get("class_name").and_then(Value::as_str) != Some("StackedRNNCells") {
            return Ok(Cells { cells: vec![Inner::read_from(CELLS, value)?], stacked: false });
        }
        let listed = value.pointer("/config/cells").and_then(Value::as_array).ok_or_else(wrong)?;
        if !(1..=MOST).contains(&listed.len()) {
            return Err(wrong());
        }
        let cells = listed.iter().map(|cell| Inner::read_from(CELLS, cell)).collect::<Result<_, _>>()?;
        Ok(Cells { cells, stacked: true })
    }
}

const KERNEL_INITIALIZER: Argument =
    optional("kernel_initializer", Expects::Initializer, r#""glorot_uniform""#);
const RECURRENT_INITIALIZER: Argument =
    optional("recurrent_initializer", Expects::Initializer, r#""orthogonal""#);
const RECURRENT_DROPOUT: Argument = optional("recurrent_dropout", SHARE, "0");
const TANH: Argument = optional("activation", Expects::Activation, r#""tanh""#);
const SIGMOID: Argument = optional("recurrent_activation", Expects::Activation, r#""sigmoid""#);
const SEED: Argument = optional("seed", Expects::Seed, "null");

/// Each is run as the layer of its class.
const CELLS: &[LayerClass] = &[
    row(
        Class::Lstm,
        "LSTMCell",
        Inputs::One,
        &[
            required("units", Expects::Size),
            TANH,
            SIGMOID,
            optional("unit_forget_bias", Expects::Flag, "true"),
            USE_BIAS,
            KERNEL_INITIALIZER,
            RECURRENT_INITIALIZER,
            BIAS_INITIALIZER,
            refused("kernel_regularizer"),
            refused("recurrent_regularizer"),
            refused("bias_regularizer"),
            refused("kernel_constraint"),
            refused("recurrent_constraint"),
            refused("bias_constraint"),
            DROPOUT,
            RECURRENT_DROPOUT,
            SEED,
        ],
    ),
    row(
        Class::Gru,
        "GRUCell",
        Inputs::One,
        &[
            required("units", Expects::Size),
            TANH,
            SIGMOID,
            optional("reset_after", Expects::Flag, "true"),
            USE_BIAS,
            KERNEL_INITIALIZER,
            RECURRENT_INITIALIZER,
            BIAS_INITIALIZER,
            refused("kernel_regularizer"),
            refused("recurrent_regularizer"),
            refused("bias_regularizer"),
            refused("kernel_constraint"),
            refused("recurrent_constraint"),
            refused("bias_constraint"),
            DROPOUT,
            RECURRENT_DROPOUT,
            SEED,
        ],
    ),
    row(
        Class::SimpleRnn,
        "SimpleRNNCell",
        Inputs::One,
        &[
            required("units", Expects::Size),
            TANH,
            USE_BIAS,
            KERNEL_INITIALIZER,
            RECURRENT_INITIALIZER,
            BIAS_INITIALIZER,
            refused("kernel_regularizer"),
            refused("recurrent_regularizer"),
            refused("bias_regularizer"),
            refused("kernel_constraint"),
            refused("recurrent_constraint"),
            refused("bias_constraint"),
            DROPOUT,
            RECURRENT_DROPOUT,
            SEED,
        ],
    ),
];
