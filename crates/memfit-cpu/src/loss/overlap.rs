//! Losses by how much of targets and predictions overlaps: `1 − a I / (b I + c T + d P)`, where `I = Σ t p`,
//! `T = Σ t` and `P = Σ p` over a row, or over the whole batch.

use std::ops::Range;

use memfit_ir::Distance;

use super::super::sums::{Part, sum, sum_pairs, sum_parts};
use super::super::tasks::{BLOCK, blocks};
use super::super::threads::Threads;
use super::{EPSILON, Samples};

/// The factors `a`, `b`, `c` and `d`.
fn factors(distance: Distance) -> [f64; 4] {
    if let Distance::Tversky { alpha, beta, .. } = distance {
        let (alpha, beta) = (f64::from(alpha), f64::from(beta));
        return [1.0, 1.0 - alpha - beta, alpha, beta];
    }
    [2.0, 0.0, 1.0, 1.0]
}

/// Writes gradients and returns the total.
pub(super) fn run(
    threads: &Threads,
    samples: &Samples,
    distance: Distance,
    targets: &[f32],
    workspace: &mut [f64],
) -> f64 {
    let work = Work { samples, targets, factors: factors(distance) };
    let elements = samples.prediction.len();
    if !distance.mixes_rows() {
        return sum_parts(threads, elements / samples.classes, 4 * samples.classes, &Rows(&work), workspace);
    }
    let sums = [Sum::Both, Sum::Target, Sum::Prediction]
        .map(|what| sum_parts(threads, elements, 1, &Whole(&work, what), workspace));
    let ratio = work.ratio(sums);
    sum_parts(threads, elements, 2, &Gradients(&work, ratio), workspace);
    samples.share * ratio.value
}

struct Work<'a> {
    samples: &'a Samples<'a>,
    targets: &'a [f32],
    factors: [f64; 4],
}

/// A loss, and its gradient as `by_target · t + always`.
#[derive(Clone, Copy)]
struct Ratio {
    value: f64,
    by_target: f64,
    always: f64,
}

impl Work<'_> {
    fn ratio(&self, [both, target, prediction]: [f64; 3]) -> Ratio {
        let [a, b, c, d] = self.factors;
        let below = b * both + c * target + d * prediction + f64::from(EPSILON);
        let above = a * both;
        Ratio {
            value: 1.0 - above / below,
            by_target: (above * b - a * below) / (below * below),
            always: above * d / (below * below),
        }
    }

    fn sum(&self, range: Range<usize>, what: Sum) -> f64 {
        let targets = &self.targets[range.clone()];
        // SAFETY: gradients of a range are written after the last sum over it.
        let prediction = unsafe { self.samples.prediction.read(range) };
        match what {
            Sum::Both => sum_pairs(prediction, targets, |p, t| p * t),
            Sum::Target => sum(targets, |t| t),
            Sum::Prediction => sum(prediction, |p| p),
        }
    }

    fn write(&self, range: Range<usize>, ratio: Ratio, share: f64) {
        let (by_target, always) = ((share * ratio.by_target) as f32, (share * ratio.always) as f32);
        let mut buffer = [0.0; BLOCK];
        for block in blocks(range) {
            let gradients = &mut buffer[..block.len()];
            for (gradient, t) in gradients.iter_mut().zip(&self.targets[block.clone()]) {
                *gradient = by_target * t + always;
            }
            if let Some(to) = &self.samples.gradients {
                // SAFETY: the block belongs to this part, and it is not read any more.
                unsafe { to.write(block) }.copy_from_slice(gradients);
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Sum {
    Both,
    Target,
    Prediction,
}

struct Rows<'a>(&'a Work<'a>);

impl Part for Rows<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        let (work, mut total) = (self.0, 0.0);
        for row in range {
            let elements = row * work.samples.classes..(row + 1) * work.samples.classes;
            let sums = [Sum::Both, Sum::Target, Sum::Prediction].map(|what| work.sum(elements.clone(), what));
            let (ratio, share) = (work.ratio(sums), work.samples.sample_share(row));
            work.write(elements, ratio, share);
            total += share * ratio.value;
        }
        total
    }
}

struct Whole<'a>(&'a Work<'a>, Sum);

impl Part for Whole<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        self.0.sum(range, self.1)
    }
}

struct Gradients<'a>(&'a Work<'a>, Ratio);

impl Part for Gradients<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        self.0.write(range, self.1, self.0.samples.share);
        0.0
    }
}
