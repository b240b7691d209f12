//! Why a model could not be read: every answer names the layer and ends in what to do.

use memfit_ir::{Shape, ShapeError};
use thiserror::Error;

/// Why a model could not be read.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum FormatError {
    /// The text is not JSON.
    #[error("not JSON: {reason}; give the text that `model.to_json()` returns")]
    NotJson {
        /// Line of the first fault, from 1.
        line: usize,
        /// Column of the first fault, from 1.
        column: usize,
        /// What is wrong, with line and column.
        reason: String,
    },
    /// The JSON is not a Keras 3 model.
    #[error("not a Keras 3 model: {reason}; give what `model.to_json()` of Keras 3 returns")]
    NotKeras {
        /// What is missing or strange.
        reason: String,
    },
    /// A layer of a class that is not supported.
    #[error("layer `{layer}`: the class `{class}` is not supported; {hint}")]
    UnknownLayer {
        /// The layer's name, with the models around it.
        layer: String,
        /// Its class.
        class: String,
        /// The nearest class, or all of them.
        hint: String,
    },
    /// Something is wrong with an argument.
    #[error("layer `{layer}` ({class}), argument `{argument}` {fault}")]
    Argument {
        /// The layer's name, with the models around it.
        layer: String,
        /// Its class.
        class: &'static str,
        /// The argument; `outer.inner` for one inside an initializer or activation.
        argument: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A layer was called on too few or too many tensors.
    #[error("layer `{layer}` ({class}) takes {expected}, got {got}; feed it as many")]
    InputCount {
        /// The layer's name, with the models around it.
        layer: String,
        /// Its class.
        class: &'static str,
        /// How many it takes.
        expected: String,
        /// How many it got.
        got: usize,
    },
    /// A layer was called on tensors that do not suit it.
    #[error("layer `{layer}` ({class}), {mismatch}; change the layer or what feeds it")]
    Shape {
        /// The layer's name, with the models around it.
        layer: String,
        /// Its class.
        class: &'static str,
        /// What was expected, and what was there.
        mismatch: ShapeError,
    },
    /// A layer that computes with floats was called on integers.
    #[error(
        "layer `{layer}` ({class}) computes with float32 and got i32{got}; give it an input of its own, declared as float32: \
         integers are converted while they are read"
    )]
    IntegerInput {
        /// The layer's name, with the models around it.
        layer: String,
        /// Its class.
        class: &'static str,
        /// Shape of the integers.
        got: Shape,
    },
    /// A tensor that no machine holds.
    #[error(
        "layer `{layer}` ({class}) makes a tensor of {shape}, over {limit} elements a row; make it smaller"
    )]
    TooLarge {
        /// The layer's name, with the models around it.
        layer: String,
        /// Its class.
        class: &'static str,
        /// The tensor's shape.
        shape: Shape,
        /// The most elements a row may have.
        limit: usize,
    },
    /// More calls of layers than any model has: models within models that are called often multiply.
    #[error("the model calls layers more than {limit} times, at `{layer}`; make it smaller")]
    TooManyCalls {
        /// The layer whose call was one too many.
        layer: String,
        /// The most calls.
        limit: usize,
    },
    /// A name that is too long to read.
    #[error("the name of layer `{layer}…` has more than {limit} bytes; give it a shorter one")]
    LongName {
        /// Its beginning.
        layer: String,
        /// The most bytes.
        limit: usize,
    },
    /// Two layers of one name.
    #[error("two layers are named `{layer}`; give each its own name")]
    DuplicateLayer {
        /// The name.
        layer: String,
    },
    /// A reference to a layer, a call or an output that is not there.
    #[error("{referrer} refers to {missing}, which is not in the model; {hint}")]
    Dangling {
        /// Who refers: a layer, or the model's outputs.
        referrer: String,
        /// What is missing.
        missing: String,
        /// The nearest name, or what to do.
        hint: String,
    },
    /// Layers that wait for each other.
    #[error("these layers feed each other in a circle: {}; break it", layers.join(" -> "))]
    Cycle {
        /// The circle's layers, in the order they feed each other.
        layers: Vec<String>,
    },
    /// A layer whose result is not used.
    #[error("layer `{layer}` leads to no output; name it among the outputs or remove it")]
    Unused {
        /// The layer's name, with the models around it.
        layer: String,
    },
    /// A model that cannot be fed.
    #[error("the model has no Input; begin it with one, as in Input(shape=(28, 28, 1))")]
    NoInput,
}

/// What is wrong with an argument.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// It must be given and is not.
    #[error("is missing; give {expected}")]
    Missing {
        /// What it should be.
        expected: String,
    },
    /// The class has no such argument.
    #[error("is not known; {hint}")]
    Unknown {
        /// The nearest argument, or all of them.
        hint: String,
    },
    /// It has the wrong type or lies out of range.
    #[error("is {got}; give {expected}")]
    Wrong {
        /// What it should be.
        expected: String,
        /// What it is.
        got: String,
    },
    /// Keras knows this value and memfit does not.
    #[error("is {value}, which is not supported; use {supported}")]
    Unsupported {
        /// What it is.
        value: String,
        /// What may stand there instead.
        supported: String,
    },
}
