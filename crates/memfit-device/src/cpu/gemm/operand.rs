//! Matrices as operands of the driver, plain or transposed.

use std::ops::Range;

use super::super::lanes::{self, Kernel, Lanes, Level};
use super::super::microkernel::View;
use super::driver::{LEFT_STRIDE, Left, Right};

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
}

/// The most columns of the right operand for which a left one is not packed: its rows are read too few times.
const COLUMNS_DIRECT: usize = 64;
/// The most floats between rows that are not packed: farther apart, they would share cache sets.
const STRIDE_DIRECT: usize = 512;

impl Left for Matrix<'_> {
    fn panel(
        &self,
        level: Level,
        rows: Range<usize>,
        depth: Range<usize>,
        columns: usize,
        buffer: &mut [f32],
    ) -> View {
        let (from, count, length) = self.stored(&rows, &depth);
        let near = self.transposed || self.stride <= STRIDE_DIRECT;
        if near && columns <= COLUMNS_DIRECT && rows.len().is_multiple_of(2) {
            return View::new(from, self.stride, self.transposed);
        }
        let to_stride = if self.transposed { rows.len().next_multiple_of(2) } else { LEFT_STRIDE };
        let to = buffer.as_mut_ptr();
        assert!(count * to_stride <= buffer.len(), "the panel fits its buffer");
        level.call(CopyRows { from, from_stride: self.stride, to, to_stride, count, length });
        View::new(to, to_stride, self.transposed)
    }
}

/// A matrix as a right operand.
pub(crate) struct MatrixRight<'a>(pub(crate) Matrix<'a>);

impl Right for MatrixRight<'_> {
    fn pack(&self, level: Level, depth: Range<usize>, columns: Range<usize>, panels: &mut [f32]) {
        let (from, ..) = self.0.stored(&depth, &columns);
        let part = PackPanels {
            from,
            stride: self.0.stride,
            transposed: self.0.transposed,
            depth: 0..depth.len(),
            depth_panel: depth.len(),
            columns: columns.len(),
            to: panels.as_mut_ptr(),
        };
        part.check(level, panels.len());
        level.call(part);
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
            // SAFETY: whoever made this checked both ends.
            unsafe { lanes::copy::<L>(from, to, self.length) };
        }
    }
}

/// Packs `depth` x `columns` floats, the first of them at `from`, in panels two vectors wide.
pub(crate) struct PackPanels {
    pub(crate) from: *const f32,
    pub(crate) stride: usize,
    /// Whether the floats are stored as `columns` x `depth`.
    pub(crate) transposed: bool,
    /// Which part of the depth of the panels this is.
    pub(crate) depth: Range<usize>,
    pub(crate) depth_panel: usize,
    pub(crate) columns: usize,
    pub(crate) to: *mut f32,
}

impl PackPanels {
    /// Makes sure that `floats` are room enough.
    pub(crate) fn check(&self, level: Level, floats: usize) {
        let columns = self.columns.next_multiple_of(2 * level.lanes());
        assert!(
            self.depth.end <= self.depth_panel && columns * self.depth_panel <= floats,
            "packed panels fit their buffer"
        );
    }
}

impl Kernel for PackPanels {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        for column in (0..self.columns).step_by(2 * L::COUNT) {
            let columns = (self.columns - column).min(2 * L::COUNT);
            let width = if columns > L::COUNT { 2 * L::COUNT } else { L::COUNT };
            let to = self.to.wrapping_add(column * self.depth_panel + self.depth.start * width);
            if self.transposed {
                let from = self.from.wrapping_add(column * self.stride);
                // SAFETY: whoever made this checked both ends.
                unsafe { lanes::transpose(from, self.stride, columns, self.depth.len(), to, width) };
            } else {
                let from = self.from.wrapping_add(column);
                for depth in 0..self.depth.len() {
                    // SAFETY: as above.
                    unsafe {
                        lanes::copy::<L>(from.add(depth * self.stride), to.add(depth * width), columns);
                    }
                }
            }
        }
    }
}
