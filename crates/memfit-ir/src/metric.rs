//! Metrics: what a step sums up for each of them, and the number that is computed from such sums.
//!
//! Sums of micro-batches add up to those of a batch, and sums of batches to those of an epoch, so that a
//! metric is the same however rows are cut.

use crate::{Counts, LossKind, Shape};

/// Keras divides by what may be 0 with this added.
const EPSILON: f64 = 1e-7;

/// A metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Metric {
    /// The mean over rows of a value of each: two sums, of weighted values and of weights.
    Mean(RowValue),
    /// The root of the mean of squared differences: the same sums.
    RootMeanSquaredError,
    /// Counts on both sides of thresholds. For each interval between two thresholds, the weight of positives
    /// in it; then the same of negatives.
    Counts(Counts),
    /// How far the elements of a class and those predicted to be of it are the same. For each class the weight of those that are
    /// both; then of its own; then of those predicted.
    Iou(Iou),
    /// Precision and recall of each class in one number: the same sums.
    FBeta(FBeta),
}

/// What a row counts in a mean: itself a mean over all axes before the last.
#[derive(Clone, Debug, PartialEq)]
pub enum RowValue {
    /// Predictions above the threshold equal the targets.
    BinaryAccuracy {
        /// The threshold.
        threshold: f32,
    },
    /// Predictions equal the targets.
    Accuracy,
    /// The largest prediction stands where the largest target does.
    CategoricalAccuracy,
    /// The largest prediction stands at the target's number.
    SparseCategoricalAccuracy,
    /// Fewer than `k` predictions are larger than the one where the largest target stands.
    TopKCategoricalAccuracy {
        /// How many count.
        k: usize,
    },
    /// Fewer than `k` predictions are larger than the one at the target's number.
    SparseTopKCategoricalAccuracy {
        /// How many count.
        k: usize,
    },
    /// The cosine between prediction and target, where the loss of that name is its negative.
    CosineSimilarity,
    /// A loss.
    Loss(LossKind),
}

/// Intersection over union of classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Iou {
    /// How many classes there are.
    pub classes: usize,
    /// Of which the mean is taken.
    pub wanted: Vec<usize>,
    /// Whether targets are shares of every class, and not the class's number.
    pub one_hot: bool,
    /// How a prediction names a class.
    pub prediction: ClassOf,
    /// The class of targets that do not count.
    pub ignored: Option<i64>,
}

/// How a prediction names a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClassOf {
    /// The place of the largest of the last axis.
    Largest,
    /// The number itself, without its fraction.
    Number,
    /// 1 where it is at least this, else 0.
    AtLeast(f32),
}

/// Precision and recall of each class in one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FBeta {
    /// How much more recall counts than precision.
    pub beta: f32,
    /// Above which a class is predicted; the largest alone where it is not given.
    pub threshold: Option<f32>,
    /// How classes become one number.
    pub average: ClassAverage,
}

/// How classes become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassAverage {
    /// All counts together.
    Micro,
    /// The mean of the classes.
    Macro,
    /// The mean of the classes by how often each is there.
    Weighted,
    /// Not at all: there is a number for each.
    None,
}

impl Metric {
    /// Whether targets are class numbers (i32, without the last axis).
    pub fn is_sparse(&self) -> bool {
        match self {
            Metric::Mean(value) => match value {
                RowValue::SparseCategoricalAccuracy | RowValue::SparseTopKCategoricalAccuracy { .. } => true,
                RowValue::Loss(kind) => kind.is_sparse(),
                RowValue::BinaryAccuracy { .. }
                | RowValue::Accuracy
                | RowValue::CategoricalAccuracy
                | RowValue::TopKCategoricalAccuracy { .. }
                | RowValue::CosineSimilarity => false,
            },
            Metric::Iou(iou) => !iou.one_hot && iou.prediction == ClassOf::Largest,
            Metric::RootMeanSquaredError | Metric::Counts(_) | Metric::FBeta(_) => false,
        }
    }

    /// How many sums there are for a prediction of this shape.
    pub fn sums(&self, prediction: &Shape) -> usize {
        match self {
            Metric::Mean(_) | Metric::RootMeanSquaredError => 2,
            Metric::Counts(counts) => counts.sums(),
            Metric::Iou(iou) => 3 * iou.classes,
            Metric::FBeta(_) => 3 * prediction.last(),
        }
    }

    /// How many numbers the metric has for a prediction of this shape: one, or one a class or threshold.
    pub fn numbers(&self, prediction: &Shape) -> usize {
        match self {
            Metric::Mean(_) | Metric::RootMeanSquaredError | Metric::Iou(_) => 1,
            Metric::Counts(counts) => counts.numbers(),
            Metric::FBeta(score) => match score.average {
                ClassAverage::None => prediction.last(),
                ClassAverage::Micro | ClassAverage::Macro | ClassAverage::Weighted => 1,
            },
        }
    }

    /// One of the numbers that sums are: the first, where there is one.
    pub fn value(&self, sums: &[f64], number: usize) -> f64 {
        match self {
            Metric::Mean(_) => share(sums[0], sums[1]),
            Metric::RootMeanSquaredError => share(sums[0], sums[1]).sqrt(),
            Metric::Counts(counts) => counts.value(sums, number),
            Metric::Iou(iou) => iou.value(sums),
            Metric::FBeta(score) => score.value(sums, number),
        }
    }
}

/// The hits, the true and the predicted of a class.
fn class_sums(sums: &[f64], class: usize) -> [f64; 3] {
    let classes = sums.len() / 3;
    [0, 1, 2].map(|kind| sums[kind * classes + class])
}

impl Iou {
    fn value(&self, sums: &[f64]) -> f64 {
        let (mut total, mut there) = (0.0, 0.0);
        for class in &self.wanted {
            let [both, of_class, predicted] = class_sums(sums, *class);
            let either = of_class + predicted - both;
            if 1e-9 < either {
                total += both / (either + EPSILON);
                there += 1.0;
            }
        }
        total / (there + EPSILON)
    }
}

impl FBeta {
    fn value(&self, sums: &[f64], number: usize) -> f64 {
        let squared = f64::from(self.beta) * f64::from(self.beta);
        let score = |[both, of_class, predicted]: [f64; 3]| {
            let (precision, recall) = (both / (predicted + EPSILON), both / (of_class + EPSILON));
            precision * recall / (squared * precision + recall + EPSILON) * (1.0 + squared)
        };
        let classes = sums.len() / 3;
        let each = (0..classes).map(|class| class_sums(sums, class));
        match self.average {
            ClassAverage::Micro => {
                score([0, 1, 2].map(|kind| sums[kind * classes..(kind + 1) * classes].iter().sum()))
            }
            ClassAverage::None => score(class_sums(sums, number)),
            ClassAverage::Macro => each.map(score).sum::<f64>() / classes as f64,
            ClassAverage::Weighted => {
                let all: f64 = sums[classes..2 * classes].iter().sum();
                each.map(|sums| score(sums) * sums[1] / (all + EPSILON)).sum()
            }
        }
    }
}

/// A share of a whole, 0 where there is none.
pub(crate) fn share(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole }
}
