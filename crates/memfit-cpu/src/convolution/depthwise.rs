//! Convolution of every channel by itself: too little arithmetic for a matrix product, so plain loops over
//! vectors of channels.

use std::ops::Range;

use super::super::lanes::{self, Kernel, Lanes, Level};
use super::super::producer::Made;
use super::super::threads::{Shared, Threads};
use super::Convolution;
use super::gather::Gather;
use super::grad_input::Phase;
use super::grad_kernel_of::Window;

/// The most partial gradients of a filter.
const SPLITS_MAX: usize = 8;
/// Rows of pixels of a task.
const ROWS_TASK: usize = 8;
/// Positions that share the filter's vectors, and how many where fewer are left.
const BLOCK: usize = 8;
const BLOCK_SMALL: usize = 3;
/// Neighbouring taps whose gradients share the output's vectors.
const TAPS: usize = 3;

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
    let filter = Filter { first: 0, steps: [shape.kernel[1] as isize, 1] };
    let [height, width, channels] = shape.output;
    for_each_row(threads, shape.rows * height, width * channels, y, |row, to| {
        let (image, y) = (row / height, row % height);
        let to = to.as_mut_ptr();
        threads.level().call(GridRow {
            gather: &gather,
            image,
            y,
            filter,
            kernel,
            bias,
            to,
            to_step: channels,
        });
    });
}

/// The gradient of every channel by its input.
pub(super) fn grad_input(threads: &Threads, shape: &Convolution, dy: &[f32], kernel: &[f32], dx: &mut [f32]) {
    let [height, width, channels] = shape.input;
    let [down, across] = shape.strides;
    for_each_row(threads, shape.rows * height, width * channels, dx, |row, to| {
        let (image, y) = (row / height, row % height);
        for first in 0..across.min(width) {
            let phase = Phase::new(shape, y % down, first);
            let gather = Gather { channels, ..phase.gather(shape, dy, 0) };
            let filter = Filter {
                first: phase.down.tap_last * shape.kernel[1] + phase.across.tap_last,
                steps: [
                    -((phase.down.tap_step * shape.kernel[1]) as isize),
                    -(phase.across.tap_step as isize),
                ],
            };
            let (to, to_step) = (to[first * channels..].as_mut_ptr(), across * channels);
            let (gather, y, bias) = (&gather, y / down, None);
            threads.level().call(GridRow { gather, image, y, filter, kernel, bias, to, to_step });
        }
    });
}

/// Runs `body` for every row of pixels; a task has some neighbouring rows, which see the same pixels.
fn for_each_row(
    threads: &Threads,
    rows: usize,
    floats: usize,
    values: &mut [f32],
    body: impl Fn(usize, &mut [f32]) + Sync,
) {
    let values = Shared::new(values);
    threads.for_each(rows.div_ceil(ROWS_TASK), |task, _| {
        for row in task * ROWS_TASK..rows.min((task + 1) * ROWS_TASK) {
            // SAFETY: every row is written by one task.
            body(row, unsafe { values.slice(row * floats..(row + 1) * floats) });
        }
    });
}

/// How many floats of workspace `grad_kernel` needs.
pub(super) fn grad_kernel_workspace(shape: &Convolution) -> usize {
    splits(shape) * shape.kernel_floats()
}

/// How many partial gradients there are.
fn splits(shape: &Convolution) -> usize {
    (shape.rows * shape.output[0]).clamp(1, SPLITS_MAX)
}

/// Lines of an image that a row of output pixels sees, from the first to the last.
fn lines_seen(shape: &Convolution) -> usize {
    (shape.kernel[0] - 1) * shape.dilation[0] + 1
}

/// How many more floats each thread needs where images are recomputed.
pub(super) fn window(shape: &Convolution) -> usize {
    Window::floats(lines_seen(shape), shape.input[1], shape.input[2])
}

/// The gradient of every channel by its filter; `x` are the images, or what they are made of.
pub(super) fn grad_kernel(
    threads: &Threads,
    shape: &Convolution,
    x: &[f32],
    made: Option<&Made>,
    dy: &[f32],
    dkernel: &mut [f32],
    accumulate: bool,
    workspace: &mut [f32],
) {
    let gather = Gather { channels: shape.input[2], ..Gather::of_input(shape, x, 0) };
    let (splits, floats) = (splits(shape), shape.kernel_floats());
    let rows = shape.rows * shape.output[0];
    let split = rows.div_ceil(splits);
    let (partials, windows) = workspace.split_at_mut(splits * floats);
    let (partials, windows, room) = (Shared::new(partials), Shared::new(windows), window(shape));
    threads.for_each(splits, |part, worker| {
        // SAFETY: every partial gradient is written by one task.
        let partial = unsafe { partials.slice(part * floats..(part + 1) * floats) };
        partial.fill(0.0);
        let rows = rows.min(part * split)..rows.min((part + 1) * split);
        let Some(made) = made else {
            return threads.level().call(FilterRows { gather: &gather, rows, dy, partial });
        };
        // SAFETY: a worker runs one task at a time.
        let room = unsafe { windows.slice(worker * room..(worker + 1) * room) };
        let mut window = Window::new(made, &gather, 0..shape.input[2], lines_seen(shape), room);
        made_rows(threads.level(), &gather, &mut window, rows, dy, partial);
    });
    if !accumulate {
        dkernel.fill(0.0);
    }
    for partial in workspace[..splits * floats].chunks_exact(floats.max(1)) {
        dkernel.iter_mut().zip(partial).for_each(|(sum, partial)| *sum += partial);
    }
}

/// Adds up the gradient of the filter over some rows of output pixels. The input lines of each row are
/// recomputed as they are needed.
fn made_rows(
    level: Level,
    gather: &Gather,
    window: &mut Window,
    rows: Range<usize>,
    dy: &[f32],
    partial: &mut [f32],
) {
    let down = gather.down;
    for row in rows {
        let (image, y) = (row / down.positions, row % down.positions);
        // From the first to the last, also those that only the next rows see.
        let line = |tap: usize, ahead: isize| {
            image * down.size + (down.seen(y, tap) + ahead).clamp(0, down.size as isize) as usize
        };
        let lines = line(0, 0)..line(down.taps - 1, 1);
        let gather = &window.show(level, lines, gather);
        level.call(FilterRows { gather, rows: row..row + 1, dy, partial });
    }
}

/// The taps of the filter that a grid uses: the first, and how many taps further the next one is, down and
/// across.
#[derive(Clone, Copy)]
struct Filter {
    first: usize,
    steps: [isize; 2],
}

impl Filter {
    /// The tap of the filter that a tap of the grid is.
    #[inline(always)]
    fn tap(&self, y: usize, x: usize) -> usize {
        (self.first as isize + y as isize * self.steps[0] + x as isize * self.steps[1]) as usize
    }
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
        let inside = across.positions_inside(0..across.taps);
        for x in 0..inside.start {
            self.positions::<L, 1>(x);
        }
        let mut x = inside.start;
        while x + BLOCK <= inside.end {
            self.positions::<L, BLOCK>(x);
            x += BLOCK;
        }
        while x + BLOCK_SMALL <= inside.end {
            self.positions::<L, BLOCK_SMALL>(x);
            x += BLOCK_SMALL;
        }
        for x in x..across.positions {
            self.positions::<L, 1>(x);
        }
    }
}

impl GridRow<'_> {
    /// Computes `COUNT` positions from `x` on. If there are several, no tap of theirs is beside the image.
    #[inline(always)]
    fn positions<L: Lanes, const COUNT: usize>(&self, x: usize) {
        let channels = self.gather.channels;
        let across = self.gather.across.taps_inside(x);
        let down = if across.is_empty() { 0..0 } else { self.gather.down.taps_inside(self.y) };
        let taps = [down, across];
        let whole = channels - channels % L::COUNT;
        for channel in (0..whole).step_by(L::COUNT) {
            self.channels::<L, COUNT, true>(x, &taps, channel, L::COUNT);
        }
        if whole < channels {
            self.channels::<L, COUNT, false>(x, &taps, whole, channels - whole);
        }
    }

    /// Computes `count` channels, a vector of them if `WHOLE`, from `channel` on.
    #[inline(always)]
    fn channels<L: Lanes, const COUNT: usize, const WHOLE: bool>(
        &self,
        x: usize,
        taps: &[Range<usize>; 2],
        channel: usize,
        count: usize,
    ) {
        let Gather { pixel, channels, down, across, .. } = *self.gather;
        // SAFETY: `count` channels from `channel` on exist, in the bias as in every pixel and tap.
        let load =
            |from: *const f32| unsafe { if WHOLE { L::load(from) } else { L::load_first(from, count) } };
        let bias = self.bias.map(|bias| load(bias.as_ptr().wrapping_add(channel)));
        let mut sums = [bias.unwrap_or(L::splat(0.0)); COUNT];
        // What will be written, and what the next row will see, is fetched meanwhile.
        let next = down.seen(self.y + 1, down.taps.saturating_sub(1)).max(0) as usize;
        let next = self.gather.pixel_row(self.image, next);
        for i in 0..COUNT {
            lanes::prefetch_write(self.to.wrapping_add((x + i) * self.to_step + channel));
            lanes::prefetch_read(next.wrapping_add((x + i) * across.step * pixel + channel));
        }
        for tap_y in taps[0].clone() {
            let row = self.gather.pixel_row(self.image, down.seen(self.y, tap_y) as usize);
            let tap = self.filter.tap(tap_y, taps[1].start);
            let mut weights = self.kernel.as_ptr().wrapping_add(tap * channels + channel);
            let mut pixels =
                row.wrapping_offset(across.seen(x, taps[1].start) * pixel as isize).wrapping_add(channel);
            for _ in taps[1].clone() {
                let weight = load(weights);
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = load(pixels.wrapping_add(i * across.step * pixel)).mul_add(weight, *sum);
                }
                weights = weights.wrapping_offset(self.filter.steps[1] * channels as isize);
                pixels = pixels.wrapping_offset(across.tap_step * pixel as isize);
            }
        }
        for (i, sum) in sums.iter().enumerate() {
            let to = self.to.wrapping_add((x + i) * self.to_step + channel);
            // SAFETY: the row has `channels` floats for every position.
            unsafe { if WHOLE { sum.store(to) } else { sum.store_first(to, count) } };
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
    fn run<L: Lanes>(mut self) {
        let Gather { channels, down, across, .. } = *self.gather;
        for row in self.rows.clone() {
            let (image, y) = (row / down.positions, row % down.positions);
            let dy = self.dy.as_ptr().wrapping_add(row * across.positions * channels);
            for tap_y in down.taps_inside(y) {
                let pixels = self.gather.pixel_row(image, down.seen(y, tap_y) as usize);
                let mut tap_x = 0;
                while tap_x + TAPS <= across.taps {
                    self.taps::<L, TAPS>(pixels, dy, tap_y, tap_x);
                    tap_x += TAPS;
                }
                for tap_x in tap_x..across.taps {
                    self.taps::<L, 1>(pixels, dy, tap_y, tap_x);
                }
            }
        }
    }
}

impl FilterRows<'_> {
    /// Adds to the gradient of `COUNT` neighbouring taps what one row of output pixels gives.
    #[inline(always)]
    fn taps<L: Lanes, const COUNT: usize>(
        &mut self,
        pixels: *const f32,
        dy: *const f32,
        tap_y: usize,
        tap_x: usize,
    ) {
        let Gather { channels, across, .. } = *self.gather;
        // Positions all of whose taps are inside the image; the others are taken one tap at a time.
        let inside = across.positions_inside(tap_x..tap_x + COUNT);
        let whole = channels - channels % L::COUNT;
        let first = (tap_y * across.taps + tap_x) * channels;
        for channel in (0..channels).step_by(L::COUNT) {
            let (pixels, dy) = (pixels.wrapping_add(channel), dy.wrapping_add(channel));
            let mut sums = [L::splat(0.0); COUNT];
            if channel < whole {
                // SAFETY: whole vectors of channels.
                let load = |from: *const f32| unsafe { L::load(from) };
                self.positions(pixels, dy, tap_x, &inside, &mut sums, load);
            } else {
                // SAFETY: the channels that are left.
                let load = |from: *const f32| unsafe { L::load_first(from, channels - whole) };
                self.positions(pixels, dy, tap_x, &inside, &mut sums, load);
            }
            let count = (channels - channel).min(L::COUNT);
            for (i, sum) in sums.iter().enumerate() {
                let start = first + i * channels + channel;
                let partial = self.partial[start..start + count].as_mut_ptr();
                // SAFETY: the slice has `count` floats.
                unsafe { sum.add(L::load_first(partial, count)).store_first(partial, count) };
            }
        }
    }

    /// Adds to a sum for every tap what one row of output pixels gives, in a vector of channels.
    #[inline(always)]
    fn positions<L: Lanes, const COUNT: usize>(
        &self,
        pixels: *const f32,
        dy: *const f32,
        tap: usize,
        inside: &Range<usize>,
        sums: &mut [L; COUNT],
        load: impl Fn(*const f32) -> L,
    ) {
        let Gather { channels, pixel, across, .. } = *self.gather;
        for position in (0..inside.start).chain(inside.end..across.positions) {
            for (i, sum) in sums.iter_mut().enumerate() {
                if let Some(x) = across.pixel(position, tap + i) {
                    let gradient = load(dy.wrapping_add(position * channels));
                    *sum = load(pixels.wrapping_add(x * pixel)).mul_add(gradient, *sum);
                }
            }
        }
        let mut local = *sums;
        for position in inside.clone() {
            let gradient = load(dy.wrapping_add(position * channels));
            let first = pixels.wrapping_offset(across.seen(position, tap) * pixel as isize);
            for (i, sum) in local.iter_mut().enumerate() {
                let pixels = first.wrapping_offset(i as isize * across.tap_step * pixel as isize);
                *sum = load(pixels).mul_add(gradient, *sum);
            }
        }
        *sums = local;
    }
}
