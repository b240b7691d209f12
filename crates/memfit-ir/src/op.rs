//! The closed set of operations: forward, backward and optimizer alike.
//!
//! A node reads `inputs`, writes `outputs`, and changes `updates` in place; which is which, and all that is known of an op
//! without its operands, is its signature (`signature`). Images are NHWC, filters `[h, w, in, out]`.

use crate::{
    Accumulate, Attention, Augment, Chain, CheckUpdate, Constraint, Conv2D, Conv3D, DType, Distance, Fused,
    Interpolation, Mask, MatMul, Metric, Noise, Pads, Pool2D, Recurrent, Reduction, Regularizer, Update,
};

/// What a node computes.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A product over the last axis.
    Dense,
    /// The product with the transposed kernel.
    DenseGradInput,
    /// The products of inputs and gradients.
    DenseGradKernel,
    /// The sum over every axis but the last.
    BiasGrad,
    /// A convolution of images.
    Conv2D(Conv2D),
    /// The gradient of its input, of this height and width.
    Conv2DGradInput(Conv2D, [usize; 2]),
    /// The gradient of its kernel.
    Conv2DGradKernel(Conv2D),
    /// A convolution of `x[depth,height,width,channels]` and `kernel[depth,height,width,in,out]`.
    Conv3D(Conv3D),
    /// The gradient of its input, of this depth, height and width.
    Conv3DGradInput(Conv3D, [usize; 3]),
    /// The gradient of its kernel.
    Conv3DGradKernel(Conv3D),
    /// Several ops at once.
    Fused(Fused),
    /// The maximum of each window, and its place in the window as one byte.
    MaxPool2D(Pool2D),
    /// The same with a ReLU after it: windows whose maximum is not positive have no argmax,
    /// [`Pool2D::NO_ARGMAX`].
    MaxPool2DRelu(Pool2D),
    /// The sum of `dy` over every axis but the last, of all windows that have an argmax.
    ArgmaxBiasGrad,
    /// Each gradient at the place of its maximum, in an image of this height and width.
    MaxPool2DGrad(Pool2D, [usize; 2]),
    /// The mean of each window; padding is not counted.
    AveragePool2D(Pool2D),
    /// Its gradient, of this height and width.
    AveragePool2DGrad(Pool2D, [usize; 2]),
    /// The mean over height and width.
    GlobalAveragePool2D,
    /// Its gradient, of this height and width.
    GlobalAveragePool2DGrad([usize; 2]),
    /// The maximum over height and width, and its pixel as an i32.
    GlobalMaxPool2D,
    /// Its gradient, of this height and width.
    GlobalMaxPool2DGrad([usize; 2]),
    /// Elementwise work on tensors of one shape.
    Elementwise(Chain),
    /// One bit an element, set where it is positive; every row starts on a byte.
    SignBits {
        /// Elements from here on have no bit either: where a bounded ReLU saturates. Infinite for none.
        below: f32,
    },
    /// `dy` where the bit is set, else 0.
    MaskBits,
    /// Softmax over the last axis.
    Softmax,
    /// Its gradient, from its result.
    SoftmaxGrad,
    /// Weights of the batch's samples, scaled so that their mean is 1.
    BalanceWeights,
    /// A loss with its gradient.
    Loss(Loss),
    /// What a regularizer says of values, for each row the same share, with its gradient.
    ActivityPenalty(Regularizer),
    /// 1 at places that count, else 0.
    Mask(Mask),
    /// The sums of a metric.
    Metric(Metric),
    /// Elements set to 0 at random, others scaled; applied to `dy` with the same seed it is its own gradient.
    Dropout {
        /// The share of elements set to 0.
        rate: f32,
        /// Which sequence of draws this layer uses.
        seed: u64,
    },
    /// Images changed at random.
    Augment(Augment),
    /// Random numbers of another kind, or shared by neighbours.
    Noise(Noise),
    /// Times a weight of the last axes, plus a weight of the last axis.
    Affine {
        /// Whether there is a scale.
        scale: bool,
        /// Whether there is an offset.
        center: bool,
    },
    /// The gradient of its scale.
    AffineGradScale,
    /// Times and plus numbers for each index of the last axis.
    AffineConstant {
        /// Factors.
        scale: Vec<f32>,
        /// Terms.
        offset: Vec<f32>,
    },
    /// Mean and variance over all axes but the last.
    BatchNormStatistics,
    /// A normalisation by the batch's own statistics, which its gradient reaches through.
    BatchNorm(Norm),
    /// Its gradients.
    BatchNormGrad(Norm),
    /// Moving averages of a batch's statistics.
    BatchNormMoving {
        /// What is kept of the old average.
        momentum: f32,
    },
    /// A normalisation by moving averages.
    BatchNormInference(Norm),
    /// Its gradient.
    BatchNormInferenceGrad(Norm),
    /// A normalisation over this many last axes.
    LayerNorm(Norm, usize),
    /// Its gradients.
    LayerNormGrad(Norm, usize),
    /// `q[queries,heads,width]` look at `k[keys,key_heads,width]` and give `y[queries,heads,value_width]` of
    /// `v[keys,key_heads,value_width]`, and `logsumexp[heads,queries]`; no matrix of queries and keys is stored. Where there are
    /// fewer key heads than heads, neighbouring heads share one.
    Attention(Attention),
    /// Its gradients.
    AttentionGrad(Attention),
    /// A cell over all steps, from a dense op's output: `x[steps,gates·units]` and `kernel[units,gates·units]` give `y[steps,units]`.
    /// States to begin and to end with are further rows of `x` and `y`.
    Recurrent(Recurrent),
    /// Its gradients.
    RecurrentGrad(Recurrent),
    /// Zeros around height and width.
    Pad2D(Pads),
    /// Height and width without their margins.
    Crop2D(Pads),
    /// Height and width times these factors.
    UpSample2D([usize; 2], Interpolation),
    /// Its gradient.
    UpSample2DGrad([usize; 2], Interpolation),
    /// Images resized to this height and width.
    Resize2D([usize; 2], Interpolation),
    /// Its gradient, of this height and width.
    Resize2DGrad([usize; 2], Interpolation),
    /// Axis `i` of `y` is axis `order[i]` of `x`, counted after the batch.
    Transpose(Vec<usize>),
    /// Dimensions of 1 repeated to these.
    Broadcast(Vec<usize>),
    /// The sum back to these dimensions.
    SumTo(Vec<usize>),
    /// Tensors one after the other along an axis counted after the batch.
    Concat(usize),
    /// `length` indices of an axis counted after the batch, from `start`.
    Slice {
        /// The axis, counted after the batch.
        axis: usize,
        /// First index.
        start: usize,
        /// Number of indices.
        length: usize,
    },
    /// Zeros before and after the indices of an axis counted after the batch.
    PadAxis {
        /// The axis, counted after the batch.
        axis: usize,
        /// Indices before.
        before: usize,
        /// Indices after.
        after: usize,
    },
    /// `y[…,m,n]` of `a[…,m,k]` and `b[…,k,n]`: a product for each index of the axes before.
    MatMul(MatMul),
    /// Entries of a table, by their numbers.
    Embedding,
    /// The gradient of the table.
    EmbeddingGrad,
    /// The same bytes under other dimensions.
    Reshape(Vec<usize>),
    /// The same numbers as floats of another type, rounded where it is the smaller.
    Cast(DType),
    /// A slice of the rows of a micro-batch.
    TakeRows,
    /// Writes a slice of the rows; all slices together write all of them.
    PutRows,
    /// Zeros.
    Zero,
    /// Adds nothing, where a gradient is known to be 0.
    AddZero,
    /// Adds the sum of squares, for clipping by norm.
    SumSquares,
    /// Where a gradient is not finite, `found_inf` becomes this number, from 1, unless it holds a smaller one already; it stays 0
    /// where all gradients are finite.
    CheckFinite(usize),
    /// Adds up gradients of several steps; the first of them resets the sum.
    Accumulate(Accumulate),
    /// Adds the gradients of the steps before, of this many that make one update, to this step's, which loses its loss scale.
    AddAccumulated(u64),
    /// Keeps the gradients so far for the next step, unless found_inf is not 0.
    KeepAccumulated,
    /// Adds `factor · (squares − gradient²)` to state that follows squared gradients, before the update adds the square of the sum: so
    /// the state follows sums of squares instead, as TensorFlow's does for embeddings.
    CorrectSquares(f32),
    /// One optimizer's update of one weight.
    Update(Update),
    /// Computes what an update would write, and writes none of it: where it is not finite, found_inf becomes the number of the check,
    /// unless it holds a smaller one already.
    CheckUpdate(CheckUpdate),
    /// What a regularizer adds to the loss and to the gradient.
    Penalty(Regularizer),
    /// Brings a weight back into its permitted range.
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
