//! Moving averages of weights.

use memfit_ir::Average;

use super::super::lanes::Lanes;
use crate::cpu::tasks::{self, Cut, Tasks};
use crate::cpu::threads::{Shared, Threads};

/// The average follows the weight; where it is due, the weight becomes the average.
pub(super) fn follow(
    threads: &Threads,
    average: &Average,
    iteration: u64,
    weight: &mut [f32],
    averages: &mut [f32],
) {
    let cut = Cut::items(weight.len(), 1);
    let overwrite = average.overwrite_every.is_some_and(|every| (iteration + 1).is_multiple_of(every));
    // The first step has nothing to keep.
    let momentum = if iteration == 0 { 0.0 } else { average.momentum };
    let (weight, averages) = (Shared::new(weight), Shared::new(averages));
    tasks::run(threads, cut.count(), &Follow { cut, weight, averages, momentum, overwrite });
}

struct Follow<'a> {
    cut: Cut,
    weight: Shared<'a, f32>,
    averages: Shared<'a, f32>,
    momentum: f32,
    overwrite: bool,
}

impl Tasks for Follow<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        // SAFETY: ranges do not overlap, and every range belongs to one task.
        let (weight, averages) = unsafe { (self.weight.slice(range.clone()), self.averages.slice(range)) };
        for (average, w) in averages.iter_mut().zip(weight) {
            *average = self.momentum * *average + (1.0 - self.momentum) * *w;
            if self.overwrite {
                *w = *average;
            }
        }
    }
}
