//! Losses of single elements: squared, absolute and Huber's differences, and binary cross-entropy.

use std::ops::Range;

use memfit_ir::LossKind;

use super::super::maths::{ln, sigmoid, softplus};
use super::super::sums::{Part, sum, sum_parts};
use super::super::tasks::{BLOCK, blocks};
use super::super::threads::Threads;
use super::{Samples, clip, distance, unless_clipped};

/// Writes gradients and returns the total.
pub(super) fn run(
    threads: &Threads,
    samples: &Samples,
    kind: &LossKind,
    targets: &[f32],
    workspace: &mut [f64],
) -> f64 {
    let work = Elements { samples, kind, targets };
    sum_parts(threads, samples.prediction.len(), 2, &work, workspace)
}

struct Elements<'a> {
    samples: &'a Samples<'a>,
    kind: &'a LossKind,
    targets: &'a [f32],
}

impl Part for Elements<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        let mut buffers = Buffers { values: [0.0; BLOCK], gradients: [0.0; BLOCK] };
        let width = self.samples.elements_of_weight();
        let mut total = 0.0;
        // Blocks do not cross samples that have weights of their own.
        let mut start = range.start;
        while start < range.end {
            let weight = start / width;
            let end = range.end.min((weight + 1) * width);
            let share = self.samples.weight_share(weight) / self.samples.classes as f64;
            for block in blocks(start..end) {
                total += share * self.block(block, share as f32, &mut buffers);
            }
            start = end;
        }
        total
    }
}

struct Buffers {
    values: [f32; BLOCK],
    gradients: [f32; BLOCK],
}

impl Elements<'_> {
    #[inline(always)]
    fn block(&self, block: Range<usize>, share: f32, buffers: &mut Buffers) -> f64 {
        let (values, gradients) = (&mut buffers.values[..block.len()], &mut buffers.gradients[..block.len()]);
        // SAFETY: the only write to the block is this part's own, after the read.
        let prediction = unsafe { self.samples.prediction.read(block.clone()) };
        let targets = &self.targets[block.clone()];
        elements(self.kind, self.samples.classes, prediction, targets, values, gradients);
        gradients.iter_mut().for_each(|gradient| *gradient *= share);
        if let Some(to) = &self.samples.gradients {
            // SAFETY: the block belongs to this part, and the slice that read it is gone.
            unsafe { to.write(block) }.copy_from_slice(gradients);
        }
        sum(values, |value| value)
    }
}

/// The value and gradient of every element.
#[inline(always)]
fn elements(
    kind: &LossKind,
    classes: usize,
    prediction: &[f32],
    targets: &[f32],
    values: &mut [f32],
    gradients: &mut [f32],
) {
    match *kind {
        LossKind::MeanSquaredError => map(Squared, prediction, targets, values, gradients),
        LossKind::MeanAbsoluteError => map(Absolute, prediction, targets, values, gradients),
        LossKind::Huber { delta } => map(Huber { delta }, prediction, targets, values, gradients),
        LossKind::BinaryCrossentropy { from_logits: true, label_smoothing: smoothing } => {
            map(BinaryLogits { smoothing }, prediction, targets, values, gradients);
        }
        LossKind::BinaryCrossentropy { from_logits: false, label_smoothing: smoothing } => {
            map(BinaryProbabilities { smoothing }, prediction, targets, values, gradients);
        }
        LossKind::Distance(distance) => {
            distance::elements(distance, classes, prediction, targets, values, gradients);
        }
        LossKind::Reduced { .. }
        | LossKind::CategoricalCrossentropy { .. }
        | LossKind::UnitCategoricalCrossentropy { .. }
        | LossKind::SparseCategoricalCrossentropy { .. } => {
            unreachable!("losses over classes have their own kernels")
        }
    }
}

#[inline(always)]
pub(super) fn map(
    loss: impl Element,
    prediction: &[f32],
    targets: &[f32],
    values: &mut [f32],
    gradients: &mut [f32],
) {
    for (((p, t), value), gradient) in prediction.iter().zip(targets).zip(values).zip(gradients) {
        (*value, *gradient) = loss.of(*p, *t);
    }
}

/// A loss of one element. Not a closure, since those are not always inlined and then not made vector code.
pub(super) trait Element: Copy {
    /// Value and gradient for a prediction and its target; `#[inline(always)]`.
    fn of(self, p: f32, t: f32) -> (f32, f32);
}

#[derive(Clone, Copy)]
struct Squared;

impl Element for Squared {
    #[inline(always)]
    fn of(self, p: f32, t: f32) -> (f32, f32) {
        ((p - t) * (p - t), 2.0 * (p - t))
    }
}

#[derive(Clone, Copy)]
struct Absolute;

impl Element for Absolute {
    #[inline(always)]
    fn of(self, p: f32, t: f32) -> (f32, f32) {
        ((p - t).abs(), sign(p - t))
    }
}

#[derive(Clone, Copy)]
struct Huber {
    delta: f32,
}

impl Element for Huber {
    #[inline(always)]
    fn of(self, p: f32, t: f32) -> (f32, f32) {
        let (d, delta) = (p - t, self.delta);
        let (near, far) = (0.5 * d * d, delta * d.abs() - 0.5 * delta * delta);
        if d.abs() > delta { (far, delta * sign(d)) } else { (near, d) }
    }
}

#[derive(Clone, Copy)]
struct BinaryLogits {
    smoothing: f32,
}

impl Element for BinaryLogits {
    #[inline(always)]
    fn of(self, x: f32, t: f32) -> (f32, f32) {
        let t = smooth(t, self.smoothing);
        (softplus(x) - x * t, sigmoid(x) - t)
    }
}

#[derive(Clone, Copy)]
struct BinaryProbabilities {
    smoothing: f32,
}

impl Element for BinaryProbabilities {
    #[inline(always)]
    fn of(self, p: f32, t: f32) -> (f32, f32) {
        let (q, t) = (clip(p), smooth(t, self.smoothing));
        let value = -(t * ln(q) + (1.0 - t) * ln(1.0 - q));
        (value, unless_clipped(p, (q - t) / (q * (1.0 - q))))
    }
}

/// A target with a share of it moved to one half.
#[inline(always)]
pub(super) fn smooth(t: f32, smoothing: f32) -> f32 {
    t * (1.0 - smoothing) + 0.5 * smoothing
}

/// −1, 0 or 1; NaN stays.
#[inline(always)]
pub(super) fn sign(x: f32) -> f32 {
    let sign = if x < 0.0 { -1.0 } else { x };
    if x > 0.0 { 1.0 } else { sign }
}
