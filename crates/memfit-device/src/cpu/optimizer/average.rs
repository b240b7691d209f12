//! Moving averages of weights.

use std::ops::Range;

use memfit_ir::Average;

use super::super::lanes::Lanes;
use crate::cpu::tasks::{self, Cut, Tasks};
use crate::cpu::threads::{Shared, Threads};

/// An average that follows a weight; where it is due, the weight becomes the average.
pub(super) struct Following<'a> {
    averages: Shared<'a, f32>,
    momentum: f32,
    overwrite: bool,
}

impl<'a> Following<'a> {
    /// The average as this step moves it.
    pub(super) fn new(average: &Average, iteration: u64, averages: &'a mut [f32]) -> Following<'a> {
        Following {
            averages: Shared::new(averages),
            // The first step has nothing to keep.
            momentum: if iteration == 0 { 0.0 } else { average.momentum },
            overwrite: average.overwrite_every.is_some_and(|every| (iteration + 1).is_multiple_of(every)),
        }
    }

    /// Moves a range behind its weight.
    ///
    /// # Safety
    /// No other task moves the range meanwhile.
    #[inline(always)]
    pub(super) unsafe fn follow(&self, range: Range<usize>, weight: &mut [f32]) {
        // SAFETY: the caller's promise.
        let averages = unsafe { self.averages.slice(range) };
        for (average, w) in averages.iter_mut().zip(weight) {
            *average = self.momentum * *average + (1.0 - self.momentum) * *w;
            if self.overwrite {
                *w = *average;
            }
        }
    }

    /// Moves all of it.
    pub(super) fn follow_all(&self, threads: &Threads, weight: &mut [f32]) {
        let cut = Cut::items(weight.len(), 1);
        let whole = Whole { cut, weight: Shared::new(weight), following: self };
        tasks::run(threads, cut.count(), &whole);
    }
}

struct Whole<'a> {
    cut: Cut,
    weight: Shared<'a, f32>,
    following: &'a Following<'a>,
}

impl Tasks for Whole<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        // SAFETY: ranges do not overlap, and every range belongs to one task.
        unsafe { self.following.follow(range.clone(), self.weight.slice(range)) };
    }
}
