//! Losses with their gradients: the loss of each sample, by its definition, and what the sample counts.

mod classes;
mod dual;
mod elements;
mod overlap;

use memfit_ir::{Distance, Loss, LossKind, Reduction};

use super::call::{Call, Computed};

/// Keras keeps probabilities this far from 0 and 1, and divides by no number below it.
const EPSILON: f64 = 1e-7;

/// The gradient of every prediction, times the loss scale, and the loss.
pub(crate) fn launch(call: &Call, loss: &Loss) -> Computed {
    let kind = loss.kind.of_samples();
    let mut samples = Samples::new(call, kind);
    let scale = f64::from(call.context.loss_scale);
    let is_sum = matches!(loss.kind, LossKind::Reduced { reduction: Reduction::Sum, .. });
    // Where the mean is taken, it is over all samples of the batch.
    let count = if is_sum || kind.mixes_rows() { 1 } else { call.context.rows_total * samples.in_row };
    samples.share = f64::from(loss.weight) / count as f64;
    let (total, mut gradients) = samples.total(kind);
    gradients.iter_mut().for_each(|gradient| *gradient *= scale);
    Computed { outputs: vec![gradients], ..call.sums(&[vec![total]]) }
}

/// The weighted sum of the losses of rows, where the loss of a row is the mean of its samples'.
pub(crate) fn sum_over_rows(call: &Call, kind: &LossKind) -> f64 {
    let mut samples = Samples::new(call, kind.of_samples());
    samples.share = 1.0 / samples.in_row as f64;
    samples.total(kind.of_samples()).0
}

/// The mean of the losses of all samples, or their sum where the kind says so, each times its weight.
pub fn mean(
    kind: &LossKind,
    classes: usize,
    rows: usize,
    prediction: &[f64],
    target: &[f64],
    weights: Option<&[f64]>,
) -> f64 {
    let is_sum = matches!(kind, LossKind::Reduced { reduction: Reduction::Sum, .. });
    let kind = kind.of_samples();
    let mut samples = Samples::of(kind, classes, rows, prediction, target, weights);
    let count = prediction.len() / samples.classes;
    samples.share = if is_sum { 1.0 } else { 1.0 / count as f64 };
    samples.total(kind).0
}

/// Predictions and targets cut into samples.
struct Samples<'a> {
    prediction: &'a [f64],
    target: &'a [f64],
    /// One weight a row, or one a sample.
    weights: Option<&'a [f64]>,
    /// Predictions of a sample.
    classes: usize,
    /// Samples of a row.
    in_row: usize,
    /// What a sample of weight 1 counts.
    share: f64,
}

impl<'a> Samples<'a> {
    fn new(call: &Call<'a>, kind: &LossKind) -> Samples<'a> {
        let weights = call.input_if(call.inputs.len() == 3, 2);
        Samples::of(kind, call.last(0), call.rows(), call.input(0), call.input(1), weights)
    }

    fn of(
        kind: &LossKind,
        classes: usize,
        rows: usize,
        prediction: &'a [f64],
        target: &'a [f64],
        weights: Option<&'a [f64]>,
    ) -> Samples<'a> {
        let per_row = prediction.len() / rows.max(1);
        let overlapped =
            if let LossKind::Distance(distance) = kind { distance.axes_overlapped() } else { None };
        let classes = match overlapped {
            None => classes,
            Some(0) => prediction.len(),
            Some(_) => per_row,
        };
        Samples { prediction, target, weights, classes, in_row: (per_row / classes).max(1), share: 1.0 }
    }

    /// The sum of what samples count, and its gradient.
    fn total(&self, kind: &LossKind) -> (f64, Vec<f64>) {
        let (mut total, mut gradients) = (0.0, Vec::new());
        let count = self.prediction.len() / self.classes;
        for (sample, p) in self.prediction.chunks(self.classes).enumerate() {
            let weight = self.weights.map_or(1.0, |weights| weights[sample * weights.len() / count]);
            let share = self.share * weight;
            let (value, gradient) = match self.targets(kind, sample) {
                Some(t) => of_sample(kind, p, &t),
                // A sample that does not count needs no class.
                None if share == 0.0 => (0.0, vec![0.0; p.len()]),
                None => (f64::NAN, vec![f64::NAN; p.len()]),
            };
            total += share * value;
            gradients.extend(gradient.iter().map(|gradient| share * gradient));
        }
        (total, gradients)
    }

    /// The targets of a sample's classes; none where its number is that of no class.
    fn targets(&self, kind: &LossKind, sample: usize) -> Option<Vec<f64>> {
        if !kind.is_sparse() {
            return Some(self.target[sample * self.classes..(sample + 1) * self.classes].to_vec());
        }
        let class = self.target[sample];
        let mut shares = vec![0.0; self.classes];
        *shares.get_mut(if class < 0.0 { usize::MAX } else { class as usize })? = 1.0;
        Some(shares)
    }
}

/// The loss of a sample, and its gradient.
fn of_sample(kind: &LossKind, p: &[f64], t: &[f64]) -> (f64, Vec<f64>) {
    let smoothed = |smoothing: f32| -> Vec<f64> {
        let smoothing = f64::from(smoothing);
        t.iter().map(|t| t * (1.0 - smoothing) + smoothing / p.len() as f64).collect()
    };
    match *kind {
        LossKind::MeanSquaredError
        | LossKind::MeanAbsoluteError
        | LossKind::Huber { .. }
        | LossKind::BinaryCrossentropy { .. } => elements::mean(kind, p, t),
        LossKind::CategoricalCrossentropy { from_logits: true, label_smoothing } => {
            let t = smoothed(label_smoothing);
            classes::of_logits(p, &t, t.iter().sum())
        }
        LossKind::UnitCategoricalCrossentropy { label_smoothing } => {
            classes::of_logits(p, &smoothed(label_smoothing), 1.0)
        }
        LossKind::CategoricalCrossentropy { from_logits: false, label_smoothing } => {
            classes::of_shares(p, &smoothed(label_smoothing))
        }
        LossKind::SparseCategoricalCrossentropy { from_logits: true } => classes::of_logits(p, t, 1.0),
        LossKind::SparseCategoricalCrossentropy { from_logits: false } => classes::of_clipped(p, t),
        LossKind::Reduced { ref kind, .. } => of_sample(kind, p, t),
        LossKind::Distance(distance) => match distance {
            Distance::Poisson
            | Distance::LogCosh
            | Distance::Hinge
            | Distance::SquaredHinge
            | Distance::MeanAbsolutePercentageError
            | Distance::MeanSquaredLogarithmicError
            | Distance::KlDivergence
            | Distance::BinaryFocalCrossentropy { .. } => elements::mean(kind, p, t),
            Distance::CategoricalHinge => classes::hinge(p, t),
            Distance::CategoricalFocalCrossentropy { from_logits, label_smoothing, alpha, gamma } => {
                classes::focal(p, &smoothed(label_smoothing), from_logits, [alpha, gamma].map(f64::from))
            }
            Distance::Dice { .. } => overlap::of(p, t, 2.0, [0.0, 1.0, 1.0]),
            Distance::Tversky { alpha, beta, .. } => {
                let [alpha, beta] = [alpha, beta].map(f64::from);
                overlap::of(p, t, 1.0, [1.0 - alpha - beta, alpha, beta])
            }
            Distance::CosineSimilarity => classes::cosine(p, t),
        },
    }
}
