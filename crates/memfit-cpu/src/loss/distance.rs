//! Losses by distance: of single elements, and of whole samples.

use std::ops::Range;

use memfit_ir::Distance;

use super::super::maths::{ln, sigmoid, softplus};
use super::super::sums::{Part, sum_pairs, sum_parts};
use super::super::tasks::BLOCK;
use super::super::threads::Threads;
use super::elements::{Element, map, sign, smooth};
use super::{EPSILON, Samples, clip, unless_clipped};

/// The value and gradient of every element of a distance that is a sum over elements.
#[inline(always)]
pub(super) fn elements(
    distance: Distance,
    classes: usize,
    prediction: &[f32],
    targets: &[f32],
    values: &mut [f32],
    gradients: &mut [f32],
) {
    match distance {
        Distance::Poisson => map(Poisson, prediction, targets, values, gradients),
        Distance::LogCosh => map(LogCosh, prediction, targets, values, gradients),
        Distance::Hinge => map(Hinge, prediction, targets, values, gradients),
        Distance::SquaredHinge => map(SquaredHinge, prediction, targets, values, gradients),
        Distance::MeanAbsolutePercentageError => map(Percentage, prediction, targets, values, gradients),
        Distance::MeanSquaredLogarithmicError => map(Logarithmic, prediction, targets, values, gradients),
        // Summed over the last axis, where the others are averaged.
        Distance::KlDivergence => {
            map(Divergence { count: classes as f32 }, prediction, targets, values, gradients)
        }
        Distance::BinaryFocalCrossentropy { from_logits, label_smoothing, alpha, gamma } => {
            let focal = Focal { from_logits, label_smoothing, alpha, gamma };
            map(focal, prediction, targets, values, gradients);
        }
        Distance::CategoricalHinge
        | Distance::CosineSimilarity
        | Distance::CategoricalFocalCrossentropy { .. }
        | Distance::Dice { .. }
        | Distance::Tversky { .. } => {
            unreachable!("distances of whole samples have their own kernel")
        }
    }
}

#[derive(Clone, Copy)]
struct Poisson;

impl Element for Poisson {
    #[inline(always)]
    fn of(self, p: f32, t: f32) -> (f32, f32) {
        (p - t * ln(p + EPSILON), 1.0 - t / (p + EPSILON))
    }
}

#[derive(Clone, Copy)]
struct LogCosh;

impl Element for LogCosh {
    #[inline(always)]
    fn of(self, p: f32, t: f32) -> (f32, f32) {
        let d = p - t;
        (d + softplus(-2.0 * d) - std::f32::consts::LN_2, 1.0 - 2.0 * sigmoid(-2.0 * d))
    }
}

/// −1 or 1, where targets are 0 or 1 as well.
#[inline(always)]
fn side(t: f32) -> f32 {
    if t == 0.0 { -1.0 } else { t }
}

#[derive(Clone, Copy)]
struct Hinge;

impl Element for Hinge {
    #[inline(always)]
    fn of(self, p: f32, t: f32) -> (f32, f32) {
        let t = side(t);
        let value = 1.0 - t * p;
        if value < 0.0 { (0.0, 0.0) } else { (value, -t) }
    }
}

#[derive(Clone, Copy)]
struct SquaredHinge;

impl Element for SquaredHinge {
    #[inline(always)]
    fn of(self, p: f32, t: f32) -> (f32, f32) {
        let (value, gradient) = Hinge.of(p, t);
        (value * value, 2.0 * value * gradient)
    }
}

#[derive(Clone, Copy)]
struct Percentage;

impl Element for Percentage {
    #[inline(always)]
    fn of(self, p: f32, t: f32) -> (f32, f32) {
        let factor = 100.0 / t.abs().max(EPSILON);
        (factor * (p - t).abs(), factor * sign(p - t))
    }
}

#[derive(Clone, Copy)]
struct Logarithmic;

impl Element for Logarithmic {
    #[inline(always)]
    fn of(self, p: f32, t: f32) -> (f32, f32) {
        let above = |x: f32| if x < EPSILON { EPSILON } else { x };
        let gap = ln(above(p) + 1.0) - ln(above(t) + 1.0);
        (gap * gap, if p < EPSILON { 0.0 } else { 2.0 * gap / (p + 1.0) })
    }
}

#[derive(Clone, Copy)]
struct Divergence {
    /// Elements of the last axis.
    count: f32,
}

impl Element for Divergence {
    #[inline(always)]
    fn of(self, p: f32, t: f32) -> (f32, f32) {
        let inside = |x: f32| {
            let x = if x < EPSILON { EPSILON } else { x };
            if x > 1.0 { 1.0 } else { x }
        };
        let (q, t) = (inside(p), inside(t));
        let gradient = if p < EPSILON { 0.0 } else { -t / q };
        let gradient = if p > 1.0 { 0.0 } else { gradient };
        (self.count * t * (ln(t) - ln(q)), self.count * gradient)
    }
}

#[derive(Clone, Copy)]
struct Focal {
    from_logits: bool,
    label_smoothing: f32,
    alpha: Option<f32>,
    gamma: f32,
}

impl Element for Focal {
    #[inline(always)]
    fn of(self, x: f32, t: f32) -> (f32, f32) {
        let p = if self.from_logits { sigmoid(x) } else { x };
        let (q, t) = (clip(p), smooth(t, self.label_smoothing));
        let entropy = -(t * ln(q) + (1.0 - t) * ln(1.0 - q));
        let gradient = unless_clipped(p, (q - t) / (q * (1.0 - q)));
        let doubt = 1.0 - (t * p + (1.0 - t) * (1.0 - p));
        let weight = self.alpha.map_or(1.0, |alpha| t * alpha + (1.0 - t) * (1.0 - alpha));
        let factor = weight * doubt.powf(self.gamma);
        let bend = -weight * self.gamma * doubt.powf(self.gamma - 1.0) * (2.0 * t - 1.0);
        let inner = if self.from_logits { p * (1.0 - p) } else { 1.0 };
        (factor * entropy, inner * (factor * gradient + bend * entropy))
    }
}

/// Writes gradients of a distance of whole samples and returns the total.
pub(super) fn run_samples(
    threads: &Threads,
    samples: &Samples,
    distance: Distance,
    targets: &[f32],
    workspace: &mut [f64],
) -> f64 {
    let count = samples.prediction.len() / samples.classes;
    sum_parts(threads, count, 4 * samples.classes, &Whole { samples, distance, targets }, workspace)
}

struct Whole<'a> {
    samples: &'a Samples<'a>,
    distance: Distance,
    targets: &'a [f32],
}

impl Part for Whole<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        let mut buffer = [0.0; BLOCK];
        let mut total = 0.0;
        for sample in range {
            total += if self.distance == Distance::CosineSimilarity {
                self.cosine(sample, &mut buffer)
            } else {
                self.hinge(sample, &mut buffer)
            };
        }
        total
    }
}

impl Whole<'_> {
    fn targets(&self, sample: usize) -> &[f32] {
        &self.targets[sample * self.samples.classes..(sample + 1) * self.samples.classes]
    }

    #[inline(always)]
    fn cosine(&self, sample: usize, buffer: &mut [f32; BLOCK]) -> f64 {
        let targets = self.targets(sample);
        // SAFETY: the sample belongs to this part, which writes it after the last read of this slice.
        let p = unsafe { self.samples.prediction(sample) };
        let length = |squares: f64| squares.max(f64::from(EPSILON) * f64::from(EPSILON)).sqrt();
        let squares = sum_pairs(p, p, |p, same| p * same);
        let (of_p, of_t) = (length(squares), length(sum_pairs(targets, targets, |t, same| t * same)));
        let cosine = sum_pairs(p, targets, |p, t| p * t) / (of_p * of_t);
        let share = self.samples.sample_share(sample);
        // A prediction shorter than Keras's smallest length is not brought to length 1, and its length does
        // not count.
        let bend = if length(0.0) < of_p { cosine / (of_p * of_p) } else { 0.0 };
        let (of_target, of_self) = ((share / (of_p * of_t)) as f32, (share * bend) as f32);
        let fill = |block: Range<usize>, p: &[f32], gradients: &mut [f32]| {
            for ((gradient, p), t) in gradients.iter_mut().zip(p).zip(&targets[block]) {
                *gradient = of_self * p - of_target * t;
            }
        };
        // SAFETY: the sample belongs to this part.
        unsafe { self.samples.write(sample, buffer, fill) };
        -share * cosine
    }

    #[inline(always)]
    fn hinge(&self, sample: usize, buffer: &mut [f32; BLOCK]) -> f64 {
        let targets = self.targets(sample);
        // SAFETY: the sample belongs to this part, which writes it after the last read of this slice.
        let p = unsafe { self.samples.prediction(sample) };
        let right = sum_pairs(p, targets, |p, t| p * t);
        let (mut place, mut wrong) = (0, f32::NEG_INFINITY);
        for (index, (p, t)) in p.iter().zip(targets).enumerate() {
            let value = (1.0 - t) * p;
            (place, wrong) = if value > wrong { (index, value) } else { (place, wrong) };
        }
        let value = f64::from(wrong) - right + 1.0;
        let share = self.samples.sample_share(sample);
        let scale = if value < 0.0 { 0.0 } else { share as f32 };
        let fill = |block: Range<usize>, _: &[f32], gradients: &mut [f32]| {
            for (gradient, (index, t)) in gradients.iter_mut().zip(block.clone().zip(&targets[block])) {
                *gradient = scale * (if index == place { 1.0 - t } else { 0.0 } - t);
            }
        };
        // SAFETY: the sample belongs to this part.
        unsafe { self.samples.write(sample, buffer, fill) };
        if value < 0.0 { 0.0 } else { share * value }
    }
}
