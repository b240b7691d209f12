//! Means over rows: the sum of weighted values, and the sum of weights.

use std::ops::Range;

use memfit_ir::Operand::{Sums, Target};
use memfit_ir::{Distance, LossKind, RowValue};

use super::super::loss;
use super::super::operands::Operands;
use super::super::sums::{self, Part, add_or_overwrite, sum, sum_pairs, sum_parts};
use super::{Rows, argmax};

/// Doubles of workspace that a mean needs.
pub(super) const WORKSPACE: usize = sums::PARTS_WORKSPACE;

/// Adds the values of this micro-batch's rows.
pub(super) fn launch(operands: &Operands, rows: &Rows, value: &RowValue) {
    let targets = match value {
        RowValue::Loss(kind) => return launch_loss(operands, rows, kind, 1.0),
        RowValue::CosineSimilarity => {
            return launch_loss(operands, rows, &LossKind::Distance(Distance::CosineSimilarity), -1.0);
        }
        RowValue::SparseCategoricalAccuracy | RowValue::SparseTopKCategoricalAccuracy { .. } => {
            Targets::Numbers(operands.input(Target))
        }
        RowValue::BinaryAccuracy { .. }
        | RowValue::Accuracy
        | RowValue::CategoricalAccuracy
        | RowValue::TopKCategoricalAccuracy { .. } => Targets::Values(operands.input(Target)),
    };
    let work = Samples { rows, value, targets };
    let workspace = operands.workspace().take_doubles(WORKSPACE);
    let total = sum_parts(operands.threads, rows.samples(), rows.classes, &work, workspace);
    add_mean(operands, rows.weights, rows, total / rows.in_row as f64);
}

/// Adds a factor times the losses of this micro-batch's rows.
pub(super) fn launch_loss(operands: &Operands, rows: &Rows, kind: &LossKind, factor: f64) {
    let total = loss::sum_over_rows(operands, kind, operands.workspace().take_doubles(WORKSPACE));
    add_mean(operands, if kind.counts_ignored() { None } else { rows.weights }, rows, factor * total);
}

fn add_mean(operands: &Operands, weights: Option<&[f32]>, rows: &Rows, total: f64) {
    // A row weighs the mean of what its samples do.
    let all = weights.map(|weights| sum(weights, |weight| weight) * rows.of_weight as f64);
    let weight = all.unwrap_or(rows.samples() as f64) / rows.in_row as f64;
    let sums = operands.update(Sums);
    add_or_overwrite(&mut sums[0], total, operands.fresh);
    add_or_overwrite(&mut sums[1], weight, operands.fresh);
}

enum Targets<'a> {
    Values(&'a [f32]),
    Numbers(&'a [i32]),
}

struct Samples<'a> {
    rows: &'a Rows<'a>,
    value: &'a RowValue,
    targets: Targets<'a>,
}

impl Part for Samples<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        range.map(|sample| self.rows.weight(sample) * self.hits(sample)).sum()
    }
}

impl Samples<'_> {
    /// The share of a sample's elements that are right, or whether the sample is.
    #[inline(always)]
    fn hits(&self, sample: usize) -> f64 {
        let prediction = self.rows.sample(sample);
        let classes = prediction.len();
        match self.targets {
            Targets::Numbers(numbers) => {
                let class = usize::try_from(numbers[sample]).ok().filter(|class| *class < classes);
                class.map_or(0.0, |class| f64::from(u8::from(self.is_hit(prediction, class))))
            }
            Targets::Values(targets) => {
                let targets = &targets[sample * classes..(sample + 1) * classes];
                let equal = |p: f64, t: f64| f64::from(u8::from(p == t));
                match self.value {
                    RowValue::BinaryAccuracy { threshold } => {
                        let threshold = f64::from(*threshold);
                        let side = |p: f64| f64::from(u8::from(p > threshold));
                        sum_pairs(prediction, targets, |p, t| equal(side(p), t)) / classes as f64
                    }
                    RowValue::Accuracy => sum_pairs(prediction, targets, equal) / classes as f64,
                    RowValue::CategoricalAccuracy
                    | RowValue::SparseCategoricalAccuracy
                    | RowValue::TopKCategoricalAccuracy { .. }
                    | RowValue::SparseTopKCategoricalAccuracy { .. }
                    | RowValue::CosineSimilarity
                    | RowValue::Loss(_) => f64::from(u8::from(self.is_hit(prediction, argmax(targets)))),
                }
            }
        }
    }

    /// Whether a sample predicts a class.
    #[inline(always)]
    fn is_hit(&self, prediction: &[f32], class: usize) -> bool {
        match self.value {
            RowValue::TopKCategoricalAccuracy { k } | RowValue::SparseTopKCategoricalAccuracy { k } => {
                // Of equal predictions at the border all count, as in Keras.
                let wanted = prediction[class];
                prediction.iter().filter(|p| **p > wanted).count() < *k && wanted.is_finite()
            }
            RowValue::CategoricalAccuracy
            | RowValue::SparseCategoricalAccuracy
            | RowValue::BinaryAccuracy { .. }
            | RowValue::Accuracy
            | RowValue::CosineSimilarity
            | RowValue::Loss(_) => argmax(prediction) == class,
        }
    }
}
