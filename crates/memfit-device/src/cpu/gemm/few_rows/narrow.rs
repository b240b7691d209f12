//! Few columns: a row of the right operand is one or two vectors, and sums stay in registers.

use super::super::super::lanes::{COLUMNS_MAX, Kernel, Lanes};
use super::{ROWS_FEW, Task};

/// Depth after which sums leave their registers: many short sums are more exact than one long one.
const DEPTH_SUM: usize = 1024;

/// A task whose right operand has no more than two vectors in a row, and rows without gaps.
pub(super) struct Narrow<'a>(pub(super) Task<'a>);

impl Kernel for Narrow<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        if self.0.columns <= L::COUNT { self.rows::<L, 1>() } else { self.rows::<L, 2>() }
    }
}

impl Narrow<'_> {
    /// Several depths at once where rows are few, or each addition would wait for the one before.
    #[inline(always)]
    fn rows<L: Lanes, const VECTORS: usize>(&self) {
        match self.0.rows.count {
            1 => self.blocks::<L, VECTORS, 1, 4>(),
            2 => self.blocks::<L, VECTORS, 2, 4>(),
            3 | 4 => self.blocks::<L, VECTORS, 4, 2>(),
            _ => self.blocks::<L, VECTORS, 8, 1>(),
        }
    }

    #[inline(always)]
    fn blocks<L: Lanes, const VECTORS: usize, const ROWS: usize, const DEPTHS: usize>(&self) {
        let task = &self.0;
        // Whole vectors may be read up to here; they overlap the next row of the operand.
        let whole = (task.right.len() + task.columns).saturating_sub(VECTORS * L::COUNT) / task.columns;
        let mut depth = 0;
        while depth < task.depth {
            let end = task.depth.min(depth + DEPTH_SUM);
            let mut sums = [[[L::splat(0.0); VECTORS]; ROWS]; DEPTHS];
            while depth + DEPTHS <= end.min(whole) {
                for (i, sums) in sums.iter_mut().enumerate() {
                    self.step::<L, VECTORS, ROWS, true>(depth + i, sums);
                }
                depth += DEPTHS;
            }
            while depth < end {
                self.step::<L, VECTORS, ROWS, false>(depth, &mut sums[0]);
                depth += 1;
            }
            let mut total = [[[0.0; COLUMNS_MAX]; ROWS_FEW]; 4];
            for (i, sums) in sums.iter().enumerate() {
                for (row, sums) in sums.iter().enumerate() {
                    for (vector, sum) in sums.iter().enumerate() {
                        // SAFETY: the array has room for as many rows and columns as there can be.
                        unsafe { sum.store(total[i][row].as_mut_ptr().add(vector * L::COUNT)) };
                    }
                }
            }
            self.add::<DEPTHS>(&total);
        }
    }

    /// Adds one row of the right operand to all sums.
    #[inline(always)]
    fn step<L: Lanes, const VECTORS: usize, const ROWS: usize, const WHOLE: bool>(
        &self,
        depth: usize,
        sums: &mut [[L; VECTORS]; ROWS],
    ) {
        let task = &self.0;
        for vector in 0..VECTORS {
            let right = task.right.as_ptr().wrapping_add(depth * task.right_step + vector * L::COUNT);
            // SAFETY: either whole vectors or the columns that exist are read.
            let right = unsafe {
                if WHOLE { L::load(right) } else { L::load_first(right, (task.columns - vector * L::COUNT).min(L::COUNT)) }
            };
            for (row, sums) in sums.iter_mut().enumerate() {
                // SAFETY: the depth is inside the task.
                let left = L::splat(unsafe { task.rows.value(row, depth) });
                sums[vector] = left.mul_add(right, sums[vector]);
            }
        }
    }

    /// Adds sums to the target.
    #[inline(always)]
    fn add<const DEPTHS: usize>(&self, total: &[[[f32; COLUMNS_MAX]; ROWS_FEW]; 4]) {
        let task = &self.0;
        for row in 0..task.rows.count {
            for column in 0..task.columns {
                let sum: f32 = total[..DEPTHS].iter().map(|total| total[row][column]).sum();
                // SAFETY: the target has these rows and columns, and they are this task's.
                unsafe { *task.target.add(row * task.target_step + column) += sum };
            }
        }
    }
}
