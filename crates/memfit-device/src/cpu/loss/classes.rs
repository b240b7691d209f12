//! Cross-entropy over classes: softmax and loss as one, or a loss of probabilities, for soft and for numbered targets.

use std::ops::Range;

use super::super::maths::exp;
use super::super::softmax::largest;
use super::super::sums::{Part, sum, sum_parts};
use super::super::tasks::{BLOCK, blocks};
use super::super::threads::Threads;
use super::elements::clip;
use super::{EPSILON, Samples};

/// The targets of a loss over classes.
pub(super) trait Targets: Sync {
    /// Whether the sample has a target at all.
    fn is_valid(&self, sample: usize, classes: usize) -> bool;
    /// The share of a class.
    fn of(&self, sample: usize, class: usize, classes: usize) -> f32;
    /// The sum of all shares.
    fn total(&self, sample: usize, classes: usize) -> f64;
    /// `Σ term(class) · share` over classes with a share.
    fn weigh(&self, sample: usize, classes: usize, term: impl Fn(usize) -> f64) -> f64;
    /// Whether probabilities are brought to a sum of 1 before they are clipped, or behind, as Keras does for each.
    const NORMALISES_FIRST: bool;
}

/// Shares of every class, smoothed.
pub(super) struct Soft<'a> {
    pub(super) targets: &'a [f32],
    pub(super) smoothing: f32,
}

impl Targets for Soft<'_> {
    const NORMALISES_FIRST: bool = true;

    #[inline(always)]
    fn is_valid(&self, _sample: usize, _classes: usize) -> bool {
        true
    }

    #[inline(always)]
    fn of(&self, sample: usize, class: usize, classes: usize) -> f32 {
        self.targets[sample * classes + class] * (1.0 - self.smoothing) + self.smoothing / classes as f32
    }

    #[inline(always)]
    fn total(&self, sample: usize, classes: usize) -> f64 {
        sum(0..classes, |class| f64::from(self.of(sample, class, classes)))
    }

    #[inline(always)]
    fn weigh(&self, sample: usize, classes: usize, term: impl Fn(usize) -> f64) -> f64 {
        let shares = (0..classes).map(|class| (class, self.of(sample, class, classes)));
        // Most shares are 0, and terms are dear.
        shares.filter(|(_, share)| *share != 0.0).map(|(class, share)| f64::from(share) * term(class)).sum()
    }
}

/// The number of one class.
pub(super) struct Numbers<'a>(pub(super) &'a [i32]);

impl Targets for Numbers<'_> {
    const NORMALISES_FIRST: bool = false;

    #[inline(always)]
    fn is_valid(&self, sample: usize, classes: usize) -> bool {
        usize::try_from(self.0[sample]).is_ok_and(|class| class < classes)
    }

    #[inline(always)]
    fn of(&self, sample: usize, class: usize, _classes: usize) -> f32 {
        if self.0[sample] as usize == class { 1.0 } else { 0.0 }
    }

    #[inline(always)]
    fn total(&self, _sample: usize, _classes: usize) -> f64 {
        1.0
    }

    #[inline(always)]
    fn weigh(&self, sample: usize, _classes: usize, term: impl Fn(usize) -> f64) -> f64 {
        term(self.0[sample] as usize)
    }
}

/// Writes slopes and returns the total.
pub(super) fn run<T: Targets>(
    threads: &Threads,
    samples: &Samples,
    targets: &T,
    from_logits: bool,
    workspace: &mut [f64],
) -> f64 {
    let work = Classes { samples, targets, from_logits };
    sum_parts(threads, samples.prediction.len() / samples.classes, 4 * samples.classes, &work, workspace)
}

struct Classes<'a, T> {
    samples: &'a Samples<'a>,
    targets: &'a T,
    from_logits: bool,
}

impl<T: Targets> Part for Classes<'_, T> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        let mut buffer = [0.0; BLOCK];
        let mut total = 0.0;
        for sample in range {
            let share = self.samples.share(sample / self.samples.in_row);
            let value = if !self.targets.is_valid(sample, self.samples.classes) {
                self.write(sample, &mut buffer, |_, _| f32::NAN);
                f64::NAN
            } else if self.from_logits {
                self.logits(sample, share, &mut buffer)
            } else if T::NORMALISES_FIRST {
                self.normalised_probabilities(sample, share, &mut buffer)
            } else {
                self.clipped_probabilities(sample, share, &mut buffer)
            };
            total += value * share;
        }
        total
    }
}

impl<T: Targets> Classes<'_, T> {
    /// `−Σ t ln softmax(x)`; its slope is `softmax(x) Σ t − t`.
    #[inline(always)]
    fn logits(&self, sample: usize, share: f64, buffer: &mut [f32; BLOCK]) -> f64 {
        let classes = self.samples.classes;
        let x = self.prediction(sample);
        let most = largest(x);
        let powers: f64 = blocks(0..classes)
            .map(|block| {
                let powers = &mut buffer[..block.len()];
                powers.iter_mut().zip(&x[block]).for_each(|(power, x)| *power = exp(*x - most));
                sum(0..powers.len(), |i| f64::from(powers[i]))
            })
            .sum();
        let shares = self.targets.total(sample, classes);
        let value = self.targets.weigh(sample, classes, |class| powers.ln() - f64::from(x[class] - most));
        let (factor, share) = ((shares / powers) as f32, share as f32);
        self.write(sample, buffer, |class, x| {
            share * (factor * exp(x - most) - self.targets.of(sample, class, classes))
        });
        value
    }

    /// `−Σ t ln clip(p / Σ p)`, with the exact slope through both.
    #[inline(always)]
    fn normalised_probabilities(&self, sample: usize, share: f64, buffer: &mut [f32; BLOCK]) -> f64 {
        let classes = self.samples.classes;
        let p = self.prediction(sample);
        let total = sum(0..classes, |class| f64::from(p[class])) as f32;
        let value = self.targets.weigh(sample, classes, |class| -f64::from(clip(p[class] / total)).ln());
        let slope = |class: usize, p: f32| {
            let q = p / total;
            if is_clipped(q) { 0.0 } else { -self.targets.of(sample, class, classes) / q }
        };
        let mean = sum(0..classes, |class| f64::from(slope(class, p[class])) * f64::from(p[class] / total)) as f32;
        let share = share as f32;
        self.write(sample, buffer, |class, p| share * (slope(class, p) - mean) / total);
        value
    }

    /// `ln Σ clip(p) − ln clip(p)` of the target: Keras takes logarithms of clipped probabilities for logits.
    #[inline(always)]
    fn clipped_probabilities(&self, sample: usize, share: f64, buffer: &mut [f32; BLOCK]) -> f64 {
        let classes = self.samples.classes;
        let p = self.prediction(sample);
        let total = sum(0..classes, |class| f64::from(clip(p[class])));
        let value = self.targets.weigh(sample, classes, |class| total.ln() - f64::from(clip(p[class])).ln());
        let (inverse, share) = ((1.0 / total) as f32, share as f32);
        self.write(sample, buffer, |class, p| {
            let slope = inverse - self.targets.of(sample, class, classes) / clip(p);
            if is_clipped(p) { 0.0 } else { share * slope }
        });
        value
    }

    /// The predictions of a sample.
    #[inline(always)]
    fn prediction(&self, sample: usize) -> &[f32] {
        let classes = self.samples.classes;
        // SAFETY: the sample belongs to one part, which reads here for the last time before it writes.
        unsafe { self.samples.prediction.read(sample * classes..(sample + 1) * classes) }
    }

    /// Writes the slope of every class, a function of its number and prediction.
    #[inline(always)]
    fn write(&self, sample: usize, buffer: &mut [f32; BLOCK], slope: impl Fn(usize, f32) -> f32) {
        let first = sample * self.samples.classes;
        for block in blocks(first..first + self.samples.classes) {
            let slopes = &mut buffer[..block.len()];
            // SAFETY: the sample belongs to one part, and the slice that reads is gone before one writes.
            let prediction = unsafe { self.samples.prediction.read(block.clone()) };
            for (i, (to, prediction)) in slopes.iter_mut().zip(prediction).enumerate() {
                *to = slope(block.start - first + i, *prediction);
            }
            // SAFETY: as above.
            unsafe { self.samples.slopes.write(block) }.copy_from_slice(slopes);
        }
    }
}

/// Whether a probability lies where clipping makes it constant.
#[inline(always)]
fn is_clipped(p: f32) -> bool {
    p < EPSILON || 1.0 - EPSILON < p
}
