//! Strips: neighbouring positions of a grid see overlapping runs of pixels, which are copied once, with the
//! zeros around the image, and read by the microkernel at an offset for each position.
//!
//! ```text
//! a row of pixels, each with its channels:   | 0 | a | b | c | d | e |
//! what three positions see of it:            [-----------]
//!                                                [-----------]
//!                                                    [-----------]
//! ```

use std::ops::Range;

use super::super::gemm::driver::{DEPTH_MAX, LEFT_FLOATS, even_tile};
use super::super::lanes::{Kernel, Lanes, Level};
use super::super::microkernel::View;
use super::gather::Gather;

/// The shortest row of positions that is worth panels of its own.
const WIDTH_MIN: usize = 24;
/// The shortest row of taps, in floats, that is worth panels of its own.
const TAP_ROW_MIN: usize = 3;
/// The fewest positions, where these are the depth, that are worth a strip.
const DEPTH_MIN: usize = 48;

/// Runs of pixels to copy, and how the microkernel sees them.
pub(super) struct Strip {
    image: usize,
    /// The row of pixels of the first run, and how many rows further the next one is.
    y: isize,
    y_step: isize,
    /// The first float of every run in its row of pixels, and how many there are.
    start: isize,
    length: usize,
    runs: usize,
    row_step: usize,
    depth_step: usize,
}

impl Strip {
    /// Positions are rows of the operand: a run for every row of taps. There is a strip of the first of some
    /// positions, up to the end of their row of the grid, if the floats are whole rows of taps or part of
    /// one.
    pub(super) fn of_positions(
        gather: &Gather,
        level: Level,
        positions: &Range<usize>,
        floats: &Range<usize>,
        room: usize,
    ) -> Option<(Strip, usize)> {
        let Gather { pixel, down, across, .. } = *gather;
        let step = across.step * pixel;
        if !gather.is_contiguous() || across.positions < WIDTH_MIN || step > floats.len() {
            return None;
        }
        let Cut { row: tap, skip, runs, length } = Cut::new(floats, gather.tap_row())?;
        let first = gather.position(positions.start);
        let count = (across.positions - first.x).min(positions.len());
        let count_most = (room / runs).checked_sub(length)? / step + 1;
        // Cut, if at all, after whole tiles.
        let count = if count <= count_most { count } else { count_most / level.rows() * level.rows() };
        if count == 0 {
            return None;
        }
        let strip = Strip {
            image: first.image,
            y: down.seen(first.y, tap),
            y_step: down.tap_step,
            start: across.seen(first.x, 0) * pixel as isize + skip as isize,
            length: (count - 1) * step + length,
            runs,
            row_step: step,
            depth_step: 1,
        };
        Some((strip, count))
    }

    /// How many positions, and how many rows of the grid, a strip should have in an operand whose depth is
    /// positions: none if it could not hold many, or a row of taps would not fill a panel.
    pub(super) fn positions_of_floats(gather: &Gather) -> Option<(usize, usize)> {
        let (step, width) = (gather.across.step * gather.pixel, gather.tap_row());
        let count_most = DEPTH_MAX.min(LEFT_FLOATS.checked_sub(width)? / step.max(1) + 1);
        let length = even_tile(gather.across.positions, count_most, 1);
        let runs = (DEPTH_MAX / length).min(LEFT_FLOATS / ((length - 1) * step + width).max(1));
        let runs = if length < gather.across.positions { 1 } else { runs };
        let suits = gather.is_contiguous() && width >= TAP_ROW_MIN && length * runs >= DEPTH_MIN;
        suits.then_some((length, runs))
    }

    /// What positions see are the rows of the operand: a run for every row of positions. There is a strip of
    /// the first of some floats, up to the end of their row of taps, if the positions are whole rows of the
    /// grid or part of one.
    pub(super) fn of_floats(
        gather: &Gather,
        floats: &Range<usize>,
        positions: &Range<usize>,
        room: usize,
    ) -> Option<(Strip, usize)> {
        if Strip::positions_of_floats(gather).is_none() || positions.is_empty() {
            return None;
        }
        let Gather { pixel, down, across, .. } = *gather;
        let (step, width) = (across.step * pixel, gather.tap_row());
        let Cut { runs, length, .. } = Cut::new(positions, across.positions)?;
        let (tap, skip) = (floats.start / width, floats.start % width);
        let count = (width - skip).min(floats.len());
        let (first, last) = (gather.position(positions.start), gather.position(positions.end - 1));
        let strip = Strip {
            image: first.image,
            y: down.seen(first.y, tap),
            y_step: down.step as isize,
            start: across.seen(first.x, 0) * pixel as isize + skip as isize,
            length: (length - 1) * step + count,
            runs,
            row_step: 1,
            depth_step: step,
        };
        (first.image == last.image && runs * strip.length <= room).then_some((strip, count))
    }

    /// Copies the runs to `buffer`, where there is room for them.
    pub(super) fn copy(self, gather: &Gather, level: Level, buffer: &mut [f32]) -> View {
        assert!(self.runs * self.length <= buffer.len(), "the strip fits its buffer");
        let view = View {
            start: buffer.as_ptr(),
            row_step: self.row_step,
            depth_step: self.depth_step,
            panel_step: None,
            segments: self.runs,
            segment_step: self.length,
        };
        level.call(Copy { strip: self, gather, to: buffer.as_mut_ptr() });
        view
    }
}

/// A range in rows of one width that is a number of whole rows, or part of one.
struct Cut {
    /// The first row, and how far in it the range starts.
    row: usize,
    skip: usize,
    /// How many rows, and how much of each.
    runs: usize,
    length: usize,
}

impl Cut {
    fn new(range: &Range<usize>, width: usize) -> Option<Cut> {
        let width = width.max(1);
        let (row, skip) = (range.start / width, range.start % width);
        if skip + range.len() <= width {
            return Some(Cut { row, skip, runs: 1, length: range.len() });
        }
        let whole = skip == 0 && range.len().is_multiple_of(width);
        whole.then_some(Cut { row, skip: 0, runs: range.len() / width, length: width })
    }
}

/// Copies the runs of a strip one after the other.
struct Copy<'a> {
    strip: Strip,
    gather: &'a Gather<'a>,
    to: *mut f32,
}

impl Kernel for Copy<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Strip { image, start, length, .. } = self.strip;
        let mut y = self.strip.y;
        for run in 0..self.strip.runs {
            let to = self.to.wrapping_add(run * length);
            // SAFETY: there is room for `length` floats of every run.
            unsafe { self.gather.copy_run::<L>(image, y, start, length, to) };
            y += self.strip.y_step;
        }
    }
}
