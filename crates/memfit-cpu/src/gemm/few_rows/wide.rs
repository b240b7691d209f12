//! Many columns: rows of the right operand stream by and are added, four at a time, to rows of the result.

use super::super::super::lanes::{Kernel, Lanes};
use super::Task;

/// How many rows of the right operand are added at once.
const DEPTHS: usize = 4;

/// A task whose right operand has long rows.
pub(super) struct Wide<'a>(pub(super) Task<'a>);

impl Kernel for Wide<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let depth = self.0.depth;
        let mut at = 0;
        while at + DEPTHS <= depth {
            self.rows::<L, DEPTHS>(at);
            at += DEPTHS;
        }
        for at in at..depth {
            self.rows::<L, 1>(at);
        }
    }
}

impl Wide<'_> {
    #[inline(always)]
    fn rows<L: Lanes, const DEPTHS: usize>(&self, depth: usize) {
        let rows = self.0.rows.count;
        let mut row = 0;
        while row + 4 <= rows {
            self.add::<L, DEPTHS, 4>(depth, row);
            row += 4;
        }
        if row + 2 <= rows {
            self.add::<L, DEPTHS, 2>(depth, row);
            row += 2;
        }
        if row < rows {
            self.add::<L, DEPTHS, 1>(depth, row);
        }
    }

    /// Adds `DEPTHS` rows of the right operand to `ROWS` rows of the result.
    #[inline(always)]
    fn add<L: Lanes, const DEPTHS: usize, const ROWS: usize>(&self, depth: usize, first: usize) {
        let task = &self.0;
        let mut left = [[L::splat(0.0); DEPTHS]; ROWS];
        for (row, left) in left.iter_mut().enumerate() {
            for (i, left) in left.iter_mut().enumerate() {
                // SAFETY: the depth is inside the task.
                *left = L::splat(unsafe { task.rows.value(first + row, depth + i) });
            }
        }
        let right = task.right.as_ptr().wrapping_add(depth * task.right_step);
        let target = task.target.wrapping_add(first * task.target_step);
        let whole = task.columns - task.columns % L::COUNT;
        for column in (0..whole).step_by(L::COUNT) {
            let mut rows = [L::splat(0.0); DEPTHS];
            for (i, row) in rows.iter_mut().enumerate() {
                // SAFETY: a whole vector of these columns is inside the operand.
                *row = unsafe { L::load(right.add(i * task.right_step + column)) };
            }
            for (row, left) in left.iter().enumerate() {
                let target = target.wrapping_add(row * task.target_step + column);
                // SAFETY: and inside this task's part of the result.
                unsafe { sum(left, &rows, L::load(target)).store(target) };
            }
        }
        let count = task.columns - whole;
        if count > 0 {
            let mut rows = [L::splat(0.0); DEPTHS];
            for (i, row) in rows.iter_mut().enumerate() {
                // SAFETY: as above, for the last `count` columns.
                *row = unsafe { L::load_first(right.add(i * task.right_step + whole), count) };
            }
            for (row, left) in left.iter().enumerate() {
                let target = target.wrapping_add(row * task.target_step + whole);
                // SAFETY: as above.
                unsafe { sum(left, &rows, L::load_first(target, count)).store_first(target, count) };
            }
        }
    }
}

/// The sum of `start` and all products.
#[inline(always)]
fn sum<L: Lanes, const DEPTHS: usize>(left: &[L; DEPTHS], rows: &[L; DEPTHS], start: L) -> L {
    let mut sum = start;
    for (left, row) in left.iter().zip(rows) {
        sum = left.mul_add(*row, sum);
    }
    sum
}
