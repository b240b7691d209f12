//! A model between file and graph: layers with their arguments read, and who calls whom.

use std::collections::HashMap;

use memfit_ir::{LayerId, TensorId};
use serde_json::{Map, Value};

use crate::argument::ArgumentError;
use crate::error::FormatError;
use crate::hint::nearest;
use crate::operations::Operation;
use crate::precision::Precision;
use crate::settings::Settings;
use crate::table::{self, LayerClass};

/// Layers, and how they are connected.
#[derive(Debug)]
pub(crate) struct Model {
    /// The layers, in the order they were written down.
    pub layers: Vec<Layer>,
    /// Indices of the layers that are fed, in the order of the model's inputs.
    pub inputs: Vec<usize>,
    /// The predictions.
    pub outputs: Vec<Endpoint>,
    /// Keras's class of it.
    pub kind: ModelKind,
}

/// Keras's classes of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelKind {
    Sequential,
    Functional,
}

/// One layer.
#[derive(Debug)]
pub(crate) struct Layer {
    /// Its name, after the names of the models around it.
    pub path: String,
    pub body: Body,
    /// Whether its weights learn.
    pub trainable: bool,
    /// What each use of it reads; shared layers have several uses.
    pub calls: Vec<Vec<Endpoint>>,
    /// Whether a call was given a mask.
    pub given_mask: bool,
    /// What the graph has of it already.
    pub built: Option<Built>,
}

/// What a layer is.
#[derive(Debug)]
pub(crate) enum Body {
    /// A layer of the table.
    Single { row: &'static LayerClass, settings: Settings },
    /// A function of `keras.ops`.
    Operation(Operation),
    /// A model used as a layer.
    Nested(Model),
    /// A model that a TimeDistributed layer calls on every step.
    Distributed(Model),
    /// The input of a Sequential model that was written down without one.
    Implied,
}

/// An output of a call of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Endpoint {
    pub layer: usize,
    pub call: usize,
    pub output: usize,
}

/// What the graph has of a layer.
#[derive(Debug)]
pub(crate) struct Built {
    pub layer: LayerId,
    pub weights: Vec<BuiltWeight>,
    /// How often it was called.
    pub calls: u64,
}

/// A weight of a layer.
#[derive(Debug)]
pub(crate) struct BuiltWeight {
    /// Its name within the layer; `query/kernel` within a layer of the layer.
    pub name: String,
    pub tensor: TensorId,
    /// Its dimensions in Keras, of which the graph's are another reading.
    pub dims: Vec<usize>,
}

impl Endpoint {
    /// The only output of a layer's first call.
    pub fn first(layer: usize) -> Endpoint {
        Endpoint { layer, call: 0, output: 0 }
    }
}

/// What to do about a class that is not in the table.
fn missing(class: &str) -> String {
    match class {
        "Lambda" => "it holds Python code, which cannot be run here: write the same with functions of `keras.ops` in a functional model, \
             `ops.abs(a - b)`"
            .to_owned(),
        "TextVectorization" | "StringLookup" | "IntegerLookup" | "Hashing" | "Discretization" | "HashedCrossing"
        | "CategoryEncoding" | "FeatureSpace" | "MelSpectrogram" | "STFTSpectrogram" => {
            "apply it to the data beforehand, and let the model begin after it".to_owned()
        }
        "ConvLSTM1D" | "ConvLSTM2D" | "ConvLSTM3D" => {
            "put convolutions in TimeDistributed, and an LSTM after them".to_owned()
        }
        "SpectralNormalization" => {
            "give its layer `kernel_constraint=\"unit_norm\"`, which bounds it too, or leave it out".to_owned()
        }
        _ => match nearest(class, table::LAYERS.iter().map(|row| row.name)) {
            Some(name) => format!("did you mean `{name}`?"),
            None => "`memfit layers` lists those that are".to_owned(),
        },
    }
}

impl Layer {
    /// A layer of the table with its arguments, not called yet.
    pub fn read(
        path: String,
        class: &str,
        arguments: &Map<String, Value>,
        trainable: bool,
    ) -> Result<Layer, FormatError> {
        let Some(row) = table::find(class) else {
            let hint = missing(class);
            return Err(FormatError::UnknownLayer { layer: path, class: class.to_owned(), hint });
        };
        match Settings::read(row.arguments, arguments) {
            Ok(settings) => {
                let trainable = trainable && settings.flag("trainable");
                Ok(Layer::new(path, Body::Single { row, settings }, trainable))
            }
            Err(ArgumentError { argument, fault }) => {
                Err(FormatError::Argument { layer: path, class: row.name, argument, fault })
            }
        }
    }

    /// A layer that is not called yet.
    pub fn new(path: String, body: Body, trainable: bool) -> Layer {
        Layer { path, body, trainable, calls: Vec::new(), given_mask: false, built: None }
    }

    /// Its own dtype policy, where it has one.
    pub fn precision(&self) -> Option<Precision> {
        match &self.body {
            Body::Single { settings, .. } => settings.precision(),
            Body::Operation(_) | Body::Nested(_) | Body::Distributed(_) | Body::Implied => None,
        }
    }

    /// Its class, as messages name it.
    pub fn class(&self) -> &'static str {
        match &self.body {
            Body::Single { row, .. } => row.name,
            Body::Operation(operation) => operation.name,
            Body::Nested(_) => "Model",
            Body::Distributed(_) => "TimeDistributed",
            Body::Implied => "InputLayer",
        }
    }

    /// Names of what it is called with, where tensors have names of their own.
    pub fn parameters(&self) -> &'static [&'static str] {
        match &self.body {
            Body::Single { row, .. }
                if matches!(
                    row.class,
                    table::Class::MultiHeadAttention | table::Class::GroupQueryAttention
                ) =>
            {
                &["query", "value", "key"]
            }
            Body::Single { .. }
            | Body::Operation(_)
            | Body::Nested(_)
            | Body::Distributed(_)
            | Body::Implied => &[],
        }
    }

    /// Whether the layer has an argument.
    pub fn has(&self, argument: &str) -> bool {
        match &self.body {
            Body::Single { row, .. } => row.arguments.iter().any(|known| known.name == argument),
            Body::Operation(_) | Body::Nested(_) | Body::Distributed(_) | Body::Implied => false,
        }
    }

    /// Sets a flag of the layer, where it has one of this name.
    pub fn set_flag(&mut self, argument: &str, value: bool) {
        if let Body::Single { settings, .. } = &mut self.body {
            settings.set_flag(argument, value);
        }
    }

    /// Whether it is fed instead of computed.
    pub fn is_input(&self) -> bool {
        match &self.body {
            Body::Single { row, .. } => row.class == table::Class::InputLayer,
            Body::Operation(_) | Body::Nested(_) | Body::Distributed(_) => false,
            Body::Implied => true,
        }
    }
}

/// A layer's name with those of the models around it is no longer, so that tables and messages stay readable.
const LONGEST_PATH: usize = 4096;

/// The layers by path; two of one path are refused.
pub(crate) fn index(layers: &[Layer]) -> Result<HashMap<&str, usize>, FormatError> {
    let mut indices = HashMap::with_capacity(layers.len());
    for (index, layer) in layers.iter().enumerate() {
        if LONGEST_PATH < layer.path.len() {
            let layer = layer.path.chars().take(80).collect();
            return Err(FormatError::LongName { layer, limit: LONGEST_PATH });
        }
        if indices.insert(layer.path.as_str(), index).is_some() {
            return Err(FormatError::DuplicateLayer { layer: layer.path.clone() });
        }
    }
    Ok(indices)
}

impl Model {
    /// Names of the layers that give the predictions.
    pub fn output_names(&self) -> Vec<String> {
        self.outputs.iter().map(|endpoint| self.layers[endpoint.layer].path.clone()).collect()
    }

    /// Every call as (layer, call), each after those it reads, and otherwise in the order written down.
    ///
    /// It walks without recursion, so that depth costs no stack.
    pub fn order(&self) -> Result<Vec<(usize, usize)>, FormatError> {
        let mut marks: Vec<Vec<Mark>> =
            self.layers.iter().map(|layer| vec![Mark::Unseen; layer.calls.len()]).collect();
        let mut order = Vec::new();
        let mut open: Vec<(usize, usize, usize)> = Vec::new();
        for layer in 0..self.layers.len() {
            for call in 0..self.layers[layer].calls.len() {
                if marks[layer][call] == Mark::Unseen {
                    open.push((layer, call, 0));
                }
                while let Some((layer, call, next)) = open.pop() {
                    marks[layer][call] = Mark::Open;
                    let Some(endpoint) = self.layers[layer].calls[call].get(next) else {
                        marks[layer][call] = Mark::Done;
                        order.push((layer, call));
                        continue;
                    };
                    open.push((layer, call, next + 1));
                    match marks[endpoint.layer][endpoint.call] {
                        Mark::Unseen => open.push((endpoint.layer, endpoint.call, 0)),
                        Mark::Open => return Err(self.circle(&open, *endpoint)),
                        Mark::Done => {}
                    }
                }
            }
        }
        self.require_use()?;
        Ok(order)
    }

    /// The policy that most layers have; of two that are equally frequent, the one that comes first.
    pub fn common_precision(&self) -> Option<Precision> {
        let mut counts: Vec<(Precision, usize)> = Vec::new();
        self.count_precisions(&mut counts);
        counts.iter().rev().max_by_key(|(_, count)| *count).map(|(policy, _)| *policy)
    }

    fn count_precisions(&self, counts: &mut Vec<(Precision, usize)>) {
        for layer in &self.layers {
            if let Body::Nested(model) | Body::Distributed(model) = &layer.body {
                model.count_precisions(counts);
            }
            let Some(policy) = layer.precision() else { continue };
            match counts.iter_mut().find(|(known, _)| *known == policy) {
                Some((_, count)) => *count += 1,
                None => counts.push((policy, 1)),
            }
        }
    }

    fn require_use(&self) -> Result<(), FormatError> {
        let mut used: Vec<Vec<bool>> =
            self.layers.iter().map(|layer| vec![false; layer.calls.len()]).collect();
        let calls = self.layers.iter().flat_map(|layer| &layer.calls);
        for endpoint in calls.flatten().chain(&self.outputs) {
            used[endpoint.layer][endpoint.call] = true;
        }
        match used.iter().position(|calls| calls.contains(&false)) {
            Some(layer) => Err(FormatError::Unused { layer: self.layers[layer].path.clone() }),
            None => Ok(()),
        }
    }

    fn circle(&self, open: &[(usize, usize, usize)], met: Endpoint) -> FormatError {
        let start = open.iter().position(|(layer, call, _)| (*layer, *call) == (met.layer, met.call));
        let start = start.expect("a call that is open stands on the stack");
        let name = |layer: usize| self.layers[layer].path.clone();
        // The stack leads from reader to producer, so the cycle is reported from its end.
        let layers =
            open[start..].iter().rev().map(|(layer, ..)| name(*layer)).chain([name(open[open.len() - 1].0)]);
        FormatError::Cycle { layers: layers.collect() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mark {
    Unseen,
    Open,
    Done,
}
