//! Moving averages of weights.

use memfit_ir::Average;

use super::super::lanes::Lanes;
use super::blocks::BLOCK;
use crate::tasks::{self, Cut, Tasks};
use crate::threads::{Shared, Threads};
use memfit_device::found_inf::{FoundInf, is_finite, magnitude};

/// An average as this step moves it; where it is due, the weight becomes the average.
#[derive(Clone, Copy)]
pub(super) struct Follow {
    momentum: f32,
    overwrite: bool,
}

impl Follow {
    pub(super) fn new(average: &Average, iteration: u64) -> Follow {
        Follow {
            // The first step has nothing to keep.
            momentum: if iteration == 0 { 0.0 } else { average.momentum },
            overwrite: average.overwrite_every.is_some_and(|every| (iteration + 1).is_multiple_of(every)),
        }
    }

    /// The new average of a weight, and the weight.
    #[inline(always)]
    pub(super) fn next(&self, average: f32, w: f32) -> (f32, f32) {
        let average = self.momentum * average + (1.0 - self.momentum) * w;
        (average, if self.overwrite { average } else { w })
    }

    /// Moves all averages after their weights.
    pub(super) fn all(
        self,
        threads: &Threads,
        weight: &mut [f32],
        averages: &mut [f32],
        found_inf: &FoundInf,
    ) {
        let cut = Cut::items(weight.len(), 1);
        let (weight, averages) = (Shared::new(weight), Shared::new(averages));
        tasks::run(threads, cut.count(), &Whole { cut, weight, averages, follow: self, found_inf });
    }
}

struct Whole<'a> {
    cut: Cut,
    weight: Shared<'a, f32>,
    averages: Shared<'a, f32>,
    follow: Follow,
    found_inf: &'a FoundInf,
}

impl Tasks for Whole<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        // SAFETY: ranges do not overlap, and every range belongs to one task.
        let (weight, averages) = unsafe { (self.weight.slice(range.clone()), self.averages.slice(range)) };
        for (weight, averages) in weight.chunks_mut(BLOCK).zip(averages.chunks_mut(BLOCK)) {
            let new = |(average, w): (&f32, &f32)| self.follow.next(*average, *w);
            let pairs = averages.iter().zip(&*weight);
            let most = pairs.map(new).fold(0, |most, (average, _)| most.max(magnitude(average)));
            if !is_finite(most) {
                self.found_inf.raise_with_state(weight.len());
                continue;
            }
            for (average, w) in averages.iter_mut().zip(weight) {
                (*average, *w) = self.follow.next(*average, *w);
            }
        }
    }
}
