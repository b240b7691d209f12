//! Layers as a job file lists them, one object a layer.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::argument::ArgumentError;
use crate::build::MOST_CALLS;
use crate::error::{Fault, FormatError};
use crate::hint::hint;
use crate::model::{Endpoint, Layer, Model, ModelKind, index};
use crate::{table, written};

/// The most copies of one layer, so that a typing error is answered at once.
const MOST_COPIES: u64 = 100_000;

/// A list of layers, read.
pub(crate) struct Listed {
    pub model: Model,
    /// Keras's class of each layer and its arguments as they were given.
    pub arguments: Vec<Given>,
}

/// Keras's class of a layer and the arguments that were given.
pub(crate) type Given = (&'static str, Map<String, Value>);

/// The model of a list of layers.
pub(crate) fn read(listed: &[Value], outputs: Option<&[String]>) -> Result<Listed, FormatError> {
    let items = listed
        .iter()
        .enumerate()
        .map(|(position, value)| Item::read(value, position))
        .collect::<Result<Vec<_>, _>>()?;
    let copies: u64 = items.iter().map(|item| item.copies).sum();
    if MOST_CALLS as u64 + 1 < copies {
        let layer = items.last().map_or("", |item| item.class).to_owned();
        return Err(FormatError::TooManyCalls { layer, limit: MOST_CALLS });
    }
    let mut names = Names::new(&items);
    let mut layers: Vec<Layer> = Vec::new();
    let mut arguments = Vec::new();
    // The names that feed each layer; nothing where it follows the layer before it.
    let mut feeds: Vec<Option<&[String]>> = Vec::new();
    // The name of a repeated layer means its last copy.
    let mut last_copies: HashMap<&str, usize> = HashMap::new();
    for item in &items {
        for copy in 0..item.copies {
            layers.push(Layer::read(names.of(item, copy), item.class, &item.arguments, true)?);
            arguments.push((layers[layers.len() - 1].class(), item.arguments.clone()));
            feeds.push(item.inputs.as_deref().filter(|_| copy == 0));
        }
        if let Some(name) = item.name {
            last_copies.insert(name, layers.len() - 1);
        }
    }
    if !layers.first().is_some_and(Layer::is_input) {
        return Err(FormatError::NoInput);
    }
    let indices = index(&layers)?;
    let find =
        |name: &String, referrer: &str| match last_copies.get(name.as_str()).or(indices.get(name.as_str())) {
            Some(layer) => Ok(Endpoint::first(*layer)),
            None => Err(FormatError::Dangling {
                referrer: referrer.to_owned(),
                missing: format!("layer `{name}`"),
                hint: hint(name, layers.iter().map(|layer| layer.path.as_str())),
            }),
        };
    let mut calls = Vec::with_capacity(layers.len());
    for (position, (layer, feed)) in layers.iter().zip(feeds).enumerate() {
        calls.push(match feed {
            Some(names) => {
                let referrer = format!("layer `{}`", layer.path);
                names.iter().map(|name| find(name, &referrer)).collect::<Result<Vec<_>, _>>()?
            }
            None if layer.is_input() => Vec::new(),
            None => vec![Endpoint::first(position - 1)],
        });
    }
    let outputs = match outputs {
        Some(names) => names.iter().map(|name| find(name, "`outputs`")).collect::<Result<Vec<_>, _>>()?,
        None => vec![Endpoint::first(layers.len() - 1)],
    };
    for (layer, inputs) in layers.iter_mut().zip(calls) {
        layer.calls = vec![inputs];
    }
    let inputs: Vec<usize> = (0..layers.len()).filter(|index| layers[*index].is_input()).collect();
    let last = if let [output] = outputs[..] { Some(output.layer) } else { None };
    let is_chain = written::is_chain(&layers, &inputs, last);
    let kind = if is_chain { ModelKind::Sequential } else { ModelKind::Functional };
    Ok(Listed { model: Model { layers, inputs, outputs, kind }, arguments })
}

/// The layers of a list without their connections, and Keras's class and the arguments of each; none is repeated.
pub(crate) fn layers(listed: &[Value]) -> Result<(Vec<Layer>, Vec<Given>), FormatError> {
    let items = listed
        .iter()
        .enumerate()
        .map(|(position, value)| Item::read(value, position))
        .collect::<Result<Vec<_>, _>>()?;
    let mut names = Names::new(&items);
    let mut read = |item: Item<'_>| {
        let layer = Layer::read(names.of(&item, 0), item.class, &item.arguments, true)?;
        let class = layer.class();
        Ok((layer, (class, item.arguments)))
    };
    items.into_iter().map(&mut read).collect::<Result<Vec<_>, _>>().map(|all| all.into_iter().unzip())
}

/// The names that the copies of each item get.
pub(crate) fn names(listed: &[Value]) -> Result<Vec<Vec<String>>, FormatError> {
    let items = listed
        .iter()
        .enumerate()
        .map(|(position, value)| Item::read(value, position))
        .collect::<Result<Vec<_>, _>>()?;
    let mut names = Names::new(&items);
    Ok(items.iter().map(|item| (0..item.copies).map(|copy| names.of(item, copy)).collect()).collect())
}

/// One object of the list, with what is not an argument of its class taken out.
struct Item<'a> {
    class: &'a str,
    name: Option<&'a str>,
    inputs: Option<Vec<String>>,
    copies: u64,
    arguments: Map<String, Value>,
}

impl<'a> Item<'a> {
    fn read(value: &'a Value, position: usize) -> Result<Item<'a>, FormatError> {
        let name = value.get("name").and_then(Value::as_str);
        let layer = name.map_or_else(|| format!("layers[{position}]"), str::to_owned);
        let class = value.get("class").and_then(Value::as_str);
        let error = |argument: &str, fault: Fault| FormatError::Argument {
            layer: layer.clone(),
            class: class.and_then(table::find).map_or("layer", |row| row.name),
            argument: argument.to_owned(),
            fault,
        };
        let (Some(object), Some(class)) = (value.as_object(), class) else {
            return Err(error("class", Fault::Missing { expected: "the name of a layer class".to_owned() }));
        };
        let wrong = |argument: &str, expected: String, got: &Value| {
            error(argument, ArgumentError::wrong(expected, got).fault)
        };
        let copies = match object.get("repeat") {
            None => 1,
            Some(value) => value
                .as_u64()
                .filter(|copies| (1..=MOST_COPIES).contains(copies))
                .ok_or_else(|| wrong("repeat", format!("a whole number from 1 to {MOST_COPIES}"), value))?,
        };
        let inputs = match object.get("inputs") {
            None => None,
            Some(value) => Some(
                names_in(value)
                    .ok_or_else(|| wrong("inputs", "a list of names of layers".to_owned(), value))?,
            ),
        };
        let own = ["class", "inputs", "repeat"];
        let arguments = object.iter().filter(|(key, _)| !own.contains(&key.as_str()));
        let arguments = arguments.map(|(key, value)| (key.clone(), value.clone())).collect();
        Ok(Item { class, name, inputs, copies, arguments })
    }
}

fn names_in(value: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match value.as_array() {
        Some(list) => list.iter().map(text).collect(),
        None => text(value).map(|name| vec![name]),
    }
}

/// Gives names as Keras does, `dense`, `dense_1`, …, around those that are taken.
struct Names {
    taken: HashSet<String>,
    next: HashMap<String, u64>,
}

impl Names {
    fn new(items: &[Item<'_>]) -> Names {
        Names {
            taken: items.iter().filter_map(|item| item.name).map(str::to_owned).collect(),
            next: HashMap::new(),
        }
    }

    /// The name of a copy of an item: copies of a named one are counted from 1.
    fn of(&mut self, item: &Item<'_>, copy: u64) -> String {
        match item.name {
            Some(name) if item.copies == 1 => name.to_owned(),
            Some(name) => format!("{name}_{}", copy + 1),
            None => self.fresh(table::find(item.class).map_or(item.class, |row| row.name)),
        }
    }

    fn fresh(&mut self, class: &str) -> String {
        let base = snake_case(class);
        let next = self.next.entry(base.clone()).or_insert(0);
        loop {
            let name = if *next == 0 { base.clone() } else { format!("{base}_{next}") };
            *next += 1;
            if !self.taken.contains(&name) {
                return name;
            }
        }
    }
}

/// Keras's own rule for names of layers: `MaxPooling2D` becomes `max_pooling2d`, `ReLU` `re_lu`.
pub(crate) fn snake_case(class: &str) -> String {
    let letters: Vec<char> = class.chars().collect();
    let mut name = String::with_capacity(class.len() + 4);
    for (position, letter) in letters.iter().enumerate() {
        let before = position.checked_sub(1).map(|before| letters[before]);
        let after = letters.get(position + 1);
        let begins_word = letter.is_ascii_uppercase()
            && before.is_some_and(|before| {
                before.is_ascii_lowercase() || after.is_some_and(char::is_ascii_lowercase)
            });
        if begins_word {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::snake_case;

    #[test]
    fn names_are_those_that_keras_gives() {
        for (class, name) in [
            ("Dense", "dense"),
            ("Conv2D", "conv2d"),
            ("DepthwiseConv2D", "depthwise_conv2d"),
            ("MaxPooling2D", "max_pooling2d"),
            ("ReLU", "re_lu"),
            ("LeakyReLU", "leaky_re_lu"),
            ("ELU", "elu"),
            ("BatchNormalization", "batch_normalization"),
            ("InputLayer", "input_layer"),
        ] {
            assert_eq!(snake_case(class), name);
        }
    }
}
