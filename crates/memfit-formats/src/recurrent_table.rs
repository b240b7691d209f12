//! Recurrent layers, and their cells: what `RNN` runs over a sequence. Cells are no layers of their own here.

use serde_json::Value;

use crate::argument::{Argument, ArgumentError, Expects};
use crate::settings::Inner;
use crate::table::{
    BIAS_INITIALIZER, Class, DROPOUT, Inputs, LayerClass, USE_BIAS, joined, optional, refused, required, row,
};

/// What an `RNN` runs.
#[derive(Clone, Debug)]
pub(crate) struct Cells {
    /// One cell, or those of a stack in their order.
    pub cells: Vec<Inner>,
    /// Whether they are a stack, which may have one cell only.
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

const UNITS: Argument = required("units", Expects::Size);
const TANH: Argument = optional("activation", Expects::Gate, r#""tanh""#);
const SIGMOID: Argument = optional("recurrent_activation", Expects::Gate, r#""sigmoid""#);

/// What all cells take.
const EACH: &[Argument] = &[
    USE_BIAS,
    optional("kernel_initializer", Expects::Initializer, r#""glorot_uniform""#),
    optional("recurrent_initializer", Expects::Initializer, r#""orthogonal""#),
    BIAS_INITIALIZER,
    refused("kernel_regularizer"),
    refused("recurrent_regularizer"),
    refused("bias_regularizer"),
    refused("kernel_constraint"),
    refused("recurrent_constraint"),
    refused("bias_constraint"),
    DROPOUT,
    optional("recurrent_dropout", Expects::ShareAtInference, "0"),
    optional("seed", Expects::Seed, "null"),
];

/// What all layers take besides: how the cell goes over the steps.
pub(crate) const STEPS: &[Argument] = &[
    optional("return_sequences", Expects::Flag, "false"),
    optional("return_state", Expects::Flag, "false"),
    optional("go_backwards", Expects::Flag, "false"),
    refused("stateful"),
    // How Keras runs the steps; the numbers are the same.
    optional("unroll", Expects::Flag, "false"),
    optional("zero_output_for_mask", Expects::Flag, "false"),
];

const LSTM: &[Argument] = &joined::<_, { 4 + EACH.len() }>(&[
    &[UNITS, TANH, SIGMOID, optional("unit_forget_bias", Expects::Flag, "true")],
    EACH,
]);
const GRU: &[Argument] = &joined::<_, { 4 + EACH.len() }>(&[
    &[UNITS, TANH, SIGMOID, optional("reset_after", Expects::Flag, "true")],
    EACH,
]);
const SIMPLE: &[Argument] = &joined::<_, { 2 + EACH.len() }>(&[&[UNITS, TANH], EACH]);

/// Each is run as the layer of its class.
const CELLS: &[LayerClass] = &[
    row(Class::Lstm, "LSTMCell", Inputs::One, LSTM),
    row(Class::Gru, "GRUCell", Inputs::One, GRU),
    row(Class::SimpleRnn, "SimpleRNNCell", Inputs::One, SIMPLE),
];

pub(crate) const LAYERS: &[LayerClass] = &[
    row(Class::Lstm, "LSTM", Inputs::States, &joined::<_, { LSTM.len() + STEPS.len() }>(&[LSTM, STEPS])),
    row(Class::Gru, "GRU", Inputs::States, &joined::<_, { GRU.len() + STEPS.len() }>(&[GRU, STEPS])),
    row(
        Class::SimpleRnn,
        "SimpleRNN",
        Inputs::States,
        &joined::<_, { SIMPLE.len() + STEPS.len() }>(&[SIMPLE, STEPS]),
    ),
    row(
        Class::Bidirectional,
        "Bidirectional",
        Inputs::States,
        &[
            required("layer", Expects::Layer),
            optional("merge_mode", Expects::OneOf(&["concat", "sum", "ave", "mul"]), r#""concat""#),
            refused("weights"),
            optional("backward_layer", Expects::Maybe(&Expects::Layer), "null"),
        ],
    ),
    row(Class::TimeDistributed, "TimeDistributed", Inputs::One, &[required("layer", Expects::Layer)]),
];
