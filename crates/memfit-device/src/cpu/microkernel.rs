//! The innermost loop of every matrix product: a tile of the result held in registers while the depth runs by.

use super::lanes::{COLUMNS_MAX, Kernel, Lanes, ROWS_MAX};

/// Where the left operand of a stripe lies: element (row, depth) is at `start + row * row_step + depth * depth_step`,
/// and the depth is cut in `segments` equal pieces whose starts are `segment_step` apart.
///
/// The stripe reads up to one row more than it has, so that tiles can have an even number of rows; what is there does
/// not matter.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) start: *const f32,
    pub(crate) row_step: usize,
    pub(crate) depth_step: usize,
    pub(crate) segments: usize,
    pub(crate) segment_step: usize,
}

impl View {
    /// A matrix whose stored rows, or columns where it is transposed, are `stride` apart.
    pub(crate) fn new(start: *const f32, stride: usize, transposed: bool) -> View {
        let (row_step, depth_step) = if transposed { (1, stride) } else { (stride, 1) };
        View { start, row_step, depth_step, segments: 1, segment_step: 0 }
    }
}

/// A few rows of the left operand times all packed columns of the right one.
///
/// The right operand is packed in panels two vectors wide, `[panel][depth][2 * COUNT]`; a last panel of no more than
/// `COUNT` columns is one vector wide. Columns past the end are read and may hold anything.
pub(crate) struct Stripe<'a> {
    pub(crate) left: View,
    pub(crate) rows: usize,
    pub(crate) depth: usize,
    pub(crate) right: *const f32,
    pub(crate) columns: usize,
    /// Column 0 of each row of the result.
    pub(crate) targets: &'a [*mut f32; ROWS_MAX],
    /// Added to every row.
    pub(crate) bias: Option<*const f32>,
    /// Whether the result is added to what is there.
    pub(crate) accumulate: bool,
}

impl Kernel for Stripe<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        debug_assert!(self.rows <= L::ROWS);
        match self.rows.div_ceil(2) {
            6 if L::ROWS >= 12 => self.panels::<L, 12>(),
            5 if L::ROWS >= 10 => self.panels::<L, 10>(),
            4 if L::ROWS >= 8 => self.panels::<L, 8>(),
            3 if L::ROWS >= 6 => self.panels::<L, 6>(),
            2 => self.panels::<L, 4>(),
            _ => self.panels::<L, 2>(),
        }
    }
}

impl Stripe<'_> {
    #[inline(always)]
    fn panels<L: Lanes, const ROWS: usize>(&self) {
        let mut right = self.right;
        let mut column = 0;
        while column < self.columns {
            if self.columns - column > L::COUNT {
                self.tile::<L, ROWS, 2>(right, column);
            } else {
                self.tile::<L, ROWS, 1>(right, column);
            }
            right = right.wrapping_add(2 * L::COUNT * self.depth);
            column += 2 * L::COUNT;
        }
    }

    /// Computes the tile whose first column is `column`.
    #[inline(always)]
    fn tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(&self, mut right: *const f32, column: usize) {
        let View { start, row_step, depth_step, segments, segment_step } = self.left;
        // The result is fetched while the sums are made, not waited for when they are done.
        for target in &self.targets[..ROWS] {
            for vector in 0..VECTORS {
                L::prefetch(target.wrapping_add(column + vector * L::COUNT));
            }
        }
        let mut sums = [[L::splat(0.0); VECTORS]; ROWS];
        for segment in 0..segments {
            // Every third row has a pointer of its own and its neighbours are addressed from there: twelve pointers
            // would not fit in the registers of x86.
            let first = start.wrapping_add(segment * segment_step);
            let mut left: [_; ROWS_MAX / 3] = std::array::from_fn(|i| first.wrapping_add(3 * i * row_step));
            for _ in 0..self.depth / segments {
                // SAFETY: the panel holds `VECTORS` vectors for every step of the depth.
                let columns: [L; VECTORS] =
                    std::array::from_fn(|v| unsafe { L::load(right.add(v * L::COUNT)) });
                for (row, sums) in sums.iter_mut().enumerate() {
                    let value = left[row / 3].wrapping_add(row % 3 * row_step);
                    // SAFETY: the view can be read for every row of the tile and every step of the depth.
                    let value = L::splat(unsafe { *value });
                    for (sum, &columns) in sums.iter_mut().zip(&columns) {
                        *sum = value.mul_add(columns, *sum);
                    }
                }
                for left in &mut left {
                    *left = left.wrapping_add(depth_step);
                }
                right = right.wrapping_add(VECTORS * L::COUNT);
            }
        }
        if self.rows == ROWS {
            self.store_rows(sums, column);
        } else {
            let mut tile = [0.0; ROWS_MAX * COLUMNS_MAX];
            for (row, sums) in sums.iter().enumerate() {
                for (vector, sum) in sums.iter().enumerate() {
                    // SAFETY: the tile has room for as many rows and columns as any level's.
                    unsafe { sum.store(tile.as_mut_ptr().add(row * COLUMNS_MAX + vector * L::COUNT)) };
                }
            }
            self.store_tile::<L>(&tile, column, (self.columns - column).min(VECTORS * L::COUNT));
        }
    }

    /// Adds bias and what was there to a tile that has all its rows. No index here depends on the data, or the sums
    /// would have to leave their registers before their time.
    #[inline(always)]
    fn store_rows<L: Lanes, const ROWS: usize, const VECTORS: usize>(
        &self,
        sums: [[L; VECTORS]; ROWS],
        column: usize,
    ) {
        for vector in 0..VECTORS {
            let column = column + vector * L::COUNT;
            let count = (self.columns - column).min(L::COUNT);
            // SAFETY: the bias has a value for every column.
            let bias = self.bias.map(|bias| unsafe { L::load_first(bias.add(column), count) });
            let bias = bias.unwrap_or(L::splat(0.0));
            // SAFETY: these rows and columns are inside the result.
            unsafe {
                if count == L::COUNT {
                    self.store_columns::<L, ROWS, VECTORS, true>(&sums, vector, bias, column, count);
                } else {
                    self.store_columns::<L, ROWS, VECTORS, false>(&sums, vector, bias, column, count);
                }
            }
        }
    }

    /// Stores one vector of every row. All of them are read before any is written: where rows follow each other closely,
    /// a read would wait for the write of the row before.
    ///
    /// # Safety
    /// `count` columns from `column` on, a whole vector if `WHOLE`, are inside the result.
    #[inline(always)]
    unsafe fn store_columns<L: Lanes, const ROWS: usize, const VECTORS: usize, const WHOLE: bool>(
        &self,
        sums: &[[L; VECTORS]; ROWS],
        vector: usize,
        bias: L,
        column: usize,
        count: usize,
    ) {
        let mut values = [bias; ROWS];
        if self.accumulate {
            for (value, target) in values.iter_mut().zip(self.targets) {
                let target = target.wrapping_add(column);
                // SAFETY: the caller vouches for these columns.
                *value = value.add(unsafe { if WHOLE { L::load(target) } else { L::load_first(target, count) } });
            }
        }
        for (row, value) in values.iter().enumerate() {
            let (value, target) = (value.add(sums[row][vector]), self.targets[row].wrapping_add(column));
            // SAFETY: as above.
            unsafe { if WHOLE { value.store(target) } else { value.store_first(target, count) } };
        }
    }

    /// Adds bias and what was there to a tile that has fewer rows than it was made for.
    #[inline(always)]
    fn store_tile<L: Lanes>(&self, tile: &[f32; ROWS_MAX * COLUMNS_MAX], column: usize, columns: usize) {
        for (row, target) in self.targets.iter().enumerate().take(self.rows) {
            for at in (0..columns).step_by(L::COUNT) {
                let count = (columns - at).min(L::COUNT);
                let target = target.wrapping_add(column + at);
                // SAFETY: `count` columns from `at` on are inside the tile, the bias and the result.
                unsafe {
                    let mut value = L::load(tile.as_ptr().add(row * COLUMNS_MAX + at));
                    if let Some(bias) = self.bias {
                        value = value.add(L::load_first(bias.add(column + at), count));
                    }
                    if self.accumulate {
                        value = value.add(L::load_first(target, count));
                    }
                    value.store_first(target, count);
                }
            }
        }
    }
}
