//! Which kernel runs an op.

use memfit_ir::Op;
use memfit_ir::Operand::{Dy, Mean, MovingMean, MovingVariance, Variance};

use super::operands::Operands;
use super::{
    activity, affine, attention, augment, average_pool, batch_norm, bits, broadcast, cast, conv2d, conv3d,
    dense, dropout, elementwise, embedding, fused, global_pool, layer_norm, loss, mask, matmul, max_pool,
    metric, noise, optimizer, rearrange, recurrent, resize, softmax, spatial, transpose, upsample,
};

/// Runs the node of the operands.
pub(crate) fn launch(operands: &Operands) {
    match &operands.node.op {
        Op::Fused(of) => fused::launch(operands, of),
        Op::Dense => {
            dense::forward(operands);
        }
        Op::DenseGradInput => {
            dense::grad_input(operands);
        }
        Op::DenseGradKernel => dense::grad_kernel(operands),
        Op::BiasGrad => dense::sum_for_bias(operands, operands.input(Dy)),
        Op::Conv2D(conv) => {
            conv2d::forward(operands, conv);
        }
        Op::Conv2DGradInput(conv, _) => conv2d::grad_input(operands, conv),
        Op::Conv2DGradKernel(conv) => conv2d::grad_kernel(operands, conv),
        Op::Conv3D(conv) => conv3d::forward(operands, conv),
        Op::Conv3DGradInput(conv, _) => conv3d::grad_input(operands, conv),
        Op::Conv3DGradKernel(conv) => conv3d::grad_kernel(operands, conv),
        Op::ActivityPenalty(regularizer) => activity::launch(operands, regularizer),
        Op::Mask(mask) => mask::launch(operands, *mask),
        Op::BalanceWeights => mask::balance(operands),
        Op::MaxPool2D(pool) => max_pool::forward(operands, pool, false),
        Op::MaxPool2DRelu(pool) => max_pool::forward(operands, pool, true),
        Op::ArgmaxBiasGrad => dense::argmax_bias_grad(operands),
        Op::MaxPool2DGrad(pool, _) => max_pool::grad(operands, pool),
        Op::AveragePool2D(pool) => average_pool::forward(operands, pool),
        Op::AveragePool2DGrad(pool, _) => average_pool::grad(operands, pool),
        Op::GlobalAveragePool2D => global_pool::average(operands),
        Op::GlobalAveragePool2DGrad(_) => global_pool::average_grad(operands),
        Op::GlobalMaxPool2D => global_pool::max(operands),
        Op::GlobalMaxPool2DGrad(_) => global_pool::max_grad(operands),
        Op::Elementwise(chain) => elementwise::launch(operands, chain),
        Op::SignBits { below } => bits::sign_bits(operands, *below),
        Op::MaskBits => {
            bits::mask_bits(operands);
        }
        Op::Softmax => softmax::forward(operands),
        Op::SoftmaxGrad => softmax::grad(operands),
        Op::Loss(loss) => loss::launch(operands, loss),
        Op::Metric(metric) => metric::launch(operands, metric),
        Op::Dropout { rate, seed } => dropout::launch(operands, *rate, *seed),
        Op::Noise(noise) => noise::launch(operands, noise),
        Op::Affine { .. } => affine::forward(operands),
        Op::AffineGradScale => affine::grad_scale(operands),
        Op::AffineConstant { scale, offset } => affine::constant(operands, scale, offset),
        Op::BatchNormStatistics => batch_norm::statistics(operands),
        Op::BatchNorm(norm) => batch_norm::forward(operands, norm, [Mean, Variance]),
        Op::BatchNormInference(norm) => batch_norm::forward(operands, norm, [MovingMean, MovingVariance]),
        Op::BatchNormGrad(norm) => batch_norm::grad(operands, norm),
        Op::BatchNormMoving { momentum } => batch_norm::moving(operands, *momentum),
        Op::BatchNormInferenceGrad(norm) => batch_norm::inference_grad(operands, norm),
        Op::LayerNorm(norm, axes) => layer_norm::forward(operands, norm, *axes),
        Op::LayerNormGrad(norm, axes) => {
            layer_norm::grad(operands, norm, *axes);
        }
        Op::Attention(kind) => attention::forward(operands, kind),
        Op::AttentionGrad(kind) => attention::grad(operands, kind),
        Op::Augment(kind) => augment::launch(operands, kind),
        Op::Recurrent(kind) => recurrent::forward(operands, kind),
        Op::RecurrentGrad(kind) => recurrent::grad(operands, kind),
        Op::Pad2D(pads) => spatial::pad(operands, pads),
        Op::Crop2D(pads) => spatial::crop(operands, pads),
        Op::UpSample2D(size, interpolation) => upsample::forward(operands, *size, *interpolation),
        Op::UpSample2DGrad(size, interpolation) => upsample::grad(operands, *size, *interpolation),
        Op::Resize2D(_, interpolation) => resize::forward(operands, *interpolation),
        Op::Resize2DGrad(_, interpolation) => resize::grad(operands, *interpolation),
        Op::Transpose(order) => transpose::launch(operands, order),
        Op::Broadcast(_) => broadcast::broadcast(operands),
        Op::SumTo(_) => broadcast::sum_to(operands),
        Op::Concat(axis) => rearrange::concat(operands, *axis),
        Op::Slice { axis, start, .. } => rearrange::slice(operands, *axis, *start),
        Op::PadAxis { axis, before, .. } => rearrange::pad_axis(operands, *axis, *before),
        Op::MatMul(product) => matmul::launch(operands, *product),
        Op::Embedding => embedding::forward(operands),
        Op::EmbeddingGrad => embedding::grad(operands),
        Op::Reshape(_) => rearrange::reshape(operands),
        Op::Cast(_) => cast::launch(operands),
        Op::TakeRows => rearrange::take_rows(operands),
        Op::PutRows => rearrange::put_rows(operands),
        Op::Zero => rearrange::zero(operands),
        Op::AddZero => rearrange::add_zero(operands),
        Op::SumSquares => optimizer::sum_squares(operands),
        Op::CheckFinite(number) => optimizer::check_finite(operands, *number),
        Op::CorrectSquares(factor) => optimizer::correct_squares(operands, *factor),
        Op::Accumulate(accumulate) => optimizer::accumulate(operands, accumulate),
        Op::AddAccumulated(steps) => optimizer::add_accumulated(operands, *steps),
        Op::KeepAccumulated => optimizer::keep_accumulated(operands),
        Op::Update(update) => optimizer::update(operands, update),
        Op::CheckUpdate(check) => optimizer::check_update(operands, check),
        Op::Penalty(regularizer) => optimizer::weight_rules::penalty(operands, regularizer),
        Op::Constrain(constraint) => optimizer::weight_rules::constrain(operands, constraint),
    }
}
