//! Cross-entropy of probabilities, with the exact slope through clipping and normalisation.
//!
//! Keras brings probabilities to a sum of 1 before it clips them where targets are soft, and behind where they are
//! numbers.

use std::ops::Range;

use super::super::maths::ln;
use super::super::sums::{Part, sum, sum_pairs, sum_parts};
use super::super::tasks::BLOCK;
use super::super::threads::Threads;
use super::{Numbers, Samples, Soft, clip, unless_clipped};

/// Writes slopes for soft targets and returns the total: `−Σ t ln clip(p / Σ p)`.
pub(super) fn run_soft(threads: &Threads, samples: &Samples, targets: &Soft, workspace: &mut [f64]) -> f64 {
    let count = samples.prediction.len() / samples.classes;
    sum_parts(threads, count, 4 * samples.classes, &SoftLoss { samples, targets }, workspace)
}

/// Writes slopes for numbered targets and returns the total: `ln Σ clip(p) − ln clip(p)` of the target.
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
    /// Nobody writes the sample's slopes while the slice lives.
    #[inline(always)]
    pub(super) unsafe fn prediction(&self, sample: usize) -> &[f32] {
        // SAFETY: the caller vouches that nobody writes.
        unsafe { self.prediction.read(sample * self.classes..(sample + 1) * self.classes) }
    }

    /// Writes the slopes of a sample, block by block: `fill` makes them of classes and their predictions.
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
            let slopes = &mut buffer[..block.len()];
            // SAFETY: the sample is the caller's, and the slice that reads is gone before one writes.
            fill(block, unsafe { self.prediction.read(elements.clone()) }, slopes);
            if let Some(to) = &self.slopes {
                // SAFETY: as above.
                unsafe { to.write(elements) }.copy_from_slice(slopes);
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
        // SAFETY: the sample belongs to this part, which writes it behind the last read of this slice.
        let p = unsafe { self.samples.prediction(sample) };
        let inverse = (1.0 / sum(p, |p| p)) as f32;
        let value = sum_pairs(p, targets, |p, t| f64::from(-smooth(t as f32) * ln(clip(p as f32 * inverse))));
        // The slope of a class by its normalised probability q is −t / q; times q that is −t.
        let mean =
            sum_pairs(p, targets, |p, t| f64::from(unless_clipped(p as f32 * inverse, -smooth(t as f32))));
        let share = self.samples.sample_share(sample);
        let (scale, mean) = (share as f32 * inverse, mean as f32);
        let fill = |block: Range<usize>, p: &[f32], slopes: &mut [f32]| {
            for ((slope, p), t) in slopes.iter_mut().zip(p).zip(&targets[block]) {
                let q = p * inverse;
                *slope = scale * (unless_clipped(q, -smooth(*t) / q) - mean);
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
            unsafe { self.samples.write(sample, buffer, |_, _, slopes| slopes.fill(value as f32)) };
            return value;
        };
        // SAFETY: the sample belongs to this part, which writes it behind the last read of this slice.
        let p = unsafe { self.samples.prediction(sample) };
        let total = sum(p, |p| f64::from(clip(p as f32)));
        let likely = f64::from(clip(p[class]));
        let (scale, wanted) = ((share / total) as f32, (share / likely) as f32);
        let fill = |block: Range<usize>, p: &[f32], slopes: &mut [f32]| {
            slopes.iter_mut().zip(p).for_each(|(slope, p)| *slope = unless_clipped(*p, scale));
            if block.contains(&class) {
                let place = class - block.start;
                slopes[place] = unless_clipped(p[place], scale - wanted);
            }
        };
        // SAFETY: the sample belongs to this part.
        unsafe { self.samples.write(sample, buffer, fill) };
        share * (total.ln() - likely.ln())
    }
}
