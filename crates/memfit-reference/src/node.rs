//! Which function computes a node of which op.

use memfit_ir::Op;

use super::call::{Call, Computed};
use super::convolution::in_volume;
use super::{
    affine, attention, augment, bits, convolution, dense, elementwise, embedding, fused, loss, mask, matmul,
    metric, noise, norm, optimizer, pool, rearrange, recurrent, softmax, spatial,
};

/// Computes a node.
pub fn compute(call: &Call) -> Computed {
    match &call.node.op {
        Op::Fused(of) => fused::compute(call, of),
        Op::Dense => Computed::output(dense::forward(call)),
        Op::DenseGradInput => Computed::output(dense::grad_input(call)),
        Op::DenseGradKernel => call.sums(&[dense::grad_kernel(call)]),
        Op::BiasGrad => call.sums(&[dense::column_sums(call.input(0), call.last(0))]),
        Op::Conv2D(conv) => Computed::output(convolution::forward(call, &in_volume(conv))),
        Op::Conv2DGradInput(conv, _) => Computed::output(convolution::grad_input(call, &in_volume(conv))),
        Op::Conv2DGradKernel(conv) => call.sums(&[convolution::grad_kernel(call, &in_volume(conv))]),
        Op::Conv3D(conv) => Computed::output(convolution::forward(call, conv)),
        Op::Conv3DGradInput(conv, _) => Computed::output(convolution::grad_input(call, conv)),
        Op::Conv3DGradKernel(conv) => call.sums(&[convolution::grad_kernel(call, conv)]),
        Op::MaxPool2D(of) => Computed::outputs(pool::max(call, of, false)),
        Op::MaxPool2DRelu(of) => Computed::outputs(pool::max(call, of, true)),
        Op::ArgmaxBiasGrad => call.sums(&[pool::max_bias_grad(call)]),
        Op::MaxPool2DGrad(of, _) => Computed::output(pool::max_grad(call, of)),
        Op::AveragePool2D(of) => Computed::output(pool::average(call, of)),
        Op::AveragePool2DGrad(of, _) => Computed::output(pool::average_grad(call, of)),
        Op::GlobalAveragePool2D => Computed::output(pool::global_average(call)),
        Op::GlobalAveragePool2DGrad(_) => Computed::output(pool::global_average_grad(call)),
        Op::GlobalMaxPool2D => Computed::outputs(pool::global_max(call)),
        Op::GlobalMaxPool2DGrad(_) => Computed::output(pool::global_max_grad(call)),
        Op::Elementwise(chain) => Computed::output(elementwise::forward(call, chain)),
        Op::SignBits { below } => Computed::output(bits::sign_bits(call, *below)),
        Op::MaskBits => Computed::output(bits::mask_bits(call)),
        Op::Softmax => Computed::output(softmax::forward(call)),
        Op::SoftmaxGrad => Computed::output(softmax::grad(call)),
        Op::BalanceWeights => Computed::output(mask::balance(call)),
        Op::Loss(of) => loss::launch(call, of),
        Op::ActivityPenalty(regularizer) => optimizer::activity(call, regularizer),
        Op::Mask(of) => Computed::output(mask::forward(call, *of)),
        Op::Metric(of) => call.sums(&[metric::terms(call, of)]),
        Op::Dropout { rate, seed } => Computed::output(noise::dropout(call, *rate, *seed)),
        Op::Augment(of) => Computed::output(augment::forward(call, of)),
        Op::Noise(of) => Computed::output(noise::noise(call, of)),
        Op::Affine { scale, center } => {
            let offset = call.input_if(*center, 1 + usize::from(*scale));
            Computed::output(affine::forward(call.input(0), call.input_if(*scale, 1), offset))
        }
        Op::AffineGradScale => call.sums(&[affine::grad_scale(call)]),
        Op::AffineConstant { scale, offset } => {
            let numbers = |of: &[f32]| of.iter().map(|number| f64::from(*number)).collect::<Vec<f64>>();
            let (scale, offset) = (numbers(scale), numbers(offset));
            Computed::output(affine::forward(call.input(0), Some(&scale), Some(&offset)))
        }
        Op::BatchNormStatistics => Computed::outputs(norm::statistics(call)),
        Op::BatchNorm(of) | Op::BatchNormInference(of) => Computed::output(norm::batch(call, of)),
        Op::BatchNormGrad(of) => norm::batch_grad(call, of),
        Op::BatchNormMoving { momentum } => norm::moving(call, *momentum),
        Op::BatchNormInferenceGrad(of) => Computed::output(norm::inference_grad(call, of)),
        Op::LayerNorm(of, axes) => Computed::outputs(norm::layer(call, of, *axes)),
        Op::LayerNormGrad(of, axes) => norm::layer_grad(call, of, *axes),
        Op::Attention(kind) => Computed::outputs(attention::forward(call, kind)),
        Op::AttentionGrad(kind) => Computed::outputs(attention::grad(call, kind)),
        Op::Recurrent(kind) => Computed::outputs(recurrent::forward(call, kind)),
        Op::RecurrentGrad(kind) => recurrent::grad(call, kind),
        Op::Pad2D(pads) => Computed::output(spatial::pad(call, pads)),
        Op::Crop2D(pads) => Computed::output(spatial::crop(call, pads)),
        Op::UpSample2D(_, how) | Op::Resize2D(_, how) => Computed::output(spatial::resize(call, *how)),
        Op::UpSample2DGrad(_, how) | Op::Resize2DGrad(_, how) => {
            Computed::output(spatial::resize_grad(call, *how))
        }
        Op::Transpose(order) => Computed::output(rearrange::transpose(call, order)),
        Op::Broadcast(_) => Computed::output(rearrange::broadcast(call)),
        Op::SumTo(dims) => Computed::output(rearrange::sum_to(call, dims)),
        Op::Concat(axis) => Computed::output(rearrange::concat(call, *axis)),
        Op::Slice { axis, start, length } => Computed::output(rearrange::slice(call, *axis, *start, *length)),
        Op::PadAxis { axis, before, after } => {
            Computed::output(rearrange::pad_axis(call, *axis, *before, *after))
        }
        Op::MatMul(product) => Computed::output(matmul::forward(call, *product)),
        Op::Embedding => Computed::output(embedding::forward(call)),
        Op::EmbeddingGrad => call.sums(&[embedding::grad(call)]),
        // Numbers have a type only where they are stored, and rows are chosen where they are read and stored.
        Op::Reshape(_) | Op::Cast(_) | Op::TakeRows => Computed::output(call.input(0).to_vec()),
        Op::PutRows => Computed::updates(vec![call.input(0).to_vec()]),
        Op::Zero => Computed::output(vec![0.0; call.output_elements(0)]),
        Op::AddZero => Computed::updates(vec![call.before(0)]),
        Op::SumSquares => call.sums(&[vec![optimizer::sum_squares(call)]]),
        Op::CheckFinite(number) => optimizer::check_finite(call, *number),
        Op::Accumulate(of) => optimizer::accumulate(call, of),
        Op::AddAccumulated(steps) => Computed::updates(vec![optimizer::add_accumulated(call, *steps)]),
        Op::KeepAccumulated => Computed::updates(vec![optimizer::keep_accumulated(call)]),
        Op::CorrectSquares(factor) => Computed::updates(vec![optimizer::correct_squares(call, *factor)]),
        Op::Update(of) => optimizer::update(call, of),
        Op::CheckUpdate(of) => optimizer::check_update(call, of),
        Op::Penalty(regularizer) => optimizer::penalty(call, regularizer),
        Op::Constrain(constraint) => Computed::updates(vec![optimizer::constrain(call, constraint)]),
    }
}
