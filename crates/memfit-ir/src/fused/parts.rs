//! The small graph that a fused op means: how it is assembled, and what follows from it.

use super::Fused;
use crate::{
    Facts, Graph, Kind, Named, Node, Op, Operand, ShapeError, Signature, Tensor, TensorId, Type, infer,
};

/// The small graph that a fused op means.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// Ops in an order that is valid to run.
    pub nodes: Vec<Part>,
    /// What the fused op writes.
    pub outputs: Vec<Value>,
}

/// One op of the small graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What it computes. Of a fused update, the gradient may be a fused op itself.
    pub op: Op,
    /// What it reads.
    pub inputs: Vec<Value>,
    /// What it changes in place.
    pub updates: Vec<Value>,
}

/// A value of the small graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// What the fused op reads at this place.
    Input(usize),
    /// What the fused op changes at this place.
    Update(usize),
    /// What a part writes: the part and the place among its outputs.
    Output(usize, usize),
}

use Value::{Input, Output, Update};

/// What a fused op has as operands, as far as its parts depend on it.
pub(super) struct Given<'a> {
    names: Signature,
    pub(super) inputs: usize,
    pub(super) updates: usize,
    /// The dimensions of the input at a place.
    dims: &'a dyn Fn(usize) -> &'a [usize],
}

impl<'a> Given<'a> {
    pub(super) fn input(&self, operand: impl Into<Named>) -> Value {
        Input(self.place(operand))
    }

    fn input_if_given(&self, operand: Operand) -> Option<Value> {
        self.names.inputs.place(operand, self.inputs).map(Input)
    }

    /// Those of these names that are there.
    pub(super) fn inputs<const N: usize>(&self, operands: [Operand; N]) -> impl Iterator<Item = Value> {
        operands.into_iter().filter_map(|operand| self.input_if_given(operand))
    }

    pub(super) fn dims(&self, operand: Operand) -> &'a [usize] {
        (self.dims)(self.place(operand))
    }

    fn place(&self, operand: impl Into<Named>) -> usize {
        self.names.inputs.place(operand, self.inputs).expect("operands were counted")
    }

    /// What is changed need not be there where types alone are asked for.
    pub(super) fn update(&self, operand: Operand) -> Value {
        let place = self.names.updates.find(operand, self.updates);
        Update(place.expect("the op changes what it says").0)
    }
}

/// What takes the parts of a fused op, one after the other.
pub(super) trait Assembly {
    /// Adds a part that changes tensors in place, and gives its first output.
    fn push_updating(
        &mut self,
        op: Op,
        inputs: impl IntoIterator<Item = Value>,
        updates: impl IntoIterator<Item = Value>,
    ) -> Value;

    /// Adds a part and gives its first output.
    fn push(&mut self, op: Op, inputs: impl IntoIterator<Item = Value>) -> Value {
        self.push_updating(op, inputs, [])
    }

    /// Says what the fused op writes.
    fn write(&mut self, outputs: &[Value]);
}

/// As many tensors as are changed at the most, where types alone are asked for.
const UPDATES: usize = 2;

impl Fused {
    /// The fused op's name in texts.
    pub fn name(&self) -> &'static str {
        self.operands().name
    }

    /// The small graph that it means, for operands of these types. `updates` are how many tensors it changes.
    ///
    /// Whether the operands suit it is asked by [`Fused::infer`].
    pub fn decompose(&self, inputs: &[&Tensor], updates: usize) -> Result<Parts, ShapeError> {
        let mut parts = Parts::default();
        let dims = |index: usize| &inputs[index].shape.dims[..];
        let given = Given { names: self.operands(), inputs: inputs.len(), updates, dims: &dims };
        self.assemble(&mut parts, &given)?;
        Ok(parts)
    }

    /// What each of its parts does, whatever its operands.
    pub(crate) fn part_facts(&self) -> Option<Facts> {
        let mut facts = None;
        let names = self.operands();
        let inputs = *names.inputs.counts().start();
        // Sizes decide parameters of parts, and no fact.
        let given = Given { names, inputs, updates: UPDATES, dims: &|_| &[1, 1, 1] };
        self.assemble(&mut facts, &given).ok()?;
        facts
    }

    /// The types of its outputs: those that its parts write.
    pub fn infer(&self, inputs: &[&Tensor]) -> Result<Vec<Type>, ShapeError> {
        self.require_suitable(inputs)?;
        let parts = self.decompose(inputs, UPDATES)?;
        let mut made: Vec<Vec<Tensor>> = Vec::new();
        for part in &parts.nodes {
            let read: Option<Vec<&Tensor>> =
                part.inputs.iter().map(|value| value.tensor(inputs, &made)).collect();
            let Some(read) = read else {
                // What is read from a gradient that exists in blocks has no type of its own.
                made.push(Vec::new());
                continue;
            };
            let types = infer(&part.op, &read).map_err(|error| ShapeError { op: self.name(), ..error })?;
            let like = inputs[0];
            let tensor = |of: Type| Tensor { shape: of.shape, dtype: of.dtype, slice: None, ..like.clone() };
            made.push(types.into_iter().map(tensor).collect());
        }
        let written = parts.outputs.iter().map(|value| {
            let tensor = value.tensor(inputs, &made).expect("an output is written by a part");
            Type { shape: tensor.shape.clone(), dtype: tensor.dtype }
        });
        Ok(written.collect())
    }

    pub(super) fn error(&self, expected: &str, got: impl std::fmt::Display) -> ShapeError {
        ShapeError { op: self.name(), expected: expected.to_owned(), got: got.to_string() }
    }
}

impl Parts {
    /// The parts of a node as a graph of their own. Its first tensors are the node's inputs, outputs and updates, in this order; what is
    /// between the parts follows.
    pub fn graph(&self, graph: &Graph, node: &Node) -> Result<Graph, ShapeError> {
        let operands = || [&node.inputs, &node.outputs, &node.updates].into_iter().flatten();
        let tensors = operands().map(|id| graph.tensors[id.0].clone()).collect();
        let mut small = Graph { tensors, layers: graph.layers.clone(), ..Graph::default() };
        let (inputs, outputs) = (node.inputs.len(), node.outputs.len());
        let mut made: Vec<Vec<TensorId>> = Vec::new();
        for (index, part) in self.nodes.iter().enumerate() {
            let place = |value: &Value| match value {
                Input(place) => TensorId(*place),
                Update(place) => TensorId(inputs + outputs + place),
                Output(part, place) => made[*part][*place],
            };
            let (read, changed): (Vec<TensorId>, Vec<TensorId>) =
                (part.inputs.iter().map(place).collect(), part.updates.iter().map(place).collect());
            let types = if part.op == Op::Zero {
                vec![self.opened(index, node, graph)]
            } else {
                infer(&part.op, &read.iter().map(|id| &small.tensors[id.0]).collect::<Vec<_>>())?
            };
            let mut written = Vec::new();
            for (place, of) in types.into_iter().enumerate() {
                let known = self.outputs.iter().position(|value| *value == Output(index, place));
                written.push(match known {
                    Some(output) => TensorId(inputs + output),
                    None => {
                        let name = format!("{}:{place}", part.op.name());
                        small.tensor(name, of.shape, of.dtype, Kind::Activation, node.layer)
                    }
                });
            }
            let (op, layer, phase) = (part.op.clone(), node.layer, node.phase);
            small.nodes.push(Node {
                op,
                inputs: read,
                outputs: written.clone(),
                updates: changed,
                layer,
                phase,
            });
            made.push(written);
        }
        Ok(small)
    }

    /// The type of a sum that begins at zero: that of the weight which an update by it changes.
    fn opened(&self, zero: usize, node: &Node, graph: &Graph) -> Type {
        let reads = |part: &&Part| part.inputs == [Output(zero, 0)];
        let weight = self.nodes.iter().find(reads).and_then(|part| part.updates.first());
        let Some(Update(place)) = weight else { panic!("what is opened is read by an update") };
        let weight = &graph.tensors[node.updates[*place].0];
        Type { shape: weight.shape.clone(), dtype: weight.dtype }
    }
}

impl Assembly for Parts {
    fn push_updating(
        &mut self,
        op: Op,
        inputs: impl IntoIterator<Item = Value>,
        updates: impl IntoIterator<Item = Value>,
    ) -> Value {
        let (inputs, updates) = (inputs.into_iter().collect(), updates.into_iter().collect());
        self.nodes.push(Part { op, inputs, updates });
        Output(self.nodes.len() - 1, 0)
    }

    fn write(&mut self, outputs: &[Value]) {
        self.outputs = outputs.to_vec();
    }
}

/// The facts of all parts as those of one op.
impl Assembly for Option<Facts> {
    fn push_updating(
        &mut self,
        op: Op,
        _: impl IntoIterator<Item = Value>,
        _: impl IntoIterator<Item = Value>,
    ) -> Value {
        let next = op.signature().facts;
        *self = Some(self.map_or(next, |facts| facts.then(next)));
        Output(0, 0)
    }

    fn write(&mut self, _: &[Value]) {}
}

impl Value {
    /// The next output of the same part.
    pub(super) fn next(self) -> Value {
        match self {
            Output(part, place) => Output(part, place + 1),
            Input(_) | Update(_) => self,
        }
    }

    /// The tensor of a value that is read or computed.
    fn tensor<'a>(&self, inputs: &[&'a Tensor], made: &'a [Vec<Tensor>]) -> Option<&'a Tensor> {
        match self {
            Input(place) => inputs.get(*place).copied(),
            Output(part, place) => made.get(*part)?.get(*place),
            Update(_) => None,
        }
    }
}

pub(super) fn all_inputs(count: usize) -> impl Iterator<Item = Value> {
    (0..count).map(Input)
}

pub(super) fn all_updates(count: usize) -> impl Iterator<Item = Value> {
    (0..count).map(Update)
}
