//! A transposed right operand of little depth: a vector of columns is turned over once, and all rows pass
//! over it.

use super::super::super::lanes::{self, Kernel, LANES_MAX, Lanes};
use super::{ROWS_FEW_SHORT, Task};

/// The most depth that is little.
pub(super) const DEPTH_SHORT: usize = 32;

/// A vector of columns for every depth, on cache lines of their own: what is written and read back at once
/// must not lie across two.
#[repr(align(64))]
struct Block([f32; DEPTH_SHORT * LANES_MAX]);

/// A task whose right operand is stored column by column, each of at most [`DEPTH_SHORT`] floats.
pub(super) struct Short<'a>(pub(super) Task<'a>);

impl Kernel for Short<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let task = &self.0;
        let rows = task.rows.count;
        // Near, and without steps to multiply with.
        let mut left = [[0.0; DEPTH_SHORT]; ROWS_FEW_SHORT];
        for (row, left) in left[..rows].iter_mut().enumerate() {
            for (depth, left) in left[..task.depth].iter_mut().enumerate() {
                // SAFETY: the depth is inside the task.
                *left = unsafe { task.rows.value(row, depth) };
            }
        }
        let mut block = Block([0.0; DEPTH_SHORT * LANES_MAX]);
        for column in (0..task.columns).step_by(L::COUNT) {
            let count = (task.columns - column).min(L::COUNT);
            self.turn_over::<L>(column, count, &mut block);
            let mut row = 0;
            while row < rows {
                row += match rows - row {
                    1 => self.rows::<L, 1>(&left, row, column, count, &block),
                    2 => self.rows::<L, 2>(&left, row, column, count, &block),
                    3 => self.rows::<L, 3>(&left, row, column, count, &block),
                    4 => self.rows::<L, 4>(&left, row, column, count, &block),
                    5 | 6 => self.rows::<L, 6>(&left, row, column, count, &block),
                    _ => self.rows::<L, 8>(&left, row, column, count, &block),
                };
            }
        }
        if task.streams {
            L::fence();
        }
    }
}

impl Short<'_> {
    /// Writes a vector of columns for every depth.
    #[inline(always)]
    fn turn_over<L: Lanes>(&self, column: usize, columns: usize, block: &mut Block) {
        let task = &self.0;
        for depth in (0..task.depth).step_by(L::COUNT) {
            let from = task.right.as_ptr().wrapping_add(column * task.right_step + depth);
            let depths = (task.depth - depth).min(L::COUNT);
            let to = block.0[depth * L::COUNT..].as_mut_ptr();
            if columns == L::COUNT {
                // SAFETY: as many columns as a vector has lanes lie `right_step` apart, and the block has
                // room for every depth.
                unsafe { L::transpose(from, task.right_step, depths, to, L::COUNT) };
            } else {
                // SAFETY: as above, for the columns that there are.
                unsafe { lanes::transpose(from, task.right_step, columns, depths, to, L::COUNT) };
            }
        }
    }

    /// Computes a vector of columns of `ROWS` rows, or as many as there are, and says how many.
    #[inline(always)]
    fn rows<L: Lanes, const ROWS: usize>(
        &self,
        left: &[[f32; DEPTH_SHORT]; ROWS_FEW_SHORT],
        first: usize,
        column: usize,
        count: usize,
        block: &Block,
    ) -> usize {
        let task = &self.0;
        let mut values = [&left[0]; ROWS];
        for (i, values) in values.iter_mut().enumerate() {
            *values = &left[(first + i).min(ROWS_FEW_SHORT - 1)];
        }
        let mut sums = [L::splat(0.0); ROWS];
        for depth in 0..task.depth.min(DEPTH_SHORT) {
            // SAFETY: the block has a vector for every depth.
            let right = unsafe { L::load(block.0.as_ptr().add(depth * L::COUNT)) };
            for (sum, values) in sums.iter_mut().zip(values) {
                *sum = L::splat(values[depth]).mul_add(right, *sum);
            }
        }
        for (row, sum) in (first..task.rows.count).zip(sums) {
            let target = task.target.wrapping_add(row * task.target_step + column);
            // SAFETY: `count` columns of this row of the result are this task's.
            unsafe {
                if task.add {
                    sum.add(L::load_first(target, count)).store_first(target, count);
                } else if count < L::COUNT {
                    sum.store_first(target, count);
                } else if task.streams && target.addr().is_multiple_of(size_of::<L>()) {
                    sum.stream(target);
                } else {
                    sum.store(target);
                }
            }
        }
        ROWS.min(task.rows.count - first)
    }
}
