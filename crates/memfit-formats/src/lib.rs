//! Models as others write them down: Keras 3 configurations, and layers listed in a job file, become a forward graph.
//!
//! One loader serves both. A table of layer classes says which arguments there are, which must be given, and what
//! the others begin as; whatever it does not list is refused by name, before anything is built.
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
//! let options = Options { mode: Mode::Training, seed: 0 };
//! let graph = graph_from_layers(&layers, None, &options).unwrap();
//! assert_eq!(graph.tensors[graph.outputs[0].0].shape.dims, [10]);
//! ```

mod activation;
mod argument;
mod build;
mod commute;
mod error;
mod functional;
mod hint;
mod initializer;
mod keras;
mod layers;
mod listed;
mod model;
mod settings;
mod site;
mod table;

use memfit_ir::Graph;
use serde_json::Value;

pub use argument::{Argument, Expects};
pub use error::{Fault, FormatError};
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
}

/// The forward graph of a Keras 3 configuration, as `model.to_json()` writes it.
pub fn graph_from_keras(config: &Value, options: &Options) -> Result<Graph, FormatError> {
    build::build(keras::read(config)?, options)
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
    build::build(listed::read(layers, outputs)?, options)
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
