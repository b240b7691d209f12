//! Matrices as operands of the driver, plain or transposed.

use std::ops::Range;

use super::super::lanes::{self, Kernel, Lanes, Level};
use super::super::microkernel::{Panels, View};
use super::driver::{LEFT_STRIDE, LINE, Left, Right};

/// Rows of floats, `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) stride: usize,
    /// Whether rows of the operand are columns of what is stored.
    pub(crate) transposed: bool,
}

impl Matrix<'_> {
    /// The stored rows and columns of a part, after a check that it lies inside the values.
    fn stored(&self, rows: &Range<usize>, columns: &Range<usize>) -> (*const f32, usize, usize) {
        let (rows, columns) = if self.transposed { (columns, rows) } else { (rows, columns) };
        let inside = rows.is_empty() || columns.is_empty();
        assert!(
            inside || (rows.end - 1) * self.stride + columns.end <= self.values.len(),
            "a part lies inside its matrix"
        );
        let start = self.values.as_ptr().wrapping_add(rows.start * self.stride + columns.start);
        (start, rows.len(), columns.len())
    }

    /// Asks for the stored rows of a part that is packed soon: for a share of them, `share` of `of`.
    fn prefetch(&self, rows: &Range<usize>, columns: &Range<usize>, share: Range<usize>, of: usize) {
        let (from, count, length) = self.stored(rows, columns);
        for row in share.start * count / of..share.end * count / of {
            let from = from.wrapping_add(row * self.stride);
            for at in (0..length).step_by(LINE) {
                lanes::prefetch_later(from.wrapping_add(at));
            }
        }
    }
}

/// The most columns of the right operand for which a left one is not packed: its rows are read too few times.
const COLUMNS_DIRECT: usize = 64;
/// The most floats between rows that are not packed: farther apart, they would share cache sets.
const STRIDE_DIRECT: usize = 512;
/// The fewest columns of the right operand for which all rows of a task are packed at once, and the most rows
/// of a register tile: with more the right operand is read seldom enough where it lies, and packing takes
/// longer than it spares.
const COLUMNS_BLOCK: usize = 128;
const ROWS_BLOCK: usize = 8;

impl Left for Matrix<'_> {
    fn panel(
        &self,
        level: Level,
        rows: Range<usize>,
        depth: Range<usize>,
        columns: usize,
        buffer: &mut [f32],
    ) -> (View, usize) {
        if columns <= COLUMNS_DIRECT && (self.transposed || self.stride <= STRIDE_DIRECT) {
            let (from, ..) = self.stored(&rows, &depth);
            return (View::new(from, self.stride, self.transposed), rows.len());
        }
        let rows = rows.start..rows.end.min(rows.start + level.rows());
        let (from, count, length) = self.stored(&rows, &depth);
        let to_stride = if self.transposed { rows.len() } else { LEFT_STRIDE };
        let to = buffer.as_mut_ptr();
        assert!(count * to_stride <= buffer.len(), "the panel fits its buffer");
        level.call(CopyRows { from, from_stride: self.stride, to, to_stride, count, length });
        (View::new(to, to_stride, self.transposed), rows.len())
    }

    fn block(
        &self,
        level: Level,
        rows: Range<usize>,
        depth: Range<usize>,
        columns: usize,
        buffer: &mut [f32],
    ) -> Option<View> {
        let (height, floats) = (level.rows(), rows.len().next_multiple_of(level.rows()) * depth.len());
        if columns < COLUMNS_BLOCK || ROWS_BLOCK < height || buffer.len() < floats {
            return None;
        }
        let (from, ..) = self.stored(&rows, &depth);
        let (rows, depth, to) = (rows.len(), depth.len(), buffer.as_mut_ptr());
        level.call(PackTiles { from, stride: self.stride, transposed: self.transposed, rows, depth, to });
        Some(View::of_panels(to, height, depth))
    }

    fn prefetch(&self, rows: Range<usize>, depth: Range<usize>) {
        Matrix::prefetch(self, &rows, &depth, 0..1, 1);
    }
}

/// The most rows of the left operand for which a right one of whole vectors is not packed: its columns are
/// read too few times.
pub(crate) const ROWS_DIRECT: usize = 96;

/// A matrix as a right operand.
pub(crate) struct MatrixRight<'a>(pub(crate) Matrix<'a>);

impl Right for MatrixRight<'_> {
    fn panels(
        &self,
        level: Level,
        depth: Range<usize>,
        columns: Range<usize>,
        rows: usize,
        buffer: &mut [f32],
    ) -> Panels {
        let (from, ..) = self.0.stored(&depth, &columns);
        let Matrix { stride, transposed, .. } = self.0;
        // Rows of one or two whole vectors without gaps are a panel already.
        if !transposed && columns.len() == stride && (stride == level.lanes() || stride == 2 * level.lanes())
        {
            return Panels { start: from, depth_step: stride, panel_step: 0 };
        }
        let lanes = level.lanes();
        let whole = [columns.len(), stride].iter().all(|floats| floats.is_multiple_of(lanes))
            && from.addr().is_multiple_of(lanes * size_of::<f32>());
        if !transposed && rows <= ROWS_DIRECT && whole {
            return Panels { start: from, depth_step: stride, panel_step: 2 * lanes };
        }
        let (depth, columns) = (depth.len(), columns.len());
        PackPanels { from, stride, transposed, depth: 0..depth, depth_panel: depth, columns }
            .pack(level, buffer)
    }

    fn prefetch(&self, depth: Range<usize>, columns: Range<usize>, share: Range<usize>, of: usize) {
        self.0.prefetch(&depth, &columns, share, of);
    }
}

/// Copies `count` rows of `length` floats.
struct CopyRows {
    from: *const f32,
    from_stride: usize,
    to: *mut f32,
    to_stride: usize,
    count: usize,
    length: usize,
}

impl Kernel for CopyRows {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        for row in 0..self.count {
            let from = self.from.wrapping_add(row * self.from_stride);
            let to = self.to.wrapping_add(row * self.to_stride);
            // SAFETY: the code that built this checked both ends.
            unsafe { lanes::copy::<L>(from, to, self.length) };
        }
    }
}

/// Packs `rows` x `depth` floats in panels of a register tile's rows, the same float of all rows side by
/// side.
struct PackTiles {
    from: *const f32,
    stride: usize,
    /// Whether the floats are stored as `depth` x `rows`.
    transposed: bool,
    rows: usize,
    depth: usize,
    to: *mut f32,
}

/// Panels that are written side by side from rows that lie side by side: a few cache lines of each.
const TILES_ABREAST: usize = 8;

impl Kernel for PackTiles {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let PackTiles { from, stride, transposed, rows, depth, to } = self;
        if !transposed {
            for row in (0..rows).step_by(L::ROWS) {
                let count = (rows - row).min(L::ROWS);
                let (from, to) = (from.wrapping_add(row * stride), to.wrapping_add(row * depth));
                // SAFETY: the code that built this checked both ends.
                unsafe { lanes::transpose(from, stride, count, depth, to, L::ROWS) };
            }
            return;
        }
        for first in (0..rows).step_by(TILES_ABREAST * L::ROWS) {
            let end = rows.min(first + TILES_ABREAST * L::ROWS);
            for at in 0..depth {
                for row in (first..end).step_by(L::ROWS) {
                    let (from, to) =
                        (from.wrapping_add(at * stride + row), to.wrapping_add(row * depth + at * L::ROWS));
                    // A whole vector is copied faster than part of one; what is too much of it is written
                    // over by the next step.
                    if L::ROWS < L::COUNT && row + L::COUNT <= rows && at + 1 < depth {
                        // SAFETY: the code that built this checked both ends, and these floats are inside
                        // both.
                        unsafe { L::load(from).store(to) };
                    } else {
                        // SAFETY: as above.
                        unsafe { lanes::copy::<L>(from, to, (end - row).min(L::ROWS)) };
                    }
                }
            }
        }
    }
}

/// Packs `depth` x `columns` floats, the first of them at `from`, in panels two vectors wide.
#[derive(Clone)]
pub(crate) struct PackPanels {
    pub(crate) from: *const f32,
    pub(crate) stride: usize,
    /// Whether the floats are stored as `columns` x `depth`.
    pub(crate) transposed: bool,
    /// Which part of the depth of the panels this is.
    pub(crate) depth: Range<usize>,
    pub(crate) depth_panel: usize,
    pub(crate) columns: usize,
}

impl PackPanels {
    /// Packs these floats in `buffer`; they must be there to read.
    pub(crate) fn pack(self, level: Level, buffer: &mut [f32]) -> Panels {
        let width = 2 * level.lanes();
        let floats = self.columns.next_multiple_of(width) * self.depth_panel;
        assert!(
            self.depth.end <= self.depth_panel && floats <= buffer.len(),
            "packed panels fit their buffer"
        );
        let panels =
            Panels { start: buffer.as_ptr(), depth_step: width, panel_step: width * self.depth_panel };
        level.call(CopyPanels { part: self, to: buffer.as_mut_ptr() });
        panels
    }
}

struct CopyPanels {
    part: PackPanels,
    to: *mut f32,
}

impl Kernel for CopyPanels {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let PackPanels { from, stride, transposed, depth, depth_panel, columns } = self.part;
        let width = 2 * L::COUNT;
        let panels = (0..columns).step_by(width).map(|column| (column, (columns - column).min(width)));
        let to = self.to.wrapping_add(depth.start * width);
        if transposed {
            for (column, columns) in panels {
                let (from, to) = (from.wrapping_add(column * stride), to.wrapping_add(column * depth_panel));
                // SAFETY: the code that built this checked both ends.
                unsafe { lanes::transpose(from, stride, columns, depth.len(), to, width) };
            }
        } else {
            // Row by row: memory is read in the order in which it lies.
            for at in 0..depth.len() {
                let (from, to) = (from.wrapping_add(at * stride), to.wrapping_add(at * width));
                for (column, columns) in panels.clone() {
                    // SAFETY: as above.
                    unsafe { lanes::copy::<L>(from.add(column), to.add(column * depth_panel), columns) };
                }
            }
        }
    }
}
