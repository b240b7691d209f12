//! What happens to a tile of scores between two products, one query after the other.

use std::ops::Range;

use super::super::lanes::{Kernel, Lanes, load, store};
use super::super::maths::{exp, ln};
use super::super::softmax::{max_of, powers_of};
use super::super::sums::sum_pairs;
use super::super::vector_maths;
use super::Rows;

/// Copies rows of `width` floats, times a factor.
pub(super) struct Copy {
    pub(super) from: Rows,
    pub(super) to: Rows,
    pub(super) rows: usize,
    pub(super) width: usize,
    pub(super) factor: f32,
}

impl Kernel for Copy {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        for row in 0..self.rows {
            // SAFETY: the caller of the constructor guarantees the rows of both ends, which do not overlap.
            let (from, to) = unsafe { (self.from.read(row, self.width), self.to.write(row, self.width)) };
            to.iter_mut().zip(from).for_each(|(to, from)| *to = self.factor * from);
        }
    }
}

/// Sets rows of `width` floats to zero.
pub(super) struct Clear {
    pub(super) rows: Rows,
    pub(super) count: usize,
    pub(super) width: usize,
}

impl Kernel for Clear {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        for row in 0..self.count {
            // SAFETY: the caller of the constructor guarantees the rows.
            unsafe { self.rows.write(row, self.width) }.fill(0.0);
        }
    }
}

/// How many of a tile's keys each query sees: always the first ones.
#[derive(Clone)]
pub(super) struct Sight {
    pub(super) queries: Range<usize>,
    /// The tile's first key, and how many keys it has.
    pub(super) key: usize,
    pub(super) count: usize,
    pub(super) causal: bool,
}

impl Sight {
    #[inline(always)]
    fn of(&self, query: usize) -> usize {
        if self.causal { (query + 1).saturating_sub(self.key).min(self.count) } else { self.count }
    }
}

/// What a query has seen so far: its maximum score, and the sum of `e^(score − maximum)`.
#[derive(Clone, Copy)]
pub(super) struct Running {
    pub(super) maxima: *mut f32,
    pub(super) sums: *mut f32,
}

/// Replaces scores by `e^(score − maximum so far)`; earlier sums are scaled to the new maximum.
pub(super) struct Weigh {
    pub(super) scores: Rows,
    pub(super) sight: Sight,
    pub(super) running: Running,
    /// Weighted values so far, none for the first keys.
    pub(super) values: Option<Rows>,
    pub(super) value_width: usize,
}

impl Kernel for Weigh {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (row, query) in self.sight.queries.clone().enumerate() {
            // SAFETY: the caller of the constructor guarantees the scores and the state of every query.
            let (scores, max, total) = unsafe {
                let Running { maxima, sums } = self.running;
                (self.scores.write(row, self.sight.count), &mut *maxima.add(row), &mut *sums.add(row))
            };
            let (scores, hidden) = scores.split_at_mut(self.sight.of(query));
            hidden.fill(0.0);
            if scores.is_empty() {
                continue;
            }
            let mut max_now = max_of::<L>(scores);
            let mut before = 0.0;
            if let Some(values) = self.values {
                max_now = if *max > max_now { *max } else { max_now };
                let factor = exp(*max - max_now);
                before = *total * factor;
                if factor != 1.0 {
                    // SAFETY: as above, for the values.
                    let values = unsafe { values.write(row, self.value_width) };
                    values.iter_mut().for_each(|value| *value *= factor);
                }
            }
            *max = max_now;
            *total = before + powers_of::<L>(scores, max_now) as f32;
        }
    }
}

/// Divides weighted values by the sum of their weights, and keeps the logarithm of that sum for backward.
pub(super) struct Finish {
    pub(super) values: Rows,
    pub(super) value_width: usize,
    pub(super) queries: usize,
    pub(super) running: Running,
    pub(super) logsumexp: *mut f32,
}

impl Kernel for Finish {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        for row in 0..self.queries {
            // SAFETY: the caller of the constructor guarantees every query.
            let (values, max, total) = unsafe {
                let Running { maxima, sums } = self.running;
                (self.values.write(row, self.value_width), *maxima.add(row), *sums.add(row))
            };
            let factor = 1.0 / total;
            values.iter_mut().for_each(|value| *value *= factor);
            // SAFETY: as above.
            unsafe { *self.logsumexp.add(row) = max + ln(total) };
        }
    }
}

/// `Σ dy · y` of every query.
pub(super) struct Deltas {
    pub(super) dy: Rows,
    pub(super) y: Rows,
    pub(super) width: usize,
    pub(super) queries: usize,
    pub(super) deltas: *mut f32,
}

impl Kernel for Deltas {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        for row in 0..self.queries {
            // SAFETY: the caller of the constructor guarantees every query.
            unsafe {
                let (dy, y) = (self.dy.read(row, self.width), self.y.read(row, self.width));
                *self.deltas.add(row) = sum_pairs(dy, y, |dy, y| dy * y) as f32;
            }
        }
    }
}

/// Turns scores into probabilities, and the gradient of these into that of the scores before they were
/// scaled.
pub(super) struct ScoreGradients {
    pub(super) scores: Rows,
    pub(super) dscores: Rows,
    pub(super) sight: Sight,
    pub(super) scale: f32,
    /// For every query.
    pub(super) logsumexp: *const f32,
    pub(super) deltas: *const f32,
}

impl Kernel for ScoreGradients {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let ScoreGradients { sight, scale, .. } = self;
        for (row, query) in sight.queries.clone().enumerate() {
            // SAFETY: the caller of the constructor guarantees both tiles and every query.
            let (scores, dscores, logsumexp, delta) = unsafe {
                let (logsumexp, delta) = (*self.logsumexp.add(row), *self.deltas.add(row));
                (self.scores.write(row, sight.count), self.dscores.write(row, sight.count), logsumexp, delta)
            };
            let (scores, hidden) = scores.split_at_mut(sight.of(query));
            hidden.fill(0.0);
            let (dscores, hidden) = dscores.split_at_mut(scores.len());
            hidden.fill(0.0);
            let (length, scores, dscores) = (scores.len(), scores.as_mut_ptr(), dscores.as_mut_ptr());
            let mut at = 0;
            while at < length {
                let count = L::COUNT.min(length - at);
                // SAFETY: `count` floats are left in both.
                unsafe {
                    let (score, dscore): (L, L) = (load(scores.add(at), count), load(dscores.add(at), count));
                    let probability = vector_maths::exp(score.sub(L::splat(logsumexp)));
                    let dscore = dscore.sub(L::splat(delta));
                    store(probability.mul(L::splat(scale)).mul(dscore), dscores.add(at), count);
                    store(probability, scores.add(at), count);
                }
                at += L::COUNT;
            }
        }
    }
}

impl Rows {
    /// One row, to be read.
    ///
    /// # Safety
    /// It has `width` floats, and they are not written while the slice lives.
    #[inline(always)]
    unsafe fn read<'a>(self, row: usize, width: usize) -> &'a [f32] {
        // SAFETY: the caller guarantees it.
        unsafe { std::slice::from_raw_parts(self.start.add(row * self.step), width) }
    }

    /// One row, to be written.
    ///
    /// # Safety
    /// It has `width` floats, and they are not read or written elsewhere while the slice lives.
    #[inline(always)]
    pub(super) unsafe fn write<'a>(self, row: usize, width: usize) -> &'a mut [f32] {
        // SAFETY: the caller guarantees it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.step), width) }
    }
}
