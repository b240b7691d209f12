//! Functional Keras models: who calls whom, read from `inbound_nodes`.

use std::collections::HashMap;

use serde_json::Value;

use crate::argument::{ArgumentError, brief};
use crate::error::FormatError;
use crate::hint::hint;
use crate::keras::{ANEW, Entry, not_keras};
use crate::mask_operations::MASKS;
use crate::model::{Body, Endpoint, Layer, Model, ModelKind, index};

/// Connects the layers of a functional model, which were read from `entries`, one each.
pub(crate) fn connect(
    model: &Entry<'_>,
    entries: &[Entry<'_>],
    mut layers: Vec<Layer>,
    prefix: &str,
) -> Result<Model, FormatError> {
    let reader = Reader { prefix, entries, layers: &layers, indices: index(&layers)? };
    let calls = entries
        .iter()
        .zip(&layers)
        .map(|(entry, layer)| reader.calls(entry, layer))
        .collect::<Result<Vec<_>, _>>()?;
    let causal = entries
        .iter()
        .zip(&layers)
        .map(|(entry, layer)| reader.causal(entry, layer))
        .collect::<Result<Vec<_>, _>>()?;
    let inputs = reader.ends(model, "input_layers")?.iter().map(|endpoint| endpoint.layer).collect();
    let outputs = reader.ends(model, "output_layers")?;
    for ((layer, calls), causal) in layers.iter_mut().zip(calls).zip(causal) {
        layer.calls = calls;
        layer.set_flag(CAUSAL, causal);
    }
    for (layer, entry) in layers.iter_mut().zip(entries) {
        let nodes = entry.object.get("inbound_nodes").and_then(Value::as_array);
        layer.given_mask = nodes.into_iter().flatten().any(is_given_mask);
        if let (Body::Operation(operation), Some(nodes)) = (&mut layer.body, nodes) {
            operation.keep_given(nodes);
        }
    }
    let model = Model { layers, inputs, outputs, kind: ModelKind::Functional };
    require_calls(&model)?;
    require_inputs(&model)?;
    Ok(model)
}

/// What a call of an attention layer says about who sees whom.
const CAUSAL: &str = "use_causal_mask";

/// What is known while connections are read.
struct Reader<'a> {
    prefix: &'a str,
    entries: &'a [Entry<'a>],
    layers: &'a [Layer],
    indices: HashMap<&'a str, usize>,
}

impl Reader<'_> {
    fn calls(&self, entry: &Entry<'_>, layer: &Layer) -> Result<Vec<Vec<Endpoint>>, FormatError> {
        if layer.is_input() {
            return Ok(vec![Vec::new()]);
        }
        let nodes = entry.object.get("inbound_nodes").and_then(Value::as_array);
        let nodes = nodes.ok_or_else(|| not_keras(format!("`{}` has no `inbound_nodes`", layer.path)))?;
        nodes.iter().map(|node| self.call(entry, layer, node)).collect()
    }

    fn call(&self, entry: &Entry<'_>, layer: &Layer, node: &Value) -> Result<Vec<Endpoint>, FormatError> {
        let (Some(args), Some(kwargs)) = (node.get("args"), node.get("kwargs").and_then(Value::as_object))
        else {
            return Err(not_keras(format!("`{}` has a call without `args` and `kwargs`", layer.path)));
        };
        let refuse = |argument: &str, value: &Value, supported: &str| {
            let fault = ArgumentError::unsupported(brief(value), supported).fault;
            let (layer, class) = (layer.path.clone(), layer.class());
            Err(FormatError::Argument { layer, class, argument: argument.to_owned(), fault })
        };
        let parameters = layer.parameters();
        let mut leaves = Vec::new();
        match args.as_array() {
            Some(args) if !parameters.is_empty() => {
                if let Some(mask) = args.iter().skip(parameters.len()).find(|value| !is_nothing(value)) {
                    return refuse("call", mask, "a query, a value and a key alone");
                }
                // What is not given by place is given by name.
                let named = parameters.iter().skip(args.len()).filter_map(|name| kwargs.get(*name));
                for value in args.iter().chain(named).filter(|value| !is_nothing(value)) {
                    leaves_of(value, &is_tensor, &mut leaves);
                }
            }
            Some(_) | None => leaves_of(args, &is_tensor, &mut leaves),
        }
        for (name, value) in kwargs {
            match (name.as_str(), value) {
                (name, _) if parameters.contains(&name) => {}
                (CAUSAL, Value::Bool(_)) if layer.has(CAUSAL) => {}
                ("return_attention_scores", Value::Bool(false)) => {}
                // Keras writes down what `training` was by default and, when the model runs, overrides it by the
                // model's own. Only `trainable` freezes a layer.
                ("training", _) => {}
                // Masks are recomputed. That there is one is checked where the layer is called.
                (name, value) if MASKS.contains(&name) && is_tensor(value) => {}
                ("initial_state", value) if layer.has("return_state") || layer.has("backward_layer") => {
                    leaves_of(value, &is_tensor, &mut leaves);
                    leaves.retain(|leaf| !leaf.is_null());
                }
                ("inputs", value) => leaves_of(value, &is_tensor, &mut leaves),
                (_, value) if is_nothing(value) => {}
                (name, value) => return refuse(name, value, "a call on tensors alone"),
            }
        }
        if entry.is_operation() {
            // What is not a tensor is looked at when the function is called.
            leaves.retain(|leaf| is_tensor(leaf));
        }
        if let Some(constant) = leaves.iter().find(|leaf| !is_tensor(leaf)) {
            return refuse("call", constant, "a Rescaling layer to scale or to shift");
        }
        let inputs = leaves.iter().map(|leaf| {
            let history = leaf.pointer("/config/keras_history").unwrap_or(&Value::Null);
            self.endpoint(history, &format!("layer `{}`", layer.path))
        });
        inputs.collect()
    }

    /// Whether calls are causal; all calls of a shared layer must agree.
    fn causal(&self, entry: &Entry<'_>, layer: &Layer) -> Result<bool, FormatError> {
        let nodes = entry.object.get("inbound_nodes").and_then(Value::as_array);
        let flags: Vec<bool> = nodes
            .into_iter()
            .flatten()
            .map(|node| node.pointer(&format!("/kwargs/{CAUSAL}")) == Some(&Value::Bool(true)))
            .collect();
        match (flags.contains(&true), flags.contains(&false)) {
            (true, true) => {
                let fault = ArgumentError::unsupported("true and false", "the same for all calls").fault;
                let (layer, class) = (layer.path.clone(), layer.class());
                Err(FormatError::Argument { layer, class, argument: CAUSAL.to_owned(), fault })
            }
            (causal, _) => Ok(causal),
        }
    }

    /// The tensors that `input_layers` or `output_layers` list.
    fn ends(&self, model: &Entry<'_>, key: &str) -> Result<Vec<Endpoint>, FormatError> {
        let listed = model.config.get(key).ok_or_else(|| not_keras(format!("`{key}` is missing")))?;
        let mut leaves = Vec::new();
        leaves_of(listed, &is_triple, &mut leaves);
        let mut endpoints = Vec::new();
        for leaf in leaves {
            let mut endpoint = self.endpoint(leaf, &format!("`{key}`"))?;
            // Here, and only here, Keras counts the calls of a nested functional model from 1.
            let entry = &self.entries[endpoint.layer];
            if entry.is_model() && entry.class != "Sequential" {
                endpoint.call = endpoint.call.saturating_sub(1);
            }
            endpoints.push(endpoint);
        }
        Ok(endpoints)
    }

    /// `[layer, call, output]` with the layer found by its name.
    fn endpoint(&self, triple: &Value, referrer: &str) -> Result<Endpoint, FormatError> {
        let strange = || not_keras(format!("{referrer} refers to {} and not to a tensor", brief(triple)));
        let [name, call, output] = triple.as_array().map(Vec::as_slice).ok_or_else(strange)? else {
            return Err(strange());
        };
        let name = name.as_str().ok_or_else(strange)?;
        let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
        let (call, output) = (number(call).ok_or_else(strange)?, number(output).ok_or_else(strange)?);
        let Some(layer) = self.indices.get(format!("{}{name}", self.prefix).as_str()) else {
            let names = self.layers.iter().map(|layer| &layer.path[self.prefix.len()..]);
            return Err(FormatError::Dangling {
                referrer: referrer.to_owned(),
                missing: format!("layer `{name}`"),
                hint: hint(name, names),
            });
        };
        Ok(Endpoint { layer: *layer, call, output })
    }
}

fn require_calls(model: &Model) -> Result<(), FormatError> {
    let reads = model.layers.iter().flat_map(|layer| layer.calls.iter().flatten().map(move |e| (layer, e)));
    let outputs = model.outputs.iter().map(|endpoint| ("the model's output".to_owned(), endpoint));
    for (referrer, endpoint) in reads.map(|(layer, e)| (format!("layer `{}`", layer.path), e)).chain(outputs)
    {
        let layer = &model.layers[endpoint.layer];
        if layer.calls.len() <= endpoint.call {
            return Err(FormatError::Dangling {
                referrer,
                missing: format!("call {} of layer `{}`", endpoint.call, layer.path),
                hint: ANEW.to_owned(),
            });
        }
    }
    Ok(())
}

fn require_inputs(model: &Model) -> Result<(), FormatError> {
    if let Some(layer) =
        model.inputs.iter().map(|input| &model.layers[*input]).find(|layer| !layer.is_input())
    {
        return Err(not_keras(format!("the input layer `{}` is a {}", layer.path, layer.class())));
    }
    let mut fed = vec![false; model.layers.len()];
    model.inputs.iter().for_each(|input| fed[*input] = true);
    match model.layers.iter().zip(fed).find(|(layer, fed)| layer.is_input() && !fed) {
        Some((layer, _)) => Err(not_keras(format!("`{}` is not among the `input_layers`", layer.path))),
        None => Ok(()),
    }
}

/// The leaves of a structure, as Keras flattens one: lists in order, dictionaries by their sorted keys.
fn leaves_of<'a>(value: &'a Value, is_leaf: &dyn Fn(&Value) -> bool, leaves: &mut Vec<&'a Value>) {
    match value {
        value if is_leaf(value) => leaves.push(value),
        Value::Array(items) => items.iter().for_each(|item| leaves_of(item, is_leaf, leaves)),
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            keys.into_iter().for_each(|key| leaves_of(&fields[key], is_leaf, leaves));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => leaves.push(value),
    }
}

/// Whether a call is given a mask.
fn is_given_mask(node: &Value) -> bool {
    let kwargs = node.get("kwargs").and_then(Value::as_object);
    kwargs.into_iter().flatten().any(|(name, value)| MASKS.contains(&name.as_str()) && is_tensor(value))
}

/// Whether a value stands for a tensor of the model.
pub(crate) fn is_tensor(value: &Value) -> bool {
    value.get("class_name").and_then(Value::as_str) == Some("__keras_tensor__")
}

fn is_triple(value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.len() == 3 && items[0].is_string())
}

/// Null, or a structure of nothing else.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().all(is_nothing),
        Value::Object(fields) => fields.values().all(is_nothing),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
