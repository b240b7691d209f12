//! Which kernels and library calls run a fused op.

use memfit_ir::Operand::{Dx, Mean, Variance};
use memfit_ir::{AddEpilogue, Fused, Op};

use super::batch_norm::GradientSource;
use super::{
    batch_norm, bits, columns, conv2d, dense, fused_update, layer_norm, pooled, pooled_dense, producer,
};
use crate::call::Call;
use crate::work::Lowered;

/// What runs for a node, which is this op.
pub(super) fn lower(call: &Call<'_>, fused: &Fused) -> Lowered {
    match fused {
        Fused::Plus(AddEpilogue::Dense) => dense::dense_plus(call),
        Fused::Plus(AddEpilogue::DenseGradInput) => dense::dense_grad_input_plus(call),
        Fused::Plus(AddEpilogue::LayerNormGrad(_, axes)) => layer_norm::grad(call, *axes, true),
        Fused::Conv2DRelu(conv) => conv2d::forward(call, conv, true),
        Fused::Conv2DGradKernelOf(producer, conv) => {
            producer::recomputed(call, producer, Op::Conv2DGradKernel(conv.clone()))
        }
        Fused::Conv2DMaxPool(conv) => pooled::forward(call, conv),
        Fused::Conv2DMaxPoolGradKernel(conv) => pooled::grad_kernel(call, conv),
        Fused::Conv2DMaxPoolGradInput(conv, _) => pooled::grad_input(call, conv),
        Fused::Conv2DMaxPoolDense(conv) => pooled_dense::forward(call, conv),
        Fused::Conv2DMaxPoolDenseGrad(conv) => pooled_dense::grad(call, conv),
        Fused::MaskBitsBiasGrad => columns::mask_bits_bias_grad(call),
        Fused::SignBitsOf(producer, below) => {
            producer::recomputed(call, producer, Op::SignBits { below: *below })
        }
        Fused::MaskBitsOfSum => bits::mask_sum_into(call, call.output(Dx)),
        Fused::BatchNormThen(norm, chain) => batch_norm::forward(call, norm, [Mean, Variance], Some(chain)),
        Fused::BatchNormReluGrad(norm, below) => {
            batch_norm::grad(call, norm, GradientSource::ThroughRelu(*below))
        }
        Fused::BatchNormGradOfSum(norm) => batch_norm::grad(call, norm, GradientSource::MaskedSum),
        Fused::Applied(applied) => fused_update::applied(call, applied),
    }
}
