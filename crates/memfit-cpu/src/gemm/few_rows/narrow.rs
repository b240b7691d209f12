//! Few columns: a row of the right operand is one or two vectors, and sums stay in registers.

use std::ops::Range;

use super::super::super::lanes::{COLUMNS_MAX, Kernel, Lanes, prefetch_read};
use super::Task;

/// Depth after which sums leave their registers: many short sums are more exact than one long one.
const DEPTH_SUM: usize = 1024;
/// Depth over which a group of rows passes before the next: the right operand stays in the second-level
/// cache, and rows of the left one are read in long runs.
const DEPTH_RUN: usize = 8 * DEPTH_SUM;
/// How far ahead both operands are asked for, in floats, and after how many depths: those of a cache line.
const AHEAD: [usize; 2] = [64, 1024];
const LINE: usize = 16;
/// Rows that are summed at once.
const GROUP: usize = 8;

/// A task whose right operand has no more than two vectors in a row, and rows without gaps.
pub(super) struct Narrow<'a>(pub(super) Task<'a>);

impl Kernel for Narrow<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        if self.0.columns <= L::COUNT { self.blocks::<L, 1>() } else { self.blocks::<L, 2>() }
    }
}

impl Narrow<'_> {
    /// Cuts the depth in blocks, over which groups of rows pass while the right operand is in the cache.
    #[inline(always)]
    fn blocks<L: Lanes, const VECTORS: usize>(&self) {
        let task = &self.0;
        for run in (0..task.depth).step_by(DEPTH_RUN) {
            let end = task.depth.min(run + DEPTH_RUN);
            for row in (0..task.rows.count).step_by(GROUP) {
                for depth in (run..end).step_by(DEPTH_SUM) {
                    let depth = depth..end.min(depth + DEPTH_SUM);
                    // Several depths at once where rows are few, or each addition would wait for the one
                    // before.
                    match task.rows.count - row {
                        1 => self.sum::<L, VECTORS, 1, 4>(depth, row),
                        2 => self.sum::<L, VECTORS, 2, 4>(depth, row),
                        3 | 4 => self.sum::<L, VECTORS, 4, 2>(depth, row),
                        _ => self.sum::<L, VECTORS, GROUP, 1>(depth, row),
                    }
                }
            }
        }
    }

    /// Prefetches what is read soon: the reads are too short and too scattered for the hardware prefetcher.
    #[inline(always)]
    fn prefetch<const ROWS: usize, const DEPTHS: usize>(&self, depth: usize, first: usize) {
        let task = &self.0;
        prefetch_read(task.right.as_ptr().wrapping_add(depth * task.right_step + AHEAD[1]));
        if depth % LINE < DEPTHS && task.rows.depth_step == 1 {
            for row in first..first + ROWS {
                prefetch_read(task.rows.start.wrapping_add(row * task.rows.row_step + depth + AHEAD[0]));
            }
        }
    }

    /// Adds what some depth gives to `ROWS` rows, or as many as there are, from `row` on.
    #[inline(always)]
    fn sum<L: Lanes, const VECTORS: usize, const ROWS: usize, const DEPTHS: usize>(
        &self,
        depth: Range<usize>,
        row: usize,
    ) {
        let task = &self.0;
        // Whole vectors may be read up to here; they overlap the next row of the operand.
        let whole = (task.right.len() + task.columns).saturating_sub(VECTORS * L::COUNT) / task.columns;
        let mut at = depth.start;
        let mut sums = [[[L::splat(0.0); VECTORS]; ROWS]; DEPTHS];
        while at + DEPTHS <= depth.end.min(whole) {
            self.prefetch::<ROWS, DEPTHS>(at, row);
            for (i, sums) in sums.iter_mut().enumerate() {
                self.step::<L, VECTORS, ROWS, true>(at + i, row, sums);
            }
            at += DEPTHS;
        }
        for at in at..depth.end {
            self.step::<L, VECTORS, ROWS, false>(at, row, &mut sums[0]);
        }
        let mut total = [[0.0; COLUMNS_MAX]; GROUP];
        for row in 0..ROWS {
            for vector in 0..VECTORS {
                let mut sum = L::splat(0.0);
                for sums in &sums {
                    sum = sum.add(sums[row][vector]);
                }
                // SAFETY: the array has room for as many rows and columns as there can be.
                unsafe { sum.store(total[row].as_mut_ptr().add(vector * L::COUNT)) };
            }
        }
        for (row, total) in (row..task.rows.count).zip(&total) {
            for (column, sum) in total.iter().enumerate().take(task.columns) {
                // SAFETY: the target has these rows and columns, and they are this task's.
                unsafe { *task.target.add(row * task.target_step + column) += sum };
            }
        }
    }

    /// Adds one row of the right operand to all sums.
    #[inline(always)]
    fn step<L: Lanes, const VECTORS: usize, const ROWS: usize, const WHOLE: bool>(
        &self,
        depth: usize,
        first: usize,
        sums: &mut [[L; VECTORS]; ROWS],
    ) {
        let task = &self.0;
        for vector in 0..VECTORS {
            let right = task.right.as_ptr().wrapping_add(depth * task.right_step + vector * L::COUNT);
            // SAFETY: either whole vectors or the columns that exist are read.
            let right = unsafe {
                if WHOLE {
                    L::load(right)
                } else {
                    L::load_first(right, (task.columns - vector * L::COUNT).min(L::COUNT))
                }
            };
            for (row, sums) in sums.iter_mut().enumerate() {
                // SAFETY: the depth is inside the task.
                let left = L::splat(unsafe { task.rows.value(first + row, depth) });
                sums[vector] = left.mul_add(right, sums[vector]);
            }
        }
    }
}
