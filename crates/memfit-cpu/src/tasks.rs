//! How kernels are cut: by shape alone, so that results do not depend on the number of threads, and compiled
//! for the vectors of this machine.

use std::ops::Range;

use super::lanes::{Kernel, Lanes};
use super::threads::Threads;

/// Elements of a task: enough to be worth a thread's while, few enough to stay in its second-level cache.
const TASK: usize = 1 << 14;
/// Elements that a kernel computes in a buffer of its own before it writes them, where an output may share an
/// input's bytes: few enough to stay in the first-level cache.
pub(crate) const BLOCK: usize = 512;
/// The most parts of a sum: each has its own partial result.
const PARTS: usize = 64;

/// Work whose tasks do not touch each other's bytes.
pub(crate) trait Tasks: Sync {
    /// Does one task; `worker` names the scratch memory that it may use. Implementations and all that is hot
    /// in them are `#[inline(always)]`, so that they are compiled for the machine's vectors.
    fn task<L: Lanes>(&self, task: usize, worker: usize);
}

/// Does all tasks.
pub(crate) fn run(threads: &Threads, tasks: usize, work: &impl Tasks) {
    let level = threads.level();
    threads.for_each(tasks, |task, worker| level.call(Task { work, task, worker }));
}

struct Task<'a, W> {
    work: &'a W,
    task: usize,
    worker: usize,
}

impl<W: Tasks> Kernel for Task<'_, W> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        self.work.task::<L>(self.task, self.worker);
    }
}

/// `length` items cut into ranges of `size`, the last of which may be shorter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    length: usize,
    size: usize,
}

impl Cut {
    /// Items of `elements` elements each, a task's worth in each range.
    pub(crate) fn items(length: usize, elements: usize) -> Cut {
        Cut { length, size: (TASK / elements.max(1)).max(1) }
    }

    /// Items of `elements` elements each, in at most [`Cut::PARTS`] ranges of at least a task's worth.
    pub(crate) fn parts(length: usize, elements: usize) -> Cut {
        Cut::at_most(length, elements, PARTS)
    }

    /// The same in at most `parts` ranges.
    pub(crate) fn at_most(length: usize, elements: usize, parts: usize) -> Cut {
        let least = Cut::items(length, elements).size;
        Cut { length, size: length.div_ceil(parts).max(least) }
    }

    /// The most ranges that [`Cut::parts`] makes.
    pub(crate) const PARTS: usize = PARTS;

    /// Ranges of `size` items.
    pub(crate) fn of_size(length: usize, size: usize) -> Cut {
        Cut { length, size: size.max(1) }
    }

    /// How many ranges there are.
    pub(crate) fn count(&self) -> usize {
        self.length.div_ceil(self.size)
    }

    /// One of the ranges.
    #[inline(always)]
    pub(crate) fn range(&self, index: usize) -> Range<usize> {
        index * self.size..self.length.min((index + 1) * self.size)
    }
}

/// A range in blocks of at most [`BLOCK`].
#[inline(always)]
pub(crate) fn blocks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(BLOCK).map(move |start| start..end.min(start + BLOCK))
}
