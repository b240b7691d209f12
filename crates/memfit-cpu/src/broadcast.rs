//! Broadcasts dimensions of 1 to larger ones, and sums back over them.
//!
//! Dimensions after the batch fall in groups of neighbours that are either all kept or all broadcast, so that
//! most of the work is copying, filling or adding whole runs.

use std::ops::Range;

use memfit_ir::Operand::{X, Y};
use memfit_ir::Shape;

use super::lanes::Lanes;
use super::operands::Operands;
use super::sums::{COLUMNS, sum};
use super::tasks::{self, Cut, Tasks};
use super::threads::Shared;

/// The most groups there can be: more than any layer's dimensions.
const GROUPS: usize = 16;

/// Repeats elements along dimensions of 1.
pub(crate) fn broadcast(operands: &Operands) {
    let groups = Groups::new(operands.shape(X), operands.shape(Y));
    let last = groups.last();
    let cut = Cut::items(operands.shape(Y).elements(operands.context.rows) / last.size.max(1), last.size);
    let y = Shared::new(operands.output(Y));
    tasks::run(operands.threads, cut.count(), &Broadcast { groups, cut, x: operands.input(X), y });
}

/// Sums over dimensions that were broadcast.
pub(crate) fn sum_to(operands: &Operands) {
    let groups = Groups::new(operands.shape(Y), operands.shape(X));
    let last = groups.last();
    let run = if last.broadcast { 1 } else { last.size };
    let outputs = operands.shape(Y).elements(operands.context.rows);
    let runs = outputs / run.max(1);
    let elements = operands.shape(X).elements(operands.context.rows) / runs.max(1);
    let cut = Cut::items(runs, elements);
    let dx = Shared::new(operands.output(Y));
    tasks::run(operands.threads, cut.count(), &SumTo { groups, cut, dy: operands.input(X), dx });
}

/// Neighbouring dimensions as one.
#[derive(Clone, Copy, Default)]
struct Group {
    /// Elements along it in the larger tensor.
    size: usize,
    /// Whether the smaller tensor has one element along it.
    broadcast: bool,
}

/// The dimensions of a larger tensor, in groups; the batch is the first of them, and kept.
struct Groups {
    groups: [Group; GROUPS],
    count: usize,
}

impl Groups {
    fn new(small: &Shape, large: &Shape) -> Groups {
        let mut groups = Groups { groups: [Group::default(); GROUPS], count: 0 };
        for (small, large) in small.dims.iter().zip(&large.dims) {
            groups.push(Group { size: *large, broadcast: small != large });
        }
        if groups.count == 0 {
            groups.push(Group { size: 1, broadcast: false });
        }
        groups
    }

    fn push(&mut self, group: Group) {
        match self.groups[..self.count].last_mut() {
            Some(last) if last.broadcast == group.broadcast => last.size *= group.size,
            _ => {
                self.groups[self.count] = group;
                self.count += 1;
            }
        }
    }

    fn last(&self) -> Group {
        self.groups[self.count - 1]
    }

    /// The groups before the last.
    #[inline(always)]
    fn outer(&self) -> &[Group] {
        &self.groups[..self.count - 1]
    }

    /// Where the last group begins in the smaller tensor, for a place in the outer groups of the larger one.
    #[inline(always)]
    fn small_start(&self, outer: usize) -> usize {
        let last = if self.last().broadcast { 1 } else { self.last().size };
        let (mut place, mut rest, mut stride) = (0, outer, last);
        for group in self.outer().iter().rev() {
            if !group.broadcast {
                place += rest % group.size * stride;
                stride *= group.size;
            }
            rest /= group.size;
        }
        // What is left counts rows of the batch.
        place + rest * stride
    }

    /// Calls `body` with every start of the last group in the larger tensor that is summed to one in the
    /// smaller.
    #[inline(always)]
    fn large_starts(&self, small: usize, mut body: impl FnMut(usize)) {
        let last = self.last().size;
        let repeats: usize =
            self.outer().iter().filter(|group| group.broadcast).map(|group| group.size).product();
        for repeat in 0..repeats {
            let (mut place, mut kept, mut repeat, mut stride) = (0, small, repeat, last);
            for group in self.outer().iter().rev() {
                let rest = if group.broadcast { &mut repeat } else { &mut kept };
                place += *rest % group.size * stride;
                *rest /= group.size;
                stride *= group.size;
            }
            body(place + kept * stride);
        }
    }
}

struct Broadcast<'a> {
    groups: Groups,
    cut: Cut,
    x: &'a [f32],
    y: Shared<'a, f32>,
}

impl Tasks for Broadcast<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let last = self.groups.last();
        for outer in self.cut.range(task) {
            let start = self.groups.small_start(outer);
            // SAFETY: every run belongs to one task.
            let to = unsafe { self.y.slice(outer * last.size..(outer + 1) * last.size) };
            match last.broadcast {
                true => to.fill(self.x[start]),
                false => to.copy_from_slice(&self.x[start..start + last.size]),
            }
        }
    }
}

struct SumTo<'a> {
    groups: Groups,
    cut: Cut,
    dy: &'a [f32],
    dx: Shared<'a, f32>,
}

impl Tasks for SumTo<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let last = self.groups.last();
        for small in self.cut.range(task) {
            if last.broadcast {
                let mut total = 0.0;
                self.groups.large_starts(small, |start| {
                    total += sum(&self.dy[start..start + last.size], |dy| dy);
                });
                // SAFETY: every run belongs to one task.
                let to = unsafe { self.dx.slice(small..small + 1) };
                to[0] = total as f32;
            } else {
                for column in (0..last.size).step_by(COLUMNS) {
                    self.columns(small, column..last.size.min(column + COLUMNS));
                }
            }
        }
    }
}

impl SumTo<'_> {
    /// Sums a few elements of a run side by side.
    #[inline(always)]
    fn columns(&self, small: usize, columns: Range<usize>) {
        let size = self.groups.last().size;
        let mut sums = [0.0; COLUMNS];
        self.groups.large_starts(small, |start| {
            let values = &self.dy[start + columns.start..start + columns.end];
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(*value));
        });
        // SAFETY: every run belongs to one task.
        let to = unsafe { self.dx.slice(small * size + columns.start..small * size + columns.end) };
        to.iter_mut().zip(sums).for_each(|(to, sum)| *to = sum as f32);
    }
}
