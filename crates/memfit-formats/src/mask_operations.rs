//! The operations that Keras writes into a functional model to pass masks on. memfit recomputes masks from
//! the layers, so operations that only masks depend on are left out.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::functional::is_tensor;
use crate::keras::Entry;

/// Calls name masks by these arguments.
pub(crate) const MASKS: [&str; 4] = ["mask", "query_mask", "value_mask", "key_mask"];

/// The operations that compute Keras's own masks.
const MAKERS: [&str; 7] =
    ["NotEqual", "LogicalOr", "Any", "ExpandDims", "ZerosLike", "OnesLike", "Concatenate"];

/// Names of the operations of a model that only compute masks.
pub(crate) fn of_masks<'a>(model: &Entry<'a>, entries: &[Entry<'a>]) -> HashSet<&'a str> {
    let suspects = || entries.iter().filter(|entry| entry.is_operation() && MAKERS.contains(&entry.class));
    if suspects().next().is_none() {
        return HashSet::new();
    }
    let by_name: HashMap<&str, &Entry<'a>> =
        entries.iter().filter_map(|entry| Some((entry.name().ok()?, entry))).collect();
    let mut open = Vec::new();
    let outputs = model.config.get("output_layers").unwrap_or(&Value::Null);
    texts(outputs, &mut open);
    // Layers run whether or not another layer reads them.
    open.extend(entries.iter().filter(|entry| !entry.is_operation()).filter_map(|entry| entry.name().ok()));
    let mut needed: HashSet<&str> = HashSet::new();
    while let Some(name) = open.pop() {
        let Some(entry) = by_name.get(name).filter(|_| needed.insert(name)) else { continue };
        let nodes = entry.object.get("inbound_nodes").and_then(Value::as_array);
        for node in nodes.into_iter().flatten() {
            read_by(node.get("args").unwrap_or(&Value::Null), &mut open);
            for (argument, value) in node.get("kwargs").and_then(Value::as_object).into_iter().flatten() {
                if !MASKS.contains(&argument.as_str()) {
                    read_by(value, &mut open);
                }
            }
        }
    }
    suspects().filter_map(|entry| entry.name().ok()).filter(|name| !needed.contains(name)).collect()
}

/// Names of the layers whose tensors stand in a structure.
fn read_by<'a>(value: &'a Value, names: &mut Vec<&'a str>) {
    if is_tensor(value) {
        names.extend(value.pointer("/config/keras_history/0").and_then(Value::as_str));
        return;
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| read_by(item, names)),
        Value::Object(fields) => fields.values().for_each(|field| read_by(field, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// All texts of a structure.
fn texts<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
