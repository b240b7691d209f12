//! Losses with their gradients: one pass writes the gradient of every prediction and sums the loss in double
//! precision.

mod distance;
mod elements;
mod focal;
mod logits;
mod overlap;
mod probabilities;

use memfit_ir::Operand::{DPrediction, Prediction, SampleWeights, Target};
use memfit_ir::{Distance, Loss, LossKind, Operand, Reduction};

use super::floats::Floats;
use super::operands::Operands;
use super::sums::{self, add_or_overwrite};

/// Probabilities are kept this far from 0 and 1, as in Keras.
const EPSILON: f32 = 1e-7;

/// What all losses share.
struct Samples<'a> {
    prediction: Floats<'a>,
    /// Where gradients are written, if they are asked for.
    gradients: Option<Floats<'a>>,
    /// One weight a row, or one a sample.
    weights: Option<&'a [f32]>,
    /// Weights of one row.
    weights_in_row: usize,
    /// What a sample of weight 1 counts in the total: the loss's own weight over all samples of the batch.
    share: f64,
    /// Samples of one row: the product of all dimensions but the last.
    in_row: usize,
    /// Elements of one sample: the last dimension.
    classes: usize,
}

impl Samples<'_> {
    /// Elements that have one weight.
    #[inline(always)]
    fn elements_of_weight(&self) -> usize {
        self.in_row * self.classes / self.weights_in_row
    }

    /// What the samples of a weight count.
    #[inline(always)]
    fn weight_share(&self, weight: usize) -> f64 {
        self.share * self.weights.map_or(1.0, |weights| f64::from(weights[weight]))
    }

    /// What a sample counts.
    #[inline(always)]
    fn sample_share(&self, sample: usize) -> f64 {
        self.weight_share(sample * self.weights_in_row / self.in_row)
    }
}

/// Doubles of workspace that a loss needs.
pub(crate) const WORKSPACE: usize = sums::PARTS_WORKSPACE;

/// Writes the gradient of the prediction and adds the loss of this micro-batch.
pub(crate) fn launch(operands: &Operands, loss: &Loss) {
    let shape = operands.shape(Prediction);
    let kind = loss.kind.of_samples();
    let by_row = matches!(kind, LossKind::Distance(distance) if distance.is_overlap());
    let classes = if by_row { shape.elements_per_row() } else { shape.last() }.max(1);
    let in_row = shape.elements_per_row() / classes;
    // Gradients are written scaled, and the loss is not.
    let scale = f64::from(operands.context.loss_scale);
    let weights = operands.input_if_given(SampleWeights);
    let of_samples = weights.is_some() && !operands.shape(SampleWeights).dims.is_empty();
    let is_sum = matches!(loss.kind, LossKind::Reduced { reduction: Reduction::Sum, .. });
    let parts = if is_sum || kind.mixes_rows() { 1 } else { operands.context.rows_total * in_row };
    let samples = Samples {
        prediction: operands.input_floats(Prediction),
        gradients: Some(operands.output_floats(DPrediction)),
        weights,
        weights_in_row: if of_samples { in_row } else { 1 },
        share: f64::from(loss.weight) * scale / parts as f64,
        in_row,
        classes,
    };
    let total = total(operands, &samples, kind, operands.workspace().take_doubles(WORKSPACE));
    add_or_overwrite(&mut operands.update(Operand::Loss)[0], total / scale, operands.fresh);
}

/// The weighted sum of the losses of this micro-batch's rows; no gradient is written.
pub(crate) fn sum_over_rows(operands: &Operands, kind: &LossKind, workspace: &mut [f64]) -> f64 {
    let shape = operands.shape(Prediction);
    let classes = shape.last().max(1);
    let in_row = (shape.elements_per_row() / classes).max(1);
    let weights = operands.input_if_given(SampleWeights);
    let of_samples = weights.is_some() && !operands.shape(SampleWeights).dims.is_empty();
    let samples = Samples {
        prediction: operands.input_floats(Prediction),
        gradients: None,
        weights,
        weights_in_row: if of_samples { in_row } else { 1 },
        share: 1.0 / in_row as f64,
        in_row,
        classes,
    };
    total(operands, &samples, kind.of_samples(), workspace)
}

fn total(operands: &Operands, samples: &Samples, kind: &LossKind, workspace: &mut [f64]) -> f64 {
    let (threads, classes) = (operands.threads, samples.classes);
    match *kind {
        LossKind::Reduced { .. } => unreachable!("samples have a loss that is not reduced"),
        LossKind::Distance(Distance::CategoricalFocalCrossentropy {
            from_logits,
            label_smoothing,
            alpha,
            gamma,
        }) => {
            let targets =
                Soft { targets: operands.input(Target), smoothing: label_smoothing, classes, is_unit: false };
            focal::run(threads, samples, &targets, focal::Focal { from_logits, alpha, gamma }, workspace)
        }
        LossKind::Distance(distance) if distance.is_overlap() => {
            overlap::run(threads, samples, distance, operands.input(Target), workspace)
        }
        LossKind::Distance(distance @ (Distance::CategoricalHinge | Distance::CosineSimilarity)) => {
            distance::run_samples(threads, samples, distance, operands.input(Target), workspace)
        }
        LossKind::MeanSquaredError
        | LossKind::MeanAbsoluteError
        | LossKind::Huber { .. }
        | LossKind::BinaryCrossentropy { .. }
        | LossKind::Distance(_) => elements::run(threads, samples, kind, operands.input(Target), workspace),
        LossKind::CategoricalCrossentropy { from_logits, label_smoothing } => {
            let targets =
                Soft { targets: operands.input(Target), smoothing: label_smoothing, classes, is_unit: false };
            match from_logits {
                true => logits::run(threads, samples, &targets, workspace),
                false => probabilities::run_soft(threads, samples, &targets, workspace),
            }
        }
        LossKind::UnitCategoricalCrossentropy { label_smoothing } => {
            let targets =
                Soft { targets: operands.input(Target), smoothing: label_smoothing, classes, is_unit: true };
            logits::run(threads, samples, &targets, workspace)
        }
        LossKind::SparseCategoricalCrossentropy { from_logits } => {
            let targets = Numbers { numbers: operands.input(Target), classes };
            match from_logits {
                true => logits::run(threads, samples, &targets, workspace),
                false => probabilities::run_numbers(threads, samples, &targets, workspace),
            }
        }
    }
}

/// Targets that are shares of every class, smoothed.
struct Soft<'a> {
    targets: &'a [f32],
    smoothing: f32,
    classes: usize,
    /// Whether the gradient takes a sample's shares to sum to 1.
    is_unit: bool,
}

impl Soft<'_> {
    /// The targets of a sample, before they are smoothed.
    #[inline(always)]
    fn of(&self, sample: usize) -> &[f32] {
        &self.targets[sample * self.classes..(sample + 1) * self.classes]
    }

    /// A share, smoothed: what is kept of it, and what is added.
    #[inline(always)]
    fn smooth(&self) -> impl Fn(f32) -> f32 + use<> {
        let (kept, added) = (1.0 - self.smoothing, self.smoothing / self.classes as f32);
        move |target| target * kept + added
    }
}

/// Targets that are the number of one class.
struct Numbers<'a> {
    numbers: &'a [i32],
    classes: usize,
}

impl Numbers<'_> {
    /// The class of a sample, where there is one of this number.
    #[inline(always)]
    fn of(&self, sample: usize) -> Option<usize> {
        usize::try_from(self.numbers[sample]).ok().filter(|class| *class < self.classes)
    }
}

/// A probability kept away from 0 and 1; NaN stays.
#[inline(always)]
fn clip(p: f32) -> f32 {
    let p = if p < EPSILON { EPSILON } else { p };
    if p > 1.0 - EPSILON { 1.0 - EPSILON } else { p }
}

/// A gradient, or 0 where clipping makes the probability constant.
#[inline(always)]
fn unless_clipped(p: f32, gradient: f32) -> f32 {
    let gradient = if p < EPSILON { 0.0 } else { gradient };
    if p > 1.0 - EPSILON { 0.0 } else { gradient }
}
