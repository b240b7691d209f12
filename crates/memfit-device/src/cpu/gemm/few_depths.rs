//! Products of so little depth and so few columns that time goes into updating the result: many rows, each of one or
//! two vectors.

use std::ops::Range;

use super::super::lanes::{COLUMNS_MAX, Kernel, Lanes, Level};
use super::super::threads::{Shared, Threads};
use super::Gemm;

/// The most depth that is little.
const DEPTH_FEW: usize = 16;
/// Rows of a task.
const ROWS_TASK: usize = 4096;
/// Rows that are computed at once.
const ROWS: usize = 8;

/// Whether a product has little depth, few columns and many rows.
pub(super) fn applies(level: Level, shape: &Gemm) -> bool {
    shape.k <= DEPTH_FEW && shape.n <= 2 * level.lanes() && shape.m >= ROWS_TASK
}

/// Computes the product; see `gemm`.
pub(super) fn run(
    threads: &Threads,
    shape: &Gemm,
    a: &[f32],
    b: &[f32],
    bias: Option<&[f32]>,
    c: &mut [f32],
    accumulate: bool,
) {
    let Gemm { m, n, k, transpose_a, transpose_b } = *shape;
    let mut right = [[0.0; COLUMNS_MAX]; DEPTH_FEW];
    for (depth, right) in right.iter_mut().enumerate().take(k) {
        for (column, value) in right.iter_mut().enumerate().take(n) {
            *value = if transpose_b { b[column * k + depth] } else { b[depth * n + column] };
        }
    }
    let mut start = [0.0; COLUMNS_MAX];
    if let Some(bias) = bias {
        start[..n].copy_from_slice(bias);
    }
    let (row_step, depth_step) = if transpose_a { (1, m) } else { (k, 1) };
    let c = Shared::new(c);
    threads.for_each(m.div_ceil(ROWS_TASK), |task, _| {
        let rows = task * ROWS_TASK..m.min((task + 1) * ROWS_TASK);
        // SAFETY: every row of the result is written by one task.
        let result = unsafe { c.slice(rows.start * n..rows.end * n) };
        threads.level().call(Update {
            left: &a[(rows.start * row_step).min(a.len())..],
            row_step,
            depth_step,
            rows: 0..rows.len(),
            right: &right[..k],
            start: &start,
            columns: n,
            accumulate,
            result,
        });
    });
}

/// Updates some rows of the result. The left operand's element (row, depth) is at `row * row_step + depth * depth_step`.
struct Update<'a> {
    left: &'a [f32],
    row_step: usize,
    depth_step: usize,
    rows: Range<usize>,
    right: &'a [[f32; COLUMNS_MAX]],
    /// What every row starts with.
    start: &'a [f32; COLUMNS_MAX],
    columns: usize,
    accumulate: bool,
    result: &'a mut [f32],
}

impl Kernel for Update<'_> {
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let (rows, columns) = (self.rows.clone(), self.columns);
        assert!(columns <= 2 * L::COUNT && self.result.len() == rows.len() * columns, "rows have no gaps");
        let whole = rows.len() - rows.len() % ROWS;
        for row in (0..rows.len()).step_by(ROWS).take_while(|&row| row < whole) {
            if columns > L::COUNT { self.update::<L, ROWS, 2>(row) } else { self.update::<L, ROWS, 1>(row) }
        }
        for row in whole..rows.len() {
            self.update::<L, 1, 2>(row);
        }
    }
}

impl Update<'_> {
    /// Updates `ROWS` rows. All of them are read before any is written: a read would wait for the write of the row
    /// before.
    #[inline(always)]
    fn update<L: Lanes, const ROWS: usize, const VECTORS: usize>(&mut self, first: usize) {
        let result = self.result[first * self.columns..(first + ROWS) * self.columns].as_mut_ptr();
        let mut sums = [[L::splat(0.0); VECTORS]; ROWS];
        for vector in 0..VECTORS {
            let column = vector * L::COUNT;
            let count = self.columns.saturating_sub(column).min(L::COUNT);
            // SAFETY: these arrays have two vectors in a row, and rows of the result `columns` floats.
            unsafe {
                let start = L::load(self.start.as_ptr().add(column));
                for (row, sums) in sums.iter_mut().enumerate() {
                    sums[vector] = start;
                    if self.accumulate && count > 0 {
                        let result = result.add(row * self.columns + column);
                        sums[vector] = start.add(L::load_first(result, count));
                    }
                }
            }
        }
        for (depth, right) in self.right.iter().enumerate() {
            let left = first * self.row_step + depth * self.depth_step;
            let left = &self.left[left..left + (ROWS - 1) * self.row_step + 1];
            for vector in 0..VECTORS {
                // SAFETY: as above.
                let right = unsafe { L::load(right.as_ptr().add(vector * L::COUNT)) };
                for (row, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: the slice above ends with the last row.
                    let left = L::splat(unsafe { *left.get_unchecked(row * self.row_step) });
                    sums[vector] = left.mul_add(right, sums[vector]);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (vector, sum) in sums.iter().enumerate() {
                let column = vector * L::COUNT;
                if column < self.columns {
                    let count = (self.columns - column).min(L::COUNT);
                    // SAFETY: as above.
                    unsafe { sum.store_first(result.add(row * self.columns + column), count) };
                }
            }
        }
    }
}
