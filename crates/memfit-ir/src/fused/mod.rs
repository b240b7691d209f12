//! Fused ops: each is the name of a small graph of other ops, which one kernel computes at once.
//!
//! ```text
//! x, kernel ─▶ Conv2DRelu ─▶ y      means      x, kernel ─▶ Conv2D ─▶ · ─▶ relu ─▶ y
//! ```
//!
//! [`Fused::decompose`] is the meaning. The shape rule, whether rows meet, the f64 reference and a device without the kernel all follow
//! from the parts. All else that this crate knows of one fused op is in this file: its operands, its text, and what others ask of it.

mod parts;

use parts::{Assembly, Given, all_inputs, all_updates};
pub use parts::{Part, Parts, Value};

use Value::Update;

use crate::Operand::*;
use crate::signature::{EACH, applied, op, plus};
use crate::text::enums;
use crate::{
    AddEpilogue, Average, Binary, Chain, Conv2D, FusedUpdate, Norm, Op, Pads, PooledConv2D, Producer,
    ShapeError, Signature, Tensor, Unary, UpdateRule,
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

enums! {
    Fused {
        Plus(of),
        Conv2DRelu(conv),
        Conv2DGradKernelOf(producer, conv),
        Conv2DMaxPool(conv),
        Conv2DMaxPoolGradKernel(conv),
        Conv2DMaxPoolGradInput(conv, image),
        Conv2DMaxPoolDense(conv),
        Conv2DMaxPoolDenseGrad(conv),
        SignBitsOf(producer, below),
        MaskBitsBiasGrad,
        MaskBitsOfSum,
        BatchNormThen(norm, chain),
        BatchNormReluGrad(norm, below),
        BatchNormGradOfSum(norm),
        Applied(applied),
    }
}

impl Fused {
    /// The names of its operands, and what its kernel may write where it reads.
    pub(crate) fn operands(&self) -> Signature {
        let name = |name: &'static str| op(name, EACH);
        match self {
            Fused::Plus(AddEpilogue::Dense) => plus("dense_plus", &Op::Dense),
            Fused::Plus(AddEpilogue::DenseGradInput) => plus("dense_grad_input_plus", &Op::DenseGradInput),
            Fused::Plus(of @ AddEpilogue::LayerNormGrad(..)) => plus("layer_norm_grad_plus", &of.op()),
            Fused::Conv2DRelu(_) => name("conv2d_relu").reads(&[X, Kernel]).may_read(Bias).writes(&[Y]),
            Fused::Conv2DGradKernelOf(producer, _) => {
                name("conv2d_grad_kernel_of").produced(producer).reads(&[Dy]).changes(&[DKernel])
            }
            Fused::Conv2DMaxPool(_) => {
                let reads = name("conv2d_max_pool").reads(&[X, Kernel]).may_read(Bias);
                reads.writes(&[Y, Argmax]).has_rule()
            }
            Fused::Conv2DMaxPoolGradKernel(_) => {
                let reads = name("conv2d_max_pool_grad_kernel").reads(&[X, Dy, Argmax]);
                reads.changes(&[DKernel]).may_change(DBias)
            }
            Fused::Conv2DMaxPoolGradInput(..) => {
                name("conv2d_max_pool_grad_input").reads(&[Dy, Argmax, Kernel]).writes(&[Dx])
            }
            Fused::Conv2DMaxPoolDense(_) => {
                let reads = name("conv2d_max_pool_dense").reads(&[X, Filter, FilterBias, Kernel, Bias]);
                reads.writes(&[Y, Argmax]).has_rule()
            }
            Fused::Conv2DMaxPoolDenseGrad(_) => {
                let reads = name("conv2d_max_pool_dense_grad").reads(&[X, Filter, FilterBias, Kernel]);
                reads.reads(&[Argmax, Dy]).changes(&[DKernel, DFilter, DFilterBias])
            }
            Fused::SignBitsOf(producer, _) => name("sign_bits_of").produced(producer).writes(&[Bits]),
            Fused::MaskBitsBiasGrad => {
                let writes = name("mask_bits_bias_grad").reads(&[Dy, Bits]).writes(&[Dx]);
                writes.changes(&[DBias]).shares(&[(Dx, Dy)])
            }
            Fused::MaskBitsOfSum => {
                let reads = name("mask_bits_of_sum").reads_each(Dy, 2).reads(&[Bits]);
                reads.writes(&[Dx]).shares(&[(Dx, Dy)])
            }
            Fused::BatchNormThen(norm, chain) => {
                let reads = name("batch_norm_then").reads(&[X]).weights(norm).reads(&[Mean, Variance]);
                let reads = reads.reads_each(Other, chain.inputs.saturating_sub(1));
                reads.writes(&[Y]).shares(&[(Y, X), (Y, Other)])
            }
            Fused::BatchNormReluGrad(norm, _) => {
                let reads = name("batch_norm_relu_grad").reads(&[Dy, X, Mean, Variance]).weights(norm);
                reads.writes(&[Dx]).gradients(norm).shares(&[(Dx, Dy), (Dx, X)])
            }
            Fused::BatchNormGradOfSum(norm) => {
                let reads = name("batch_norm_grad_of_sum").reads_each(Dy, 2);
                let reads = reads.reads(&[Bits, X, Mean, Variance]).gamma(norm);
                reads.writes(&[Dx, Dz]).gradients(norm).shares(&[(Dx, X), (Dz, Dy)])
            }
            Fused::Applied(of) => applied(of),
        }
    }

    /// Adds its parts one after the other, and says which of their outputs it writes.
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

    /// A normalisation by the batch's statistics, and a chain after it.
    pub(crate) fn norm_then(norm: Norm, chain: Chain) -> Fused {
        Fused::BatchNormThen(norm, chain)
    }

    /// The normalisation and the chain after it, where it is these two.
    pub(crate) fn as_norm_then(&self) -> Option<(&Norm, &Chain)> {
        if let Fused::BatchNormThen(norm, chain) = self { Some((norm, chain)) } else { None }
    }

    /// The op to whose result it adds another value, where it is such a sum.
    pub fn term(&self) -> Option<Op> {
        if let Fused::Plus(of) = self { Some(of.op()) } else { None }
    }

    /// Whether its kernel can compute the first of its sums block by block.
    pub(crate) fn makes_blocks(&self) -> bool {
        matches!(self, Fused::Conv2DMaxPoolDenseGrad(_))
    }

    /// One of each kind, for the table of all ops.
    pub(crate) fn examples() -> Vec<Fused> {
        let conv =
            || Conv2D { kernel: [3; 2], strides: [1; 2], dilation: [1; 2], groups: 1, pads: Pads::default() };
        let pooled = || PooledConv2D { conv: conv(), relu: true };
        let norm = || Norm { epsilon: 1e-3, scale: true, center: true };
        let producer = || Producer { norm: Some(norm()), function: Some(Unary::Relu) };
        let update = crate::Update {
            average: Some(Average { momentum: 0.99, overwrite_every: None }),
            ..crate::Update::new(UpdateRule::Sgd { momentum: 0.9, nesterov: false })
        };
        vec![
            Fused::Plus(AddEpilogue::Dense),
            Fused::Plus(AddEpilogue::DenseGradInput),
            Fused::Plus(AddEpilogue::LayerNormGrad(norm(), 1)),
            Fused::Conv2DRelu(conv()),
            Fused::Conv2DGradKernelOf(producer(), conv()),
            Fused::Conv2DMaxPool(pooled()),
            Fused::Conv2DMaxPoolGradKernel(pooled()),
            Fused::Conv2DMaxPoolGradInput(pooled(), [1; 2]),
            Fused::Conv2DMaxPoolDense(pooled()),
            Fused::Conv2DMaxPoolDenseGrad(pooled()),
            Fused::SignBitsOf(producer(), f32::INFINITY),
            Fused::MaskBitsBiasGrad,
            Fused::MaskBitsOfSum,
            Fused::BatchNormThen(norm(), Chain::binary(Binary::Add)),
            Fused::BatchNormReluGrad(norm(), f32::INFINITY),
            Fused::BatchNormGradOfSum(norm()),
            Fused::Applied(FusedUpdate { gradient: Box::new(Op::DenseGradKernel), weight_at: None, update }),
        ]
    }
}

impl Op {
    /// The chain of functions that it computes, or that it ends with.
    pub(crate) fn chain(&self) -> Option<&Chain> {
        if let Op::Elementwise(chain) = self {
            Some(chain)
        } else if let Op::Fused(fused) = self {
            fused.as_norm_then().map(|(_, chain)| chain)
        } else {
            None
        }
    }
}

fn relu() -> Op {
    Op::Elementwise(Chain::unary(Unary::Relu))
}

/// The pool of a convolution, with the ReLU that belongs to it.
fn pool(pooled: &PooledConv2D) -> Op {
    if pooled.relu { Op::MaxPool2DRelu(PooledConv2D::POOL) } else { Op::MaxPool2D(PooledConv2D::POOL) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Graph, Kind, Shape};

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
