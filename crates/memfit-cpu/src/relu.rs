//! A ReLU over what the same node has just written, in place.

use super::lanes::{Lanes, load, store};
use super::tasks::{self, Cut, Tasks};
use super::threads::{Shared, Threads};

/// What is negative becomes 0; what is not a number stays so.
pub(crate) fn relu_in_place(threads: &Threads, values: &mut [f32]) {
    let cut = Cut::items(values.len(), 1);
    let work = Rectify { cut, values: Shared::new(values) };
    tasks::run(threads, cut.count(), &work);
}

struct Rectify<'a> {
    cut: Cut,
    values: Shared<'a, f32>,
}

impl Tasks for Rectify<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        // SAFETY: ranges of different tasks share no element.
        let values = unsafe { self.values.slice(self.cut.range(task)) };
        let mut at = 0;
        while at < values.len() {
            let count = L::COUNT.min(values.len() - at);
            let to = values[at..at + count].as_mut_ptr();
            // SAFETY: `count` elements are left.
            unsafe { store(load::<L>(to, count).at_least(L::splat(0.0)), to, count) };
            at += L::COUNT;
        }
    }
}
