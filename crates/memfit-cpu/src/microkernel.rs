//! The innermost loop of every matrix product: a tile of the result held in registers while the depth runs
//! by.

use super::lanes::{self, Kernel, Lanes, ROWS_MAX};

/// Where the left operand of a stripe lies: element (row, depth) is at `start + row * row_step + depth *
/// depth_step`, and the depth is cut in `segments` equal pieces whose starts are `segment_step` apart. Rows
/// that are packed in panels, each of a register tile's rows, start again `panel_step` further with every
/// panel.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) start: *const f32,
    pub(crate) row_step: usize,
    pub(crate) depth_step: usize,
    pub(crate) panel_step: Option<usize>,
    pub(crate) segments: usize,
    pub(crate) segment_step: usize,
}

impl View {
    /// A matrix whose stored rows, or columns where it is transposed, are `stride` apart.
    pub(crate) fn new(start: *const f32, stride: usize, transposed: bool) -> View {
        let (row_step, depth_step) = if transposed { (1, stride) } else { (stride, 1) };
        View { start, row_step, depth_step, panel_step: None, segments: 1, segment_step: 0 }
    }

    /// Panels of `rows` rows, packed one after the other over the same depth.
    pub(crate) fn of_panels(start: *const f32, rows: usize, depth: usize) -> View {
        View { panel_step: Some(rows * depth), ..View::new(start, rows, true) }
    }

    /// The rows from one on, which is the first of a panel where there are panels of `rows_panel` rows.
    pub(crate) fn from(self, row: usize, rows_panel: usize) -> View {
        let skip = match self.panel_step {
            Some(step) => {
                assert!(row.is_multiple_of(rows_panel), "panels stay whole");
                row / rows_panel * step
            }
            None => row * self.row_step,
        };
        View { start: self.start.wrapping_add(skip), ..self }
    }
}

/// Where the right operand of a stripe lies: each panel has a row of two vectors for every step of the depth,
/// and these rows are `depth_step` apart. Panels are `panel_step` apart.
#[derive(Clone, Copy)]
pub(crate) struct Panels {
    pub(crate) start: *const f32,
    pub(crate) depth_step: usize,
    pub(crate) panel_step: usize,
}

/// How many steps of the depth are written out where rows or the depth lie without gaps. Few instructions
/// then stand between products, and another thread of the core finds room for its own.
const UNROLLED: usize = 4;

/// Adds to the sums of a tile what some steps of the depth give, `AT_ONCE` of them written out, and says
/// where the right operand goes on.
///
/// # Safety
/// As for `add_products`, for every step.
#[inline(always)]
unsafe fn add_depth<L: Lanes, const ROWS: usize, const VECTORS: usize, const AT_ONCE: usize>(
    sums: &mut [[L; VECTORS]; ROWS],
    steps: usize,
    View { start: mut left, row_step, depth_step, .. }: View,
    mut right: *const f32,
    right_step: usize,
) -> *const f32 {
    for _ in 0..steps / AT_ONCE {
        for _ in 0..AT_ONCE {
            // SAFETY: the caller's promise.
            unsafe { add_products(sums, left, row_step, right) };
            (left, right) = (left.wrapping_add(depth_step), right.wrapping_add(right_step));
        }
    }
    for _ in 0..steps % AT_ONCE {
        // SAFETY: the caller's promise.
        unsafe { add_products(sums, left, row_step, right) };
        (left, right) = (left.wrapping_add(depth_step), right.wrapping_add(right_step));
    }
    right
}

/// Adds the products of one step of the depth to the sums of a tile.
///
/// # Safety
/// There is a float for every row, `row_step` apart, and there are `VECTORS` vectors of columns.
#[inline(always)]
unsafe fn add_products<L: Lanes, const ROWS: usize, const VECTORS: usize>(
    sums: &mut [[L; VECTORS]; ROWS],
    left: *const f32,
    row_step: usize,
    right: *const f32,
) {
    let mut columns = [L::splat(0.0); VECTORS];
    for (vector, columns) in columns.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *columns = unsafe { L::load(right.add(vector * L::COUNT)) };
    }
    for (row, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        let value = L::splat(unsafe { *left.wrapping_add(row * row_step) });
        for (sum, &columns) in sums.iter_mut().zip(&columns) {
            *sum = value.mul_add(columns, *sum);
        }
    }
}

/// Some rows of the left operand times all columns of the right one.
///
/// The right operand is cut in panels two vectors wide. Columns past the last one are read, up to a whole
/// vector, and may hold anything.
pub(crate) struct Stripe {
    pub(crate) left: View,
    pub(crate) rows: usize,
    pub(crate) depth: usize,
    pub(crate) right: Panels,
    pub(crate) columns: usize,
    /// Column 0 of the first row of the result; rows are `target_step` apart.
    pub(crate) target: *mut f32,
    pub(crate) target_step: usize,
    /// Added to every row.
    pub(crate) bias: Option<*const f32>,
    /// Whether the result is added to what is there.
    pub(crate) accumulate: bool,
    /// Whether it is written past the caches: then nothing is added, and every vector is whole and aligned.
    /// Settling is left to the caller.
    pub(crate) streams: bool,
}

impl Kernel for Stripe {
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        while self.rows > L::ROWS {
            self.panels_of::<L>(L::ROWS);
            self.rows -= L::ROWS;
            let step = self.left.panel_step.unwrap_or(L::ROWS * self.left.row_step);
            self.left.start = self.left.start.wrapping_add(step);
            self.target = self.target.wrapping_add(L::ROWS * self.target_step);
        }
        self.panels_of::<L>(self.rows);
    }
}

impl Stripe {
    /// Computes the first `rows` rows.
    #[inline(always)]
    fn panels_of<L: Lanes>(&self, rows: usize) {
        match rows {
            1 => self.panels::<L, 1>(),
            2 => self.panels::<L, 2>(),
            3 => self.panels::<L, 3>(),
            4 => self.panels::<L, 4>(),
            5 if L::ROWS >= 5 => self.panels::<L, 5>(),
            6 if L::ROWS >= 6 => self.panels::<L, 6>(),
            7 if L::ROWS >= 7 => self.panels::<L, 7>(),
            8 if L::ROWS >= 8 => self.panels::<L, 8>(),
            9 if L::ROWS >= 9 => self.panels::<L, 9>(),
            10 if L::ROWS >= 10 => self.panels::<L, 10>(),
            11 if L::ROWS >= 11 => self.panels::<L, 11>(),
            12 if L::ROWS >= 12 => self.panels::<L, 12>(),
            _ => unreachable!("a tile has rows, and no more than fit in registers"),
        }
    }

    #[inline(always)]
    fn panels<L: Lanes, const ROWS: usize>(&self) {
        let mut right = self.right.start;
        let mut column = 0;
        while column < self.columns {
            if self.columns - column > L::COUNT {
                self.tile::<L, ROWS, 2>(right, column);
            } else {
                self.tile::<L, ROWS, 1>(right, column);
            }
            right = right.wrapping_add(self.right.panel_step);
            column += 2 * L::COUNT;
        }
    }

    /// One vector of a row of the result.
    #[inline(always)]
    fn target(&self, row: usize, column: usize) -> *mut f32 {
        self.target.wrapping_add(row * self.target_step + column)
    }

    /// Computes the tile whose first column is `column`.
    #[inline(always)]
    fn tile<L: Lanes, const ROWS: usize, const VECTORS: usize>(&self, mut right: *const f32, column: usize) {
        // The result is fetched while the sums are made, not waited for when they are done.
        for row in 0..if self.streams { 0 } else { ROWS } {
            for vector in 0..VECTORS {
                lanes::prefetch_write(self.target(row, column + vector * L::COUNT));
            }
        }
        let mut sums = [[L::splat(0.0); VECTORS]; ROWS];
        let View { start, segments, segment_step, .. } = self.left;
        let (steps, step) = (self.depth / segments, self.right.depth_step);
        for segment in 0..segments {
            let left = View { start: start.wrapping_add(segment * segment_step), ..self.left };
            // SAFETY: both can be read for every row and column of the tile and every step of the depth.
            right = unsafe {
                match (left.row_step, left.depth_step) {
                    (1, _) => {
                        let left = View { row_step: 1, ..left };
                        add_depth::<L, ROWS, VECTORS, UNROLLED>(&mut sums, steps, left, right, step)
                    }
                    // With more rows the compiler would run out of registers for where they are.
                    (_, 1) if L::ROWS < ROWS_MAX => {
                        let left = View { depth_step: 1, ..left };
                        add_depth::<L, ROWS, VECTORS, UNROLLED>(&mut sums, steps, left, right, step)
                    }
                    _ => add_depth::<L, ROWS, VECTORS, 1>(&mut sums, steps, left, right, step),
                }
            };
        }
        self.store_vector::<L, ROWS, VECTORS, 0>(&sums, column);
        if VECTORS == 2 {
            self.store_vector::<L, ROWS, VECTORS, 1>(&sums, column + L::COUNT);
        }
    }

    /// Adds bias and what was there to one vector of every row. No index here is known only at run time, or
    /// the sums would have to leave their registers before their time.
    #[inline(always)]
    fn store_vector<L: Lanes, const ROWS: usize, const VECTORS: usize, const VECTOR: usize>(
        &self,
        sums: &[[L; VECTORS]; ROWS],
        column: usize,
    ) {
        let count = (self.columns - column).min(L::COUNT);
        // SAFETY: the bias has a value for every column.
        let bias = self.bias.map(|bias| unsafe { L::load_first(bias.add(column), count) });
        let mut values = [bias.unwrap_or(L::splat(0.0)); ROWS];
        for (value, sums) in values.iter_mut().zip(sums) {
            *value = value.add(sums[VECTOR % VECTORS]);
        }
        // SAFETY: these rows and columns are inside the result, and whole and aligned where they stream.
        unsafe {
            if self.streams {
                for (row, value) in values.iter().enumerate() {
                    value.stream(self.target(row, column));
                }
            } else if count == L::COUNT {
                self.store_columns::<L, ROWS, true>(values, column, count);
            } else {
                self.store_columns::<L, ROWS, false>(values, column, count);
            }
        }
    }

    /// Stores one vector of every row. All of them are read before any is written: where rows follow each
    /// other closely, a read would wait for the write of the row before.
    ///
    /// # Safety
    /// `count` columns from `column` on, a whole vector if `WHOLE`, are inside the result.
    #[inline(always)]
    unsafe fn store_columns<L: Lanes, const ROWS: usize, const WHOLE: bool>(
        &self,
        mut values: [L; ROWS],
        column: usize,
        count: usize,
    ) {
        if self.accumulate {
            for (row, value) in values.iter_mut().enumerate() {
                let target = self.target(row, column);
                // SAFETY: the caller guarantees these columns.
                *value =
                    value.add(unsafe { if WHOLE { L::load(target) } else { L::load_first(target, count) } });
            }
        }
        for (row, value) in values.iter().enumerate() {
            let target = self.target(row, column);
            // SAFETY: as above.
            unsafe { if WHOLE { value.store(target) } else { value.store_first(target, count) } };
        }
    }
}
