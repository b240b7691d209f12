//! Which kernel runs an op.

use memfit_ir::Op;

use super::operands::Operands;
use super::{
    attention, bits, cast, conv2d, dense, dropout, elementwise, embedding, loss, metric, norm, optimizer,
    pool, rearrange, softmax, spatial, stretch, upsample,
};

/// Runs the node of the operands.
pub(crate) fn launch(operands: &Operands) {
    match &operands.node.op {
        Op::Dense => dense::forward(operands),
        Op::DenseGradInput => dense::grad_input(operands),
        Op::DenseGradKernel => dense::grad_kernel(operands),
        Op::BiasGrad => dense::bias_grad(operands),
        Op::Conv2D(conv) => conv2d::forward(operands, conv),
        Op::Conv2DGradInput(conv, _) => conv2d::grad_input(operands, conv),
        Op::Conv2DGradKernel(conv) => conv2d::grad_kernel(operands, conv),
        Op::MaxPool2D(pool) => pool::largest::forward(operands, pool),
        Op::MaxPool2DGrad(pool, _) => pool::largest::grad(operands, pool),
        Op::AveragePool2D(pool) => pool::average::forward(operands, pool),
        Op::AveragePool2DGrad(pool, _) => pool::average::grad(operands, pool),
        Op::GlobalAveragePool2D => pool::global::average(operands),
        Op::GlobalAveragePool2DGrad(_) => pool::global::average_grad(operands),
        Op::GlobalMaxPool2D => pool::global::largest(operands),
        Op::GlobalMaxPool2DGrad(_) => pool::global::largest_grad(operands),
        Op::Elementwise(chain) => elementwise::launch(operands, chain),
        Op::SignBits => bits::sign_bits(operands),
        Op::MaskBits => bits::mask_bits(operands),
        Op::Softmax => softmax::forward(operands),
        Op::SoftmaxGrad => softmax::grad(operands),
        Op::Loss(loss) => loss::launch(operands, loss),
        Op::Metric(metric) => metric::launch(operands, *metric),
        Op::Dropout { rate, seed } => dropout::launch(operands, *rate, *seed),
        Op::BatchNormStatistics => norm::batch::statistics(operands),
        Op::BatchNorm(norm) | Op::BatchNormInference(norm) => norm::batch::forward(operands, norm),
        Op::BatchNormThen(norm, chain) => norm::batch::forward_then(operands, norm, chain),
        Op::BatchNormGrad(norm) => norm::batch::grad(operands, norm),
        Op::BatchNormMoving { momentum } => norm::batch::moving(operands, *momentum),
        Op::BatchNormInferenceGrad(norm) => norm::batch::inference_grad(operands, norm),
        Op::LayerNorm(norm, axes) => norm::layer::forward(operands, norm, *axes),
        Op::LayerNormGrad(norm, axes) => norm::layer::grad(operands, norm, *axes),
        Op::Attention(kind) => attention::forward(operands, kind),
        Op::AttentionGrad(kind) => attention::grad(operands, kind),
        Op::Pad2D(pads) => spatial::pad(operands, pads),
        Op::Crop2D(pads) => spatial::crop(operands, pads),
        Op::UpSample2D(size, interpolation) => upsample::forward(operands, *size, *interpolation),
        Op::UpSample2DGrad(size, interpolation) => upsample::grad(operands, *size, *interpolation),
        Op::Broadcast(_) => stretch::broadcast(operands),
        Op::SumTo(_) => stretch::sum_to(operands),
        Op::Concat(axis) => rearrange::concat(operands, *axis),
        Op::Slice { axis, start, .. } => rearrange::slice(operands, *axis, *start),
        Op::Embedding => embedding::forward(operands),
        Op::EmbeddingGrad => embedding::grad(operands),
        Op::Reshape(_) => rearrange::reshape(operands),
        Op::Cast(_) => cast::launch(operands),
        Op::Zero => rearrange::zero(operands),
        Op::SumSquares => optimizer::sum_squares(operands),
        Op::CheckFinite(number) => optimizer::check_finite(operands, *number),
        Op::Accumulate(accumulate) => optimizer::accumulate(operands, accumulate),
        Op::Update(update) => optimizer::update(operands, update),
        Op::Penalty(regularizer) => optimizer::weight_rules::penalty(operands, regularizer),
        Op::Constrain(constraint) => optimizer::weight_rules::constrain(operands, constraint),
    }
}
