//! Convolutions of stride 1 with fewer products (Winograd's minimal filtering): tiles of the image and the
//! filter are transformed to points where a convolution is one product each, and the products are transformed
//! back.
//!
//! ```text
//! 3×3:  2×2 outputs of 4×4 pixels,  16 products instead of  36
//! 5×5:  2×2 outputs of 6×6 pixels,  36 products instead of 100
//! ```
//!
//! A point's products over all channels and many tiles are a plain matrix product.

mod filter;
mod images;
mod schemes;
mod transform;
mod unpooled;

use std::marker::PhantomData;
use std::ops::Range;

use memfit_ir::{Conv2D, Pads, Winograd, WinogradFilter};

use super::super::gemm::driver::LINE;
use super::super::lanes::{Kernel, Lanes, ROWS_MAX};
use super::Convolution;
use super::gather::Gather;
use schemes::{Five, Scheme, Three};
use transform::{Grid, Then, square};

pub(super) use filter::{CHANNELS_OUT, Dy, grad_kernel, grad_kernel_workspace, window};
pub(super) use images::{Filter, Images, Pool, convolve, unpooled_workspace, workspace};
pub(super) use unpooled::Unpooled;

/// The most tiles of a group, a multiple of every level's register tile.
const TILES_MOST: usize = 4 * ROWS_MAX;

/// Which convolutions use it. With fewer channels, what is saved shrinks, and the plain sum keeps the last digits of small networks as
/// other frameworks have them. On narrower images tiles that hang over take much of what is saved: the width is set here, and not lower
/// where it would still be faster, so that `six_convolutions` of the references stays within 1e-4 of Keras over ten steps: it came to
/// 3.7e-4, for a reason that was not established. Of many channels the saving is larger.
pub(crate) const WINOGRAD: Winograd = Winograd {
    filters: &[
        WinogradFilter { taps: 3, points: 4, channels_min: 64 },
        WinogradFilter { taps: 5, points: 6, channels_min: 16 },
    ],
    width_min: 14,
    width_min_deep: 7,
    channels_deep: 256,
    products_max: 0.78,
};

/// Whether a convolution, and its gradients, use the Winograd algorithm.
pub(super) fn applies(shape: &Convolution) -> bool {
    let Convolution { kernel, strides, dilation, groups, input, output, .. } = *shape;
    let conv = Conv2D { kernel, strides, dilation, groups, pads: Pads::default() };
    WINOGRAD.takes(&conv, [input[1], output[1]], [input[2], output[2]])
}

/// Tiles of all images: two by two positions of the grid each.
#[derive(Clone, Copy)]
struct Tiles {
    down: usize,
    across: usize,
    outputs: usize,
}

/// One of them.
struct Tile {
    image: usize,
    y: usize,
    x: usize,
}

impl Tiles {
    fn new(gather: &Gather, outputs: usize) -> Tiles {
        let [down, across] = [gather.down, gather.across].map(|axis| axis.positions.div_ceil(outputs));
        Tiles { down, across, outputs }
    }

    fn count(&self, rows: usize) -> usize {
        rows * self.down * self.across
    }

    /// The most lines that `tiles` consecutive tiles see, from the first to the last.
    fn lines_seen(&self, tiles: usize, taps: usize) -> usize {
        let rows = tiles.div_ceil(self.across.max(1)) + 1;
        // The last tiles of an image hang over, as do the first of the next one.
        self.outputs * rows + (rows / self.down.max(1) + 2) * taps
    }

    /// The lines that a group of tiles sees, counted over all images.
    fn lines(&self, gather: &Gather, group: &Range<usize>, points: usize) -> Range<usize> {
        let down = gather.down;
        let line = |index: usize, ahead: usize| {
            let Tile { image, y, .. } = self.tile(index);
            let y = (down.seen(y, 0) + ahead as isize).clamp(0, down.size as isize) as usize;
            image * down.size + y
        };
        line(group.start, 0)..line(group.end - 1, points)
    }

    /// Its image and first position.
    #[inline(always)]
    fn tile(&self, index: usize) -> Tile {
        let (row, x) = (index / self.across, index % self.across * self.outputs);
        Tile { image: row / self.down, y: row % self.down * self.outputs, x }
    }
}

/// Rows of floats for every point, with room between so that neither rows nor points share cache sets.
#[derive(Clone, Copy)]
struct Layout {
    /// Floats from a row to the next, and from a point to the next.
    row: usize,
    point: usize,
}

impl Layout {
    fn new(rows: usize, columns: usize) -> Layout {
        let row = columns.next_multiple_of(LINE) + LINE;
        Layout { row, point: rows * row + LINE }
    }

    /// All points as a square of vectors, the first of them at `start`.
    #[inline(always)]
    fn grid<P>(&self, start: P, points: usize) -> Grid<P> {
        let [row, column] = [points * self.point, self.point].map(|step| step as isize);
        Grid { start, row, column, rows: points, columns: points }
    }
}

/// Transforms what tiles see of some channels to points.
struct Input<'a, S, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize> {
    scheme: PhantomData<S>,
    gather: &'a Gather<'a>,
    tiles: Tiles,
    group: Range<usize>,
    channels: Range<usize>,
    /// Room for the pixels of a tile.
    margin: *mut f32,
    to: *mut f32,
    layout: Layout,
}

impl<S: Scheme<POINTS, OUTPUTS, TAPS>, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize> Kernel
    for Input<'_, S, POINTS, OUTPUTS, TAPS>
{
    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (slot, index) in self.group.clone().enumerate() {
            let from = self.pixels::<L>(index);
            let to = self.to.wrapping_add(slot * self.layout.row);
            let mut channel = self.channels.start;
            while channel < self.channels.end {
                let count = L::COUNT.min(self.channels.end - channel);
                let from = Grid { start: from.start.wrapping_add(channel), ..from };
                let to = self.layout.grid(to.wrapping_add(channel - self.channels.start), POINTS);
                // SAFETY: the pixels have these channels, and there is room for them in every point's rows.
                unsafe { square::<L, S::Input, POINTS, POINTS>(from, to, count, Then::Store) };
                channel += L::COUNT;
            }
        }
    }
}

impl<S, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize> Input<'_, S, POINTS, OUTPUTS, TAPS> {
    /// The pixels that a tile sees: as they lie, or copied with the zeros around the image.
    #[inline(always)]
    fn pixels<L: Lanes>(&self, index: usize) -> Grid<*const f32> {
        let Gather { pixel, down, across, .. } = *self.gather;
        let Tile { image, y, x } = self.tiles.tile(index);
        let (y, x) = (down.seen(y, 0), across.seen(x, 0));
        let fits = |start: isize, size: usize| start >= 0 && start as usize + POINTS <= size;
        let grid = |start: *const f32, width: usize| Grid {
            start,
            row: (width * pixel) as isize,
            column: pixel as isize,
            rows: POINTS,
            columns: POINTS,
        };
        // The window of recomputed lines may begin again within a tile.
        let together = |y: usize| self.gather.line(image, y) + POINTS <= self.gather.lines;
        if fits(y, down.size) && fits(x, across.size) && together(y as usize) {
            let row = self.gather.pixel_row(image, y as usize);
            return grid(row.wrapping_add(x as usize * pixel), across.size);
        }
        for row in 0..POINTS {
            let to = self.margin.wrapping_add(row * POINTS * pixel);
            let y = y + row as isize;
            // SAFETY: the image exists, and there is room for all pixels of a tile.
            unsafe { self.gather.copy_run::<L>(image, y, x * pixel as isize, POINTS * pixel, to) };
        }
        grid(self.margin, POINTS)
    }
}

/// Floats that [`Input`] copies the pixels of a tile to.
fn margin_floats(points: usize, channels: usize) -> usize {
    (points * points * channels).next_multiple_of(LINE)
}
