//! The closed set of operations: forward, backward and optimizer alike.
//!
//! A node reads `inputs`, writes `outputs`, and changes `updates` in place. Each variant says which is which;
//! operands in brackets are present when the variant's fields say so. Images are NHWC, filters `[h, w, in, out]`.

use crate::{
    Accumulate, Attention, Augment, Chain, CheckUpdate, Constraint, Conv2D, Conv3D, DType, Distance, Fused,
    Interpolation, Mask, MatMul, Metric, Noise, Pads, Pool2D, Recurrent, Reduction, Regularizer, Update,
};

/// What a node computes.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `x, kernel, [bias] → y`: a product over the last axis.
    Dense,
    /// `dy, kernel → dx`.
    DenseGradInput,
    /// `x, dy ⇒ dkernel` (adds).
    DenseGradKernel,
    /// `dy ⇒ dbias` (adds): the sum over every axis but the last.
    BiasGrad,
    /// `x, kernel, [bias] → y`.
    Conv2D(Conv2D),
    /// `dy, kernel → dx`, with the height and width of `x`.
    Conv2DGradInput(Conv2D, [usize; 2]),
    /// `x, dy ⇒ dkernel` (adds).
    Conv2DGradKernel(Conv2D),
    /// `x[depth,height,width,channels], kernel[depth,height,width,in,out], [bias] → y`.
    Conv3D(Conv3D),
    /// `dy, kernel → dx`, with the depth, height and width of `x`.
    Conv3DGradInput(Conv3D, [usize; 3]),
    /// `x, dy ⇒ dkernel` (adds).
    Conv3DGradKernel(Conv3D),
    /// Several ops at once.
    Fused(Fused),
    /// `x → y, argmax`: the place of the maximum in its window, as one byte.
    MaxPool2D(Pool2D),
    /// The same with a ReLU after it: windows whose maximum is not positive have no argmax,
    /// [`Pool2D::NO_ARGMAX`].
    MaxPool2DRelu(Pool2D),
    /// `dy, argmax ⇒ dbias` (adds): the sum of `dy` over every axis but the last, of all windows that have an
    /// argmax.
    WinnersBiasGrad,
    /// `dy, argmax → dx`, with the height and width of `x`.
    MaxPool2DGrad(Pool2D, [usize; 2]),
    /// `x → y`; padding is not counted.
    AveragePool2D(Pool2D),
    /// `dy → dx`, with the height and width of `x`.
    AveragePool2DGrad(Pool2D, [usize; 2]),
    /// `x → y`: the mean over height and width.
    GlobalAveragePool2D,
    /// `dy → dx`, with the height and width of `x`.
    GlobalAveragePool2DGrad([usize; 2]),
    /// `x → y, argmax`: the pixel of the maximum, as an i32.
    GlobalMaxPool2D,
    /// `dy, argmax → dx`, with the height and width of `x`.
    GlobalMaxPool2DGrad([usize; 2]),
    /// `x… → y`: elementwise work on tensors of one shape.
    Elementwise(Chain),
    /// `y → bits`: one bit an element, set where it is positive; every row starts on a byte.
    SignBits {
        /// Elements from here on have no bit either: where a bounded ReLU saturates. Infinite for none.
        below: f32,
    },
    /// `dy, bits → dx`: `dy` where the bit is set, else 0.
    MaskBits,
    /// `x → y` over the last axis.
    Softmax,
    /// `dy, y → dx`.
    SoftmaxGrad,
    /// `weights → y`: weights of the batch's samples, scaled so that their mean is 1.
    BalanceWeights,
    /// `prediction, target, [weights] → dprediction ⇒ loss` (adds): a loss with its gradient.
    Loss(Loss),
    /// `x → dx ⇒ loss` (adds): what a regularizer says of values, for each row the same share.
    ActivityPenalty(Regularizer),
    /// `x → mask`: 1 at places that count, else 0.
    Mask(Mask),
    /// `prediction, target, [weights] ⇒ sums` (adds): the sums of a metric.
    Metric(Metric),
    /// `x → y`; applied to `dy` with the same seed it is its own gradient.
    Dropout {
        /// The share of elements set to 0.
        rate: f32,
        /// Which sequence of draws this layer uses.
        seed: u64,
    },
    /// `x → y`: images changed at random.
    Augment(Augment),
    /// `x → y`: random numbers of another kind, or shared by neighbours.
    Noise(Noise),
    /// `x, [scale], [offset] → y`: times a weight of the last axes, plus a weight of the last axis.
    Affine {
        /// Whether there is a scale.
        scale: bool,
        /// Whether there is an offset.
        center: bool,
    },
    /// `x, dy ⇒ dscale` (adds).
    AffineGradScale,
    /// `x → y`: times and plus numbers for each index of the last axis.
    AffineConstant {
        /// Factors.
        scale: Vec<f32>,
        /// Terms.
        offset: Vec<f32>,
    },
    /// `x → mean, variance` over all axes but the last.
    BatchNormStatistics,
    /// `x, [gamma], [beta], mean, variance → y`, by the batch's own statistics, which its gradient reaches through.
    BatchNorm(Norm),
    /// `dy, x, mean, variance, [gamma] → dx ⇒ [dgamma], [dbeta]` (adds).
    BatchNormGrad(Norm),
    /// `mean, variance, [found_inf] ⇒ moving_mean, moving_variance`.
    BatchNormMoving {
        /// What is kept of the old average.
        momentum: f32,
    },
    /// `x, [gamma], [beta], moving_mean, moving_variance → y`.
    BatchNormInference(Norm),
    /// `dy, [gamma], moving_variance → dx`.
    BatchNormInferenceGrad(Norm),
    /// `x, [gamma], [beta] → y, mean, inverse_deviation` over the last `axes` axes.
    LayerNorm(Norm, usize),
    /// `dy, x, mean, inverse_deviation, [gamma] → dx ⇒ [dgamma], [dbeta]` (adds).
    LayerNormGrad(Norm, usize),
    /// `q[queries,heads,width], k[keys,key_heads,width], v[keys,key_heads,value_width] → y[queries,heads,value_width],
    /// log_sums[heads,queries]`: queries look at keys, and no matrix of both is stored. Where there are fewer key
    /// heads than heads, neighbouring heads share one. Masks of queries and keys follow where there are some.
    Attention(Attention),
    /// `dy, q, k, v, y, log_sums, [masks] → dq, dk, dv`.
    AttentionGrad(Attention),
    /// `x[steps,gates·units], kernel[units,gates·units], [bias], [mask[steps]] → y[steps,units],
    /// [kept[steps,…]]`: a cell over all steps, from a dense op's output. States to begin and to end with are
    /// further rows of `x` and `y`.
    Recurrent(Recurrent),
    /// `dy, y, [kept], kernel, [mask] → dx ⇒ dkernel, [dbias]` (adds).
    RecurrentGrad(Recurrent),
    /// `x → y`: zeros around height and width.
    Pad2D(Pads),
    /// `x → y`: height and width without their margins.
    Crop2D(Pads),
    /// `x → y`: height and width times `size`.
    UpSample2D([usize; 2], Interpolation),
    /// `dy → dx`.
    UpSample2DGrad([usize; 2], Interpolation),
    /// `x → y`: images resized to this height and width.
    Resize2D([usize; 2], Interpolation),
    /// `dy → dx`, with the height and width of `x`.
    Resize2DGrad([usize; 2], Interpolation),
    /// `x → y`: axis `i` of `y` is axis `order[i]` of `x`, counted after the batch.
    Transpose(Vec<usize>),
    /// `x → y`: dimensions of 1 repeated to these.
    Broadcast(Vec<usize>),
    /// `dy → dx`: the sum back to these dimensions.
    SumTo(Vec<usize>),
    /// `x… → y` along an axis counted after the batch.
    Concat(usize),
    /// `x → y`: `length` indices of an axis counted after the batch, from `start`.
    Slice {
        /// The axis, counted after the batch.
        axis: usize,
        /// First index.
        start: usize,
        /// Number of indices.
        length: usize,
    },
    /// `x → y`: zeros before and after the indices of an axis counted after the batch.
    PadAxis {
        /// The axis, counted after the batch.
        axis: usize,
        /// Indices before.
        before: usize,
        /// Indices after.
        after: usize,
    },
    /// `a[…,m,k], b[…,k,n] → y[…,m,n]`: a product for each index of the axes before.
    MatMul(MatMul),
    /// `ids, table → y`.
    Embedding,
    /// `ids, dy ⇒ dtable` (adds).
    EmbeddingGrad,
    /// `x → y`: the same bytes under other dimensions.
    Reshape(Vec<usize>),
    /// `x → y`: the same numbers as floats of another type, rounded where it is the smaller.
    Cast(DType),
    /// `x → y`: a slice of the rows of a micro-batch.
    TakeRows,
    /// `x ⇒ y`: writes a slice of the rows; all slices together write all of them.
    PutRows,
    /// `→ x`: zeros.
    Zero,
    /// `⇒ sum` (adds): nothing, where a gradient is known to be 0.
    AddZero,
    /// `gradient ⇒ sum` (adds): the sum of squares, for clipping by norm.
    SumSquares,
    /// `gradient ⇒ found_inf`: where the gradient is not finite, `found_inf` becomes this number, from 1,
    /// unless it holds a smaller one already; it stays 0 where all gradients are finite.
    CheckFinite(usize),
    /// `gradient, [found_inf] ⇒ sum` (adds): gradients of several steps; the first of them resets the sum.
    Accumulate(Accumulate),
    /// `sum ⇒ gradient`: adds the gradients of the steps before, of this many that make one update, to this step's, which loses its
    /// loss scale.
    AddAccumulated(u64),
    /// `gradient, found_inf ⇒ sum`: keeps the gradients so far for the next step, unless found_inf is not 0.
    KeepAccumulated,
    /// Adds `factor · (squares − gradient²)` to state that follows squared gradients, before the update adds the square of the sum: so
    /// the state follows sums of squares instead, as TensorFlow's does for embeddings.
    CorrectSquares(f32),
    /// `gradient, [norm²], [found_inf] ⇒ weight, state…, [average]`: one optimizer's update of one weight.
    Update(Update),
    /// `gradient, [norm²], weight, state…, [average] ⇒ found_inf`: computes what an update would write, and writes none of it: where
    /// it is not finite, found_inf becomes the number of the check, unless it holds a smaller one already.
    CheckUpdate(CheckUpdate),
    /// `weight ⇒ loss, [gradient]` (adds): what a regularizer adds to the loss and to the gradient.
    Penalty(Regularizer),
    /// `[found_inf] ⇒ weight`: brings a weight back into its permitted range.
    Constrain(Constraint),
}

/// What the normalisations share.
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// Added to the variance.
    pub epsilon: f32,
    /// Whether there is a gamma.
    pub scale: bool,
    /// Whether there is a beta.
    pub center: bool,
}

/// A loss over one output.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// Which loss.
    pub kind: LossKind,
    /// Factor of this output in the total.
    pub weight: f32,
}

/// Losses, by Keras's names. The mean is over rows and the axes before the last.
#[derive(Clone, Debug, PartialEq)]
pub enum LossKind {
    /// Mean of squared differences.
    MeanSquaredError,
    /// Mean of absolute differences.
    MeanAbsoluteError,
    /// Squared near 0, linear beyond `delta`.
    Huber {
        /// Where the two meet.
        delta: f32,
    },
    /// Two classes an element.
    BinaryCrossentropy {
        /// Predictions are logits, not probabilities.
        from_logits: bool,
        /// Share of each target moved to one half.
        label_smoothing: f32,
    },
    /// One class a row, targets one-hot or soft.
    CategoricalCrossentropy {
        /// Predictions are logits, not probabilities.
        from_logits: bool,
        /// Share of each target spread over all classes.
        label_smoothing: f32,
    },
    /// One class a row, targets as class numbers.
    SparseCategoricalCrossentropy {
        /// Predictions are logits, not probabilities.
        from_logits: bool,
    },
    /// One class a row by logits, targets as shares, with the gradient that TensorFlow gives it: exact where shares sum to 1, and
    /// taken to be so where they do not.
    UnitCategoricalCrossentropy {
        /// Share of each target spread over all classes.
        label_smoothing: f32,
    },
    /// One of many others.
    Distance(Distance),
    /// Another loss, whose samples are not reduced by their mean.
    Reduced {
        /// The loss.
        kind: Box<LossKind>,
        /// How samples are added up.
        reduction: Reduction,
        /// The class whose samples do not count, where targets are class numbers.
        ignore_class: Option<i32>,
    },
}

impl LossKind {
    /// Whether targets are class numbers (i32, without the last axis).
    pub fn is_sparse(&self) -> bool {
        match self {
            LossKind::SparseCategoricalCrossentropy { .. } => true,
            LossKind::Reduced { kind, .. } => kind.is_sparse(),
            LossKind::MeanSquaredError
            | LossKind::MeanAbsoluteError
            | LossKind::Huber { .. }
            | LossKind::BinaryCrossentropy { .. }
            | LossKind::CategoricalCrossentropy { .. }
            | LossKind::UnitCategoricalCrossentropy { .. }
            | LossKind::Distance(_) => false,
        }
    }

    /// Whether samples of an ignored class are in the count of a mean, as zeros: in a metric without weights.
    pub fn counts_ignored(&self) -> bool {
        matches!(self, LossKind::Reduced { ignore_class: Some(_), .. })
    }

    /// The loss of a sample, however samples are added up.
    pub fn of_samples(&self) -> &LossKind {
        match self {
            LossKind::Reduced { kind, .. } => kind.of_samples(),
            LossKind::MeanSquaredError
            | LossKind::MeanAbsoluteError
            | LossKind::Huber { .. }
            | LossKind::BinaryCrossentropy { .. }
            | LossKind::CategoricalCrossentropy { .. }
            | LossKind::UnitCategoricalCrossentropy { .. }
            | LossKind::SparseCategoricalCrossentropy { .. }
            | LossKind::Distance(_) => self,
        }
    }

    /// Whether rows of the batch meet in one number.
    pub fn mixes_rows(&self) -> bool {
        matches!(self.of_samples(), LossKind::Distance(distance) if distance.mixes_rows())
    }
}

/// Ops whose estimated times err alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CostClass {
    /// Moves bytes.
    Bytes,
    /// Multiplies matrices.
    Product,
    /// Convolves.
    Convolution,
}

impl CostClass {
    /// How many classes there are.
    pub const COUNT: usize = 3;
}

impl Op {
    /// Which ops its estimated time errs like. A fused op errs like its dearest part.
    pub fn cost_class(&self) -> CostClass {
        match self {
            Op::Fused(fused) => fused.cost_class(),
            Op::Conv2D(..)
            | Op::Conv2DGradInput(..)
            | Op::Conv2DGradKernel(..)
            | Op::Conv3D(..)
            | Op::Conv3DGradInput(..)
            | Op::Conv3DGradKernel(..) => CostClass::Convolution,
            Op::Dense
            | Op::DenseGradInput
            | Op::DenseGradKernel
            | Op::Attention(..)
            | Op::AttentionGrad(..)
            | Op::Recurrent(..)
            | Op::RecurrentGrad(..)
            | Op::MatMul(..) => CostClass::Product,
            Op::BiasGrad
            | Op::MaxPool2D(..)
            | Op::MaxPool2DRelu(..)
            | Op::WinnersBiasGrad
            | Op::MaxPool2DGrad(..)
            | Op::AveragePool2D(..)
            | Op::AveragePool2DGrad(..)
            | Op::GlobalAveragePool2D
            | Op::GlobalAveragePool2DGrad(..)
            | Op::GlobalMaxPool2D
            | Op::GlobalMaxPool2DGrad(..)
            | Op::Elementwise(..)
            | Op::SignBits { .. }
            | Op::MaskBits
            | Op::Softmax
            | Op::SoftmaxGrad
            | Op::BalanceWeights
            | Op::Loss(..)
            | Op::ActivityPenalty(..)
            | Op::Mask(..)
            | Op::Metric(..)
            | Op::Dropout { .. }
            | Op::Augment(..)
            | Op::Noise(..)
            | Op::Affine { .. }
            | Op::AffineGradScale
            | Op::AffineConstant { .. }
            | Op::BatchNormStatistics
            | Op::BatchNorm(..)
            | Op::BatchNormGrad(..)
            | Op::BatchNormMoving { .. }
            | Op::BatchNormInference(..)
            | Op::BatchNormInferenceGrad(..)
            | Op::LayerNorm(..)
            | Op::LayerNormGrad(..)
            | Op::Pad2D(..)
            | Op::Crop2D(..)
            | Op::UpSample2D(..)
            | Op::UpSample2DGrad(..)
            | Op::Resize2D(..)
            | Op::Resize2DGrad(..)
            | Op::Transpose(..)
            | Op::Broadcast(..)
            | Op::SumTo(..)
            | Op::Concat(..)
            | Op::Slice { .. }
            | Op::PadAxis { .. }
            | Op::Embedding
            | Op::EmbeddingGrad
            | Op::Reshape(..)
            | Op::Cast(..)
            | Op::TakeRows
            | Op::PutRows
            | Op::Zero
            | Op::AddZero
            | Op::SumSquares
            | Op::CheckFinite(..)
            | Op::Accumulate(..)
            | Op::AddAccumulated(..)
            | Op::KeepAccumulated
            | Op::CorrectSquares(..)
            | Op::Update(..)
            | Op::CheckUpdate(..)
            | Op::Penalty(..)
            | Op::Constrain(..) => CostClass::Bytes,
        }
    }

    /// Whether it adds to a sum over the step that is read when the step ends: a loss or a metric.
    pub fn is_sum_of_step(&self) -> bool {
        matches!(self, Op::Loss(_) | Op::Metric(_) | Op::ActivityPenalty(_))
    }

    /// Whether rows of the batch meet, so that a batch may not be split without changing the result.
    pub fn mixes_rows(&self) -> bool {
        self.is_of_batch_norm()
            || matches!(self, Op::BalanceWeights)
            || matches!(self, Op::Loss(loss) if loss.kind.mixes_rows())
    }

    /// Whether it sums over the rows of a batch for a normalisation.
    pub fn is_of_batch_norm(&self) -> bool {
        matches!(self, Op::BatchNormStatistics | Op::BatchNormGrad(_))
            || matches!(self, Op::Fused(fused) if fused.mixes_rows())
    }

    /// Whether the output is the input's bytes under another shape.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::Reshape(_))
    }

    /// Pairs (output, input) that may stand at the same bytes when the input is not needed afterwards.
    pub fn in_place(&self) -> Vec<(usize, usize)> {
        match self {
            Op::Fused(fused) => fused.in_place(),
            Op::Elementwise(chain) => (0..chain.inputs).map(|input| (0, input)).collect(),
            Op::Softmax
            | Op::MaskBits
            | Op::Loss(_)
            | Op::Dropout { .. }
            | Op::Noise(_)
            | Op::Affine { .. }
            | Op::AffineConstant { .. }
            | Op::BatchNorm(_)
            | Op::BatchNormInference(_)
            | Op::BatchNormInferenceGrad(_)
            | Op::LayerNorm(..)
            | Op::Reshape(_) => vec![(0, 0)],
            Op::SoftmaxGrad | Op::BatchNormGrad(_) | Op::LayerNormGrad(..) => vec![(0, 0), (0, 1)],
            Op::AttentionGrad(_) => vec![(0, 4), (1, 2), (2, 3)],
            Op::Dense
            | Op::DenseGradInput
            | Op::DenseGradKernel
            | Op::BiasGrad
            | Op::Conv2D(_)
            | Op::Conv2DGradInput(..)
            | Op::Conv2DGradKernel(_)
            | Op::Conv3D(_)
            | Op::Conv3DGradInput(..)
            | Op::Conv3DGradKernel(_)
            | Op::ActivityPenalty(_)
            | Op::Mask(_)
            | Op::BalanceWeights
            | Op::MaxPool2D(_)
            | Op::MaxPool2DRelu(_)
            | Op::WinnersBiasGrad
            | Op::MaxPool2DGrad(..)
            | Op::AveragePool2D(_)
            | Op::AveragePool2DGrad(..)
            | Op::GlobalAveragePool2D
            | Op::GlobalAveragePool2DGrad(_)
            | Op::GlobalMaxPool2D
            | Op::GlobalMaxPool2DGrad(_)
            | Op::SignBits { .. }
            | Op::Metric(_)
            | Op::AffineGradScale
            | Op::BatchNormStatistics
            | Op::BatchNormMoving { .. }
            | Op::Attention(_)
            | Op::Augment(_)
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
            | Op::MatMul(_)
            | Op::Embedding
            | Op::EmbeddingGrad
            | Op::Cast(_)
            | Op::TakeRows
            | Op::PutRows
            | Op::Zero
            | Op::AddZero
            | Op::SumSquares
            | Op::CheckFinite(_)
            | Op::Accumulate(_)
            | Op::AddAccumulated(_)
            | Op::KeepAccumulated
            | Op::CheckUpdate(_)
            | Op::CorrectSquares(_)
            | Op::Update(_)
            | Op::Penalty(_)
            | Op::Constrain(_) => Vec::new(),
        }
    }

    /// The op's name in texts.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Dense => "dense",
            Op::DenseGradInput => "dense_grad_input",
            Op::DenseGradKernel => "dense_grad_kernel",
            Op::BiasGrad => "bias_grad",
            Op::Conv2D(_) => "conv2d",
            Op::Conv2DGradInput(..) => "conv2d_grad_input",
            Op::Conv2DGradKernel(_) => "conv2d_grad_kernel",
            Op::Conv3D(_) => "conv3d",
            Op::Conv3DGradInput(..) => "conv3d_grad_input",
            Op::Conv3DGradKernel(_) => "conv3d_grad_kernel",
            Op::ActivityPenalty(_) => "activity_penalty",
            Op::Mask(_) => "mask",
            Op::BalanceWeights => "balance_weights",
            Op::MaxPool2D(_) => "max_pool2d",
            Op::MaxPool2DRelu(_) => "max_pool2d_relu",
            Op::WinnersBiasGrad => "winners_bias_grad",
            Op::MaxPool2DGrad(..) => "max_pool2d_grad",
            Op::AveragePool2D(_) => "average_pool2d",
            Op::AveragePool2DGrad(..) => "average_pool2d_grad",
            Op::GlobalAveragePool2D => "global_average_pool2d",
            Op::GlobalAveragePool2DGrad(_) => "global_average_pool2d_grad",
            Op::GlobalMaxPool2D => "global_max_pool2d",
            Op::GlobalMaxPool2DGrad(_) => "global_max_pool2d_grad",
            Op::Fused(fused) => fused.name(),
            Op::Elementwise(_) => "elementwise",
            Op::SignBits { .. } => "sign_bits",
            Op::MaskBits => "mask_bits",
            Op::Softmax => "softmax",
            Op::SoftmaxGrad => "softmax_grad",
            Op::Loss(_) => "loss",
            Op::Metric(_) => "metric",
            Op::Dropout { .. } => "dropout",
            Op::Noise(_) => "noise",
            Op::Affine { .. } => "affine",
            Op::AffineGradScale => "affine_grad_scale",
            Op::AffineConstant { .. } => "affine_constant",
            Op::BatchNormStatistics => "batch_norm_statistics",
            Op::BatchNorm(_) => "batch_norm",
            Op::BatchNormGrad(_) => "batch_norm_grad",
            Op::BatchNormMoving { .. } => "batch_norm_moving",
            Op::BatchNormInference(_) => "batch_norm_inference",
            Op::BatchNormInferenceGrad(_) => "batch_norm_inference_grad",
            Op::LayerNorm(..) => "layer_norm",
            Op::LayerNormGrad(..) => "layer_norm_grad",
            Op::Attention(_) => "attention",
            Op::AttentionGrad(_) => "attention_grad",
            Op::Augment(_) => "augment",
            Op::Recurrent(_) => "recurrent",
            Op::RecurrentGrad(_) => "recurrent_grad",
            Op::Pad2D(_) => "pad2d",
            Op::Crop2D(_) => "crop2d",
            Op::UpSample2D(..) => "up_sample2d",
            Op::UpSample2DGrad(..) => "up_sample2d_grad",
            Op::Resize2D(..) => "resize2d",
            Op::Resize2DGrad(..) => "resize2d_grad",
            Op::Transpose(_) => "transpose",
            Op::Broadcast(_) => "broadcast",
            Op::SumTo(_) => "sum_to",
            Op::Concat(_) => "concat",
            Op::Slice { .. } => "slice",
            Op::PadAxis { .. } => "pad_axis",
            Op::MatMul(_) => "matmul",
            Op::Embedding => "embedding",
            Op::EmbeddingGrad => "embedding_grad",
            Op::Reshape(_) => "reshape",
            Op::Cast(_) => "cast",
            Op::TakeRows => "take_rows",
            Op::PutRows => "put_rows",
            Op::Zero => "zero",
            Op::AddZero => "add_zero",
            Op::SumSquares => "sum_squares",
            Op::CheckFinite(_) => "check_finite",
            Op::Accumulate(_) => "accumulate",
            Op::AddAccumulated(_) => "add_accumulated",
            Op::KeepAccumulated => "keep_accumulated",
            Op::CheckUpdate(_) => "check_update",
            Op::CorrectSquares(_) => "correct_squares",
            Op::Update(_) => "update",
            Op::Penalty(_) => "penalty",
            Op::Constrain(_) => "constrain",
        }
    }
}
