//! Models as others write them down: Keras 3 configurations, and layers listed in a job file, become a
//! forward graph.
//!
//! One loader serves both. A table of layer classes says which arguments there are, which must be given, and
//! what the others begin as; whatever it does not list is refused by name, before anything is built.
//!
//! ```
//! use memfit_formats::{Mode, Options, graph_from_layers};
//! use serde_json::json;
//!
//! let layers = [
//!     json!({"class": "Input", "shape": [28, 28, 1]}),
//!     json!({"class": "Flatten"}),
//!     json!({"class": "Dense", "units": 10, "activation": "softmax"}),
//! ];
//! let options = Options { mode: Mode::Training, seed: 0, precision: None };
//! let graph = graph_from_layers(&layers, None, &options).unwrap();
//! assert_eq!(graph.tensors[graph.outputs[0].0].shape.dims, [10]);
//! ```
//!
//! # Decisions
//!
//! - **Layers are built from few ops** (`layers`). A sequence is an image one pixel high; a transposed
//!   convolution is the convolution's own gradient op, and the reverse; groups are normalised by a transpose,
//!   a layer normalisation and a transpose back. `Noise` draws what `Dropout` does not: other kinds, or one
//!   draw for many elements.
//! - **A mask is a tensor of the graph,** 1 where a place counts, computed by `Op::Mask` and passed from
//!   layer to layer (`layers/masks.rs`) as Keras does. What Keras writes into a functional model to pass
//!   masks on is left out (`mask_operations`). Recurrent layers and attention read masks as operands.
//! - **A model on every step** (`distribute`) is called step by step, as a shared model is; cells within
//!   `RNN` are the layers of their names.
//! - **Whole numbers that come in stay whole** only where an Embedding looks them up (`fed`).
//! - **A function of `keras.ops` is a layer without weights** (`operations`): most are chains, sums and
//!   views; transposes and products are ops.
//! - **Half types** (`precision`): a layer's policy casts what it reads (`Op::Cast`), and the shape rules
//!   carry the type on, so that values between layers and their gradients are f16 or bf16 and everything else
//!   is f32: weights (read as they are), their gradients, statistics, sums, state.
//! - **Weights in a `.keras` file are named by class and order,** `layers/dense_1/vars/0` (`stored`).

mod activation;
mod argument;
mod build;
mod called;
mod distribute;
mod error;
mod fed;
mod functional;
mod further_table;
mod hint;
mod initializer;
mod keras;
mod layers;
mod listed;
mod mask_operations;
mod model;
mod operations;
mod precision;
mod recurrent_table;
mod settings;
mod site;
mod spatial_table;
mod stored;
mod table;
mod weight_rules;
mod written;

use memfit_ir::Graph;
use serde_json::Value;

pub use argument::{Argument, Expects};
pub use called::{CalledLayer, Place, config_from_calls};
pub use error::{Fault, FormatError};
pub use hint::hint;
pub use precision::{Precision, UnknownPrecision};
pub use stored::{LayerRow, StoredWeight};
pub use table::{Inputs, LayerClass};

/// What the graph is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Dropout drops and batch normalisation follows the batch.
    Training,
    /// Dropout is left out and batch normalisation follows its moving averages.
    Inference,
}

/// How a model is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What the graph is for.
    pub mode: Mode,
    /// Seed of every weight that has none of its own.
    pub seed: u64,
    /// The policy of all layers that do not have one of their own. Keras writes one down for every layer; there, it takes
    /// the place of the one that most layers have.
    pub precision: Option<Precision>,
}

/// A model, read: its graph, and how Keras stores, shows and writes it.
#[derive(Clone, Debug)]
pub struct KerasModel {
    /// What it computes.
    pub graph: Graph,
    /// Its weights with their places in Keras's files, in the order of Keras's `model.weights`.
    pub weights: Vec<StoredWeight>,
    /// Its layers, for a table.
    pub layers: Vec<LayerRow>,
    /// Names of its outputs: of the layers that give them.
    pub output_names: Vec<String>,
    /// Keras's configuration of it.
    pub config: Value,
}

/// The model of a Keras 3 configuration, as `model.to_json()` or a `.keras` file has it.
pub fn model_from_keras(config: &Value, options: &Options) -> Result<KerasModel, FormatError> {
    let mut model = keras::read(config)?;
    let common = model.common_precision();
    let (graph, layers) = build::build(&mut model, options, common)?;
    let order: Vec<usize> = (0..model.layers.len()).collect();
    let weights = stored::weights(&model, &order, &graph);
    Ok(KerasModel { weights, layers, output_names: model.output_names(), config: config.clone(), graph })
}

/// The model of layers listed one by one; see [`graph_from_layers`].
pub fn model_from_layers(
    layers: &[Value],
    outputs: Option<&[String]>,
    options: &Options,
) -> Result<KerasModel, FormatError> {
    let mut listed = listed::read(layers, outputs)?;
    let (graph, layers) = build::build(&mut listed.model, options, None)?;
    let order = written::keras_order(&listed.model);
    let weights = stored::weights(&listed.model, &order, &graph);
    let config = written::config(&listed, &layers, &order);
    Ok(KerasModel { weights, layers, output_names: listed.model.output_names(), config, graph })
}

/// The forward graph of a Keras 3 configuration, as `model.to_json()` writes it.
pub fn graph_from_keras(config: &Value, options: &Options) -> Result<Graph, FormatError> {
    model_from_keras(config, options).map(|model| model.graph)
}

/// The forward graph of layers listed one by one.
///
/// A layer is an object: its `class`, Keras's arguments, and where wanted a `name`, the names of its `inputs`
/// (without them it follows the layer before it), and `repeat`, a number of copies in a row. `outputs` names the
/// output layers; without it the last layer is the output.
pub fn graph_from_layers(
    layers: &[Value],
    outputs: Option<&[String]>,
    options: &Options,
) -> Result<Graph, FormatError> {
    model_from_layers(layers, outputs, options).map(|model| model.graph)
}

/// The names that the copies of each listed layer get, as the graph has them.
pub fn names_of_layers(layers: &[Value]) -> Result<Vec<Vec<String>>, FormatError> {
    listed::names(layers)
}

/// A text as JSON.
pub fn parse_json(text: &str) -> Result<Value, FormatError> {
    serde_json::from_str(text).map_err(|error| FormatError::NotJson {
        line: error.line(),
        column: error.column(),
        reason: error.to_string(),
    })
}

/// The table of supported layer classes and their arguments.
pub fn layers() -> &'static [LayerClass] {
    table::LAYERS
}
