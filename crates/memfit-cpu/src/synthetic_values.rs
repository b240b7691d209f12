//! Synthetic rows, drawn on all threads: the numbers are those that their source draws one by one.

use memfit_ir::random;

use super::lanes::Lanes;
use super::tasks::{self, Cut, Tasks};
use super::threads::{Shared, Threads};

/// Writes floats in `[low, high)`, from element `first` of a seed's sequence on.
pub(crate) fn uniform(threads: &Threads, seed: u64, first: u64, [low, high]: [f64; 2], to: &mut [f32]) {
    let cut = Cut::items(to.len(), 1);
    let work = Uniform { seed, first, low, high, cut, to: Shared::new(to) };
    tasks::run(threads, cut.count(), &work);
}

struct Uniform<'a> {
    seed: u64,
    first: u64,
    low: f64,
    high: f64,
    cut: Cut,
    to: Shared<'a, f32>,
}

impl Tasks for Uniform<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        // Sources without end wrap around instead of overflowing.
        let mut index = self.first.wrapping_add(range.start as u64);
        // SAFETY: every element belongs to one task.
        for to in unsafe { self.to.slice(range) } {
            *to = random::uniform(self.seed, index, self.low, self.high);
            index = index.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_those_of_the_sequence() {
        let threads = Threads::new(2).unwrap();
        let (seed, first) = (7, u64::MAX - 10);
        let mut drawn = vec![f32::NAN; 40_000];
        uniform(&threads, seed, first, [-1.0, 3.0], &mut drawn);
        let expected = |i: usize| random::uniform(seed, first.wrapping_add(i as u64), -1.0, 3.0);
        assert!(drawn.iter().enumerate().all(|(i, value)| *value == expected(i)));
    }
}
