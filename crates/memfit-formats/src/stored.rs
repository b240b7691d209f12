//! Where Keras stores a model's weights, and what a table of its layers shows.
//!
//! A file names layers by class and by order within their model, `layers/dense_1/vars/0`, and not by their own names, which differ
//! from one run to the next.

use std::collections::HashMap;

use memfit_ir::{Graph, Kind, LayerId, Shape, TensorId};

use crate::further_table::Further;
use crate::listed::snake_case;
use crate::model::{Body, Layer, Model, ModelKind};
use crate::table::Class;

/// A weight and its place in Keras's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredWeight {
    /// The weight.
    pub tensor: TensorId,
    /// Its place, `layers/dense/vars/0`.
    pub place: String,
    /// Its dimensions in Keras, of which the graph's are another reading.
    pub dims: Vec<usize>,
    /// Whether the optimizer changes it.
    pub trainable: bool,
}

/// A layer as a table shows it; a model within the model is one row.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerRow {
    /// The user's name of it.
    pub name: String,
    /// Keras's class.
    pub class: &'static str,
    /// What its first call gives, one for each output.
    pub outputs: Vec<Shape>,
    /// What its calls read, as `conv2d[0][0]`: layer, call, output.
    pub connected_to: Vec<String>,
    /// Numbers it has learnt or keeps.
    pub parameters: u64,
    /// Of these, the ones that the optimizer changes.
    pub parameters_trainable: u64,
    /// Its layers in the graph: its own, or those of the model that it is.
    pub layers: Vec<LayerId>,
}

/// Every weight of a model whose graph is built, in the order of Keras's `model.weights`; `order` is that of the model's layers.
pub(crate) fn weights(model: &Model, order: &[usize], graph: &Graph) -> Vec<StoredWeight> {
    let mut found = Vec::new();
    collect(model, order, "layers/", graph, &mut found);
    found
}

fn collect(model: &Model, order: &[usize], prefix: &str, graph: &Graph, found: &mut Vec<StoredWeight>) {
    let mut used: HashMap<String, u64> = HashMap::new();
    for layer in order.iter().map(|index| &model.layers[*index]) {
        let class = snake_case(class(layer));
        let count = used.entry(class.clone()).or_insert(0);
        let name = if *count == 0 { class } else { format!("{class}_{count}") };
        *count += 1;
        match &layer.body {
            Body::Nested(inner) | Body::Distributed(inner) => {
                let order: Vec<usize> = (0..inner.layers.len()).collect();
                let held = if layer.class() == "TimeDistributed" { "layer/layers" } else { "layers" };
                collect(inner, &order, &format!("{prefix}{name}/{held}/"), graph, found);
            }
            Body::Single { .. } | Body::Operation(_) | Body::Implied => {
                own(layer, &format!("{prefix}{name}"), graph, found)
            }
        }
    }
}

/// The weights of one layer: its own first, then those of layers within it, each list counted from 0.
fn own(layer: &Layer, place: &str, graph: &Graph, found: &mut Vec<StoredWeight>) {
    let mut counts: Vec<(String, u64)> = Vec::new();
    for weight in layer.built.iter().flat_map(|built| &built.weights) {
        let inner: String = match weight.name.rsplit_once('/') {
            None => String::new(),
            Some((inner, _)) => held_at(layer, inner),
        };
        let known = counts.iter().position(|(known, _)| *known == inner).unwrap_or_else(|| {
            counts.push((inner.clone(), 0));
            counts.len() - 1
        });
        let index = counts[known].1;
        counts[known].1 += 1;
        found.push(StoredWeight {
            tensor: weight.tensor,
            place: format!("{place}{inner}/vars/{index}"),
            dims: weight.dims.clone(),
            trainable: graph.tensors[weight.tensor.0].kind == Kind::Weight { trainable: true },
        });
    }
}

/// The attributes by which a layer holds those within it, of the names in front of a weight's.
fn held_at(layer: &Layer, names: &str) -> String {
    let mut around = match &layer.body {
        Body::Single { row, settings } => Some((row.class, settings)),
        Body::Operation(_) | Body::Nested(_) | Body::Distributed(_) | Body::Implied => None,
    };
    let (mut place, mut parts) = (String::new(), names.split('/'));
    while let Some(part) = parts.next() {
        // Whatever the names of layers within these, Keras holds them as that.
        let held = match around.map(|(class, _)| class) {
            Some(Class::TimeDistributed) => "layer",
            Some(Class::Bidirectional) if part.starts_with("forward_") => "forward_layer",
            Some(Class::Bidirectional) => "backward_layer",
            // After it comes the cell's own name, which is that of what the stack holds.
            Some(Class::Further(Further::Rnn)) if part == "cells" => {
                let cell = parts.next().unwrap_or_default();
                return format!("{place}/cell/cells/{cell}");
            }
            Some(_) | None => attribute(part),
        };
        place = format!("{place}/{held}");
        let wraps = |class: Class| matches!(class, Class::TimeDistributed | Class::Bidirectional);
        let inner =
            around.filter(|(class, _)| wraps(*class)).and_then(|(_, settings)| settings.inner("layer"));
        around = inner.map(|inner| (inner.row.class, &inner.settings));
    }
    place
}

/// The attribute by which a layer holds a layer within it, where that is not the inner one's name.
fn attribute(inner: &str) -> &str {
    match inner {
        "query" => "query_dense",
        "key" => "key_dense",
        "value" => "value_dense",
        "attention_output" => "output_dense",
        "lstm_cell" | "gru_cell" | "simple_rnn_cell" => "cell",
        inner => inner,
    }
}

/// The rows of a table; `values` are what each call of each layer gives.
pub(crate) fn rows(model: &Model, values: &[Vec<Vec<TensorId>>], graph: &Graph) -> Vec<LayerRow> {
    let shown = |layer: &&(usize, &Layer)| {
        // Keras's own table leaves out the input of a Sequential model.
        !(model.kind == ModelKind::Sequential && layer.1.is_input())
    };
    let name = |layer: &Layer| layer.path.clone();
    let layers: Vec<(usize, &Layer)> = model.layers.iter().enumerate().collect();
    let row = |(index, layer): &(usize, &Layer)| {
        let mut ids = Vec::new();
        ids_of(layer, &mut ids);
        let mut stored = Vec::new();
        match &layer.body {
            Body::Nested(inner) | Body::Distributed(inner) => {
                let order: Vec<usize> = (0..inner.layers.len()).collect();
                collect(inner, &order, "", graph, &mut stored);
            }
            Body::Single { .. } | Body::Operation(_) | Body::Implied => own(layer, "", graph, &mut stored),
        }
        let count = |weight: &StoredWeight| weight.dims.iter().map(|size| *size as u64).product::<u64>();
        let made = values[*index].first().into_iter().flatten();
        let read = layer.calls.iter().flatten();
        LayerRow {
            name: name(layer),
            class: class(layer),
            outputs: made.map(|id| graph.tensors[id.0].shape.clone()).collect(),
            connected_to: read
                .map(|from| format!("{}[{}][{}]", name(&model.layers[from.layer]), from.call, from.output))
                .collect(),
            parameters: stored.iter().map(count).sum(),
            parameters_trainable: stored.iter().filter(|weight| weight.trainable).map(count).sum(),
            layers: ids,
        }
    };
    layers.iter().filter(shown).map(row).collect()
}

fn ids_of(layer: &Layer, ids: &mut Vec<LayerId>) {
    ids.extend(layer.built.as_ref().map(|built| built.layer));
    if let Body::Nested(inner) | Body::Distributed(inner) = &layer.body {
        for layer in &inner.layers {
            ids_of(layer, ids);
        }
    }
}

/// Keras's class of a layer.
fn class(layer: &Layer) -> &'static str {
    match &layer.body {
        Body::Nested(inner) => match inner.kind {
            ModelKind::Sequential => "Sequential",
            ModelKind::Functional => "Functional",
        },
        Body::Single { .. } | Body::Operation(_) | Body::Distributed(_) | Body::Implied => layer.class(),
    }
}
