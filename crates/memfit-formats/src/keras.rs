//! Keras 3 configurations, as `model.to_json()` writes them: Sequential and functional models, nested at will.

use serde_json::{Map, Value};

use crate::error::FormatError;
use crate::functional;
use crate::mask_operations;
use crate::model::{Body, Endpoint, Layer, Model, ModelKind, index};
use crate::operations::Operation;

/// What to do about a configuration that contradicts itself.
pub(crate) const ANEW: &str = "write the configuration again with `model.to_json()`";

/// What to do about a function that is not supported.
const OPERATIONS: &str =
    "of `keras.ops`, use functions of elements, of axes, of shapes, slices, matmul and einsum; else layers";

/// The model of a configuration.
pub(crate) fn read(config: &Value) -> Result<Model, FormatError> {
    let entry = Entry::new(config, "the configuration")?;
    if !entry.is_model() {
        return Err(not_keras(format!("its class is `{}`, not Sequential or Functional", entry.class)));
    }
    read_model(&entry, "", true)
}

/// One serialised object: `{"class_name": …, "config": {…}, …}`.
pub(crate) struct Entry<'a> {
    pub class: &'a str,
    pub module: Option<&'a str>,
    pub config: &'a Map<String, Value>,
    pub object: &'a Map<String, Value>,
}

impl<'a> Entry<'a> {
    fn new(value: &'a Value, what: &str) -> Result<Entry<'a>, FormatError> {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        match (value.as_object(), text("class_name"), value.get("config").and_then(Value::as_object)) {
            (Some(object), Some(class), Some(config)) => {
                Ok(Entry { class, module: text("module"), config, object })
            }
            _ => Err(not_keras(format!("{what} is no object with `class_name` and `config`"))),
        }
    }

    pub fn is_model(&self) -> bool {
        matches!(self.class, "Sequential" | "Functional" | "Model")
    }

    /// Whether it stands for an operator or a function of `keras.ops` instead of a layer.
    pub fn is_operation(&self) -> bool {
        self.module
            .is_some_and(|module| module.starts_with("keras.src.ops") || module.starts_with("keras.ops"))
    }

    pub fn name(&self) -> Result<&'a str, FormatError> {
        let name = self.config.get("name").or_else(|| self.object.get("name")).and_then(Value::as_str);
        name.ok_or_else(|| not_keras(format!("a {} has no name", self.class)))
    }
}

fn read_model(entry: &Entry<'_>, prefix: &str, trainable: bool) -> Result<Model, FormatError> {
    let trainable = trainable && entry.config.get("trainable") != Some(&Value::Bool(false));
    let listed = entry.config.get("layers").and_then(Value::as_array);
    let listed = listed.ok_or_else(|| not_keras(format!("a {} has no list of `layers`", entry.class)))?;
    let mut entries =
        listed.iter().map(|layer| Entry::new(layer, "an item of `layers`")).collect::<Result<Vec<_>, _>>()?;
    let only_masks = mask_operations::of_masks(entry, &entries);
    entries.retain(|layer| layer.name().map_or(true, |name| !only_masks.contains(name)));
    let layers =
        entries.iter().map(|layer| read_layer(layer, prefix, trainable)).collect::<Result<Vec<_>, _>>()?;
    if entry.class == "Sequential" {
        sequential(entry, layers, prefix)
    } else {
        functional::connect(entry, &entries, layers, prefix)
    }
}

fn read_layer(entry: &Entry<'_>, prefix: &str, trainable: bool) -> Result<Layer, FormatError> {
    let path = format!("{prefix}{}", entry.name()?);
    if entry.is_model() {
        let model = read_model(entry, &format!("{path}/"), trainable)?;
        return Ok(Layer::new(path, Body::Nested(model), trainable));
    }
    let within = entry.config.get("layer").filter(|_| entry.class == "TimeDistributed");
    if let Some(Ok(inner)) = within.map(|inner| Entry::new(inner, "a layer within a layer"))
        && inner.is_model()
    {
        let trainable = trainable && entry.config.get("trainable") != Some(&Value::Bool(false));
        let model = read_model(&inner, &format!("{path}/"), trainable)?;
        return Ok(Layer::new(path, Body::Distributed(model), trainable));
    }
    let unknown = |hint: &str| FormatError::UnknownLayer {
        layer: path.clone(),
        class: entry.class.to_owned(),
        hint: hint.to_owned(),
    };
    // A user's own class may have the name of one of Keras's.
    if entry.module.is_some_and(|module| module != "keras" && !module.starts_with("keras.")) {
        return Err(unknown("build the model from Keras's own layers"));
    }
    if entry.is_operation() {
        let operation = Operation::find(entry.class, entry.config).ok_or_else(|| unknown(OPERATIONS))?;
        return Ok(Layer::new(path, Body::Operation(operation), trainable));
    }
    Layer::read(path, entry.class, entry.config, trainable)
}

fn sequential(entry: &Entry<'_>, mut layers: Vec<Layer>, prefix: &str) -> Result<Model, FormatError> {
    if !layers.first().is_some_and(Layer::is_input) {
        layers.insert(0, implied_input(entry, prefix)?);
    }
    index(&layers)?;
    for (position, layer) in layers.iter_mut().enumerate() {
        let inputs = position.checked_sub(1).map(Endpoint::first).into_iter().collect();
        layer.calls = vec![inputs];
    }
    let outputs = vec![Endpoint::first(layers.len() - 1)];
    Ok(Model { layers, inputs: vec![0], outputs, kind: ModelKind::Sequential })
}

/// The input of a Sequential model that has none: by the shape it was built for, or by what it is called on.
fn implied_input(entry: &Entry<'_>, prefix: &str) -> Result<Layer, FormatError> {
    let path = format!("{prefix}input_layer");
    match entry.config.get("build_input_shape") {
        Some(shape) if !shape.is_null() => {
            let arguments = Map::from_iter([("batch_shape".to_owned(), shape.clone())]);
            Layer::read(path, "InputLayer", &arguments, true)
        }
        _ => Ok(Layer::new(path, Body::Implied, true)),
    }
}

pub(crate) fn not_keras(reason: String) -> FormatError {
    FormatError::NotKeras { reason }
}
