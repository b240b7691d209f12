//! Images as left operands: what positions see is packed for the microkernel, and never stored whole.

use std::ops::Range;

use super::super::gemm::driver::{DEPTH_MAX, LEFT_STRIDE, Left, block_end, even_tile};
use super::super::lanes::{self, Kernel, Lanes, Level};
use super::super::microkernel::View;
use super::super::producer::Made;
use super::gather::{Gather, Position};
use super::strip::Strip;

/// Positions are the rows of the operand, and what they see is the depth.
impl Left for Gather<'_> {
    fn block_end(&self, start: usize, end: usize) -> usize {
        let width = self.tap_row();
        if !self.is_contiguous() || width == 0 {
            return block_end(start, end);
        }
        row_block_end(start, end, width, width.min(DEPTH_MAX), DEPTH_MAX / width)
    }

    fn panel(
        &self,
        level: Level,
        rows: Range<usize>,
        depth: Range<usize>,
        _: usize,
        buffer: &mut [f32],
    ) -> (View, usize) {
        self.check(&rows, &depth);
        if let Some((strip, count)) = Strip::of_positions(self, level, &rows, &depth, buffer.len()) {
            return (strip.copy(self, level, buffer), count);
        }
        let rows = rows.start..rows.end.min(rows.start + level.rows());
        let room = rows.len() * LEFT_STRIDE <= buffer.len() && depth.len() <= LEFT_STRIDE;
        assert!(room, "the panel fits its buffer");
        let (count, to) = (rows.len(), buffer.as_mut_ptr());
        level.call(PackPositions { gather: self, positions: rows, floats: depth, to });
        (View::new(to, LEFT_STRIDE, false), count)
    }
}

/// What positions see are the rows of the operand, and the positions are the depth.
pub(super) struct Transposed<'a>(pub(super) Gather<'a>);

impl Left for Transposed<'_> {
    fn block_end(&self, start: usize, end: usize) -> usize {
        let Some((length, rows)) = Strip::positions_of_floats(&self.0) else { return block_end(start, end) };
        row_block_end(start, end, self.0.across.positions, length, rows)
    }

    fn panel(
        &self,
        level: Level,
        rows: Range<usize>,
        depth: Range<usize>,
        _: usize,
        buffer: &mut [f32],
    ) -> (View, usize) {
        self.0.check(&depth, &rows);
        if let Some((strip, count)) = Strip::of_floats(&self.0, &rows, &depth, buffer.len()) {
            return (strip.copy(&self.0, level, buffer), count);
        }
        let rows = rows.start..rows.end.min(rows.start + level.rows());
        let (width, to) = (rows.len(), buffer.as_mut_ptr());
        assert!(depth.len() * width <= buffer.len(), "the panel fits its buffer");
        level.call(PackFloats { gather: &self.0, pixels: self.0, positions: depth, floats: rows, to, width });
        (View::new(to, width, true), width)
    }
}

/// Where a block of depth ends that has either up to `rows_most` whole rows of `width`, or up to `part_most`
/// of one.
fn row_block_end(start: usize, end: usize, width: usize, part_most: usize, rows_most: usize) -> usize {
    let row_end = end.min((start / width + 1) * width);
    let rows = (end - start) / width;
    if row_end - start < width || part_most < width || rows == 0 {
        return row_end.min(start + even_tile(row_end - start, part_most, 1));
    }
    start + even_tile(rows, rows_most, 1) * width
}

/// Writes what each position sees to a row of its own.
struct PackPositions<'a> {
    gather: &'a Gather<'a>,
    positions: Range<usize>,
    floats: Range<usize>,
    to: *mut f32,
}

impl Kernel for PackPositions<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let mut position = self.gather.position(self.positions.start);
        for row in 0..self.positions.len() {
            self.position::<L>(position, self.to.wrapping_add(row * LEFT_STRIDE));
            position.x += 1;
            if position.x == self.gather.across.positions {
                position = self.gather.next_row(position);
            }
        }
    }
}

impl PackPositions<'_> {
    #[inline(always)]
    fn position<L: Lanes>(&self, position: Position, mut to: *mut f32) {
        let gather = self.gather;
        let tap_row = gather.tap_row();
        let mut at = self.floats.start;
        while at < self.floats.end {
            let (tap, skip) = (at / tap_row, at % tap_row);
            let count = (tap_row - skip).min(self.floats.end - at);
            match gather.down.pixel(position.y, tap) {
                Some(y) => {
                    self.tap_row::<L>(gather.pixel_row(position.image, y), position.x, skip, count, to)
                }
                // SAFETY: the buffer has room for all floats of a position.
                None => unsafe { lanes::clear::<L>(to, count) },
            }
            at += count;
            to = to.wrapping_add(count);
        }
    }

    /// Copies what one row of taps sees, but for the first `skip` floats.
    #[inline(always)]
    fn tap_row<L: Lanes>(&self, row: *const f32, x: usize, skip: usize, count: usize, mut to: *mut f32) {
        let Gather { pixel, channels, across, .. } = *self.gather;
        let mut at = skip;
        while at < skip + count {
            let (tap, channel) = (at / channels, at % channels);
            let run = (channels - channel).min(skip + count - at);
            match across.pixel(x, tap) {
                // SAFETY: the pixel is inside the image, and the buffer has room for all floats of a
                // position.
                Some(x) => unsafe { lanes::copy::<L>(row.add(x * pixel + channel), to, run) },
                // SAFETY: as above.
                None => unsafe { lanes::clear::<L>(to, run) },
            }
            at += run;
            to = to.wrapping_add(run);
        }
    }
}

/// Where the floats of images come from: they are stored, or recomputed.
pub(super) trait Pixels {
    /// Writes `count` floats of a pixel, the first of which stands at `start` in the images and in `column`
    /// of its pixel.
    ///
    /// # Safety
    /// The images have these floats, and `to` has room for them that no other task touches.
    unsafe fn write<L: Lanes>(&self, start: usize, column: usize, count: usize, to: *mut f32);
}

impl Pixels for Gather<'_> {
    #[inline(always)]
    unsafe fn write<L: Lanes>(&self, start: usize, _column: usize, count: usize, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { lanes::copy::<L>(self.images.as_ptr().wrapping_add(start), to, count) }
    }
}

impl Pixels for &Made<'_> {
    #[inline(always)]
    unsafe fn write<L: Lanes>(&self, start: usize, column: usize, count: usize, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { self.make::<L>(start..start + count, column, to) }
    }
}

/// Writes what positions see so that the same float of all positions is a column, `width` floats for each
/// position.
pub(super) struct PackFloats<'a, P> {
    pub(super) gather: &'a Gather<'a>,
    pub(super) pixels: P,
    pub(super) positions: Range<usize>,
    pub(super) floats: Range<usize>,
    pub(super) to: *mut f32,
    pub(super) width: usize,
}

impl<P: Pixels> Kernel for PackFloats<'_, P> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Gather { channels, across, .. } = *self.gather;
        let mut at = self.floats.start;
        while at < self.floats.end {
            let (tap, channel) = (at / channels, at % channels);
            let count = (channels - channel).min(self.floats.end - at);
            let to = self.to.wrapping_add(at - self.floats.start);
            self.tap::<L>([tap / across.taps, tap % across.taps], channel, count, to);
            at += count;
        }
    }
}

impl<P: Pixels> PackFloats<'_, P> {
    /// Writes some channels of what one tap of every position sees.
    #[inline(always)]
    fn tap<L: Lanes>(&self, tap: [usize; 2], channel: usize, count: usize, mut to: *mut f32) {
        let gather = self.gather;
        let mut position = gather.position(self.positions.start);
        let mut left = self.positions.len();
        while left > 0 {
            let positions = (gather.across.positions - position.x).min(left);
            let row = gather.down.pixel(position.y, tap[0]).map(|y| gather.line_start(position.image, y));
            for x in position.x..position.x + positions {
                match (row, gather.across.pixel(x, tap[1])) {
                    // SAFETY: the pixel is inside the image, and the buffer has `width` floats for every
                    // position.
                    (Some(row), Some(x)) => unsafe {
                        let start = row + x * gather.pixel + channel;
                        self.pixels.write::<L>(start, gather.channel + channel, count, to);
                    },
                    // SAFETY: as above.
                    (None, _) | (_, None) => unsafe { lanes::clear::<L>(to, count) },
                }
                to = to.wrapping_add(self.width);
            }
            left -= positions;
            position = gather.next_row(position);
        }
    }
}
