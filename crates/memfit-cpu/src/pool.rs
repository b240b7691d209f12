//! Where the windows of a pool lie.

use std::ops::Range;

use memfit_ir::Pool2D;

/// Where windows lie in images.
#[derive(Clone, Copy)]
pub(super) struct Windows<'a> {
    pub(super) pool: &'a Pool2D,
    /// Height, width and channels of the image under the windows.
    pub(super) input: [usize; 3],
    /// Height, width and channels of one result a window.
    pub(super) output: [usize; 3],
}

impl Windows<'_> {
    /// The input rows under a row of windows; margins left out.
    #[inline(always)]
    pub(super) fn rows(&self, output: usize) -> Range<usize> {
        inside(output * self.pool.strides[0], self.pool.window[0], self.pool.pads.top, self.input[0])
    }

    /// The input columns under a column of windows; margins left out.
    #[inline(always)]
    pub(super) fn columns(&self, output: usize) -> Range<usize> {
        inside(output * self.pool.strides[1], self.pool.window[1], self.pool.pads.left, self.input[1])
    }

    /// Bands of as many input rows as the stride has, counted from the upper margin. Gradients are computed
    /// band by band, since no two write the same pixel.
    pub(super) fn bands(&self) -> usize {
        (self.input[0] + self.pool.pads.top).div_ceil(self.pool.strides[0])
    }

    /// The input rows of a band; none where it lies in the margin.
    #[inline(always)]
    pub(super) fn band(&self, band: usize) -> Range<usize> {
        inside(band * self.pool.strides[0], self.pool.strides[0], self.pool.pads.top, self.input[0])
    }

    /// The rows of windows that reach into a band.
    #[inline(always)]
    pub(super) fn reaching(&self, band: usize) -> Range<usize> {
        let [stride, window] = [self.pool.strides[0], self.pool.window[0]];
        let first = match (band * stride).checked_sub(window) {
            Some(rest) => rest / stride + 1,
            None => 0,
        };
        first..self.output[0].min(band + 1)
    }

    /// Where a pixel of the image begins.
    #[inline(always)]
    pub(super) fn input_at(&self, row: usize, y: usize, x: usize) -> usize {
        ((row * self.input[0] + y) * self.input[1] + x) * self.input[2]
    }

    /// Where a window's result begins.
    #[inline(always)]
    pub(super) fn output_at(&self, row: usize, y: usize, x: usize) -> usize {
        ((row * self.output[0] + y) * self.output[1] + x) * self.output[2]
    }
}

/// `length` pixels from `start`, counted from the margin, as pixels of an image of `size`.
#[inline(always)]
fn inside(start: usize, length: usize, margin: usize, size: usize) -> Range<usize> {
    let end = (start + length).saturating_sub(margin).min(size);
    start.saturating_sub(margin).min(end)..end
}
