//! A transposed right operand: a vector of columns is turned over in registers, block by block.

use super::super::super::lanes::{self, Kernel, LANES_MAX, Lanes};
use super::Task;

/// A task whose right operand is stored column by column.
pub(super) struct Transposed<'a>(pub(super) Task<'a>);

impl Kernel for Transposed<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        match self.0.rows.count {
            1 => self.columns::<L, 1>(),
            2 => self.columns::<L, 2>(),
            3 | 4 => self.columns::<L, 4>(),
            _ => self.columns::<L, 8>(),
        }
    }
}

impl Transposed<'_> {
    #[inline(always)]
    fn columns<L: Lanes, const ROWS: usize>(&self) {
        let task = &self.0;
        let mut block = [0.0; LANES_MAX * LANES_MAX];
        for column in (0..task.columns).step_by(L::COUNT) {
            let count = (task.columns - column).min(L::COUNT);
            let mut sums = [L::splat(0.0); ROWS];
            for depth in (0..task.depth).step_by(L::COUNT) {
                self.block::<L, ROWS>(column, count, depth, &mut sums, &mut block);
            }
            for (row, sum) in sums.iter().enumerate() {
                if row < task.rows.count {
                    let target = task.target.wrapping_add(row * task.target_step + column);
                    // SAFETY: `count` columns of this row of the result are this task's.
                    unsafe {
                        let before = if task.add { L::load_first(target, count) } else { L::splat(0.0) };
                        let sum = sum.add(before);
                        if count == L::COUNT { sum.store(target) } else { sum.store_first(target, count) }
                    }
                }
            }
        }
    }

    /// Adds what a square block of the right operand gives.
    #[inline(always)]
    fn block<L: Lanes, const ROWS: usize>(
        &self,
        column: usize,
        columns: usize,
        depth: usize,
        sums: &mut [L; ROWS],
        block: &mut [f32; LANES_MAX * LANES_MAX],
    ) {
        let task = &self.0;
        let from = task.right.as_ptr().wrapping_add(column * task.right_step + depth);
        let depths = (task.depth - depth).min(L::COUNT);
        if columns == L::COUNT {
            // SAFETY: as many columns as a vector has lanes lie `right_step` apart.
            unsafe { L::transpose(from, task.right_step, depths, block.as_mut_ptr(), L::COUNT) };
        } else {
            // SAFETY: as above, for the columns that there are.
            unsafe { lanes::transpose(from, task.right_step, columns, depths, block.as_mut_ptr(), L::COUNT) };
        }
        for i in 0..depths {
            // SAFETY: the block has a vector for every depth.
            let right = unsafe { L::load(block.as_ptr().add(i * L::COUNT)) };
            for (row, sum) in sums.iter_mut().enumerate() {
                // SAFETY: the depth is inside the task.
                *sum = L::splat(unsafe { task.rows.value(row, depth + i) }).mul_add(right, *sum);
            }
        }
    }
}
