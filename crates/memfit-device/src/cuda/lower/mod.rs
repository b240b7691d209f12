//! Which kernels and library calls run an op. A pure function: shapes and rows in, data out.

mod affine;
mod attention;
mod chain;
mod convolution;
pub(crate) mod made_up;
mod moves;
mod noise;
mod places;
mod product;
mod rearrange;

use memfit_ir::Op;

use super::call::Call;
use super::work::Lowered;

/// An op without a kernel here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing;

/// What runs for a node.
pub(crate) fn lower(call: &Call<'_>) -> Result<Lowered, Missing> {
    Ok(match &call.node.op {
        Op::Dense => product::dense(call),
        Op::DenseGradInput => product::dense_grad_input(call),
        Op::DenseGradKernel => product::dense_grad_kernel(call),
        Op::MatMul(matmul) => product::matmul(call, *matmul),
        Op::Conv2D(conv) => convolution::forward(call, conv),
        Op::Conv2DGradInput(conv, _) => convolution::grad_input(call, conv),
        Op::Conv2DGradKernel(conv) => convolution::grad_kernel(call, conv),
        Op::Elementwise(chain) => chain::elementwise(call, chain),
        Op::Reshape(_) => moves::reshape(call),
        Op::TakeRows => moves::take_rows(call),
        Op::PutRows => moves::put_rows(call),
        Op::Zero => moves::zero(call),
        Op::Cast(_) => moves::cast(call),
        Op::Attention(kind) => attention::forward(call, kind),
        Op::AttentionGrad(kind) => attention::grad(call, kind),
        Op::Dropout { rate, seed } => noise::dropout(call, *rate, *seed),
        Op::Noise(kind) => noise::noise(call, kind),
        Op::Concat(axis) => rearrange::concat(call, *axis),
        Op::Slice { axis, start, .. } => rearrange::slice(call, *axis, *start),
        Op::PadAxis { axis, before, .. } => rearrange::pad_axis(call, *axis, *before),
        Op::Pad2D(pads) => rearrange::pad(call, pads),
        Op::Crop2D(pads) => rearrange::crop(call, pads),
        Op::Transpose(order) => rearrange::transpose(call, order),
        Op::Broadcast(_) => rearrange::broadcast(call),
        Op::SumTo(_) => rearrange::sum_to(call),
        Op::Affine { scale, center } => affine::forward(call, *scale, *center),
        Op::AffineGradScale => affine::grad_scale(call),
        Op::AffineConstant { scale, offset } => affine::constant(call, scale, offset),
        Op::BiasGrad
        | Op::MaxPool2D(_)
        | Op::MaxPool2DGrad(..)
        | Op::AveragePool2D(_)
        | Op::AveragePool2DGrad(..)
        | Op::GlobalAveragePool2D
        | Op::GlobalAveragePool2DGrad(_)
        | Op::GlobalMaxPool2D
        | Op::GlobalMaxPool2DGrad(_)
        | Op::SignBits { .. }
        | Op::MaskBits
        | Op::Softmax
        | Op::SoftmaxGrad
        | Op::Loss(_)
        | Op::Metric(_)
        | Op::Augment(_)
        | Op::BatchNormStatistics
        | Op::BatchNorm(_)
        | Op::BatchNormThen(..)
        | Op::BatchNormGrad(_)
        | Op::BatchNormMoving { .. }
        | Op::BatchNormInference(_)
        | Op::BatchNormInferenceGrad(_)
        | Op::LayerNorm(..)
        | Op::LayerNormGrad(..)
        | Op::Recurrent(_)
        | Op::RecurrentGrad(_)
        | Op::UpSample2D(..)
        | Op::UpSample2DGrad(..)
        | Op::Resize2D(..)
        | Op::Resize2DGrad(..)
        | Op::Embedding
        | Op::EmbeddingGrad
        | Op::SumSquares
        | Op::CheckFinite(_)
        | Op::Accumulate(_)
        | Op::Update(_)
        | Op::Penalty(_)
        | Op::Constrain(_) => return Err(Missing),
    })
}
