//! The gradient of an image in front of a pool of two by two pixels, which is not stored: made of the gradient behind the pool, and of
//! who won each window.

use std::ops::Range;

use super::super::super::gemm::driver::LINE;
use super::super::super::lanes::{self, Kernel, Lanes, Level};
use super::super::gather::Gather;
use super::Tile;

/// Slopes behind a pool, and the place in its window that each goes to.
#[derive(Clone, Copy)]
pub(in super::super) struct Unpooled<'a> {
    dy: &'a [f32],
    winners: &'a [u8],
    /// Height, width and channels of the image in front of the pool.
    image: [usize; 3],
}

impl<'a> Unpooled<'a> {
    /// Of so many images of this height, width and channels in front of the pool.
    pub(in super::super) fn new(
        dy: &'a [f32],
        winners: &'a [u8],
        image: [usize; 3],
        rows: usize,
    ) -> Unpooled<'a> {
        let [height, width, channels] = image;
        let floats = rows * (height / 2) * (width / 2) * channels;
        assert!(dy.len() == floats && winners.len() == floats, "a slope and a winner for each window");
        Unpooled { dy, winners, image }
    }

    /// Where the slopes of the window that a pixel is in begin, if it is in one.
    #[inline(always)]
    fn window(&self, image: usize, y: usize, x: usize) -> Option<usize> {
        let [height, width, channels] = self.image;
        let (down, across) = (y / 2, x / 2);
        let is_inside = down < height / 2 && across < width / 2;
        is_inside.then(|| ((image * (height / 2) + down) * (width / 2) + across) * channels)
    }

    /// What goes to one place of a window, from a slope on.
    ///
    /// # Safety
    /// `count` slopes, at most a vector, are there.
    #[inline(always)]
    unsafe fn place<L: Lanes>(&self, at: usize, place: usize, count: usize) -> L {
        // SAFETY: the caller's promise; there are as many winners.
        unsafe {
            let wins = L::bytes_equal(self.winners.as_ptr().add(at), place as u8, count);
            lanes::load::<L>(self.dy.as_ptr().add(at), count).keep(wins)
        }
    }

    /// The slopes of a tile, two by two, column by column, for some channels: zeros where it is not a whole window.
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
            assert!(at + count <= self.dy.len() && count <= L::COUNT, "slopes exist");
            for (across, column) in columns.iter_mut().enumerate() {
                for (down, slopes) in column.iter_mut().enumerate() {
                    // SAFETY: checked.
                    *slopes = unsafe { self.place(at, down * SIDE + across, count) };
                }
            }
        }
        columns
    }

    /// Floats of so many lines.
    pub(super) fn floats(&self, lines: usize) -> usize {
        floats(lines, self.image[1], self.image[2])
    }

    /// Makes some neighbouring lines, counted over all images, and shows them; the room has `floats` of so many lines or more.
    pub(super) fn show<'b>(
        &self,
        level: Level,
        lines: Range<usize>,
        gather: &Gather<'b>,
        room: &'b mut [f32],
    ) -> Gather<'b> {
        let count = lines.len().max(1);
        assert!(self.floats(count) <= room.len(), "there is room for the lines that are seen together");
        level.call(Lines { slopes: self, lines, count, to: room });
        Gather { images: room, lines: count, ..*gather }
    }
}

/// Floats of so many lines of an image.
pub(super) fn floats(lines: usize, width: usize, channels: usize) -> usize {
    (lines * width * channels).next_multiple_of(LINE)
}

/// Writes lines, each in the place that a [`Gather`] of so many finds it in.
struct Lines<'a> {
    slopes: &'a Unpooled<'a>,
    lines: Range<usize>,
    count: usize,
    to: &'a mut [f32],
}

impl Kernel for Lines<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let [height, width, channels] = self.slopes.image;
        for line in self.lines.clone() {
            let (image, y) = (line / height, line % height);
            let to = &mut self.to[line % self.count * width * channels..][..width * channels];
            for (x, to) in to.chunks_exact_mut(channels).enumerate() {
                let Some(at) = self.slopes.window(image, y, x) else {
                    to.fill(0.0);
                    continue;
                };
                assert!(at + channels <= self.slopes.dy.len(), "slopes exist");
                let place = y % 2 * 2 + x % 2;
                for channel in (0..channels).step_by(L::COUNT) {
                    let count = L::COUNT.min(channels - channel);
                    // SAFETY: checked above; a pixel has these channels.
                    unsafe {
                        let slopes: L = self.slopes.place(at + channel, place, count);
                        lanes::store(slopes, to.as_mut_ptr().add(channel), count);
                    }
                }
            }
        }
    }
}
