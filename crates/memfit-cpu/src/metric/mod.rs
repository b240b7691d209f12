//! Metrics: each micro-batch adds to sums from which the metric is computed at the end.

mod confusion;
mod mean;

use memfit_ir::Operand::{Prediction, SampleWeights, Target};
use memfit_ir::{LossKind, Metric, Shape};

use super::operands::Operands;

/// Doubles of workspace that a metric needs for predictions of this shape.
pub(crate) fn workspace(metric: &Metric, prediction: &Shape) -> usize {
    match metric {
        Metric::Mean(_) | Metric::RootMeanSquaredError => mean::WORKSPACE,
        Metric::Counts(_) | Metric::Iou(_) | Metric::FBeta(_) => {
            confusion::workspace(metric.sums(prediction))
        }
    }
}

/// Adds the sums of this micro-batch.
pub(crate) fn launch(operands: &Operands, metric: &Metric) {
    let rows = Rows::new(operands);
    match metric {
        Metric::Mean(value) => mean::launch(operands, &rows, value),
        Metric::RootMeanSquaredError => mean::launch_loss(operands, &rows, &LossKind::MeanSquaredError, 1.0),
        Metric::Counts(counts) => {
            let positives = confusion::Positives { rows: &rows, counts, targets: operands.input(Target) };
            confusion::launch(operands, &rows, &positives);
        }
        Metric::Iou(iou) => {
            let targets = match metric.is_sparse() {
                true => confusion::Targets::Numbers(operands.input(Target)),
                false => confusion::Targets::Values(operands.input(Target)),
            };
            confusion::launch(operands, &rows, &confusion::Labels { rows: &rows, iou, targets });
        }
        Metric::FBeta(score) => {
            let classes = confusion::Classes { rows: &rows, score, targets: operands.input(Target) };
            confusion::launch(operands, &rows, &classes);
        }
    }
}

/// Predictions, cut into rows and these into samples: the elements of the last axis.
struct Rows<'a> {
    prediction: &'a [f32],
    /// One weight a row, or one a sample.
    weights: Option<&'a [f32]>,
    /// Samples that have one weight.
    of_weight: usize,
    /// Samples of one row.
    in_row: usize,
    /// Elements of one sample.
    classes: usize,
}

impl<'a> Rows<'a> {
    fn new(operands: &Operands<'a>) -> Rows<'a> {
        let shape = operands.shape(Prediction);
        let classes = shape.last().max(1);
        let in_row = (shape.elements_per_row() / classes).max(1);
        let weights = operands.input_if_given(SampleWeights);
        let of_samples = weights.is_some() && !operands.shape(SampleWeights).dims.is_empty();
        Rows {
            prediction: operands.input(Prediction),
            weights,
            of_weight: if of_samples { 1 } else { in_row },
            in_row,
            classes,
        }
    }

    /// How many samples there are.
    fn samples(&self) -> usize {
        self.prediction.len() / self.classes
    }

    #[inline(always)]
    fn sample(&self, sample: usize) -> &'a [f32] {
        &self.prediction[sample * self.classes..(sample + 1) * self.classes]
    }

    /// What a sample counts.
    #[inline(always)]
    fn weight(&self, sample: usize) -> f64 {
        self.weights.map_or(1.0, |weights| f64::from(weights[sample / self.of_weight]))
    }
}

/// The index of the first largest element.
#[inline(always)]
fn argmax(values: &[f32]) -> usize {
    let (mut place, mut max) = (0, f32::NEG_INFINITY);
    for (index, value) in values.iter().enumerate() {
        (place, max) = if *value > max { (index, *value) } else { (place, max) };
    }
    place
}
