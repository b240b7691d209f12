//! Metrics of positives and negatives: the counts between thresholds, and the rates and areas that are
//! computed from them.

use crate::metric::share;

/// Positives and negatives by thresholds.
#[derive(Clone, Debug, PartialEq)]
pub struct Counts {
    /// Where the lines are.
    pub thresholds: Thresholds,
    /// The one class that counts, of the last axis.
    pub class: Option<usize>,
    /// Only the `top_k` largest predictions of a sample can be positive.
    pub top_k: Option<usize>,
    /// Predictions are logits, not probabilities.
    pub from_logits: bool,
    /// Weights of the labels of the last axis, where each is counted apart and the mean of their numbers is taken.
    pub labels: Option<Vec<f32>>,
    /// What is computed from the counts.
    pub of: Rate,
}

/// Where a prediction counts as positive: above.
#[derive(Clone, Debug, PartialEq)]
pub enum Thresholds {
    /// These, rising.
    At(Vec<f32>),
    /// `count` thresholds, evenly spaced from 0 to 1.
    Even {
        /// How many; at least 2.
        count: usize,
        /// Whether the first lies below 0, so that nothing is not above it.
        open: bool,
    },
}

/// What is computed from counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Positives above the threshold.
    TruePositives,
    /// Negatives above it.
    FalsePositives,
    /// Negatives below it.
    TrueNegatives,
    /// Positives below it.
    FalseNegatives,
    /// Positives of all above it.
    Precision,
    /// Those above it of all positives.
    Recall,
    /// Those below it of all negatives.
    Specificity,
    /// The area below a curve over all thresholds.
    Auc {
        /// The curve.
        curve: Curve,
        /// How its steps are summed.
        summation: Summation,
    },
    /// The largest of one rate where another reaches a value.
    Best {
        /// The rate.
        rate: AtRate,
        /// The value that the other reaches.
        least: f32,
    },
}

/// One rate where another reaches a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtRate {
    /// Recall at a specificity.
    SensitivityAtSpecificity,
    /// Specificity at a recall.
    SpecificityAtSensitivity,
    /// Precision at a recall.
    PrecisionAtRecall,
    /// Recall at a precision.
    RecallAtPrecision,
}

/// A curve over thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// Recall over the share of false positives.
    Roc,
    /// Precision over recall.
    Pr,
}

/// How the area below a curve is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summation {
    /// By the middle of two neighbours; for precision over recall, as counts between them would make it.
    Interpolation,
    /// By the lower of two neighbours.
    Minoring,
    /// By the higher of two neighbours.
    Majoring,
}

impl Thresholds {
    /// Intervals between thresholds, before the first and after the last.
    pub fn stretches(&self) -> usize {
        match self {
            Thresholds::At(thresholds) => thresholds.len() + 1,
            Thresholds::Even { count, .. } => count + 1,
        }
    }

    /// How many thresholds a prediction is above.
    pub fn below(&self, prediction: f32) -> usize {
        match self {
            Thresholds::At(thresholds) => thresholds.partition_point(|threshold| *threshold < prediction),
            Thresholds::Even { count, open } => {
                let steps = (prediction.clamp(0.0, 1.0) * (count - 1) as f32).ceil() as usize;
                if *open { steps.max(1) } else { steps }
            }
        }
    }
}

/// What lies on either side of one threshold.
#[derive(Clone, Copy)]
struct Sides {
    true_positives: f64,
    false_positives: f64,
    true_negatives: f64,
    false_negatives: f64,
}

impl Sides {
    fn precision(&self) -> f64 {
        share(self.true_positives, self.true_positives + self.false_positives)
    }

    fn recall(&self) -> f64 {
        share(self.true_positives, self.true_positives + self.false_negatives)
    }

    fn specificity(&self) -> f64 {
        share(self.true_negatives, self.true_negatives + self.false_positives)
    }

    /// Those above the threshold of all negatives.
    fn fall_out(&self) -> f64 {
        share(self.false_positives, self.true_negatives + self.false_positives)
    }

    /// All above the threshold.
    fn above(&self) -> f64 {
        self.true_positives + self.false_positives
    }
}

impl Counts {
    /// How many sums there are.
    pub(crate) fn sums(&self) -> usize {
        2 * self.thresholds.stretches() * self.labels.as_ref().map_or(1, Vec::len)
    }

    /// How many numbers the metric has: one, or one a threshold.
    pub(crate) fn numbers(&self) -> usize {
        match self.of {
            Rate::TruePositives
            | Rate::FalsePositives
            | Rate::TrueNegatives
            | Rate::FalseNegatives
            | Rate::Precision
            | Rate::Recall
            | Rate::Specificity => self.thresholds.stretches() - 1,
            Rate::Auc { .. } | Rate::Best { .. } => 1,
        }
    }

    /// One of the numbers that sums are.
    pub(crate) fn value(&self, sums: &[f64], number: usize) -> f64 {
        let Some(weights) = &self.labels else { return self.value_of_one(sums, number) };
        let each = sums.chunks_exact(2 * self.thresholds.stretches());
        let total: f64 = each
            .zip(weights)
            .map(|(sums, weight)| self.value_of_one(sums, number) * f64::from(*weight))
            .sum();
        share(total, weights.iter().map(|weight| f64::from(*weight)).sum())
    }

    fn value_of_one(&self, sums: &[f64], number: usize) -> f64 {
        let all = sides(sums);
        let at = all[number];
        match self.of {
            Rate::TruePositives => at.true_positives,
            Rate::FalsePositives => at.false_positives,
            Rate::TrueNegatives => at.true_negatives,
            Rate::FalseNegatives => at.false_negatives,
            Rate::Precision => at.precision(),
            Rate::Recall => at.recall(),
            Rate::Specificity => at.specificity(),
            Rate::Auc { curve, summation } => {
                all.windows(2).map(|pair| area(curve, summation, pair[0], pair[1])).sum()
            }
            Rate::Best { rate, least } => {
                let rates = |at: &Sides| match rate {
                    AtRate::SensitivityAtSpecificity => (at.recall(), at.specificity()),
                    AtRate::SpecificityAtSensitivity => (at.specificity(), at.recall()),
                    AtRate::PrecisionAtRecall => (at.precision(), at.recall()),
                    AtRate::RecallAtPrecision => (at.recall(), at.precision()),
                };
                // Keras compares in single precision.
                let reached = all.iter().map(rates).filter(|(_, other)| least <= *other as f32);
                reached.map(|(rate, _)| rate).fold(0.0, f64::max)
            }
        }
    }
}

/// What lies on either side of each threshold, added up from the far ends, so that nothing is left of what is not there.
fn sides(sums: &[f64]) -> Vec<Sides> {
    let (positives, negatives) = sums.split_at(sums.len() / 2);
    let none = Sides { true_positives: 0.0, false_positives: 0.0, true_negatives: 0.0, false_negatives: 0.0 };
    let mut all = vec![none; positives.len() - 1];
    let (mut positive, mut negative) = (0.0, 0.0);
    for (index, side) in all.iter_mut().enumerate() {
        positive += positives[index];
        negative += negatives[index];
        (side.false_negatives, side.true_negatives) = (positive, negative);
    }
    let (mut positive, mut negative) = (0.0, 0.0);
    for (index, side) in all.iter_mut().enumerate().rev() {
        positive += positives[index + 1];
        negative += negatives[index + 1];
        (side.true_positives, side.false_positives) = (positive, negative);
    }
    all
}

/// The area below a curve between two thresholds, the lower first.
fn area(curve: Curve, summation: Summation, from: Sides, to: Sides) -> f64 {
    let points = match curve {
        Curve::Roc => [(from.fall_out(), from.recall()), (to.fall_out(), to.recall())],
        Curve::Pr => [(from.recall(), from.precision()), (to.recall(), to.precision())],
    };
    let [(x_from, y_from), (x_to, y_to)] = points;
    let height = match (summation, curve) {
        (Summation::Interpolation, Curve::Pr) => return interpolated(from, to),
        (Summation::Interpolation, Curve::Roc) => f64::midpoint(y_from, y_to),
        (Summation::Minoring, _) => y_from.min(y_to),
        (Summation::Majoring, _) => y_from.max(y_to),
    };
    (x_from - x_to) * height
}

/// The area below precision over recall where counts, and not precision, go straight from one threshold to the next.
fn interpolated(from: Sides, to: Sides) -> f64 {
    let gained = from.true_positives - to.true_positives;
    let prec_slope = share(gained, (from.above() - to.above()).max(0.0));
    let intercept = to.true_positives - prec_slope * to.above();
    let both = 0.0 < from.above() && 0.0 < to.above();
    let ratio = if both { from.above() / to.above() } else { 1.0 };
    share(prec_slope * (gained + intercept * ratio.ln()), to.true_positives + to.false_negatives)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_on_a_threshold_is_not_above_it() {
        let at = Thresholds::At(vec![0.25, 0.5]);
        assert_eq!([0.2, 0.25, 0.3, 0.5, 0.6].map(|p| at.below(p)), [0, 0, 1, 1, 2]);
        let even = |open| Thresholds::Even { count: 5, open };
        assert_eq!([0.0, 0.25, 0.3, 1.0, 7.0].map(|p| even(false).below(p)), [0, 1, 2, 4, 4]);
        assert_eq!([0.0, 0.25, 0.3, 1.0, 7.0].map(|p| even(true).below(p)), [1, 1, 2, 4, 4]);
    }

    #[test]
    fn perfect_predictions_have_an_area_of_1() {
        for curve in [Curve::Roc, Curve::Pr] {
            let of = Rate::Auc { curve, summation: Summation::Interpolation };
            let thresholds = Thresholds::Even { count: 3, open: true };
            let counts =
                Counts { thresholds, class: None, top_k: None, from_logits: false, labels: None, of };
            // Intervals: below all, up to a half, above a half, above 1.
            let value = counts.value(&[0.0, 0.0, 4.0, 0.0, 0.0, 3.0, 0.0, 0.0], 0);
            assert!((value - 1.0).abs() < 1e-12, "{curve:?} {value}");
        }
    }
}
