//! Metrics of many sums: what lies between thresholds, and how classes meet.

use std::ops::Range;

use memfit_ir::Operand::Sums;
use memfit_ir::{ClassOf, Counts, FBeta, Iou};

use super::super::lanes::Lanes;
use super::super::maths::sigmoid;
use super::super::operands::Operands;
use super::super::sums::add_or_overwrite;
use super::super::tasks::{self, Cut, Tasks};
use super::super::threads::Shared;
use super::{Rows, argmax};

/// The most tasks: each has sums of its own.
const TASKS: usize = 16;

/// Doubles of workspace for `sums` sums.
pub(super) fn workspace(sums: usize) -> usize {
    TASKS * sums
}

/// Something that samples are counted in.
pub(super) trait Counter: Sync {
    /// Adds what some samples count; `#[inline(always)]`.
    fn add(&self, samples: Range<usize>, sums: &mut [f64]);
}

/// Adds the counts of this micro-batch's samples, task by task.
pub(super) fn launch(operands: &Operands, rows: &Rows, counter: &impl Counter) {
    let sums = operands.update(Sums);
    let width = sums.len();
    let cut = Cut::at_most(rows.samples(), 4 * rows.classes, TASKS);
    let partials = operands.workspace().take_doubles(workspace(width));
    let work = Parts { counter, cut, width, partials: Shared::new(partials) };
    tasks::run(operands.threads, cut.count(), &work);
    for (index, sum) in sums.iter_mut().enumerate() {
        let total = (0..cut.count()).map(|task| partials[task * width + index]).sum();
        add_or_overwrite(sum, total, operands.fresh);
    }
}

struct Parts<'a, T> {
    counter: &'a T,
    cut: Cut,
    width: usize,
    partials: Shared<'a, f64>,
}

impl<T: Counter> Tasks for Parts<'_, T> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        // SAFETY: every task has sums of its own.
        let sums = unsafe { self.partials.slice(task * self.width..(task + 1) * self.width) };
        sums.fill(0.0);
        self.counter.add(self.cut.range(task), sums);
    }
}

/// Positives and negatives, by how many thresholds their predictions are above.
pub(super) struct Positives<'a> {
    pub(super) rows: &'a Rows<'a>,
    pub(super) counts: &'a Counts,
    pub(super) targets: &'a [f32],
}

impl Counter for Positives<'_> {
    #[inline(always)]
    fn add(&self, samples: Range<usize>, sums: &mut [f64]) {
        let Counts { thresholds, class, top_k, from_logits, labels, .. } = self.counts;
        let buckets = thresholds.stretches();
        let classes = class.map_or(0..self.rows.classes, |class| class..class + 1);
        for sample in samples {
            let (prediction, weight) = (self.rows.sample(sample), self.rows.weight(sample));
            for class in classes.clone() {
                let is_out = top_k.is_some_and(|k| !is_in_top_k(prediction, class, k));
                let value = if *from_logits { sigmoid(prediction[class]) } else { prediction[class] };
                let bucket = if is_out { 0 } else { thresholds.below(value) };
                let is_positive = self.targets[sample * self.rows.classes + class] != 0.0;
                let label = if labels.is_some() { class } else { 0 };
                let side = 2 * label + usize::from(!is_positive);
                sums[side * buckets + bucket] += weight;
            }
        }
    }
}

/// Whether an element is one of the `k` largest; of equal ones the first.
#[inline(always)]
fn is_in_top_k(values: &[f32], place: usize, k: usize) -> bool {
    let value = values[place];
    let before =
        values.iter().enumerate().filter(|(other, v)| **v > value || (**v == value && *other < place));
    before.take(k).count() < k
}

/// How targets name a class.
pub(super) enum Targets<'a> {
    /// A share of every class, or a number in floats.
    Values(&'a [f32]),
    /// The number.
    Numbers(&'a [i32]),
}

/// Elements by their class and the one predicted.
pub(super) struct Labels<'a> {
    pub(super) rows: &'a Rows<'a>,
    pub(super) iou: &'a Iou,
    pub(super) targets: Targets<'a>,
}

impl Counter for Labels<'_> {
    #[inline(always)]
    fn add(&self, samples: Range<usize>, sums: &mut [f64]) {
        for sample in samples {
            // Keras counts in whole numbers.
            let weight = self.rows.weight(sample).trunc();
            let prediction = self.rows.sample(sample);
            let elements = sample * self.rows.classes..(sample + 1) * self.rows.classes;
            let class_of = |values: &[f32]| argmax(values) as i64;
            match (self.iou.prediction, &self.targets) {
                (ClassOf::Largest, Targets::Numbers(numbers)) => {
                    self.count(i64::from(numbers[sample]), class_of(prediction), weight, sums);
                }
                (ClassOf::Largest, Targets::Values(values)) => {
                    self.count(class_of(&values[elements]), class_of(prediction), weight, sums);
                }
                (ClassOf::Number | ClassOf::AtLeast(_), Targets::Values(values)) => {
                    for (p, t) in prediction.iter().zip(&values[elements]) {
                        let predicted = match self.iou.prediction {
                            ClassOf::AtLeast(threshold) => i64::from(*p >= threshold),
                            ClassOf::Number | ClassOf::Largest => *p as i64,
                        };
                        self.count(*t as i64, predicted, weight, sums);
                    }
                }
                (ClassOf::Number | ClassOf::AtLeast(_), Targets::Numbers(_)) => {
                    unreachable!("targets have the shape of predictions that name classes themselves")
                }
            }
        }
    }
}

impl Labels<'_> {
    #[inline(always)]
    fn count(&self, target: i64, prediction: i64, weight: f64, sums: &mut [f64]) {
        let classes = self.iou.classes;
        let class = |number: i64| usize::try_from(number).ok().filter(|number| *number < classes);
        let (Some(of), Some(predicted)) = (class(target), class(prediction)) else { return };
        if self.iou.ignored == Some(target) {
            return;
        }
        if of == predicted {
            sums[of] += weight;
        }
        sums[classes + of] += weight;
        sums[2 * classes + predicted] += weight;
    }
}

/// Rows by the classes that they have and those predicted.
pub(super) struct Classes<'a> {
    pub(super) rows: &'a Rows<'a>,
    pub(super) score: &'a FBeta,
    pub(super) targets: &'a [f32],
}

impl Counter for Classes<'_> {
    #[inline(always)]
    fn add(&self, samples: Range<usize>, sums: &mut [f64]) {
        let classes = self.rows.classes;
        for sample in samples {
            let (prediction, weight) = (self.rows.sample(sample), self.rows.weight(sample));
            let most = prediction.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let targets = &self.targets[sample * classes..(sample + 1) * classes];
            for (class, (p, t)) in prediction.iter().zip(targets).enumerate() {
                // A sample that predicts nothing at all predicts no class.
                let is_predicted =
                    self.score.threshold.map_or(*p >= most && 1e-9 < p.abs(), |threshold| *p > threshold);
                let (share, predicted) = (weight * f64::from(*t), if is_predicted { 1.0 } else { 0.0 });
                sums[class] += share * predicted;
                sums[classes + class] += share;
                sums[2 * classes + class] += weight * predicted;
            }
        }
    }
}
