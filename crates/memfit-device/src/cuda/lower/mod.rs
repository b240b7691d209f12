//! Which kernels and library calls run an op. A pure function: shapes and rows in, data out.

mod attention;
mod chain;
mod convolution;
pub(crate) mod made_up;
mod moves;
mod product;

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
        | Op::Dropout { .. }
        | Op::Augment(_)
        | Op::Noise(_)
        | Op::Affine { .. }
        | Op::AffineGradScale
        | Op::AffineConstant { .. }
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
        | Op::Pad2D(_)
        | Op::Crop2D(_)
        | Op::UpSample2D(..)
        | Op::UpSample2DGrad(..)
        | Op::Resize2D(..)
        | Op::Resize2DGrad(..)
        | Op::Transpose(_)
        | Op::Broadcast(_)
        | Op::SumTo(_)
        | Op::Concat(_)
        | Op::Slice { .. }
        | Op::PadAxis { .. }
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
