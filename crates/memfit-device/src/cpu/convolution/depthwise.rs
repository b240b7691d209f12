//! Convolution of every channel by itself: too little arithmetic for a matrix product, so plain loops over vectors of
//! channels.

use std::ops::Range;

use super::super::lanes::{Kernel, Lanes};
use super::super::threads::{Shared, Threads};
use super::Convolution;
use super::gather::Gather;
use super::grad_input::Phase;

/// The most partial gradients of a filter.
const SPLITS_MAX: usize = 8;
/// Output pixels of a block that share the filter's vectors.
const BLOCK: usize = 4;

/// Convolves every channel.
pub(super) fn forward(
    threads: &Threads,
    shape: &Convolution,
    x: &[f32],
    kernel: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
) {
    let gather = Gather { channels: shape.input[2], ..Gather::of_input(shape, x, 0) };
    let y = Shared::new(y);
    threads.for_each(shape.rows * shape.output[0], |row, _| {
        let floats = shape.output[1] * shape.output[2];
        // SAFETY: every row of output pixels is written by one task.
        let to = unsafe { y.slice(row * floats..(row + 1) * floats) };
        threads.level().call(GridRow {
            gather: &gather,
            image: row / shape.output[0],
            y: row % shape.output[0],
            filter: Filter { first: 0, steps: [shape.kernel[1] as isize, 1] },
            kernel,
            bias,
            to: to.as_mut_ptr(),
            to_step: shape.output[2],
        });
    });
}

/// The gradient of every channel by its input.
pub(super) fn grad_input(threads: &Threads, shape: &Convolution, dy: &[f32], kernel: &[f32], dx: &mut [f32]) {
    let [height, width, channels] = shape.input;
    let dx = Shared::new(dx);
    for phase in Phase::all(shape) {
        let gather = Gather { channels, ..phase.gather(shape, dy, 0) };
        let (down, across) = (phase.down, phase.across);
        let filter = Filter {
            first: down.tap_last * shape.kernel[1] + across.tap_last,
            steps: [-((down.tap_step * shape.kernel[1]) as isize), -(across.tap_step as isize)],
        };
        let rows = gather.down.positions;
        if gather.positions() == 0 {
            continue;
        }
        threads.for_each(shape.rows * rows, |row, _| {
            let (image, y) = (row / rows, row % rows);
            let start = (image * height + phase.down.first + y * phase.down.step) * width * channels;
            // SAFETY: every row of input pixels is written by one task of every phase, and phases follow each other.
            let to = unsafe { dx.slice(start..start + width * channels) };
            threads.level().call(GridRow {
                gather: &gather,
                image,
                y,
                filter,
                kernel,
                bias: None,
                to: to[phase.across.first * channels..].as_mut_ptr(),
                to_step: phase.across.step * channels,
            });
        });
    }
}

/// How many floats of workspace `grad_kernel` wants.
pub(super) fn grad_kernel_workspace(shape: &Convolution) -> usize {
    splits(shape) * shape.kernel_floats()
}

/// How many partial gradients there are.
fn splits(shape: &Convolution) -> usize {
    (shape.rows * shape.output[0]).clamp(1, SPLITS_MAX)
}

/// The gradient of every channel by its filter.
pub(super) fn grad_kernel(
    threads: &Threads,
    shape: &Convolution,
    x: &[f32],
    dy: &[f32],
    dkernel: &mut [f32],
    accumulate: bool,
    workspace: &mut [f32],
) {
    let gather = Gather { channels: shape.input[2], ..Gather::of_input(shape, x, 0) };
    let (splits, floats) = (splits(shape), shape.kernel_floats());
    let rows = shape.rows * shape.output[0];
    let split = rows.div_ceil(splits);
    let partials = Shared::new(&mut workspace[..splits * floats]);
    threads.for_each(splits, |part, _| {
        // SAFETY: every partial gradient is written by one task.
        let partial = unsafe { partials.slice(part * floats..(part + 1) * floats) };
        partial.fill(0.0);
        let rows = rows.min(part * split)..rows.min((part + 1) * split);
        threads.level().call(FilterRows { gather: &gather, rows, dy, partial });
    });
    if !accumulate {
        dkernel.fill(0.0);
    }
    for partial in workspace[..splits * floats].chunks_exact(floats.max(1)) {
        dkernel.iter_mut().zip(partial).for_each(|(sum, partial)| *sum += partial);
    }
}

/// The taps of the filter that a grid uses: the first, and how many taps further the next one is, down and across.
#[derive(Clone, Copy)]
struct Filter {
    first: usize,
    steps: [isize; 2],
}

/// One row of a grid: sums what its positions see, weighted by the filter.
struct GridRow<'a> {
    gather: &'a Gather<'a>,
    image: usize,
    y: usize,
    filter: Filter,
    kernel: &'a [f32],
    bias: Option<&'a [f32]>,
    to: *mut f32,
    to_step: usize,
}

impl Kernel for GridRow<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let across = &self.gather.across;
        let mut x = 0;
        while x < across.positions {
            if across.taps > 0 && x + BLOCK <= across.positions && across.is_inside(x..x + BLOCK) {
                self.positions::<L, BLOCK>(x);
                x += BLOCK;
            } else {
                self.positions::<L, 1>(x);
                x += 1;
            }
        }
    }
}

impl GridRow<'_> {
    /// Computes `COUNT` positions from `x` on. If there are several, no tap of theirs is beside the image.
    #[inline(always)]
    fn positions<L: Lanes, const COUNT: usize>(&self, x: usize) {
        let channels = self.gather.channels;
        for channel in (0..channels).step_by(L::COUNT) {
            let count = (channels - channel).min(L::COUNT);
            // SAFETY: `count` channels from `channel` on exist, in the bias as in every pixel and tap.
            let bias = self.bias.map(|bias| unsafe { L::load_first(bias.as_ptr().add(channel), count) });
            let mut sums = [bias.unwrap_or(L::splat(0.0)); COUNT];
            if count == L::COUNT {
                // SAFETY: as above.
                self.taps::<L, COUNT>(x, channel, &mut sums, |from| unsafe { L::load(from) });
            } else {
                // SAFETY: as above.
                self.taps::<L, COUNT>(x, channel, &mut sums, |from| unsafe { L::load_first(from, count) });
            }
            for (i, sum) in sums.into_iter().enumerate() {
                // SAFETY: the row has `channels` floats for every position.
                unsafe { sum.store_first(self.to.add((x + i) * self.to_step + channel), count) };
            }
        }
    }

    #[inline(always)]
    fn taps<L: Lanes, const COUNT: usize>(
        &self,
        x: usize,
        channel: usize,
        sums: &mut [L; COUNT],
        load: impl Fn(*const f32) -> L,
    ) {
        let Gather { pixel, channels, down, across, .. } = *self.gather;
        for tap_y in 0..down.taps {
            let Some(y) = down.pixel(self.y, tap_y) else { continue };
            let row = self.gather.pixel_row(self.image, y).wrapping_add(channel);
            let tap = self.filter.first as isize + tap_y as isize * self.filter.steps[0];
            for tap_x in 0..across.taps {
                let Some(x) = across.pixel(x, tap_x) else { continue };
                let tap = (tap + tap_x as isize * self.filter.steps[1]) as usize;
                let weight = load(self.kernel.as_ptr().wrapping_add(tap * channels + channel));
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = load(row.wrapping_add((x + i * across.step) * pixel)).mul_add(weight, *sum);
                }
            }
        }
    }
}

/// Adds up the gradient of the filter over some rows of output pixels of all images.
struct FilterRows<'a> {
    gather: &'a Gather<'a>,
    rows: Range<usize>,
    dy: &'a [f32],
    partial: &'a mut [f32],
}

impl Kernel for FilterRows<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Gather { channels, down, across, .. } = *self.gather;
        for row in self.rows {
            let (image, position) = (row / down.positions, row % down.positions);
            let dy = self.dy.as_ptr().wrapping_add(row * across.positions * channels);
            for tap_y in 0..down.taps {
                let Some(y) = down.pixel(position, tap_y) else { continue };
                let pixels = self.gather.pixel_row(image, y);
                for tap_x in 0..across.taps {
                    let start = (tap_y * across.taps + tap_x) * channels;
                    let partial = &mut self.partial[start..start + channels];
                    tap_row::<L>(self.gather, pixels, dy, tap_x, partial);
                }
            }
        }
    }
}

/// Adds to the gradient of one tap what one row of output pixels gives.
#[inline(always)]
fn tap_row<L: Lanes>(gather: &Gather, pixels: *const f32, dy: *const f32, tap: usize, partial: &mut [f32]) {
    let Gather { channels, pixel, across, .. } = *gather;
    for channel in (0..channels).step_by(L::COUNT) {
        let count = (channels - channel).min(L::COUNT);
        let mut sum = L::splat(0.0);
        for position in 0..across.positions {
            let Some(x) = across.pixel(position, tap) else { continue };
            // SAFETY: the pixels are inside their rows, and have `count` channels from `channel` on.
            unsafe {
                let pixel = L::load_first(pixels.add(x * pixel + channel), count);
                let gradient = L::load_first(dy.add(position * channels + channel), count);
                sum = pixel.mul_add(gradient, sum);
            }
        }
        let partial = partial[channel..channel + count].as_mut_ptr();
        // SAFETY: the slice above has `count` floats.
        unsafe { sum.add(L::load_first(partial, count)).store_first(partial, count) };
    }
}
