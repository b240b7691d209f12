//! The gradient of the input of a 2×2 max pool, which is not stored: it is computed from the gradient of the
//! pool's output and the argmax of each window.

use std::ops::Range;

use super::super::super::gemm::driver::LINE;
use super::super::super::lanes::{self, Kernel, Lanes, Level};
use super::super::gather::Gather;
use super::Tile;

/// The gradient of a pool's output, and the place in its window that each value goes to.
#[derive(Clone, Copy)]
pub(in super::super) struct Unpooled<'a> {
    dy: &'a [f32],
    argmax: &'a [u8],
    /// Height, width and channels of the image in front of the pool.
    image: [usize; 3],
}

impl<'a> Unpooled<'a> {
    /// For images of this height, width and channels before the pool.
    pub(in super::super) fn new(
        dy: &'a [f32],
        argmax: &'a [u8],
        image: [usize; 3],
        rows: usize,
    ) -> Unpooled<'a> {
        let [height, width, channels] = image;
        let floats = rows * (height / 2) * (width / 2) * channels;
        assert!(dy.len() == floats && argmax.len() == floats, "dy and an argmax for each window");
        Unpooled { dy, argmax, image }
    }

    /// Where `dy` of the window that a pixel is in begins, if it is in one.
    #[inline(always)]
    fn window(&self, image: usize, y: usize, x: usize) -> Option<usize> {
        let [height, width, channels] = self.image;
        let (down, across) = (y / 2, x / 2);
        let is_inside = down < height / 2 && across < width / 2;
        is_inside.then(|| ((image * (height / 2) + down) * (width / 2) + across) * channels)
    }

    /// The gradient of one place of a window, where `dy` of the window begins at `at`.
    ///
    /// # Safety
    /// `dy` has `count` values from there, at most a vector.
    #[inline(always)]
    unsafe fn place<L: Lanes>(&self, at: usize, place: usize, count: usize) -> L {
        // SAFETY: the caller's promise; the argmax has as many values.
        unsafe {
            let is_argmax = L::bytes_equal(self.argmax.as_ptr().add(at), place as u8, count);
            lanes::load::<L>(self.dy.as_ptr().add(at), count).keep(is_argmax)
        }
    }

    /// The gradient of a tile, two by two, column by column, for some channels: zeros where it is not a whole
    /// window.
    #[inline(always)]
    pub(super) fn tile<L: Lanes, const SIDE: usize>(
        &self,
        tile: &Tile,
        channel: usize,
        count: usize,
    ) -> [[L; SIDE]; SIDE] {
        let mut columns = [[L::splat(0.0); SIDE]; SIDE];
        if let Some(at) = self.window(tile.image, tile.y, tile.x) {
            let at = at + channel;
            assert!(at + count <= self.dy.len() && count <= L::COUNT, "the gradients exist");
            for (across, column) in columns.iter_mut().enumerate() {
                for (down, dx) in column.iter_mut().enumerate() {
                    // SAFETY: checked.
                    *dx = unsafe { self.place(at, down * SIDE + across, count) };
                }
            }
        }
        columns
    }

    /// Floats of `lines` lines.
    pub(super) fn floats(&self, lines: usize) -> usize {
        floats(lines, self.image[1], self.image[2])
    }

    /// Computes some neighbouring lines, counted over all images, and shows them. The room has
    /// `floats(count)` floats or more.
    pub(super) fn show<'b>(
        &self,
        level: Level,
        lines: Range<usize>,
        gather: &Gather<'b>,
        room: &'b mut [f32],
    ) -> Gather<'b> {
        let count = lines.len().max(1);
        assert!(self.floats(count) <= room.len(), "there is room for the lines that are seen together");
        level.call(Lines { unpooled: self, lines, count, to: room });
        Gather { images: room, lines: count, ..*gather }
    }
}

/// Floats of `lines` lines of an image.
pub(super) fn floats(lines: usize, width: usize, channels: usize) -> usize {
    (lines * width * channels).next_multiple_of(LINE)
}

/// Writes lines, each in the slot in which a [`Gather`] of `count` lines finds it.
struct Lines<'a> {
    unpooled: &'a Unpooled<'a>,
    lines: Range<usize>,
    count: usize,
    to: &'a mut [f32],
}

impl Kernel for Lines<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let [height, width, channels] = self.unpooled.image;
        for line in self.lines.clone() {
            let (image, y) = (line / height, line % height);
            let to = &mut self.to[line % self.count * width * channels..][..width * channels];
            for (x, to) in to.chunks_exact_mut(channels).enumerate() {
                let Some(at) = self.unpooled.window(image, y, x) else {
                    to.fill(0.0);
                    continue;
                };
                assert!(at + channels <= self.unpooled.dy.len(), "the gradients exist");
                let place = y % 2 * 2 + x % 2;
                for channel in (0..channels).step_by(L::COUNT) {
                    let count = L::COUNT.min(channels - channel);
                    // SAFETY: checked above; a pixel has these channels.
                    unsafe {
                        let dx: L = self.unpooled.place(at + channel, place, count);
                        lanes::store(dx, to.as_mut_ptr().add(channel), count);
                    }
                }
            }
        }
    }
}
