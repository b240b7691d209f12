//! Sums whose one term the same node has just written: the other is added in place.

use memfit_ir::Operand::Other;

use super::lanes::{Lanes, load, store};
use super::operands::Operands;
use super::tasks::{self, Cut, Tasks};
use super::threads::Shared;

/// Adds the other term to what was written.
pub(crate) fn add(operands: &Operands, written: &mut [f32]) {
    let other = operands.input(Other);
    assert_eq!(written.len(), other.len(), "terms of a sum have one shape");
    let cut = Cut::items(other.len(), 1);
    let work = Add { cut, other, written: Shared::new(written) };
    tasks::run(operands.threads, cut.count(), &work);
}

struct Add<'a> {
    cut: Cut,
    other: &'a [f32],
    written: Shared<'a, f32>,
}

impl Tasks for Add<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        let other = &self.other[range.clone()];
        // SAFETY: ranges of different tasks share no element.
        let written = unsafe { self.written.slice(range) };
        let mut at = 0;
        while at < other.len() {
            let count = L::COUNT.min(other.len() - at);
            // SAFETY: `count` elements are left of both.
            unsafe {
                let sum = load::<L>(written.as_ptr().add(at), count).add(load(other.as_ptr().add(at), count));
                store(sum, written.as_mut_ptr().add(at), count);
            }
            at += L::COUNT;
        }
    }
}
