//! Which kernels and library calls run an op. A pure function: shapes and rows in, data out.

mod affine;
mod attention;
mod augment;
mod average_pool;
mod batch_norm;
mod bits;
mod check_update;
mod columns;
mod composed;
mod confusion;
mod conv2d;
mod conv3d;
mod dense;
mod elementwise;
mod embedding;
mod few_channels;
mod few_tensor_cores;
mod fused;
mod fused_update;
pub(crate) mod joined;
mod layer_norm;
mod loss;
mod mask;
mod matmul;
mod max_pool;
mod moves;
mod noise;
mod places;
mod pooled;
mod pooled_dense;
mod producer;
mod rearrange;
mod recurrent;
mod resize;
mod scaled;
mod softmax;
mod sums;
pub(crate) mod synthetic_values;
mod update;
mod weight_rules;
mod whole_update;

use batch_norm::GradientSource;
use memfit_ir::Op;
use memfit_ir::Operand::{Mean, MovingMean, MovingVariance, Variance};

use super::call::Call;
use super::work::Lowered;

/// What runs for a node.
pub(crate) fn lower(call: &Call<'_>) -> Lowered {
    match &call.node.op {
        Op::Fused(of) => fused::lower(call, of),
        Op::Dense => dense::dense(call),
        Op::DenseGradInput => dense::dense_grad_input(call),
        Op::DenseGradKernel => dense::dense_grad_kernel(call),
        Op::MatMul(matmul) => matmul::matmul(call, *matmul),
        Op::Conv2D(conv) => conv2d::forward(call, conv, false),
        Op::Conv2DGradInput(conv, _) => conv2d::grad_input(call, conv),
        Op::Conv2DGradKernel(conv) => conv2d::grad_kernel(call, conv),
        Op::Conv3D(conv) => conv3d::forward(call, conv),
        Op::Conv3DGradInput(conv, _) => conv3d::grad_input(call, conv),
        Op::Conv3DGradKernel(conv) => conv3d::grad_kernel(call, conv),
        Op::Elementwise(chain) => elementwise::elementwise(call, chain),
        Op::Reshape(_) => moves::reshape(call),
        Op::TakeRows => moves::take_rows(call),
        Op::PutRows => moves::put_rows(call),
        Op::Zero => moves::zero(call),
        Op::AddZero => moves::add_zero(call),
        Op::Cast(_) => moves::cast(call),
        Op::BiasGrad => columns::bias_grad(call),
        Op::ArgmaxBiasGrad => columns::argmax_bias_grad(call),
        Op::SumSquares | Op::CheckFinite(_) => sums::of_gradient(call),
        Op::MaxPool2D(pool) => max_pool::max_pool(call, pool, false),
        Op::MaxPool2DRelu(pool) => max_pool::max_pool(call, pool, true),
        Op::MaxPool2DGrad(pool, _) => max_pool::max_pool_grad(call, pool),
        Op::GlobalAveragePool2D => max_pool::global_average(call),
        Op::GlobalAveragePool2DGrad(_) => max_pool::global_average_grad(call),
        Op::SignBits { below } => bits::sign_bits(call, *below),
        Op::MaskBits => bits::mask_bits(call),
        Op::Softmax => softmax::softmax(call),
        Op::SoftmaxGrad => softmax::softmax_grad(call),
        Op::Loss(loss) => loss::loss(call, loss),
        Op::Metric(metric) => loss::metric(call, metric),
        Op::Mask(mask) => mask::mask(call, *mask),
        Op::BalanceWeights => mask::balance(call),
        Op::BatchNormStatistics => batch_norm::statistics(call),
        Op::BatchNorm(norm) => batch_norm::forward(call, norm, [Mean, Variance], None),
        Op::BatchNormInference(norm) => batch_norm::forward(call, norm, [MovingMean, MovingVariance], None),
        Op::BatchNormGrad(norm) => batch_norm::grad(call, norm, GradientSource::Plain),
        Op::BatchNormMoving { momentum } => batch_norm::moving(call, *momentum),
        Op::BatchNormInferenceGrad(norm) => batch_norm::inference_grad(call, norm),
        Op::LayerNorm(norm, axes) => layer_norm::forward(call, norm, *axes),
        Op::LayerNormGrad(_, axes) => layer_norm::grad(call, *axes, false),
        Op::Embedding => embedding::forward(call),
        Op::EmbeddingGrad => embedding::grad(call),
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
        Op::Affine { .. } => affine::forward(call),
        Op::AffineGradScale => affine::grad_scale(call),
        Op::AffineConstant { scale, offset } => affine::constant(call, scale, offset),
        Op::CorrectSquares(factor) => update::correct_squares(call, *factor),
        Op::Accumulate(accumulate) => update::accumulate(call, accumulate),
        Op::AddAccumulated(steps) => update::add_accumulated(call, *steps),
        Op::KeepAccumulated => update::keep_accumulated(call),
        Op::Update(update) => update::update(call, update),
        Op::CheckUpdate(check) => check_update::check_update(call, check),
        Op::Penalty(regularizer) => weight_rules::penalty(call, regularizer),
        Op::ActivityPenalty(regularizer) => weight_rules::activity_penalty(call, regularizer),
        Op::Constrain(constraint) => weight_rules::constrain(call, constraint),
        Op::AveragePool2D(pool) => average_pool::forward(call, pool),
        Op::AveragePool2DGrad(pool, _) => average_pool::grad(call, pool),
        Op::GlobalMaxPool2D => average_pool::global_max(call),
        Op::GlobalMaxPool2DGrad(_) => average_pool::global_max_grad(call),
        Op::Augment(augment) => augment::augment(call, augment),
        Op::UpSample2D(_, interpolation) | Op::Resize2D(_, interpolation) => {
            resize::forward(call, *interpolation)
        }
        Op::UpSample2DGrad(_, interpolation) | Op::Resize2DGrad(_, interpolation) => {
            resize::grad(call, *interpolation)
        }
        Op::Recurrent(kind) => recurrent::forward(call, kind),
        Op::RecurrentGrad(kind) => recurrent::grad(call, kind),
    }
}
