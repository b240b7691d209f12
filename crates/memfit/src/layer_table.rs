//! The table of a model's layers: Keras's columns, and what each layer holds in training.

use memfit_formats::{LayerRow, Mode};
use memfit_grad::Optimizer;
use memfit_ir::{Bytes, Kind, Tensor};
use serde_json::{Value, json};

use crate::{Error, Job, ModelFile, compiled};

/// A model, layer by layer.
#[derive(Clone, Debug)]
pub struct LayerTable {
    /// The model's name.
    pub name: String,
    /// Whether each layer follows the one before. The column of connections is then left out.
    pub is_sequential: bool,
    /// Rows of a batch, for which activations are counted.
    pub batch: usize,
    /// Its layers.
    pub rows: Vec<TableRow>,
}

/// One layer and what it holds.
#[derive(Clone, Debug)]
pub struct TableRow {
    /// Name, class, shapes, parameters, connections.
    pub layer: LayerRow,
    /// Its weights.
    pub weights: Bytes,
    /// What it computes forward, for a whole batch without a split.
    pub activations: Bytes,
    /// Gradients of its weights.
    pub gradients: Bytes,
    /// The optimizer's state for its weights.
    pub optimizer: Bytes,
}

/// The table of a job's model.
pub fn layer_table(job: &Job) -> Result<LayerTable, Error> {
    let opened = ModelFile::open(job, Mode::Training)?;
    // A model that is not compiled has no optimizer, and that is no reason to refuse its table.
    let optimizer = compiled(job, &opened).ok().map(|compiled| compiled.optimizer);
    let graph = &opened.model.graph;
    let batch = job.train.batch;
    let config = &opened.model.config;
    let mut tensors: Vec<Vec<&Tensor>> = vec![Vec::new(); graph.layers.len()];
    graph.tensors.iter().for_each(|tensor| tensors[tensor.layer.0].push(tensor));
    let all: u128 = opened.model.layers.iter().map(|layer| activations(&tensors, layer, batch)).sum();
    if u128::from(u64::MAX) < all {
        let problem = format!("activations of {batch} rows are more bytes than can be counted; give fewer");
        return Err(Error::job("train.batch", problem));
    }
    let rows = opened.model.layers.iter().map(|layer| {
        let trainable = Bytes(layer.parameters_trainable * size_of::<f32>() as u64);
        TableRow {
            weights: Bytes(layer.parameters * size_of::<f32>() as u64),
            activations: Bytes(activations(&tensors, layer, batch) as u64),
            gradients: trainable,
            optimizer: optimizer.as_ref().map_or(Bytes::ZERO, |optimizer| state(&tensors, layer, optimizer)),
            layer: layer.clone(),
        }
    });
    Ok(LayerTable {
        name: config.pointer("/config/name").and_then(Value::as_str).unwrap_or("model").to_owned(),
        is_sequential: config.get("class_name").and_then(Value::as_str) == Some("Sequential"),
        batch,
        rows: rows.collect(),
    })
}

/// Bytes of what a layer computes. With a huge batch they do not fit into 64 bits.
fn activations(tensors: &[Vec<&Tensor>], layer: &LayerRow, batch: usize) -> u128 {
    let own = layer.layers.iter().flat_map(|id| &tensors[id.0]);
    own.filter(|tensor| tensor.kind == Kind::Activation)
        .map(|tensor| {
            let rows = if tensor.shape.batched { batch as u128 } else { 1 };
            u128::from(tensor.shape.bytes(tensor.dtype, 1).0) * rows
        })
        .sum()
}

/// What an optimizer keeps of a layer's weights.
fn state(tensors: &[Vec<&Tensor>], layer: &LayerRow, optimizer: &Optimizer) -> Bytes {
    let own = layer.layers.iter().flat_map(|id| &tensors[id.0]);
    let trainable = own.filter(|tensor| tensor.kind == Kind::Weight { trainable: true });
    let elements: usize = trainable.map(|tensor| optimizer.state_elements(&tensor.shape.dims)).sum();
    Bytes::of::<f32>(elements)
}

impl LayerTable {
    /// Parameters in all, and those that the optimizer changes.
    pub fn parameters(&self) -> (u64, u64) {
        let sum = |of: fn(&LayerRow) -> u64| self.rows.iter().map(|row| of(&row.layer)).sum();
        (sum(|layer| layer.parameters), sum(|layer| layer.parameters_trainable))
    }

    /// As a JSON object.
    pub fn to_json(&self) -> Value {
        let (all, trainable) = self.parameters();
        let rows: Vec<Value> = self.rows.iter().map(TableRow::to_json).collect();
        json!({
            "name": self.name,
            "batch": self.batch,
            "parameters": all,
            "parameters_trainable": trainable,
            "layers": rows,
        })
    }
}

impl TableRow {
    /// Dimensions of what it gives, the batch first and open.
    pub fn output_shapes(&self) -> Vec<String> {
        let shape = |dims: &[usize]| {
            let dims: Vec<String> = dims.iter().map(usize::to_string).collect();
            format!("({})", [&["None".to_owned()][..], &dims].concat().join(", "))
        };
        self.layer.outputs.iter().map(|output| shape(&output.dims)).collect()
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.layer.name,
            "class": self.layer.class,
            "output_shapes": self.output_shapes(),
            "parameters": self.layer.parameters,
            "parameters_trainable": self.layer.parameters_trainable,
            "connected_to": self.layer.connected_to,
            "bytes_weights": self.weights.0,
            "bytes_activations": self.activations.0,
            "bytes_gradients": self.gradients.0,
            "bytes_optimizer": self.optimizer.0,
        })
    }
}
