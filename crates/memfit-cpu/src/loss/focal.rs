//! Cross-entropy of classes that counts the less the surer a prediction is.

use std::ops::Range;

use super::super::maths::{exp, ln};
use super::super::softmax::max_of_few;
use super::super::sums::{Part, sum, sum_pairs, sum_parts};
use super::super::tasks::BLOCK;
use super::super::threads::Threads;
use super::{Samples, Soft, clip, unless_clipped};

/// The arguments of the loss.
#[derive(Clone, Copy)]
pub(super) struct Focal {
    pub(super) from_logits: bool,
    pub(super) alpha: f32,
    pub(super) gamma: f32,
}

impl Focal {
    /// `−alpha (1 − q)^gamma ln q` of a probability, and its derivative.
    #[inline(always)]
    fn of(self, q: f32) -> (f32, f32) {
        let (o, Focal { alpha, gamma, .. }) = (clip(q), self);
        let (doubt, entropy) = (1.0 - o, -ln(o));
        let factor = alpha * doubt.powf(gamma);
        let gradient = -alpha * gamma * doubt.powf(gamma - 1.0) * entropy - factor / o;
        (factor * entropy, unless_clipped(q, gradient))
    }
}

/// Writes gradients and returns the total.
pub(super) fn run(
    threads: &Threads,
    samples: &Samples,
    targets: &Soft,
    focal: Focal,
    workspace: &mut [f64],
) -> f64 {
    let count = samples.prediction.len() / samples.classes;
    sum_parts(threads, count, 8 * samples.classes, &Work { samples, targets, focal }, workspace)
}

struct Work<'a> {
    samples: &'a Samples<'a>,
    targets: &'a Soft<'a>,
    focal: Focal,
}

impl Part for Work<'_> {
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

impl Work<'_> {
    #[inline(always)]
    fn sample(&self, sample: usize, buffer: &mut [f32; BLOCK]) -> f64 {
        let (smooth, targets, focal) = (self.targets.smooth(), self.targets.of(sample), self.focal);
        // SAFETY: the sample belongs to this part, which writes it after the last read of this slice.
        let x = unsafe { self.samples.prediction(sample) };
        let max = if focal.from_logits { max_of_few(x) } else { 0.0 };
        let raw = move |x: f32| if focal.from_logits { exp(x - max) } else { x };
        let inverse = (1.0 / sum(x, |x| f64::from(raw(x as f32)))) as f32;
        let q = move |x: f32| raw(x) * inverse;
        let value = sum_pairs(x, targets, |x, t| f64::from(smooth(t as f32) * focal.of(q(x as f32)).0));
        // What all classes have in common, since probabilities add up to 1.
        let mean = sum_pairs(x, targets, |x, t| {
            let q = q(x as f32);
            f64::from(smooth(t as f32) * focal.of(q).1 * q)
        }) as f32;
        let share = self.samples.sample_share(sample);
        let scale = share as f32;
        let fill = |block: Range<usize>, x: &[f32], gradients: &mut [f32]| {
            for ((gradient, x), t) in gradients.iter_mut().zip(x).zip(&targets[block]) {
                let q = q(*x);
                let inner = if focal.from_logits { q } else { inverse };
                *gradient = scale * inner * (smooth(*t) * focal.of(q).1 - mean);
            }
        };
        // SAFETY: the sample belongs to this part.
        unsafe { self.samples.write(sample, buffer, fill) };
        share * value
    }
}
