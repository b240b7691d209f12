//! Losses of single elements: squared, absolute and Huber's differences, and binary cross-entropy.

use std::ops::Range;

use memfit_ir::LossKind;

use super::super::maths::{ln, sigmoid, softplus};
use super::super::sums::{Part, sum, sum_parts};
use super::super::tasks::{BLOCK, blocks};
use super::super::threads::Threads;
use super::{EPSILON, Samples};

/// Writes slopes and returns the total.
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
        let mut buffers = Buffers { values: [0.0; BLOCK], slopes: [0.0; BLOCK] };
        let width = self.samples.in_row * self.samples.classes;
        let mut total = 0.0;
        // Blocks do not cross rows, since every row has its own weight.
        let mut start = range.start;
        while start < range.end {
            let row = start / width;
            let end = range.end.min((row + 1) * width);
            let share = self.samples.share(row) / self.samples.classes as f64;
            let values: f64 = blocks(start..end).map(|block| self.block(block, share as f32, &mut buffers)).sum();
            total += values * share;
            start = end;
        }
        total
    }
}

struct Buffers {
    values: [f32; BLOCK],
    slopes: [f32; BLOCK],
}

impl Elements<'_> {
    #[inline(always)]
    fn block(&self, block: Range<usize>, share: f32, buffers: &mut Buffers) -> f64 {
        let (values, slopes) = (&mut buffers.values[..block.len()], &mut buffers.slopes[..block.len()]);
        // SAFETY: the only write to the block is this part's own, behind the read.
        let prediction = unsafe { self.samples.prediction.read(block.clone()) };
        elements(self.kind, prediction, &self.targets[block.clone()], values, slopes);
        slopes.iter_mut().for_each(|slope| *slope *= share);
        // SAFETY: the block belongs to this part, and the slice that read it is gone.
        unsafe { self.samples.slopes.write(block) }.copy_from_slice(slopes);
        sum(0..values.len(), |i| f64::from(values[i]))
    }
}

/// The value and slope of every element.
#[inline(always)]
fn elements(kind: &LossKind, prediction: &[f32], targets: &[f32], values: &mut [f32], slopes: &mut [f32]) {
    match *kind {
        LossKind::MeanSquaredError => {
            map(prediction, targets, values, slopes, |p, t| ((p - t) * (p - t), 2.0 * (p - t)));
        }
        LossKind::MeanAbsoluteError => {
            map(prediction, targets, values, slopes, |p, t| ((p - t).abs(), sign(p - t)));
        }
        LossKind::Huber { delta } => map(prediction, targets, values, slopes, |p, t| {
            let d = p - t;
            let far = d.abs() > delta;
            let value = if far { delta * d.abs() - 0.5 * delta * delta } else { 0.5 * d * d };
            (value, if far { delta * sign(d) } else { d })
        }),
        LossKind::BinaryCrossentropy { from_logits: true, label_smoothing } => {
            map(prediction, targets, values, slopes, |x, t| {
                let t = t * (1.0 - label_smoothing) + 0.5 * label_smoothing;
                (softplus(x) - x * t, sigmoid(x) - t)
            });
        }
        LossKind::BinaryCrossentropy { from_logits: false, label_smoothing } => {
            map(prediction, targets, values, slopes, |p, t| {
                let t = t * (1.0 - label_smoothing) + 0.5 * label_smoothing;
                let inside = (EPSILON..=1.0 - EPSILON).contains(&p) || p.is_nan();
                let p = clip(p);
                let value = -(t * ln(p) + (1.0 - t) * ln(1.0 - p));
                (value, if inside { (p - t) / (p * (1.0 - p)) } else { 0.0 })
            });
        }
        LossKind::CategoricalCrossentropy { .. } | LossKind::SparseCategoricalCrossentropy { .. } => {
            unreachable!("losses over classes have their own kernel")
        }
    }
}

/// A probability kept away from 0 and 1; NaN stays.
#[inline(always)]
pub(super) fn clip(p: f32) -> f32 {
    let p = if p < EPSILON { EPSILON } else { p };
    if p > 1.0 - EPSILON { 1.0 - EPSILON } else { p }
}

/// −1, 0 or 1; NaN stays.
#[inline(always)]
fn sign(x: f32) -> f32 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        x
    }
}

#[inline(always)]
fn map(
    prediction: &[f32],
    targets: &[f32],
    values: &mut [f32],
    slopes: &mut [f32],
    element: impl Fn(f32, f32) -> (f32, f32),
) {
    for (((p, t), value), slope) in prediction.iter().zip(targets).zip(values).zip(slopes) {
        (*value, *slope) = element(*p, *t);
    }
}
