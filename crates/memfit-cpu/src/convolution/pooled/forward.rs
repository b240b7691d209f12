//! Convolution and pool of images: a tile of windows is summed in registers, and only the maximum of each
//! window is written.

use memfit_ir::Pool2D;

use super::super as convolution;
use super::super::super::gemm::driver::{LINE, aligned};
use super::super::super::lanes::{COLUMNS_MAX, Lanes, Level, store};
use super::super::super::tasks::{self, Cut, Tasks};
use super::super::super::threads::{Shared, Threads};
use super::super::gather::Gather;
use super::{Lines, Pooled, deep, winograd_rgb};

/// How many floats of workspace `forward` needs, whatever the number of images.
pub fn forward_workspace(pooled: &Pooled, threads: usize) -> usize {
    if deep::applies(pooled) {
        return convolution::forward_workspace(&pooled.conv, threads);
    }
    filter_floats(pooled) + threads * worker_floats(pooled) + LINE
}

/// Floats of the filter and the bias in panels, with zeros after the last column, or of their Winograd
/// transform.
pub(super) fn filter_floats(pooled: &Pooled) -> usize {
    let channels = pooled.conv.output[2];
    let panels = (pooled.depth() + 1) * channels.next_multiple_of(COLUMNS_MAX);
    if winograd_rgb::applies(pooled, usize::MAX) {
        panels.max(winograd_rgb::filter_floats(channels))
    } else {
        panels
    }
}

/// Floats of a worker: lines of the image, and their Winograd transforms.
fn worker_floats(pooled: &Pooled) -> usize {
    Lines::new(pooled).floats(1) + winograd_rgb::reach(pooled) + winograd_rgb::buffer_floats(pooled)
}

/// Convolves images `x`, adds `bias` and writes the maximum of every window to `y` and its place to `argmax`:
/// the first of equals. Except with the Winograd algorithm, sums are taken in the order of an unpooled
/// convolution.
pub fn forward(
    threads: &Threads,
    pooled: &Pooled,
    x: &[f32],
    kernel: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    argmax: &mut [u8],
    workspace: &mut [f32],
) {
    pooled.check();
    pooled.conv.check(x.len(), kernel.len(), pooled.conv.output_floats());
    let [height, width, channels] = pooled.output();
    assert!(y.len() == pooled.output_floats() && argmax.len() == y.len(), "an argmax for each result");
    if y.is_empty() {
        return;
    }
    if deep::applies(pooled) {
        return deep::forward(threads, pooled, x, kernel, bias, y, argmax, workspace);
    }
    let (packed, scratch) = aligned(workspace).split_at_mut(filter_floats(pooled));
    let filter = Filter::pack(pooled, threads.level(), kernel, bias, packed);
    let cut = Cut::items(pooled.conv.rows * height, 4 * width * channels);
    let work = Forward {
        pooled,
        lines: Lines::new(pooled),
        gather: Gather::of_input(&pooled.conv, x, 0),
        cut,
        filter,
        y: Shared::new(y),
        argmax: Shared::new(argmax),
        scratch: Shared::new(scratch),
    };
    tasks::run(threads, cut.count(), &work);
}

/// Writes a filter of `channels` output channels in panels, each with its bias in front.
fn pack(
    depth: usize,
    channels: usize,
    panel: usize,
    kernel: &[f32],
    bias: Option<&[f32]>,
    filter: &mut [f32],
) {
    filter.fill(0.0);
    for (index, to) in filter.chunks_exact_mut((depth + 1) * panel).enumerate() {
        let start = (index * panel).min(channels);
        let columns = start..channels.min(start + panel);
        let rows = bias.into_iter().map(|bias| (0, bias));
        let rows =
            rows.chain(kernel.chunks_exact(channels).enumerate().map(|(row, values)| (row + 1, values)));
        for (row, values) in rows {
            to[row * panel..][..columns.len()].copy_from_slice(&values[columns.clone()]);
        }
    }
}

struct Forward<'a> {
    pooled: &'a Pooled,
    lines: Lines,
    gather: Gather<'a>,
    cut: Cut,
    filter: Filter<'a>,
    y: Shared<'a, f32>,
    argmax: Shared<'a, u8>,
    /// What each worker has for itself.
    scratch: Shared<'a, f32>,
}

/// A line of windows, and the lines of the image under it.
pub(super) struct Line<'a> {
    pub(super) pooled: &'a Pooled,
    pub(super) lines: &'a [f32],
    /// Floats from one line of the image to the next.
    pub(super) stride: usize,
}

impl Tasks for Forward<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, worker: usize) {
        let Forward { pooled, lines: Lines { stride, .. }, .. } = *self;
        let [height, width, channels] = pooled.output();
        let floats = worker_floats(pooled);
        // SAFETY: a worker runs one task at a time.
        let scratch = unsafe { self.scratch.slice(worker * floats..(worker + 1) * floats) };
        for item in self.cut.range(task) {
            self.lines.copy::<L>(&self.gather, item / height, [item % height, 0], 1, scratch);
            let start = item * width * channels;
            // SAFETY: every line of windows belongs to one task.
            let (y, argmax) = unsafe {
                let range = start..start + width * channels;
                (self.y.slice(range.clone()), self.argmax.slice(range))
            };
            let (lines, buffer) = scratch.split_at_mut(floats - winograd_rgb::buffer_floats(pooled));
            self.filter.line::<L>(&Line { pooled, lines, stride }, buffer, y, argmax);
        }
    }
}

/// A filter as lines of windows read it.
#[derive(Clone, Copy)]
pub(super) struct Filter<'a> {
    transformed: bool,
    /// In panels two vectors wide, or transformed for Winograd.
    packed: &'a [f32],
}

impl<'a> Filter<'a> {
    /// Writes a filter and its bias for these vectors; `packed` has `filter_floats`.
    pub(super) fn pack(
        pooled: &Pooled,
        level: Level,
        kernel: &[f32],
        bias: Option<&[f32]>,
        packed: &'a mut [f32],
    ) -> Self {
        let (channels, transformed) = (pooled.conv.output[2], winograd_rgb::applies(pooled, level.rows()));
        if transformed {
            winograd_rgb::pack(channels, level.lanes(), kernel, bias, packed);
        } else {
            pack(pooled.depth(), channels, 2 * level.lanes(), kernel, bias, packed);
        }
        Filter { transformed, packed }
    }

    /// Computes a line of windows. The buffer is for Winograd transforms, where they are used.
    #[inline(always)]
    pub(super) fn line<L: Lanes>(&self, line: &Line, buffer: &mut [f32], y: &mut [f32], argmax: &mut [u8]) {
        if self.transformed && L::ROWS >= winograd_rgb::ROWS {
            winograd_rgb::line::<L>(line, self.packed, buffer, y, argmax);
        } else {
            line.run::<L>(self.packed, y, argmax);
        }
    }
}

impl Line<'_> {
    /// Computes the windows, as many at once as registers hold.
    #[inline(always)]
    fn run<L: Lanes>(&self, filter: &[f32], y: &mut [f32], argmax: &mut [u8]) {
        let [_, width, channels] = self.pooled.output();
        let panel = (self.pooled.depth() + 1) * 2 * L::COUNT;
        for (index, filter) in filter.chunks_exact(panel).enumerate() {
            let column = index * 2 * L::COUNT;
            if column >= channels {
                break;
            }
            let mut across = 0;
            while across < width {
                let windows = (width - across).min((L::ROWS / 4).max(1));
                let tile = Tile { line: self, filter, across, column };
                let narrow = channels - column <= L::COUNT;
                match (windows, narrow) {
                    (3, false) if L::ROWS >= 12 => tile.run::<L, 3, 12, 2>(y, argmax),
                    (3, true) if L::ROWS >= 12 => tile.run::<L, 3, 12, 1>(y, argmax),
                    (2, false) if L::ROWS >= 8 => tile.run::<L, 2, 8, 2>(y, argmax),
                    (2, true) if L::ROWS >= 8 => tile.run::<L, 2, 8, 1>(y, argmax),
                    (_, false) => tile.run::<L, 1, 4, 2>(y, argmax),
                    (_, true) => tile.run::<L, 1, 4, 1>(y, argmax),
                }
                across += windows;
            }
        }
    }
}

/// Some windows that stand side by side, and up to two vectors of channels.
struct Tile<'a> {
    line: &'a Line<'a>,
    filter: &'a [f32],
    across: usize,
    column: usize,
}

impl Tile<'_> {
    /// `POSITIONS` are those of the convolution under `WINDOWS`: a line of them above the other.
    #[inline(always)]
    fn run<L: Lanes, const WINDOWS: usize, const POSITIONS: usize, const VECTORS: usize>(
        &self,
        y: &mut [f32],
        argmax: &mut [u8],
    ) {
        let sums = self.sums::<L, POSITIONS, VECTORS>();
        self.pool::<L, WINDOWS, POSITIONS, VECTORS, 0>(&sums, y, argmax);
        if VECTORS == 2 {
            self.pool::<L, WINDOWS, POSITIONS, VECTORS, 1>(&sums, y, argmax);
        }
    }

    #[inline(always)]
    fn sums<L: Lanes, const POSITIONS: usize, const VECTORS: usize>(&self) -> [[L; VECTORS]; POSITIONS] {
        let (conv, tap_row) = (&self.line.pooled.conv, self.line.pooled.tap_row());
        let Line { lines, stride, .. } = *self.line;
        let step = conv.strides[1] * conv.input[2];
        let first = 2 * self.across * step;
        // What the last position sees lies inside the lines, and the panel has a row for every product.
        let end = (conv.strides[0] + conv.kernel[0] - 1) * stride + first;
        assert!(end + (POSITIONS / 2 - 1) * step + tap_row <= lines.len());
        assert!((conv.kernel[0] * tap_row + 1) * 2 * L::COUNT <= self.filter.len());
        let mut sums = [[L::splat(0.0); VECTORS]; POSITIONS];
        let mut filter = self.filter[2 * L::COUNT..].as_ptr();
        for tap in 0..conv.kernel[0] {
            let mut above = lines.as_ptr().wrapping_add(tap * stride + first);
            for _ in 0..tap_row {
                let below = above.wrapping_add(conv.strides[0] * stride);
                let mut columns = [L::splat(0.0); VECTORS];
                for (vector, columns) in columns.iter_mut().enumerate() {
                    // SAFETY: checked above.
                    *columns = unsafe { L::load(filter.add(vector * L::COUNT)) };
                }
                for (position, sums) in sums.iter_mut().enumerate() {
                    let half = POSITIONS / 2;
                    let line = if position < half { above } else { below };
                    // SAFETY: checked above.
                    let value = L::splat(unsafe { *line.wrapping_add(position % half * step) });
                    for (sum, &columns) in sums.iter_mut().zip(&columns) {
                        *sum = value.mul_add(columns, *sum);
                    }
                }
                above = above.wrapping_add(1);
                filter = filter.wrapping_add(2 * L::COUNT);
            }
        }
        sums
    }

    /// Writes the maximum of each window, for one vector of channels.
    #[inline(always)]
    fn pool<
        L: Lanes,
        const WINDOWS: usize,
        const POSITIONS: usize,
        const VECTORS: usize,
        const VECTOR: usize,
    >(
        &self,
        sums: &[[L; VECTORS]; POSITIONS],
        y: &mut [f32],
        argmax: &mut [u8],
    ) {
        let channels = self.line.pooled.conv.output[2];
        let column = self.column + VECTOR * L::COUNT;
        let count = (channels - column).min(L::COUNT);
        // SAFETY: the panel begins with two vectors of biases.
        let bias: L = unsafe { L::load(self.filter[..2 * L::COUNT].as_ptr().add(VECTOR * L::COUNT)) };
        let first = self.across * channels + column;
        let end = first + (WINDOWS - 1) * channels + count;
        assert!(end <= y.len() && end <= argmax.len());
        for window in 0..WINDOWS {
            let (above, below) = (2 * window, POSITIONS / 2 + 2 * window);
            let values = [
                bias.add(sums[above][VECTOR % VECTORS]),
                bias.add(sums[above + 1][VECTOR % VECTORS]),
                bias.add(sums[below][VECTOR % VECTORS]),
                bias.add(sums[below + 1][VECTOR % VECTORS]),
            ];
            let at = first + window * channels;
            // SAFETY: checked above.
            unsafe {
                let (y, argmax) = (y.as_mut_ptr().add(at), argmax.as_mut_ptr().add(at));
                write(L::max_and_argmax(values), self.line.pooled.relu, count, y, argmax);
            }
        }
    }
}

/// Writes the maximum of a window and its argmax, for `count` channels; with `relu`, negative maxima become
/// 0.
///
/// # Safety
/// Both have room for `count` elements, which are no more than a vector holds.
#[inline(always)]
pub(in super::super) unsafe fn write<L: Lanes>(
    (mut max, mut place): (L, L),
    relu: bool,
    count: usize,
    y: *mut f32,
    argmax: *mut u8,
) {
    if relu {
        let positive = max.between(L::splat(0.0), L::splat(f32::INFINITY));
        max = max.at_least(L::splat(0.0));
        let none = L::splat(f32::from_bits(u32::from(Pool2D::NO_ARGMAX)));
        place = none.or_where(positive, place);
    }
    // SAFETY: the caller's promise.
    unsafe {
        store(max, y, count);
        place.store_low_bytes(argmax, count);
    }
}
