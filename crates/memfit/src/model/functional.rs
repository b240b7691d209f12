//! The functional form: tensors that stand for what layers will give, and the model between some of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use memfit_formats::{CalledLayer, Place, config_from_calls, names_of_layers};
use serde_json::Value;

use super::layer::{ArgumentValue, Layer, next_number};
use super::{Definition, Model, Source};
use crate::Error;

/// A tensor of a model that is written down: an input, or what a call of a layer gives. It holds no values.
///
/// ```
/// use memfit::prelude::*;
/// let x: KerasTensor = Input::shape([4]);
/// let y: KerasTensor = Dense::new(3).call(&x);
/// let model = Model::new(&[x], &[y]);
/// ```
#[derive(Clone, Debug)]
pub struct KerasTensor {
    call: Arc<Call>,
    output: usize,
}

/// A call of a layer; an input is one that reads nothing.
#[derive(Debug)]
struct Call {
    number: u64,
    layer: Layer,
    reads: Vec<KerasTensor>,
}

impl Drop for Call {
    /// Frees a long chain of calls one by one, so that its length takes no stack.
    fn drop(&mut self) {
        let mut open = std::mem::take(&mut self.reads);
        while let Some(tensor) = open.pop() {
            if let Some(mut call) = Arc::into_inner(tensor.call) {
                open.append(&mut call.reads);
            }
        }
    }
}

impl KerasTensor {
    pub(super) fn of(layer: Layer, reads: Vec<KerasTensor>) -> KerasTensor {
        KerasTensor { call: Arc::new(Call { number: next_number(), layer, reads }), output: 0 }
    }

    /// Another output of the same call, counted from 0: recurrent layers with `return_state` have several.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let x = Input::shape([10, 8]);
    /// let sequence = LSTM::new(16).return_state(true).call(&x);
    /// let (h, c) = (sequence.output(1), sequence.output(2));
    /// ```
    pub fn output(&self, output: usize) -> KerasTensor {
        KerasTensor { call: Arc::clone(&self.call), output }
    }

    /// The layer of an input.
    pub(super) fn layer(&self) -> &Layer {
        &self.call.layer
    }
}

/// An input of a model: what a row of the data has.
///
/// ```
/// use memfit::prelude::*;
/// let image = Input::shape([32, 32, 3]);
/// let words = Input::new([64]).dtype("int32").name("words").tensor();
/// ```
#[derive(Clone, Debug)]
pub struct Input(Layer);

impl Input {
    /// A tensor of floats of these dimensions, without the rows.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let model = Sequential::new(Input::shape([28, 28, 1])).add(Flatten::new());
    /// ```
    pub fn shape(dims: impl Into<ArgumentValue>) -> KerasTensor {
        Input::new(dims).tensor()
    }

    /// The same with more to say of it.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let x = Input::new([4]).name("x").tensor();
    /// ```
    pub fn new(dims: impl Into<ArgumentValue>) -> Input {
        Input(Layer::new("Input").arg("shape", dims))
    }

    /// Its type by Keras's name: `float32` where it is not given, `int32` for what an Embedding looks up.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let ids = Input::new([64]).dtype("int32").tensor();
    /// ```
    pub fn dtype(self, dtype: &str) -> Input {
        Input(self.0.arg("dtype", dtype))
    }

    /// Its name.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let x = Input::new([4]).name("features").tensor();
    /// ```
    pub fn name(self, name: &str) -> Input {
        Input(self.0.name(name))
    }

    /// The tensor.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let x: KerasTensor = Input::new([4]).name("x").tensor();
    /// ```
    pub fn tensor(self) -> KerasTensor {
        KerasTensor::of(self.0, Vec::new())
    }
}

impl From<Input> for KerasTensor {
    fn from(input: Input) -> KerasTensor {
        input.tensor()
    }
}

/// What a layer is called on: a tensor, or a list of tensors.
///
/// ```
/// use memfit::prelude::*;
/// let (a, b) = (Input::shape([4]), Input::shape([4]));
/// let sum = Add::new().call(&[&a, &b]);
/// let same = Add::new().call(&[a, b]);
/// ```
pub trait CallInputs {
    /// The tensors in their order.
    fn tensors(self) -> Vec<KerasTensor>;
}

impl CallInputs for &KerasTensor {
    fn tensors(self) -> Vec<KerasTensor> {
        vec![self.clone()]
    }
}

impl CallInputs for &[KerasTensor] {
    fn tensors(self) -> Vec<KerasTensor> {
        self.to_vec()
    }
}

impl<const N: usize> CallInputs for &[KerasTensor; N] {
    fn tensors(self) -> Vec<KerasTensor> {
        self.to_vec()
    }
}

impl<const N: usize> CallInputs for &[&KerasTensor; N] {
    fn tensors(self) -> Vec<KerasTensor> {
        self.iter().copied().cloned().collect()
    }
}

impl CallInputs for &Vec<KerasTensor> {
    fn tensors(self) -> Vec<KerasTensor> {
        self.clone()
    }
}

/// The calls that lead to some outputs, by layer.
struct Calls {
    /// Layers in the order in which they were first called, with their calls in order; inputs come first.
    layers: Vec<Vec<Arc<Call>>>,
    /// Layer and call of each number of a call.
    places: HashMap<u64, (usize, usize)>,
}

impl Calls {
    fn of(inputs: &[KerasTensor], outputs: &[KerasTensor]) -> Calls {
        let mut found: BTreeMap<u64, Arc<Call>> = BTreeMap::new();
        let mut open: Vec<&KerasTensor> = outputs.iter().collect();
        while let Some(tensor) = open.pop() {
            if found.insert(tensor.call.number, Arc::clone(&tensor.call)).is_none() {
                open.extend(&tensor.call.reads);
            }
        }
        inputs.iter().for_each(|input| drop(found.remove(&input.call.number)));
        let inputs = inputs.iter().map(|input| Arc::clone(&input.call));
        let mut calls = Calls { layers: Vec::new(), places: HashMap::new() };
        let mut known: HashMap<u64, usize> = HashMap::new();
        for call in inputs.chain(found.into_values()) {
            let layer = *known.entry(call.layer.number).or_insert(calls.layers.len());
            if layer == calls.layers.len() {
                calls.layers.push(Vec::new());
            }
            calls.places.insert(call.number, (layer, calls.layers[layer].len()));
            calls.layers[layer].push(call);
        }
        calls
    }

    /// Whether a list of layers can say it: every layer called once, for its first output.
    fn is_plain(&self, outputs: &[KerasTensor]) -> bool {
        let reads = self.layers.iter().flatten().flat_map(|call| &call.reads);
        self.layers.iter().all(|calls| calls.len() == 1)
            && reads.chain(outputs).all(|tensor| tensor.output == 0)
    }

    fn place(&self, tensor: &KerasTensor) -> Place {
        let (layer, call) = self.places[&tensor.call.number];
        Place { layer, call, output: tensor.output }
    }

    fn listed(&self) -> Vec<Value> {
        self.layers.iter().map(|calls| calls[0].layer.listed()).collect()
    }

    /// The layers as a list has them, each with the names of what it reads, and the names of the outputs.
    fn plain(&self, outputs: &[KerasTensor]) -> Result<(Vec<Value>, Vec<String>), Error> {
        let mut listed = self.listed();
        let names: Vec<String> = names_of_layers(&listed)?.into_iter().flatten().collect();
        let name = |tensor: &KerasTensor| names[self.place(tensor).layer].clone();
        for (object, calls) in listed.iter_mut().zip(&self.layers) {
            if !calls[0].reads.is_empty() {
                object["inputs"] = calls[0].reads.iter().map(|tensor| Value::from(name(tensor))).collect();
            }
        }
        Ok((listed, outputs.iter().map(name).collect()))
    }

    /// Keras's configuration of it.
    fn config(&self, outputs: &[KerasTensor]) -> Result<Value, Error> {
        let layers: Vec<CalledLayer> = self
            .listed()
            .into_iter()
            .zip(&self.layers)
            .map(|(layer, calls)| {
                let places = |call: &Arc<Call>| call.reads.iter().map(|tensor| self.place(tensor)).collect();
                CalledLayer { layer, calls: calls.iter().map(places).collect() }
            })
            .collect();
        let outputs: Vec<Place> = outputs.iter().map(|tensor| self.place(tensor)).collect();
        Ok(config_from_calls(&layers, &outputs)?)
    }
}

/// The definition of a model between some tensors.
pub(super) fn definition(inputs: &[KerasTensor], outputs: &[KerasTensor]) -> Result<Definition, Error> {
    let wrong = |problem: &str| Err(Error::job("model", problem));
    if inputs.is_empty() || outputs.is_empty() {
        return wrong("a model has at least one input and one output; give both");
    }
    if inputs.iter().any(|input| !input.call.reads.is_empty() || input.layer().class != "Input") {
        return wrong("an input of a model is what `Input::shape` gives, and not what a layer gives");
    }
    let calls = Calls::of(inputs, outputs);
    if calls.layers[..inputs.len().min(calls.layers.len())].iter().any(|calls| calls.len() != 1)
        || calls.layers.len() < inputs.len()
    {
        return wrong("an input of a model is given twice; give each once");
    }
    let missing = calls.layers[inputs.len()..].iter().flatten().find(|call| call.layer.class == "Input");
    if let Some(call) = missing {
        let name = call.layer.name.as_deref().unwrap_or("without a name");
        return wrong(&format!("the outputs read an input ({name}) that is not among the model's inputs"));
    }
    if calls.is_plain(outputs) {
        let (layers, outputs) = calls.plain(outputs)?;
        return Ok(Definition::Layers { layers, outputs: Some(outputs) });
    }
    Ok(Definition::Config(calls.config(outputs)?))
}

impl Model {
    /// The model that computes these outputs from these inputs. Arrays come in the order of the inputs and of the outputs.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let (x, x2) = (Input::shape([4]), Input::shape([3]));
    /// let y = Dense::new(3).call(&x);
    /// let z = Add::new().call(&[&y, &x2]);
    /// let model = Model::new(&[x, x2], &[y, z]);
    /// ```
    pub fn new(inputs: &[KerasTensor], outputs: &[KerasTensor]) -> Model {
        Model::of(Source::Tensors { inputs: inputs.to_vec(), outputs: outputs.to_vec() })
    }
}
