//! Metrics: sums over rows of what Keras would average, so that the sum over rows is the mean.

use std::ops::Range;

use memfit_ir::Metric;

use super::operands::Operands;
use super::sums::{self, Part, settle, sum_pairs, sum_parts};

/// Doubles of workspace that a metric wants.
pub(crate) const WORKSPACE: usize = sums::PARTS_WORKSPACE;

/// Adds the metric of this piece.
pub(crate) fn launch(operands: &Operands, metric: Metric) {
    let prediction: &[f32] = operands.input(0);
    let shape = operands.input_shape(0);
    let classes = shape.last().max(1);
    let in_row = (shape.elements_per_row() / classes).max(1);
    let targets = match metric {
        Metric::SparseCategoricalAccuracy => Targets::Numbers(operands.input(1)),
        Metric::BinaryAccuracy
        | Metric::CategoricalAccuracy
        | Metric::MeanAbsoluteError
        | Metric::MeanSquaredError => Targets::Values(operands.input(1)),
    };
    let work = Samples { metric, prediction, targets, classes };
    let workspace = operands.workspace().take_doubles(WORKSPACE);
    let total = sum_parts(operands.threads, prediction.len() / classes, classes, &work, workspace);
    settle(&mut operands.update(0)[0], total / in_row as f64, operands.fresh);
}

enum Targets<'a> {
    Values(&'a [f32]),
    Numbers(&'a [i32]),
}

struct Samples<'a> {
    metric: Metric,
    prediction: &'a [f32],
    targets: Targets<'a>,
    classes: usize,
}

impl Part for Samples<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        let elements = range.start * self.classes..range.end * self.classes;
        match self.targets {
            Targets::Numbers(targets) => {
                let samples = self.prediction[elements].chunks_exact(self.classes);
                let hits = samples.zip(&targets[range]);
                hits.filter(|(sample, number)| usize::try_from(**number) == Ok(place_of_largest(sample)))
                    .count() as f64
            }
            Targets::Values(targets) => {
                values(self.metric, &self.prediction[elements.clone()], &targets[elements], self.classes)
            }
        }
    }
}

/// The sum over samples of a metric whose targets have the shape of the prediction.
#[inline(always)]
fn values(metric: Metric, prediction: &[f32], targets: &[f32], classes: usize) -> f64 {
    let share = 1.0 / classes as f64;
    match metric {
        Metric::BinaryAccuracy => {
            share
                * sum_pairs(
                    prediction,
                    targets,
                    |p, t| if t == if p > 0.5 { 1.0 } else { 0.0 } { 1.0 } else { 0.0 },
                )
        }
        Metric::MeanAbsoluteError => share * sum_pairs(prediction, targets, |p, t| (p - t).abs()),
        Metric::MeanSquaredError => share * sum_pairs(prediction, targets, |p, t| (p - t) * (p - t)),
        Metric::CategoricalAccuracy | Metric::SparseCategoricalAccuracy => {
            let samples = prediction.chunks_exact(classes).zip(targets.chunks_exact(classes));
            samples.filter(|(p, t)| place_of_largest(p) == place_of_largest(t)).count() as f64
        }
    }
}

/// The first place of the largest element.
#[inline(always)]
fn place_of_largest(values: &[f32]) -> usize {
    let (mut place, mut most) = (0, f32::NEG_INFINITY);
    for (index, value) in values.iter().enumerate() {
        (place, most) = if *value > most { (index, *value) } else { (place, most) };
    }
    place
}
