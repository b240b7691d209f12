//! Models in which layers are called any number of times, and of which any output is read: written down as Keras would.

use serde_json::Value;

use crate::error::FormatError;
use crate::listed::{self, Listed};
use crate::model::{Endpoint, Layer, Model, ModelKind, index};
use crate::{Mode, Options, build, written};

/// A layer and its calls.
#[derive(Clone, Debug)]
pub struct CalledLayer {
    /// Its class and arguments, and where wanted its name, as in [`crate::graph_from_layers`].
    pub layer: Value,
    /// What each call reads; an input has one call that reads nothing.
    pub calls: Vec<Vec<Place>>,
}

/// An output of a call of a layer, each counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The layer among all layers.
    pub layer: usize,
    /// Its call.
    pub call: usize,
    /// The output of the call.
    pub output: usize,
}

/// Keras's configuration of a functional model: layers that are called several times share their weights.
///
/// # Panics
/// Where a place names no call.
pub fn config_from_calls(layers: &[CalledLayer], outputs: &[Place]) -> Result<Value, FormatError> {
    let values: Vec<Value> = layers.iter().map(|called| called.layer.clone()).collect();
    let (mut read, arguments) = listed::layers(&values)?;
    let endpoint = |place: &Place| {
        assert!(place.call < layers[place.layer].calls.len(), "a place names a call that there is");
        Endpoint { layer: place.layer, call: place.call, output: place.output }
    };
    for (layer, called) in read.iter_mut().zip(layers) {
        layer.calls = called.calls.iter().map(|reads| reads.iter().map(endpoint).collect()).collect();
    }
    index(&read)?;
    let inputs = (0..read.len()).filter(|layer| Layer::is_input(&read[*layer])).collect();
    let outputs = outputs.iter().map(endpoint).collect();
    let model = Model { layers: read, inputs, outputs, kind: ModelKind::Functional };
    let mut listed = Listed { model, arguments };
    // The graph is built for the shapes that Keras writes down with every tensor.
    let options = Options { mode: Mode::Inference, seed: 0, precision: None };
    let (_, rows) = build::build(&mut listed.model, &options, None)?;
    let order = written::keras_order(&listed.model);
    Ok(written::config(&listed, &rows, &order))
}
