//! What each position of a grid sees of an image, packed for the microkernel without ever being stored whole.

use std::ops::Range;

use super::super::gemm::driver::{LEFT_STRIDE, Left};
use super::super::lanes::{self, Kernel, Lanes, Level};
use super::super::microkernel::View;
use super::Convolution;

/// One axis of a grid: tap `t` of position `p` sees pixel `p * step + start + t * tap_step`, or zero outside the image.
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
    /// The pixel that a tap of a position sees, if it is inside the image.
    #[inline(always)]
    pub(super) fn pixel(&self, position: usize, tap: usize) -> Option<usize> {
        let pixel = (position * self.step) as isize + self.start + tap as isize * self.tap_step;
        // As unsigned, a pixel before the image is beyond it as well.
        ((pixel as usize) < self.size).then_some(pixel as usize)
    }

    /// Whether every tap of these positions is inside the image.
    #[inline(always)]
    pub(super) fn is_inside(&self, positions: Range<usize>) -> bool {
        let corner = |position, tap| self.pixel(position, tap).is_some();
        let last_tap = self.taps - 1;
        let last = positions.end - 1;
        corner(positions.start, 0)
            && corner(positions.start, last_tap)
            && corner(last, 0)
            && corner(last, last_tap)
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

    /// A row of pixels, from the first channel that is seen on.
    #[inline(always)]
    pub(super) fn pixel_row(&self, image: usize, y: usize) -> *const f32 {
        let start = (image * self.down.size + y) * self.across.size * self.pixel + self.channel;
        self.images.as_ptr().wrapping_add(start)
    }

    /// Makes sure that the positions are those of images that exist.
    fn check(&self, positions: &Range<usize>, floats: &Range<usize>) {
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

/// Positions are the rows of the operand, and what they see is the depth.
impl Left for Gather<'_> {
    fn panel(&self, level: Level, rows: Range<usize>, depth: Range<usize>, _: usize, buffer: &mut [f32]) -> View {
        self.check(&rows, &depth);
        assert!(
            rows.len() * LEFT_STRIDE <= buffer.len() && depth.len() <= LEFT_STRIDE,
            "the panel fits its buffer"
        );
        level.call(PackPositions { gather: self, positions: rows, floats: depth, to: buffer.as_mut_ptr() });
        View::new(buffer.as_ptr(), LEFT_STRIDE, false)
    }
}

/// What positions see are the rows of the operand, and the positions are the depth.
pub(super) struct Transposed<'a>(pub(super) Gather<'a>);

impl Left for Transposed<'_> {
    fn panel(&self, level: Level, rows: Range<usize>, depth: Range<usize>, _: usize, buffer: &mut [f32]) -> View {
        self.0.check(&depth, &rows);
        let width = rows.len().next_multiple_of(2);
        assert!(depth.len() * width <= buffer.len(), "the panel fits its buffer");
        level.call(PackFloats {
            gather: &self.0,
            positions: depth,
            floats: rows,
            to: buffer.as_mut_ptr(),
            width,
        });
        View::new(buffer.as_ptr(), width, true)
    }
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
        let tap_row = gather.across.taps * gather.channels;
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
                // SAFETY: the pixel is inside the image, and the buffer has room for all floats of a position.
                Some(x) => unsafe { lanes::copy::<L>(row.add(x * pixel + channel), to, run) },
                // SAFETY: as above.
                None => unsafe { lanes::clear::<L>(to, run) },
            }
            at += run;
            to = to.wrapping_add(run);
        }
    }
}

/// Writes what positions see so that the same float of all positions is a column, `width` floats for each position.
struct PackFloats<'a> {
    gather: &'a Gather<'a>,
    positions: Range<usize>,
    floats: Range<usize>,
    to: *mut f32,
    width: usize,
}

impl Kernel for PackFloats<'_> {
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

impl PackFloats<'_> {
    /// Copies some channels of what one tap of every position sees.
    #[inline(always)]
    fn tap<L: Lanes>(&self, tap: [usize; 2], channel: usize, count: usize, mut to: *mut f32) {
        let gather = self.gather;
        let mut position = gather.position(self.positions.start);
        let mut left = self.positions.len();
        while left > 0 {
            let positions = (gather.across.positions - position.x).min(left);
            let row = gather.down.pixel(position.y, tap[0]).map(|y| gather.pixel_row(position.image, y));
            for x in position.x..position.x + positions {
                match (row, gather.across.pixel(x, tap[1])) {
                    // SAFETY: the pixel is inside the image, and the buffer has `width` floats for every position.
                    (Some(row), Some(x)) => unsafe {
                        lanes::copy::<L>(row.add(x * gather.pixel + channel), to, count);
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
