//! Convolutions of stride 1 with fewer products (Winograd's minimal filtering): tiles of the image and the filter are
//! taken to points where a convolution is one product each, and what comes out is taken back.
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

use std::marker::PhantomData;
use std::ops::Range;

use super::super::gemm::driver::LINE;
use super::super::lanes::{Kernel, Lanes, ROWS_MAX};
use super::Convolution;
use super::gather::Gather;
use schemes::{Five, Scheme, Three};
use transform::{Grid, Then, square};

pub(super) use filter::{CHANNELS_OUT, grad_kernel, grad_kernel_workspace, window};
pub(super) use images::{Filter, convolve, workspace};

/// The fewest channels on either side, for three and five taps: with fewer, what is saved shrinks, and the plain sum keeps
/// the last digits of small networks as other frameworks have them.
const CHANNELS_THREE: usize = 64;
const CHANNELS_FIVE: usize = 16;
/// The narrowest image: on smaller ones tiles that hang over take much of what is saved. Set here, and not lower where it would still
/// be faster, so that `six_convolutions` of the references stays within 1e-4 of Keras over ten steps: it came to 3.7e-4, for a reason
/// that was not established.
const WIDTH_MIN: usize = 14;
/// The narrowest image between so many channels: what is saved grows with them, and small networks have fewer.
const WIDTH_MIN_DEEP: usize = 7;
const CHANNELS_DEEP: usize = 256;
/// The most products along a line of pixels for one of the convolution itself, the tile at its end included.
const PRODUCTS_MOST: f64 = 0.78;
/// The most tiles of a group, a multiple of every level's register tile.
const TILES_MOST: usize = 4 * ROWS_MAX;

/// Whether a convolution, and its gradients, are better computed at points. That depends neither on the number of images,
/// so that the bits of each do not, nor on their height, so that bands of an image are computed as the whole.
pub(super) fn applies(shape: &Convolution) -> bool {
    let [_, width, inputs] = shape.input;
    let (points, channels) = match shape.kernel {
        [3, 3] => (4, CHANNELS_THREE),
        [5, 5] => (6, CHANNELS_FIVE),
        _ => return false,
    };
    // The last tile hangs over where there is an odd number of pixels: on the narrower of both images that counts most.
    let width = width.min(shape.output[1]);
    let least = inputs.min(shape.output[2]);
    let width_min = if least >= CHANNELS_DEEP { WIDTH_MIN_DEEP } else { WIDTH_MIN };
    let products = (width.div_ceil(2) * points) as f64;
    shape.strides == [1, 1]
        && shape.dilation == [1, 1]
        && shape.groups == 1
        && least >= channels
        && width >= width_min
        && products <= PRODUCTS_MOST * (width * shape.kernel[1]) as f64
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

/// Takes what tiles see of some channels to points.
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
        // Lines that are made as they are wanted may begin anew within a tile.
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
