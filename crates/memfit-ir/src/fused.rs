//! Fused ops: each is the name of a small graph of other ops, which one kernel computes at once.
//!
//! ```text
//! x, kernel ─▶ Conv2DRelu ─▶ y      means      x, kernel ─▶ Conv2D ─▶ · ─▶ relu ─▶ y
//! ```
//!
//! [`Fused::decompose`] is the meaning. The shape rule, whether rows meet, the f64 reference and a device without the kernel all follow
//! from the parts, so that a new fused op is its parts, its kernels, and a row in the op table.

use crate::Operand::{
    Argmax, Beta, Bias, Bits, DBias, DFilter, DFilterBias, DKernel, Dy, Filter, FilterBias, Gamma, Kernel,
    Mean, Other, Variance, X,
};
use crate::{
    AddEpilogue, Binary, Chain, Conv2D, Facts, FusedUpdate, Graph, Kind, Named, Node, Norm, Op, Operand,
    PooledConv2D, Producer, ShapeError, Signature, Tensor, TensorId, Type, Unary, infer,
};

/// A small graph of ops with a kernel of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum Fused {
    /// A term, and another value of its shape and type added to it.
    Plus(AddEpilogue),
    /// A convolution and a ReLU.
    Conv2DRelu(Conv2D),
    /// The gradient of a filter, where `x` is recomputed while it is read.
    Conv2DGradKernelOf(Producer, Conv2D),
    /// A convolution and a max pool.
    Conv2DMaxPool(PooledConv2D),
    /// The gradients of its filter and bias, from the gradient of what the pool gives.
    Conv2DMaxPoolGradKernel(PooledConv2D),
    /// The gradient of its input, of this height and width, from the gradient of what the pool gives.
    Conv2DMaxPoolGradInput(PooledConv2D, [usize; 2]),
    /// A convolution, a max pool, and a dense layer over all that it gives, which is never stored.
    Conv2DMaxPoolDense(PooledConv2D),
    /// Its gradients; what the pool gave is recomputed.
    Conv2DMaxPoolDenseGrad(PooledConv2D),
    /// Signs of a value that is recomputed while it is read, below a bound.
    SignBitsOf(Producer, f32),
    /// `dy` where the bit is set, and its sum over every axis but the last.
    MaskBitsBiasGrad,
    /// The sum of two gradients where the bit is set, else 0.
    MaskBitsOfSum,
    /// A normalisation by the batch's statistics, and a chain whose first value it is.
    BatchNormThen(Norm, Chain),
    /// The gradient of a normalisation and a ReLU, whose signs are found again. The number is where the ReLU saturates; infinite for
    /// nowhere.
    BatchNormReluGrad(Norm, f32),
    /// The gradient of a normalisation. `dz`, its `dy`, is the sum of two gradients where the bit is set, and is also written for other
    /// readers.
    BatchNormGradOfSum(Norm),
    /// A gradient op and the update of the first of its sums, which exists block by block. Where the gradient op reads the weight itself, it
    /// is not among the inputs.
    Applied(FusedUpdate),
}

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
struct Given<'a> {
    names: Signature,
    inputs: usize,
    updates: usize,
    /// The dimensions of the input at a place.
    dims: &'a dyn Fn(usize) -> &'a [usize],
}

impl<'a> Given<'a> {
    fn input(&self, operand: impl Into<Named>) -> Value {
        Input(self.place(operand))
    }

    fn input_if_given(&self, operand: Operand) -> Option<Value> {
        self.names.inputs.place(operand, self.inputs).map(Input)
    }

    /// Those of these names that are there.
    fn inputs<const N: usize>(&self, operands: [Operand; N]) -> impl Iterator<Item = Value> {
        operands.into_iter().filter_map(|operand| self.input_if_given(operand))
    }

    fn dims(&self, operand: Operand) -> &'a [usize] {
        (self.dims)(self.place(operand))
    }

    fn place(&self, operand: impl Into<Named>) -> usize {
        self.names.inputs.place(operand, self.inputs).expect("operands were counted")
    }

    /// What is changed need not be there where types alone are asked for.
    fn update(&self, operand: Operand) -> Value {
        let place = self.names.updates.find(operand, self.updates);
        Update(place.expect("the op changes what it says").0)
    }
}

/// What takes the parts of a fused op, one after the other.
trait Assembly {
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

    fn assemble(&self, parts: &mut impl Assembly, given: &Given<'_>) -> Result<(), ShapeError> {
        let Given { inputs, updates, .. } = *given;
        match self {
            Fused::Plus(summand) => {
                let other = given.input(Other);
                let read = all_inputs(inputs).filter(|read| *read != other);
                let term = parts.push_updating(summand.op(), read, all_updates(updates));
                let sum = parts.push(Op::Elementwise(Chain::binary(Binary::Add)), [term, other]);
                parts.write(&[sum]);
            }
            Fused::Conv2DRelu(conv) => {
                let y = parts.push(Op::Conv2D(conv.clone()), all_inputs(inputs));
                let relu = parts.push(relu(), [y]);
                parts.write(&[relu]);
            }
            Fused::Conv2DGradKernelOf(producer, conv) => {
                let dy = given.input(Dy);
                let read = all_inputs(inputs).filter(|read| *read != dy);
                let x = parts.push(self.produced(producer)?, read);
                parts.push_updating(Op::Conv2DGradKernel(conv.clone()), [x, dy], [given.update(DKernel)]);
            }
            Fused::Conv2DMaxPool(pooled) => {
                let y = parts.push(Op::Conv2D(pooled.conv.clone()), all_inputs(inputs));
                let pool = parts.push(pool(pooled), [y]);
                parts.write(&[pool, pool.next()]);
            }
            Fused::Conv2DMaxPoolGradKernel(pooled) => {
                let dy =
                    parts.push(self.unpooled(pooled, given)?, [Dy, Argmax].map(|read| given.input(read)));
                let (op, changed) = (Op::Conv2DGradKernel(pooled.conv.clone()), given.update(DKernel));
                parts.push_updating(op, [given.input(X), dy], [changed]);
                if updates == 2 {
                    parts.push_updating(Op::BiasGrad, [dy], [given.update(DBias)]);
                }
            }
            Fused::Conv2DMaxPoolGradInput(pooled, size) => {
                let between = Op::MaxPool2DGrad(PooledConv2D::POOL, pooled.between(*size));
                let dy = parts.push(between, [Dy, Argmax].map(|read| given.input(read)));
                let op = Op::Conv2DGradInput(pooled.conv.clone(), *size);
                let dx = parts.push(op, [dy, given.input(Kernel)]);
                parts.write(&[dx]);
            }
            Fused::Conv2DMaxPoolDense(pooled) => {
                let (flat, argmax) = self.flattened(parts, pooled, given)?;
                let y = parts.push(Op::Dense, [flat, given.input(Kernel), given.input(Bias)]);
                parts.write(&[y, argmax]);
            }
            Fused::Conv2DMaxPoolDenseGrad(pooled) => {
                let (flat, _) = self.flattened(parts, pooled, given)?;
                let [x, kernel, argmax, dy] = [X, Kernel, Argmax, Dy].map(|read| given.input(read));
                parts.push_updating(Op::DenseGradKernel, [flat, dy], [given.update(DKernel)]);
                let dflat = parts.push(Op::DenseGradInput, [dy, kernel]);
                let dpool = parts.push(Op::Reshape(given.dims(Argmax).to_vec()), [dflat]);
                let dy = parts.push(self.unpooled(pooled, given)?, [dpool, argmax]);
                let op = Op::Conv2DGradKernel(pooled.conv.clone());
                parts.push_updating(op, [x, dy], [given.update(DFilter)]);
                parts.push_updating(Op::BiasGrad, [dy], [given.update(DFilterBias)]);
            }
            Fused::SignBitsOf(producer, below) => {
                let y = parts.push(self.produced(producer)?, all_inputs(inputs));
                let bits = parts.push(Op::SignBits { below: *below }, [y]);
                parts.write(&[bits]);
            }
            Fused::MaskBitsBiasGrad => {
                let dx = parts.push(Op::MaskBits, [Dy, Bits].map(|read| given.input(read)));
                parts.push_updating(Op::BiasGrad, [dx], [given.update(DBias)]);
                parts.write(&[dx]);
            }
            Fused::MaskBitsOfSum => {
                let terms = [given.input(Dy), given.input((Dy, 1))];
                let sum = parts.push(Op::Elementwise(Chain::binary(Binary::Add)), terms);
                let dx = parts.push(Op::MaskBits, [sum, given.input(Bits)]);
                parts.write(&[dx]);
            }
            Fused::BatchNormThen(norm, chain) => {
                let read = given.inputs([X, Gamma, Beta, Mean, Variance]);
                let y = parts.push(Op::BatchNorm(norm.clone()), read);
                let others = (1..chain.inputs).map(|input| given.input((Other, input - 1)));
                let z = parts.push(Op::Elementwise(chain.clone()), std::iter::once(y).chain(others));
                parts.write(&[z]);
            }
            Fused::BatchNormReluGrad(norm, below) => {
                let read = given.inputs([X, Gamma, Beta, Mean, Variance]);
                let y = parts.push(Op::BatchNorm(norm.clone()), read);
                let bits = parts.push(Op::SignBits { below: *below }, [y]);
                let dy = parts.push(Op::MaskBits, [given.input(Dy), bits]);
                let read = [dy].into_iter().chain(given.inputs([X, Mean, Variance, Gamma]));
                let dx = parts.push_updating(Op::BatchNormGrad(norm.clone()), read, all_updates(updates));
                parts.write(&[dx]);
            }
            Fused::BatchNormGradOfSum(norm) => {
                let terms = [given.input(Dy), given.input((Dy, 1))];
                let sum = parts.push(Op::Elementwise(Chain::binary(Binary::Add)), terms);
                let dz = parts.push(Op::MaskBits, [sum, given.input(Bits)]);
                let read = [dz].into_iter().chain(given.inputs([X, Mean, Variance, Gamma]));
                let dx = parts.push_updating(Op::BatchNormGrad(norm.clone()), read, all_updates(updates));
                parts.write(&[dx, dz]);
            }
            Fused::Applied(applied) => self.applied(parts, applied, inputs, updates),
        }
        Ok(())
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

    /// The op that recomputes a value.
    fn produced(&self, producer: &Producer) -> Result<Op, ShapeError> {
        producer.op().ok_or_else(|| self.error("a producer that makes something", "none"))
    }

    /// A gradient passed back through the pool of a convolution.
    fn unpooled(&self, pooled: &PooledConv2D, given: &Given<'_>) -> Result<Op, ShapeError> {
        let [height, width, _] = given.dims(X)[..] else {
            return Err(self.error("an image", format!("{:?}", given.dims(X))));
        };
        Ok(Op::MaxPool2DGrad(PooledConv2D::POOL, pooled.between([height, width])))
    }

    /// A convolution and its pool, as one row for each image; and the argmax.
    fn flattened(
        &self,
        parts: &mut impl Assembly,
        pooled: &PooledConv2D,
        given: &Given<'_>,
    ) -> Result<(Value, Value), ShapeError> {
        let read = given.inputs([X, Filter, FilterBias]);
        let y = parts.push(Op::Conv2D(pooled.conv.clone()), read);
        let pool = parts.push(pool(pooled), [y]);
        let features = given.dims(Kernel).first().copied();
        let features = features.ok_or_else(|| self.error("a kernel[in,out]", "a single number"))?;
        Ok((parts.push(Op::Reshape(vec![features]), [pool]), pool.next()))
    }

    /// The gradient begins at zero, as a tensor of its own, and is read by the update alone.
    fn applied(&self, parts: &mut impl Assembly, applied: &FusedUpdate, inputs: usize, updates: usize) {
        let others = applied.others();
        let gradient = parts.push(Op::Zero, []);
        let mut read: Vec<Value> = all_inputs(inputs).collect();
        if let Some(place) = applied.weight_at {
            read.insert(place.min(read.len()), Update(others));
        }
        let sums = std::iter::once(gradient).chain((0..others).map(Update));
        parts.push_updating((*applied.gradient).clone(), read, sums);
        parts.push_updating(Op::Update(applied.update.clone()), [gradient], (others..updates).map(Update));
    }

    /// What its kernel requires of its operands beyond what the parts require.
    fn require_suitable(&self, inputs: &[&Tensor]) -> Result<(), ShapeError> {
        let wanted = self.operands().inputs;
        if !wanted.counts().contains(&inputs.len()) {
            return Err(self.error(&wanted.describe_count(), inputs.len()));
        }
        let require = |fits: bool, expected: &str| {
            if fits { Ok(()) } else { Err(self.error(expected, &inputs[0].shape)) }
        };
        let is_single = |tensor: &&Tensor| tensor.dtype == crate::DType::F32;
        match self {
            Fused::Conv2DGradKernelOf(producer, _) | Fused::SignBitsOf(producer, _) => {
                require(inputs[..producer.inputs()].iter().all(is_single), "values of single precision")
            }
            Fused::Conv2DMaxPool(pooled)
            | Fused::Conv2DMaxPoolGradKernel(pooled)
            | Fused::Conv2DMaxPoolGradInput(pooled, _) => require(
                pooled.conv.groups == 1 && pooled.conv.dilation == [1, 1],
                "a convolution of one group with neighbouring taps",
            ),
            Fused::Conv2DMaxPoolDense(pooled) | Fused::Conv2DMaxPoolDenseGrad(pooled) => {
                require(pooled.picks(inputs[0].shape.last()), "a convolution whose argmax can be picked")
            }
            Fused::Plus(_)
            | Fused::Conv2DRelu(_)
            | Fused::MaskBitsBiasGrad
            | Fused::MaskBitsOfSum
            | Fused::BatchNormThen(..)
            | Fused::BatchNormReluGrad(..)
            | Fused::BatchNormGradOfSum(_)
            | Fused::Applied(_) => Ok(()),
        }
    }

    fn error(&self, expected: &str, got: impl std::fmt::Display) -> ShapeError {
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
    fn next(self) -> Value {
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

/// What a normalisation by the batch's statistics reads.
fn relu() -> Op {
    Op::Elementwise(Chain::unary(Unary::Relu))
}

/// The pool of a convolution, with the ReLU that belongs to it.
fn pool(pooled: &PooledConv2D) -> Op {
    if pooled.relu { Op::MaxPool2DRelu(PooledConv2D::POOL) } else { Op::MaxPool2D(PooledConv2D::POOL) }
}

fn all_inputs(count: usize) -> impl Iterator<Item = Value> {
    (0..count).map(Input)
}

fn all_updates(count: usize) -> impl Iterator<Item = Value> {
    (0..count).map(Update)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Pads, Shape};

    /// Whether the gradient of an image of this size is taken from `dy` and argmax of these sizes, through filters of this many channels.
    fn is_taken(size: [usize; 2], dy: [usize; 2], argmax: [usize; 2], channels: usize) -> bool {
        let mut graph = Graph::default();
        let layer = graph.layer("layer");
        let mut tensor =
            |name: &str, shape: Shape, dtype: DType| graph.tensor(name, shape, dtype, Kind::Flow, layer);
        let dy = tensor("dy", Shape::rows([dy[0], dy[1], 16]), DType::F32);
        let argmax = tensor("argmax", Shape::rows([argmax[0], argmax[1], 16]), DType::U8);
        let kernel = tensor("kernel", Shape::fixed([5, 5, channels, 16]), DType::F32);
        let pads = Pads { top: 2, bottom: 2, left: 2, right: 2 };
        let conv = Conv2D { kernel: [5, 5], strides: [1, 1], dilation: [1, 1], groups: 1, pads };
        let op = Op::Fused(Fused::Conv2DMaxPoolGradInput(PooledConv2D { conv, relu: true }, size));
        graph.push(op, &[dy, argmax, kernel], layer).is_ok()
    }

    #[test]
    fn a_gradient_through_a_pool_is_that_of_an_image_of_its_windows() {
        assert!(is_taken([15, 17], [7, 8], [7, 8], 16));
        assert!(!is_taken([16, 17], [7, 8], [7, 8], 16), "eight windows down");
        assert!(!is_taken([15, 17], [7, 8], [7, 7], 16), "a window's argmax is missing");
        assert!(is_taken([15, 17], [7, 8], [7, 8], 1), "of any number of channels");
    }
}
