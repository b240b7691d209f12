//! What each position of a grid sees of an image.

use std::ops::Range;

use super::super::lanes::{self, Lanes};
use super::Convolution;

/// One axis of a grid: tap `t` of position `p` sees pixel `p * step + start + t * tap_step`, or zero outside
/// the image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) positions: usize,
    pub(super) step: usize,
    pub(super) start: isize,
    pub(super) taps: usize,
    pub(super) tap_step: isize,
    /// Pixels of the image along this axis.
    pub(super) size: usize,
}

impl Axis {
    /// The pixel that a tap of a position sees, were the image without end.
    #[inline(always)]
    pub(super) fn seen(&self, position: usize, tap: usize) -> isize {
        (position * self.step) as isize + self.start + tap as isize * self.tap_step
    }

    /// The pixel that a tap of a position sees, if it is inside the image.
    #[inline(always)]
    pub(super) fn pixel(&self, position: usize, tap: usize) -> Option<usize> {
        // As unsigned, a pixel before the image is beyond it as well.
        let pixel = self.seen(position, tap) as usize;
        (pixel < self.size).then_some(pixel)
    }

    /// The taps of a position that are inside the image.
    #[inline(always)]
    pub(super) fn taps_inside(&self, position: usize) -> Range<usize> {
        let is_inside = |&tap: &usize| self.pixel(position, tap).is_some();
        let start = (0..self.taps).find(is_inside).unwrap_or(self.taps);
        let end = (start..self.taps).rev().find(is_inside).map_or(start, |tap| tap + 1);
        start..end
    }

    /// The positions all of whose taps in a range are inside the image.
    #[inline(always)]
    pub(super) fn positions_inside(&self, taps: Range<usize>) -> Range<usize> {
        let is_inside = |&position: &usize| {
            !taps.is_empty()
                && self.pixel(position, taps.start).is_some()
                && self.pixel(position, taps.end - 1).is_some()
        };
        let start = (0..self.positions).find(is_inside).unwrap_or(self.positions);
        let end = (start..self.positions).rev().find(is_inside).map_or(start, |position| position + 1);
        start..end
    }
}

/// A grid of positions, some channels of images, and which pixels each position sees.
#[derive(Clone, Copy)]
pub(super) struct Gather<'a> {
    /// All images, NHWC.
    pub(super) images: &'a [f32],
    /// Channels of a pixel.
    pub(super) pixel: usize,
    /// The channels that are seen: `channels` of them, from `channel` on.
    pub(super) channel: usize,
    pub(super) channels: usize,
    /// How many lines of pixels there is room for. Lines of all images follow one another, and line `i` takes
    /// the place of line `i − lines`.
    pub(super) lines: usize,
    pub(super) down: Axis,
    pub(super) across: Axis,
}

impl<'a> Gather<'a> {
    /// What output pixels see of the input, in one group.
    pub(super) fn of_input(shape: &Convolution, images: &'a [f32], group: usize) -> Self {
        let axis = |i: usize, pad: usize| Axis {
            positions: shape.output[i],
            step: shape.strides[i],
            start: -(pad as isize),
            taps: shape.kernel[i],
            tap_step: shape.dilation[i] as isize,
            size: shape.input[i],
        };
        Gather {
            images,
            pixel: shape.input[2],
            channel: group * shape.channels_in(),
            channels: shape.channels_in(),
            lines: usize::MAX,
            down: axis(0, shape.pad_top),
            across: axis(1, shape.pad_left),
        }
    }

    /// Positions of the grid over one image.
    pub(super) fn positions(&self) -> usize {
        self.down.positions * self.across.positions
    }

    /// How many floats a position sees.
    pub(super) fn floats(&self) -> usize {
        self.down.taps * self.across.taps * self.channels
    }

    /// The row, column and image of a position.
    #[inline(always)]
    pub(super) fn position(&self, index: usize) -> Position {
        let (row, x) = (index / self.across.positions, index % self.across.positions);
        Position { image: row / self.down.positions, y: row % self.down.positions, x }
    }

    /// The position after the last one in its row.
    #[inline(always)]
    pub(super) fn next_row(&self, position: Position) -> Position {
        match position.y + 1 < self.down.positions {
            true => Position { y: position.y + 1, x: 0, ..position },
            false => Position { image: position.image + 1, y: 0, x: 0 },
        }
    }

    /// How many floats a row of taps sees.
    #[inline(always)]
    pub(super) fn tap_row(&self) -> usize {
        self.across.taps * self.channels
    }

    /// Whether what a row of taps sees is one run of floats.
    #[inline(always)]
    pub(super) fn is_contiguous(&self) -> bool {
        self.channels == self.pixel && (self.across.tap_step == 1 || self.across.taps == 1)
    }

    /// A row of pixels, from the first channel that is seen on.
    #[inline(always)]
    pub(super) fn pixel_row(&self, image: usize, y: usize) -> *const f32 {
        self.images.as_ptr().wrapping_add(self.line_start(image, y))
    }

    /// Where it begins.
    #[inline(always)]
    pub(super) fn line_start(&self, image: usize, y: usize) -> usize {
        self.line(image, y) * self.across.size * self.pixel + self.channel
    }

    /// The slot of an image's line among the lines that there is room for.
    #[inline(always)]
    pub(super) fn line(&self, image: usize, y: usize) -> usize {
        let line = image * self.down.size + y;
        if line < self.lines { line } else { line % self.lines }
    }

    /// Copies `count` floats of a row of pixels from float `start` on, with zeros where there is no pixel.
    ///
    /// # Safety
    /// The image exists, and there is room for the floats.
    #[inline(always)]
    pub(super) unsafe fn copy_run<L: Lanes>(
        &self,
        image: usize,
        y: isize,
        start: isize,
        count: usize,
        to: *mut f32,
    ) {
        let width = (self.across.size * self.pixel) as isize;
        let before = (-start).clamp(0, count as isize) as usize;
        let inside =
            if (y as usize) < self.down.size { (width - start).clamp(0, count as isize) as usize } else { 0 };
        // SAFETY: the three parts cover the floats, and those copied are inside their row.
        unsafe {
            if inside > before {
                let from = self.pixel_row(image, y as usize).offset(start + before as isize);
                lanes::clear::<L>(to, before);
                lanes::copy::<L>(from, to.add(before), inside - before);
                lanes::clear::<L>(to.add(inside), count - inside);
            } else {
                lanes::clear::<L>(to, count);
            }
        }
    }

    /// Makes sure that the positions are those of images that exist.
    pub(super) fn check(&self, positions: &Range<usize>, floats: &Range<usize>) {
        let images = positions.end.div_ceil(self.positions().max(1));
        let image = self.down.size * self.across.size * self.pixel;
        assert!(images * image <= self.images.len(), "positions belong to an image");
        assert!(self.channel + self.channels <= self.pixel && floats.end <= self.floats(), "channels exist");
    }
}

/// A place in the grid of an image.
#[derive(Clone, Copy)]
pub(super) struct Position {
    pub(super) image: usize,
    pub(super) y: usize,
    pub(super) x: usize,
}
