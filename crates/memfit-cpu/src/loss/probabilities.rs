//! Cross-entropy of probabilities, with the exact gradient through clipping and normalisation.
//!
//! Keras divides probabilities by their sum before it clips them where targets are soft, and after it clips
//! them where targets are class numbers.

use std::ops::Range;

use super::super::maths::ln;
use super::super::sums::{Part, sum, sum_pairs, sum_parts};
use super::super::tasks::BLOCK;
use super::super::threads::Threads;
use super::{Numbers, Samples, Soft, clip, unless_clipped};

/// Writes gradients for soft targets and returns the total: `−Σ t ln clip(p / Σ p)`.
pub(super) fn run_soft(threads: &Threads, samples: &Samples, targets: &Soft, workspace: &mut [f64]) -> f64 {
    let count = samples.prediction.len() / samples.classes;
    sum_parts(threads, count, 4 * samples.classes, &SoftLoss { samples, targets }, workspace)
}

/// Writes gradients for class numbers and returns the total: `ln Σ clip(p) − ln clip(p)` of the target.
pub(super) fn run_numbers(
    threads: &Threads,
    samples: &Samples,
    targets: &Numbers,
    workspace: &mut [f64],
) -> f64 {
    let count = samples.prediction.len() / samples.classes;
    sum_parts(threads, count, 4 * samples.classes, &NumbersLoss { samples, targets }, workspace)
}

impl Samples<'_> {
    /// The predictions of a sample.
    ///
    /// # Safety
    /// The sample's gradients are not written while the slice lives.
    #[inline(always)]
    pub(super) unsafe fn prediction(&self, sample: usize) -> &[f32] {
        // SAFETY: the caller guarantees that the sample is not written.
        unsafe { self.prediction.read(sample * self.classes..(sample + 1) * self.classes) }
    }

    /// Writes the gradients of a sample, block by block: `fill` computes them from classes and their
    /// predictions.
    ///
    /// # Safety
    /// The sample belongs to the caller alone.
    #[inline(always)]
    pub(super) unsafe fn write(
        &self,
        sample: usize,
        buffer: &mut [f32; BLOCK],
        fill: impl Fn(Range<usize>, &[f32], &mut [f32]),
    ) {
        let first = sample * self.classes;
        for start in (0..self.classes).step_by(BLOCK) {
            let block = start..self.classes.min(start + BLOCK);
            let elements = first + block.start..first + block.end;
            let gradients = &mut buffer[..block.len()];
            // SAFETY: the sample is the caller's, and the slice that reads is gone before one writes.
            fill(block, unsafe { self.prediction.read(elements.clone()) }, gradients);
            if let Some(to) = &self.gradients {
                // SAFETY: as above.
                unsafe { to.write(elements) }.copy_from_slice(gradients);
            }
        }
    }
}

struct SoftLoss<'a> {
    samples: &'a Samples<'a>,
    targets: &'a Soft<'a>,
}

impl Part for SoftLoss<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        let mut buffer = [0.0; BLOCK];
        let mut total = 0.0;
        for sample in range {
            total += self.sample(sample, &mut buffer);
        }
        total
    }
}

impl SoftLoss<'_> {
    #[inline(always)]
    fn sample(&self, sample: usize, buffer: &mut [f32; BLOCK]) -> f64 {
        let (smooth, targets) = (self.targets.smooth(), self.targets.of(sample));
        // SAFETY: the sample belongs to this part, which writes it after the last read of this slice.
        let p = unsafe { self.samples.prediction(sample) };
        let inverse = (1.0 / sum(p, |p| p)) as f32;
        let value = sum_pairs(p, targets, |p, t| f64::from(-smooth(t as f32) * ln(clip(p as f32 * inverse))));
        // The derivative of a class's loss by its normalised probability q is −t / q; times q that is −t.
        let mean =
            sum_pairs(p, targets, |p, t| f64::from(unless_clipped(p as f32 * inverse, -smooth(t as f32))));
        let share = self.samples.sample_share(sample);
        let (scale, mean) = (share as f32 * inverse, mean as f32);
        let fill = |block: Range<usize>, p: &[f32], gradients: &mut [f32]| {
            for ((gradient, p), t) in gradients.iter_mut().zip(p).zip(&targets[block]) {
                let q = p * inverse;
                *gradient = scale * (unless_clipped(q, -smooth(*t) / q) - mean);
            }
        };
        // SAFETY: the sample belongs to this part.
        unsafe { self.samples.write(sample, buffer, fill) };
        share * value
    }
}

struct NumbersLoss<'a> {
    samples: &'a Samples<'a>,
    targets: &'a Numbers<'a>,
}

impl Part for NumbersLoss<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        let mut buffer = [0.0; BLOCK];
        let mut total = 0.0;
        for sample in range {
            total += self.sample(sample, &mut buffer);
        }
        total
    }
}

impl NumbersLoss<'_> {
    #[inline(always)]
    fn sample(&self, sample: usize, buffer: &mut [f32; BLOCK]) -> f64 {
        let share = self.samples.sample_share(sample);
        let Some(class) = self.targets.of(sample) else {
            // A sample that does not count needs no class.
            let value = if share == 0.0 { 0.0 } else { f64::NAN };
            // SAFETY: the sample belongs to this part.
            unsafe { self.samples.write(sample, buffer, |_, _, gradients| gradients.fill(value as f32)) };
            return value;
        };
        // SAFETY: the sample belongs to this part, which writes it after the last read of this slice.
        let p = unsafe { self.samples.prediction(sample) };
        let total = sum(p, |p| f64::from(clip(p as f32)));
        let likely = f64::from(clip(p[class]));
        let (scale, wanted) = ((share / total) as f32, (share / likely) as f32);
        let fill = |block: Range<usize>, p: &[f32], gradients: &mut [f32]| {
            gradients.iter_mut().zip(p).for_each(|(gradient, p)| *gradient = unless_clipped(*p, scale));
            if block.contains(&class) {
                let place = class - block.start;
                gradients[place] = unless_clipped(p[place], scale - wanted);
            }
        };
        // SAFETY: the sample belongs to this part.
        unsafe { self.samples.write(sample, buffer, fill) };
        share * (total.ln() - likely.ln())
    }
}
