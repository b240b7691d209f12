//! The signature of every op: one line each.

use super::Along::{Independent, Mixed, Summed};
use super::Operand::{self, *};
use super::{Axes, CostClass, Facts, OperandList, Presence, Signature};
use crate::{Norm, Op, Update};

/// Every index of every axis alone.
pub(crate) const EACH: Axes =
    Axes { batch: Some(Independent), inner: Independent, last: [Independent; 4], mixed: None };
/// Every index alone, of values without a batch.
const EACH_OF_WEIGHT: Axes = Axes { batch: None, ..EACH };
/// Rows alone, whose values meet.
const ROWS: Axes = Axes { inner: Mixed, last: [Mixed; 4], ..EACH };
/// The last axis is summed over.
const LAST: Axes = Axes { last: [Independent, Independent, Independent, Mixed], ..EACH };
/// A product for each index of the axes before the last two.
const MATRICES: Axes = Axes { last: [Independent, Independent, Mixed, Mixed], ..EACH };
/// Height, width and channels meet.
const IMAGES: Axes = Axes { last: [Independent, Mixed, Mixed, Mixed], ..EACH };
/// Height and width meet in each channel.
const WINDOWS: Axes = Axes { last: [Independent, Mixed, Mixed, Independent], ..EACH };
/// Heads alone, in which places and features meet.
const HEADS: Axes = Axes { last: [Independent, Mixed, Independent, Mixed], ..EACH };
/// Rows add to a sum, and their values meet.
const SUMMED_ROWS: Axes = Axes { batch: Some(Summed), ..ROWS };
/// Every value adds to a sum.
const SUMMED: Axes = Axes { batch: Some(Summed), inner: Summed, last: [Summed; 4], mixed: None };
/// Every value of a weight adds to a sum.
const SUMMED_OF_WEIGHT: Axes = Axes { batch: None, ..SUMMED };
/// All indices of an index of the last axis add to a sum.
const SUMMED_CHANNELS: Axes = Axes { last: [Summed, Summed, Summed, Independent], ..SUMMED };
/// Rows add to a sum, in which taps meet.
const SUMMED_TAPS: Axes = Axes { last: [Summed, Mixed, Mixed, Independent], ..SUMMED };
/// The same in three dimensions.
const SUMMED_VOLUMES: Axes = Axes { last: [Mixed, Mixed, Mixed, Independent], ..SUMMED };
/// All indices of an index of the last axis meet.
const MIXED_CHANNELS: Axes =
    Axes { batch: Some(Mixed), inner: Mixed, last: [Mixed, Mixed, Mixed, Independent], mixed: None };
/// All values of a batch meet.
const MIXED: Axes = Axes { batch: Some(Mixed), ..ROWS };
/// All values of a weight meet.
const MIXED_OF_WEIGHT: Axes = Axes { batch: None, ..ROWS };

impl Op {
    /// The facts about an op.
    pub fn signature(&self) -> Signature {
        match self {
            Op::Fused(fused) => fused.signature(),
            Op::Dense => {
                op("dense", LAST).reads(&[X, Kernel]).may_read(Bias).writes(&[Y]).product().has_rule()
            }
            Op::DenseGradInput => {
                op("dense_grad_input", LAST).reads(&[Dy, Kernel]).writes(&[Dx]).product().has_rule()
            }
            Op::DenseGradKernel => {
                op("dense_grad_kernel", SUMMED_CHANNELS).reads(&[X, Dy]).changes(&[DKernel]).product()
            }
            Op::BiasGrad => op("bias_grad", SUMMED_CHANNELS).reads(&[Dy]).changes(&[DBias]),
            Op::Conv2D(_) => {
                conv("conv2d", IMAGES).reads(&[X, Kernel]).may_read(Bias).writes(&[Y]).has_rule()
            }
            Op::Conv2DGradInput(..) => {
                conv("conv2d_grad_input", IMAGES).reads(&[Dy, Kernel]).writes(&[Dx]).has_rule()
            }
            Op::Conv2DGradKernel(_) => {
                conv("conv2d_grad_kernel", SUMMED_TAPS).reads(&[X, Dy]).changes(&[DKernel])
            }
            Op::Conv3D(_) => conv("conv3d", ROWS).reads(&[X, Kernel]).may_read(Bias).writes(&[Y]).has_rule(),
            Op::Conv3DGradInput(..) => {
                conv("conv3d_grad_input", ROWS).reads(&[Dy, Kernel]).writes(&[Dx]).has_rule()
            }
            Op::Conv3DGradKernel(_) => {
                conv("conv3d_grad_kernel", SUMMED_VOLUMES).reads(&[X, Dy]).changes(&[DKernel])
            }
            Op::MaxPool2D(_) => op("max_pool2d", WINDOWS).reads(&[X]).writes(&[Y, Argmax]).has_rule(),
            Op::MaxPool2DRelu(_) => {
                op("max_pool2d_relu", WINDOWS).reads(&[X]).writes(&[Y, Argmax]).has_rule()
            }
            Op::ArgmaxBiasGrad => {
                op("argmax_bias_grad", SUMMED_CHANNELS).reads(&[Dy, Argmax]).changes(&[DBias])
            }
            Op::MaxPool2DGrad(..) => op("max_pool2d_grad", WINDOWS).reads(&[Dy, Argmax]).writes(&[Dx]),
            Op::AveragePool2D(_) => op("average_pool2d", WINDOWS).reads(&[X]).writes(&[Y]).has_rule(),
            Op::AveragePool2DGrad(..) => op("average_pool2d_grad", WINDOWS).reads(&[Dy]).writes(&[Dx]),
            Op::GlobalAveragePool2D => {
                op("global_average_pool2d", WINDOWS).reads(&[X]).writes(&[Y]).has_rule()
            }
            Op::GlobalAveragePool2DGrad(_) => {
                op("global_average_pool2d_grad", EACH).reads(&[Dy]).writes(&[Dx])
            }
            Op::GlobalMaxPool2D => {
                op("global_max_pool2d", WINDOWS).reads(&[X]).writes(&[Y, Argmax]).has_rule()
            }
            Op::GlobalMaxPool2DGrad(_) => {
                op("global_max_pool2d_grad", EACH).reads(&[Dy, Argmax]).writes(&[Dx])
            }
            Op::Elementwise(chain) => {
                op("elementwise", EACH).reads_each(X, chain.inputs).writes(&[Y]).shares(&[(Y, X)]).has_rule()
            }
            Op::SignBits { .. } => op("sign_bits", ROWS).reads(&[Y]).writes(&[Bits]).labels_all(),
            Op::MaskBits => op("mask_bits", EACH).reads(&[Dy, Bits]).writes(&[Dx]).shares(&[(Dx, Dy)]),
            Op::Softmax => op("softmax", LAST).reads(&[X]).writes(&[Y]).shares(&[(Y, X)]).has_rule(),
            Op::SoftmaxGrad => {
                op("softmax_grad", LAST).reads(&[Dy, Y]).writes(&[Dx]).shares(&[(Dx, Dy), (Dx, Y)])
            }
            Op::BalanceWeights => {
                op("balance_weights", MIXED).reads(&[SampleWeights]).writes(&[Y]).has_rule()
            }
            Op::Loss(loss) => {
                let axes = if loss.kind.mixes_rows() { MIXED } else { SUMMED_ROWS };
                let reads = op("loss", axes).reads(&[Prediction, Target]).may_read(SampleWeights);
                reads
                    .writes(&[DPrediction])
                    .changes(&[Loss])
                    .shares(&[(DPrediction, Prediction)])
                    .sum_of_step()
            }
            Op::ActivityPenalty(_) => {
                op("activity_penalty", SUMMED).reads(&[X]).writes(&[Dx]).changes(&[Loss]).sum_of_step()
            }
            Op::Mask(_) => op("mask", LAST).reads(&[X]).writes(&[Mask]).has_rule(),
            Op::Metric(_) => {
                let reads = op("metric", SUMMED_ROWS).reads(&[Prediction, Target]).may_read(SampleWeights);
                reads.changes(&[Sums]).sum_of_step()
            }
            Op::Dropout { .. } => {
                op("dropout", EACH).reads(&[X]).writes(&[Y]).shares(&[(Y, X)]).random(true).has_rule()
            }
            Op::Augment(_) => op("augment", IMAGES).reads(&[X]).writes(&[Y]).random(true),
            Op::Noise(_) => {
                op("noise", EACH).reads(&[X]).writes(&[Y]).shares(&[(Y, X)]).random(true).has_rule()
            }
            Op::Affine { scale, center } => {
                let reads = op("affine", EACH).reads(&[X]).reads_if(*scale, Scale).reads_if(*center, Offset);
                reads.writes(&[Y]).shares(&[(Y, X)]).has_rule()
            }
            Op::AffineGradScale => op("affine_grad_scale", SUMMED_ROWS).reads(&[X, Dy]).changes(&[DScale]),
            Op::AffineConstant { .. } => {
                op("affine_constant", EACH).reads(&[X]).writes(&[Y]).shares(&[(Y, X)]).has_rule()
            }
            Op::BatchNormStatistics => {
                let reads = op("batch_norm_statistics", MIXED_CHANNELS).reads(&[X]);
                reads.writes(&[Mean, Variance]).labels_all().of_batch_norm()
            }
            Op::BatchNorm(norm) => {
                let reads = op("batch_norm", EACH).reads(&[X]).weights(norm).reads(&[Mean, Variance]);
                reads.writes(&[Y]).shares(&[(Y, X)]).has_rule()
            }
            Op::BatchNormGrad(norm) => {
                let reads = op("batch_norm_grad", MIXED_CHANNELS).reads(&[Dy, X, Mean, Variance]);
                reads.gamma(norm).writes(&[Dx]).gradients(norm).shares(&[(Dx, Dy), (Dx, X)]).of_batch_norm()
            }
            Op::BatchNormMoving { .. } => {
                let reads =
                    op("batch_norm_moving", EACH_OF_WEIGHT).reads(&[Mean, Variance]).may_read(FoundInf);
                reads.changes(&[MovingMean, MovingVariance])
            }
            Op::BatchNormInference(norm) => {
                let reads = op("batch_norm_inference", EACH).reads(&[X]).weights(norm);
                reads.reads(&[MovingMean, MovingVariance]).writes(&[Y]).shares(&[(Y, X)]).has_rule()
            }
            Op::BatchNormInferenceGrad(norm) => {
                let reads = op("batch_norm_inference_grad", EACH).reads(&[Dy]).gamma(norm);
                reads.reads(&[MovingVariance]).writes(&[Dx]).shares(&[(Dx, Dy)])
            }
            Op::LayerNorm(norm, axes) => {
                let reads = op("layer_norm", last(*axes, EACH)).reads(&[X]).weights(norm);
                reads.writes(&[Y, Mean, Rstd]).shares(&[(Y, X)]).has_rule()
            }
            Op::LayerNormGrad(norm, axes) => {
                let rows = if norm.scale || norm.center { SUMMED } else { EACH };
                let reads = op("layer_norm_grad", last(*axes, rows)).reads(&[Dy, X, Mean, Rstd]).gamma(norm);
                reads.writes(&[Dx]).gradients(norm).shares(&[(Dx, Dy), (Dx, X)])
            }
            Op::Attention(kind) => {
                let reads = op("attention", HEADS).reads(&[Q, K, V]).reads_if(kind.query_mask, QueryMask);
                let writes = reads.reads_if(kind.key_mask, KeyMask).writes(&[Y, LogSumExp]);
                writes.product().random(kind.dropout.is_some()).has_rule()
            }
            Op::AttentionGrad(kind) => {
                let reads = op("attention_grad", HEADS).reads(&[Dy, Q, K, V, Y, LogSumExp]);
                let reads = reads.reads_if(kind.query_mask, QueryMask).reads_if(kind.key_mask, KeyMask);
                let writes = reads.writes(&[Dq, Dk, Dv]).labels_all().shares(&[(Dq, Y), (Dk, K), (Dv, V)]);
                writes.product().random(kind.dropout.is_some())
            }
            Op::Recurrent(kind) => {
                let reads = op("recurrent", ROWS).reads(&[X, Kernel]).may_read(Bias);
                let writes = reads.reads_if(kind.masked, Operand::Mask).writes(&[Y]);
                writes.writes_if(kind.cell.kept() > 0, Kept).product().has_rule()
            }
            Op::RecurrentGrad(kind) => {
                let reads =
                    op("recurrent_grad", SUMMED_ROWS).reads(&[Dy, Y]).reads_if(kind.cell.kept() > 0, Kept);
                let reads = reads.reads(&[Kernel]).reads_if(kind.masked, Operand::Mask);
                reads.writes(&[Dx]).changes(&[DKernel]).may_change(DBias).product()
            }
            Op::Pad2D(_) => op("pad2d", WINDOWS).reads(&[X]).writes(&[Y]).has_rule(),
            Op::Crop2D(_) => op("crop2d", WINDOWS).reads(&[X]).writes(&[Y]).has_rule(),
            Op::UpSample2D(..) => op("up_sample2d", WINDOWS).reads(&[X]).writes(&[Y]).has_rule(),
            Op::UpSample2DGrad(..) => op("up_sample2d_grad", WINDOWS).reads(&[Dy]).writes(&[Dx]),
            Op::Resize2D(..) => op("resize2d", WINDOWS).reads(&[X]).writes(&[Y]).has_rule(),
            Op::Resize2DGrad(..) => op("resize2d_grad", WINDOWS).reads(&[Dy]).writes(&[Dx]),
            Op::Transpose(_) => op("transpose", EACH).reads(&[X]).writes(&[Y]).has_rule(),
            Op::Broadcast(_) => op("broadcast", EACH).reads(&[X]).writes(&[Y]).has_rule(),
            Op::SumTo(_) => op("sum_to", ROWS).reads(&[X]).writes(&[Y]).has_rule(),
            Op::Concat(axis) => op("concat", EACH).mixes(*axis).reads_any(X).writes(&[Y]).has_rule(),
            Op::Slice { axis, .. } => op("slice", EACH).mixes(*axis).reads(&[X]).writes(&[Y]).has_rule(),
            Op::PadAxis { axis, .. } => op("pad_axis", EACH).mixes(*axis).reads(&[X]).writes(&[Y]).has_rule(),
            Op::MatMul(_) => op("matmul", MATRICES).reads(&[A, B]).writes(&[Y]).product().has_rule(),
            Op::Embedding => op("embedding", EACH).reads(&[Ids, Table]).writes(&[Y]).has_rule(),
            Op::EmbeddingGrad => op("embedding_grad", SUMMED).reads(&[Ids, Dy]).changes(&[DTable]),
            Op::Reshape(_) => {
                op("reshape", ROWS).reads(&[X]).writes(&[Y]).shares(&[(Y, X)]).view().has_rule()
            }
            Op::Cast(_) => op("cast", EACH).reads(&[X]).writes(&[Y]).has_rule(),
            Op::TakeRows => op("take_rows", EACH).reads(&[X]).writes(&[Y]),
            Op::PutRows => op("put_rows", EACH).reads(&[X]).changes(&[Y]),
            Op::Zero => op("zero", EACH).writes(&[X]),
            Op::AddZero => op("add_zero", EACH_OF_WEIGHT).changes(&[Sum]),
            Op::SumSquares => op("sum_squares", SUMMED_OF_WEIGHT).reads(&[Gradient]).changes(&[Sum]),
            Op::CheckFinite(_) => {
                op("check_finite", SUMMED_OF_WEIGHT).reads(&[Gradient]).changes(&[FoundInf])
            }
            Op::Accumulate(of) => {
                let reads =
                    op("accumulate", EACH_OF_WEIGHT).reads(&[Gradient]).reads_if(of.guarded, FoundInf);
                reads.changes(&[Sum])
            }
            Op::AddAccumulated(_) => op("add_accumulated", EACH_OF_WEIGHT).reads(&[Sum]).changes(&[Gradient]),
            Op::KeepAccumulated => {
                op("keep_accumulated", EACH_OF_WEIGHT).reads(&[Gradient, FoundInf]).changes(&[Sum])
            }
            Op::CorrectSquares(_) => {
                op("correct_squares", EACH_OF_WEIGHT).reads(&[Gradient, Squares]).changes(&[State])
            }
            Op::Update(update) => {
                let reads = op("update", of_update(update)).reads(&[Gradient]).norm(update);
                reads.reads_if(update.guarded, FoundInf).written(update)
            }
            Op::CheckUpdate(check) => {
                let reads = op("check_update", MIXED_OF_WEIGHT).reads(&[Gradient]).norm(&check.update);
                let written = op("", MIXED_OF_WEIGHT).written(&check.update).updates;
                reads.reads_list(written).changes(&[FoundInf])
            }
            Op::Penalty(_) => {
                op("penalty", MIXED_OF_WEIGHT).reads(&[Weight]).changes(&[Loss]).may_change(Gradient)
            }
            Op::Constrain(_) => op("constrain", MIXED_OF_WEIGHT).may_read(FoundInf).changes(&[Weight]),
        }
    }
}

/// An op without operands that moves bytes.
#[inline(always)]
pub(crate) const fn op(name: &'static str, axes: Axes) -> Signature {
    let facts = Facts {
        axes,
        cost_class: CostClass::Bytes,
        is_view: false,
        is_random: false,
        is_sum_of_step: false,
        is_of_batch_norm: false,
        is_differentiable: false,
    };
    let none = OperandList::NONE;
    let (in_place, labels_all) = ([None; 3], false);
    Signature { name, inputs: none, outputs: none, updates: none, in_place, labels_all, facts }
}

#[inline(always)]
const fn conv(name: &'static str, axes: Axes) -> Signature {
    let signature = op(name, axes);
    Signature { facts: Facts { cost_class: CostClass::Convolution, ..signature.facts }, ..signature }
}

/// The last axes meet, and each index of those before is as in `before`.
fn last(axes: usize, before: Axes) -> Axes {
    let mut all = before;
    all.last.iter_mut().rev().take(axes).for_each(|along| *along = Mixed);
    Axes { inner: if 4 < axes { Mixed } else { all.inner }, ..all }
}

fn of_update(update: &Update) -> Axes {
    if update.rule.is_elementwise() { EACH_OF_WEIGHT } else { MIXED_OF_WEIGHT }
}

impl Signature {
    #[inline(always)]
    pub(crate) fn reads(mut self, operands: &[Operand]) -> Signature {
        self.inputs.always(operands);
        self
    }

    #[inline(always)]
    pub(super) fn reads_if(mut self, given: bool, operand: Operand) -> Signature {
        self.inputs.push(operand, Presence::Asked { given });
        self
    }

    #[inline(always)]
    pub(crate) fn may_read(mut self, operand: Operand) -> Signature {
        self.inputs.push(operand, Presence::Optional);
        self
    }

    #[inline(always)]
    pub(crate) fn reads_each(mut self, operand: Operand, times: usize) -> Signature {
        self.inputs.push(operand, Presence::Repeated);
        self.inputs.times = Some(u32::try_from(times).unwrap_or(u32::MAX));
        self
    }

    #[inline(always)]
    fn reads_any(mut self, operand: Operand) -> Signature {
        self.inputs.push(operand, Presence::Repeated);
        self
    }

    #[inline(always)]
    pub(super) fn reads_list(mut self, list: OperandList) -> Signature {
        self.inputs.extend(list.places(), list.times);
        self
    }

    #[inline(always)]
    pub(crate) fn writes(mut self, operands: &[Operand]) -> Signature {
        self.outputs.always(operands);
        self
    }

    #[inline(always)]
    fn writes_if(mut self, given: bool, operand: Operand) -> Signature {
        self.outputs.push(operand, Presence::Asked { given });
        self
    }

    #[inline(always)]
    pub(crate) fn changes(mut self, operands: &[Operand]) -> Signature {
        self.updates.always(operands);
        self
    }

    #[inline(always)]
    fn changes_if(mut self, given: bool, operand: Operand) -> Signature {
        self.updates.push(operand, Presence::Asked { given });
        self
    }

    #[inline(always)]
    pub(crate) fn may_change(mut self, operand: Operand) -> Signature {
        self.updates.push(operand, Presence::Optional);
        self
    }

    /// Pairs (output, input) that may stand at the same bytes.
    #[inline(always)]
    pub(crate) fn shares(mut self, pairs: &[(Operand, Operand)]) -> Signature {
        self.in_place.iter_mut().zip(pairs).for_each(|(place, pair)| *place = Some(*pair));
        self
    }

    /// What a normalisation reads of its own.
    #[inline(always)]
    pub(crate) fn weights(self, norm: &Norm) -> Signature {
        self.gamma(norm).reads_if(norm.center, Beta)
    }

    #[inline(always)]
    pub(crate) fn gamma(self, norm: &Norm) -> Signature {
        self.reads_if(norm.scale, Gamma)
    }

    /// The gradients of the weights of a normalisation.
    #[inline(always)]
    pub(crate) fn gradients(self, norm: &Norm) -> Signature {
        self.changes_if(norm.scale, DGamma).changes_if(norm.center, DBeta)
    }

    #[inline(always)]
    fn norm(self, update: &Update) -> Signature {
        self.reads_if(update.clips_by_norm(), SquaredNorm)
    }

    /// What an update changes.
    #[inline(always)]
    pub(super) fn written(mut self, update: &Update) -> Signature {
        self.updates.always(&[Weight]);
        self.updates.push(State, Presence::Repeated);
        self.updates.times = update.rule.states().and_then(|states| u32::try_from(states).ok());
        self.changes_if(update.average.is_some(), Average)
    }

    #[inline(always)]
    fn mixes(mut self, axis: usize) -> Signature {
        self.facts.axes.mixed = Some(axis);
        self
    }

    #[inline(always)]
    fn product(mut self) -> Signature {
        self.facts.cost_class = CostClass::Product;
        self
    }

    #[inline(always)]
    fn random(mut self, is_random: bool) -> Signature {
        self.facts.is_random = is_random;
        self
    }

    #[inline(always)]
    fn view(mut self) -> Signature {
        self.facts.is_view = true;
        self
    }

    #[inline(always)]
    fn sum_of_step(mut self) -> Signature {
        self.facts.is_sum_of_step = true;
        self
    }

    #[inline(always)]
    fn of_batch_norm(mut self) -> Signature {
        self.facts.is_of_batch_norm = true;
        self
    }

    /// The rule of its gradient is in `memfit-grad`.
    #[inline(always)]
    pub(crate) fn has_rule(mut self) -> Signature {
        self.facts.is_differentiable = true;
        self
    }

    #[inline(always)]
    fn labels_all(mut self) -> Signature {
        self.labels_all = true;
        self
    }
}
