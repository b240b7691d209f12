//! Listed layers written down as Keras would: a Sequential model where each layer follows the one before, else a functional one.

use serde_json::{Map, Value, json};

use crate::listed::Listed;
use crate::model::{Body, Endpoint, Layer, Model, ModelKind};
use crate::spatial_table;
use crate::stored::LayerRow;
use crate::table::Inputs;

/// Keras's configuration of listed layers; `order` is that in which Keras will hold them.
pub(crate) fn config(listed: &Listed, rows: &[LayerRow], order: &[usize]) -> Value {
    let model = &listed.model;
    let policy = json!({"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}, "registered_name": null});
    match model.kind {
        ModelKind::Sequential => {
            let layers: Vec<Value> = (0..model.layers.len()).map(|index| layer(listed, index)).collect();
            let shape = layers[0].pointer("/config/batch_shape").cloned().unwrap_or_default();
            json!({
                "module": "keras",
                "class_name": "Sequential",
                "config": {
                    "name": "sequential",
                    "trainable": true,
                    "dtype": policy,
                    "layers": layers,
                    "build_input_shape": shape,
                },
                "registered_name": null,
                "build_config": {"input_shape": shape},
            })
        }
        ModelKind::Functional => {
            let layers: Vec<Value> = order.iter().map(|index| connected(listed, *index, rows)).collect();
            let end = |index: usize| json!([model.layers[index].path, 0, 0]);
            let inputs: Vec<Value> = model.inputs.iter().map(|index| end(*index)).collect();
            let output = |from: &Endpoint| json!([model.layers[from.layer].path, from.call, from.output]);
            let outputs: Vec<Value> = model.outputs.iter().map(output).collect();
            json!({
                "module": "keras.src.models.functional",
                "class_name": "Functional",
                "config": {
                    "name": "functional",
                    "trainable": true,
                    "layers": layers,
                    "input_layers": inputs,
                    "output_layers": outputs,
                },
                "registered_name": "Functional",
                "build_config": {"input_shape": null},
            })
        }
    }
}

/// Whether each layer follows the one before, from one input to one output.
pub(crate) fn is_chain(layers: &[Layer], inputs: &[usize], last: Option<usize>) -> bool {
    let follows = |(index, layer): (usize, &Layer)| {
        let reads: Vec<usize> = layer.calls.iter().flatten().map(|from| from.layer).collect();
        reads == index.checked_sub(1).into_iter().collect::<Vec<_>>()
    };
    inputs == [0] && last == layers.len().checked_sub(1) && layers.iter().enumerate().all(follows)
}

fn layer(listed: &Listed, index: usize) -> Value {
    let (class, arguments) = &listed.arguments[index];
    let mut config = Map::from_iter([("name".to_owned(), json!(listed.model.layers[index].path))]);
    for (key, value) in arguments.iter().filter(|(key, _)| key.as_str() != "name") {
        match (key.as_str(), value.as_array()) {
            ("shape", Some(sizes)) if listed.model.layers[index].is_input() => {
                let batched: Vec<Value> = [Value::Null].into_iter().chain(sizes.iter().cloned()).collect();
                config.insert("batch_shape".to_owned(), Value::Array(batched));
            }
            _ => {
                config.insert(key.clone(), value.clone());
            }
        }
    }
    json!({"module": spatial_table::module(class), "class_name": class, "config": config, "registered_name": null})
}

fn connected(listed: &Listed, index: usize, rows: &[LayerRow]) -> Value {
    let mut entry = layer(listed, index);
    let this = &listed.model.layers[index];
    let inputs = match &this.body {
        Body::Single { row, .. } => row.inputs,
        Body::Operation(_) | Body::Nested(_) | Body::Distributed(_) | Body::Implied => Inputs::One,
    };
    // Keras gets it with the call.
    let causal = entry["config"].as_object_mut().and_then(|config| config.remove("use_causal_mask"));
    let node = |reads: &Vec<Endpoint>| {
        let mut tensors: Vec<Value> = reads.iter().map(|from| tensor(&listed.model, *from, rows)).collect();
        let mut kwargs = Map::new();
        if let Some(causal) = &causal {
            kwargs.insert("use_causal_mask".to_owned(), causal.clone());
        }
        if inputs == Inputs::States && 1 < tensors.len() {
            kwargs.insert("initial_state".to_owned(), Value::Array(tensors.split_off(1)));
        }
        let args = match inputs {
            Inputs::Two | Inputs::Several => json!([tensors]),
            Inputs::None | Inputs::One | Inputs::Attention | Inputs::States => json!(tensors),
        };
        json!({"args": args, "kwargs": kwargs})
    };
    let nodes: Vec<Value> = if this.is_input() { Vec::new() } else { this.calls.iter().map(node).collect() };
    entry["name"] = json!(this.path);
    entry["inbound_nodes"] = json!(nodes);
    entry
}

fn tensor(model: &Model, from: Endpoint, rows: &[LayerRow]) -> Value {
    let name = &model.layers[from.layer].path;
    let dims = rows.iter().find(|row| row.name == *name).and_then(|row| row.outputs.get(from.output));
    let shape: Vec<Value> = [Value::Null]
        .into_iter()
        .chain(dims.into_iter().flat_map(|shape| shape.dims.iter().map(|size| json!(size))))
        .collect();
    let history = json!([name, from.call, from.output]);
    json!({"class_name": "__keras_tensor__", "config": {"shape": shape, "dtype": "float32", "keras_history": history}})
}

/// The order in which Keras holds the layers of a functional model that are called once each: farthest from the outputs first, and
/// among those equally far as a walk back from the outputs meets them.
pub(crate) fn keras_order(model: &Model) -> Vec<usize> {
    let reads = |layer: usize| model.layers[layer].calls.iter().flatten().map(|from| from.layer);
    let mut met = vec![None; model.layers.len()];
    let mut finished = Vec::new();
    let mut count = 0;
    for output in &model.outputs {
        let mut open = vec![(output.layer, 0)];
        while let Some((layer, next)) = open.pop() {
            if next == 0 {
                if met[layer].is_some() {
                    continue;
                }
                met[layer] = Some(count);
                count += 1;
            }
            match reads(layer).nth(next) {
                Some(from) => open.extend([(layer, next + 1), (from, 0)]),
                None => finished.push(layer),
            }
        }
    }
    let mut depths = vec![0usize; model.layers.len()];
    for layer in finished.iter().rev() {
        for from in reads(*layer) {
            depths[from] = depths[from].max(depths[*layer] + 1);
        }
    }
    let mut order: Vec<usize> = (0..model.layers.len()).collect();
    order.sort_by_key(|layer| (std::cmp::Reverse(depths[*layer]), met[*layer]));
    order
}
