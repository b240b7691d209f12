//! The signatures of fused ops: names and permissions of their kernels; what they do follows from their parts.

use super::Operand::*;
use super::ops::op;
use super::{Facts, Signature};
use crate::{AddEpilogue, Fused, FusedUpdate, Norm, Op, Producer};

impl Fused {
    /// The names of its operands, and what its kernel may write where it reads.
    pub(crate) fn operands(&self) -> Signature {
        let name = |name: &'static str| op(name, super::ops::EACH);
        match self {
            Fused::Plus(AddEpilogue::Dense) => plus("dense_plus", &Op::Dense),
            Fused::Plus(AddEpilogue::DenseGradInput) => plus("dense_grad_input_plus", &Op::DenseGradInput),
            Fused::Plus(of @ AddEpilogue::LayerNormGrad(..)) => plus("layer_norm_grad_plus", &of.op()),
            Fused::Conv2DRelu(_) => name("conv2d_relu").reads(&[X, Kernel]).may_read(Bias).writes(&[Y]),
            Fused::Conv2DGradKernelOf(producer, _) => {
                name("conv2d_grad_kernel_of").produced(producer).reads(&[Dy]).changes(&[DKernel])
            }
            Fused::Conv2DMaxPool(_) => {
                name("conv2d_max_pool").reads(&[X, Kernel]).may_read(Bias).writes(&[Y, Argmax])
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
                reads.writes(&[Y, Argmax])
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

    pub(super) fn signature(&self) -> Signature {
        let operands = self.operands();
        // Two of them stand in forward graphs, and so have a gradient of their own.
        let is_differentiable = match self {
            Fused::Conv2DMaxPool(_) | Fused::Conv2DMaxPoolDense(_) => true,
            Fused::Plus(_)
            | Fused::Conv2DRelu(_)
            | Fused::Conv2DGradKernelOf(..)
            | Fused::Conv2DMaxPoolGradKernel(_)
            | Fused::Conv2DMaxPoolGradInput(..)
            | Fused::Conv2DMaxPoolDenseGrad(_)
            | Fused::SignBitsOf(..)
            | Fused::MaskBitsBiasGrad
            | Fused::MaskBitsOfSum
            | Fused::BatchNormThen(..)
            | Fused::BatchNormReluGrad(..)
            | Fused::BatchNormGradOfSum(_)
            | Fused::Applied(_) => false,
        };
        // One without parts, such as a producer that computes nothing, suits no operands.
        let facts = self.part_facts().unwrap_or(operands.facts);
        Signature { facts: Facts { is_differentiable, ..facts }, ..operands }
    }
}

impl Facts {
    /// Those of two ops as one.
    pub(crate) fn then(self, next: Facts) -> Facts {
        Facts {
            axes: self.axes.then(next.axes),
            cost_class: self.cost_class.max(next.cost_class),
            is_view: false,
            is_random: self.is_random || next.is_random,
            is_sum_of_step: self.is_sum_of_step || next.is_sum_of_step,
            is_of_batch_norm: self.is_of_batch_norm || next.is_of_batch_norm,
            is_differentiable: false,
        }
    }
}

impl Signature {
    /// What a producer reads.
    fn produced(self, producer: &Producer) -> Signature {
        let statistics = |norm: &Norm| self.reads(&[X]).weights(norm).reads(&[Mean, Variance]);
        producer.norm.as_ref().map_or(self.reads(&[X]), statistics)
    }
}

/// An op and a further value, to which the kernel adds.
fn plus(name: &'static str, op: &Op) -> Signature {
    Signature { name, ..op.operands() }.reads(&[Other])
}

fn applied(of: &FusedUpdate) -> Signature {
    let gradient = of.gradient.operands();
    let mut signature = op("applied", super::ops::EACH);
    for (index, place) in gradient.inputs.places().iter().enumerate() {
        if of.weight_at != Some(index) {
            signature.inputs.extend(&[*place], gradient.inputs.times);
        }
    }
    let sums = gradient.updates.places();
    signature.updates.extend(sums.get(1..).unwrap_or_default(), gradient.updates.times);
    let written = op("", super::ops::EACH).written(&of.update).updates;
    signature.updates.extend(written.places(), written.times);
    signature
}
