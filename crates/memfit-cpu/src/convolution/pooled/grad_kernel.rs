//! The gradient of a convolution by its filter and its bias, from the gradient of its pool's output.

use memfit_ir::Pool2D;

use super::super::super::gemm::driver::{LINE, PARTIALS_MAX, aligned};
use super::super::super::lanes::{LANES_MAX, Lanes, load};
use super::super::super::tasks::{self, Cut, Tasks};
use super::super::super::threads::{Shared, Threads};
use super::super::gather::Gather;
use super::super::{self as convolution, Convolution};
use super::{Lines, Pooled, deep, picked};

/// Windows that are summed in registers before their sum is added to a part's, at least.
const WINDOWS: usize = 256;
/// The most parts that are summed apart.
const PARTS: usize = 64;

/// How many floats of workspace `grad_kernel` needs, with or without a bias: never more for fewer images.
pub fn grad_kernel_workspace(pooled: &Pooled, with_bias: bool, threads: usize) -> usize {
    if deep::applies(pooled) && !with_bias {
        return convolution::grad_kernel_workspace(&pooled.conv, threads);
    }
    cut(pooled).count() * part_floats(pooled) + threads * worker_floats(pooled) + LINE
}

/// How lines of windows are cut in parts.
fn cut(pooled: &Pooled) -> Cut {
    let [height, width, channels] = pooled.output();
    let parts = (PARTIALS_MAX / part_floats(pooled).max(1)).clamp(1, PARTS);
    Cut::at_most(pooled.conv.rows * height, 4 * width * channels, parts)
}

/// Floats of a part's sums: a row for each product of an output and one for the bias, each of whole vectors.
fn part_floats(pooled: &Pooled) -> usize {
    (pooled.depth() + 1) * stride(pooled)
}

fn stride(pooled: &Pooled) -> usize {
    pooled.conv.output[2].next_multiple_of(LANES_MAX)
}

/// Lines of windows that are summed in registers together.
fn lines_at_once(pooled: &Pooled) -> usize {
    let [height, width, _] = pooled.output();
    (WINDOWS / width.max(1)).clamp(1, height.max(1))
}

/// Floats of a worker: lines of the image, and pairs of one line of windows.
fn worker_floats(pooled: &Pooled) -> usize {
    let pairs = if picked::applies(pooled) { picked::pairs_floats(pooled) } else { 0 };
    Lines::new(pooled).floats(lines_at_once(pooled)) + pairs
}

/// Computes the gradients by the filter and the bias from images `x`, the gradient of the pool's output and
/// the argmax. With `accumulate`, adds them to what is there.
pub fn grad_kernel(
    threads: &Threads,
    pooled: &Pooled,
    [x, dy]: [&[f32]; 2],
    argmax: &[u8],
    dkernel: &mut [f32],
    dbias: Option<&mut [f32]>,
    accumulate: bool,
    workspace: &mut [f32],
) {
    pooled.check();
    pooled.conv.check(x.len(), dkernel.len(), pooled.conv.output_floats());
    assert!(dy.len() == pooled.output_floats() && argmax.len() == dy.len(), "an argmax for each value of dy");
    // With the Winograd algorithm a bias has an op of its own, as it has without a pool. A caller that asks
    // for both at once gets the direct sums.
    if deep::applies(pooled) && dbias.is_none() {
        return deep::grad_kernel(threads, pooled, [x, dy], argmax, dkernel, accumulate, workspace);
    }
    let cut = cut(pooled);
    let (parts, scratch) = aligned(workspace).split_at_mut(cut.count() * part_floats(pooled));
    let work = Sums {
        pooled,
        lines: Lines::new(pooled),
        gather: Gather::of_input(&pooled.conv, x, 0),
        cut,
        dy,
        argmax,
        parts: Shared::new(parts),
        scratch: Shared::new(scratch),
    };
    tasks::run(threads, cut.count(), &work);
    let channels = pooled.conv.output[2];
    for (row, to) in dkernel.chunks_exact_mut(channels.max(1)).chain(dbias).enumerate() {
        if !accumulate {
            to.fill(0.0);
        }
        for part in parts.chunks_exact(part_floats(pooled)) {
            let part = &part[row * stride(pooled)..][..channels];
            to.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
    }
}

pub(super) struct Sums<'a> {
    pub(super) pooled: &'a Pooled,
    pub(super) lines: Lines,
    gather: Gather<'a>,
    cut: Cut,
    pub(super) dy: &'a [f32],
    pub(super) argmax: &'a [u8],
    /// The sums of every part.
    parts: Shared<'a, f32>,
    /// Lines of the image, for each worker.
    scratch: Shared<'a, f32>,
}

impl Tasks for Sums<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, worker: usize) {
        let [height, ..] = self.pooled.output();
        let (part, floats) = (part_floats(self.pooled), worker_floats(self.pooled));
        // SAFETY: every part is one task, and a worker runs one task at a time.
        let (sums, scratch) = unsafe {
            let sums = self.parts.slice(task * part..(task + 1) * part);
            (sums, self.scratch.slice(worker * floats..(worker + 1) * floats))
        };
        sums.fill(0.0);
        let (mut items, most) = (self.cut.range(task), lines_at_once(self.pooled));
        while !items.is_empty() {
            let (image, window) = (items.start / height, items.start % height);
            let count = most.min(items.len()).min(height - window);
            self.lines.copy::<L>(&self.gather, image, [window, 0], count, scratch);
            let block = Block { work: self, item: items.start, count };
            if L::PICKS && picked::applies(self.pooled) {
                let (lines, pairs) = scratch.split_at_mut(self.lines.floats(most));
                block.picked::<L>(lines, pairs, sums);
            } else {
                block.masked::<L>(scratch, sums);
            }
            items.start += count;
        }
    }
}

/// Some lines of windows of one image.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) work: &'a Sums<'a>,
    /// The first line of windows among those of all images, and how many there are.
    item: usize,
    pub(super) count: usize,
}

impl Block<'_> {
    /// Where the gradients of a window lie.
    #[inline(always)]
    pub(super) fn at(&self, line: usize, across: usize) -> usize {
        let [_, width, channels] = self.work.pooled.output();
        ((self.item + line) * width + across) * channels
    }

    /// Adds a vector of sums to a row of the part's, from a column on.
    #[inline(always)]
    pub(super) fn add<L: Lanes>(&self, value: L, row: usize, column: usize, sums: &mut [f32]) {
        let at = row * stride(self.work.pooled) + column;
        let to = sums[at..at + L::COUNT].as_mut_ptr();
        // SAFETY: rows are whole vectors.
        unsafe { L::load(to).add(value).store(to) };
    }

    /// A product for every place of a window, masked to the lanes whose argmax it is: for any filter.
    #[inline(always)]
    fn masked<L: Lanes>(&self, lines: &[f32], sums: &mut [f32]) {
        let pooled = self.work.pooled;
        let (taps, tap_row, channels) = (pooled.conv.kernel[0], pooled.tap_row(), pooled.conv.output[2]);
        for column in (0..channels).step_by(L::COUNT) {
            let masked = Masked { block: self, lines, column, columns: L::COUNT.min(channels - column) };
            for tap in 0..taps {
                let mut first = 0;
                while first < tap_row {
                    first += match tap_row - first {
                        16.. if L::COUNT == LANES_MAX => masked.products::<L, 16>(tap, first, sums),
                        8.. => masked.products::<L, 8>(tap, first, sums),
                        4.. => masked.products::<L, 4>(tap, first, sums),
                        2.. => masked.products::<L, 2>(tap, first, sums),
                        _ => masked.products::<L, 1>(tap, first, sums),
                    };
                }
            }
            masked.bias::<L>(taps * tap_row, sums);
        }
    }
}

/// Some lines of windows, and a vector of channels.
struct Masked<'a> {
    block: &'a Block<'a>,
    lines: &'a [f32],
    column: usize,
    columns: usize,
}

impl Masked<'_> {
    /// Adds the products of `K` floats of a row of taps, from one on; returns `K`.
    #[inline(always)]
    fn products<L: Lanes, const K: usize>(&self, tap: usize, first: usize, sums: &mut [f32]) -> usize {
        let Sums { pooled, lines, dy, argmax, .. } = *self.block.work;
        let Convolution { strides, input, .. } = pooled.conv;
        let mut partial = [L::splat(0.0); K];
        for line in 0..self.block.count {
            for across in 0..pooled.output()[1] {
                let at = self.block.at(line, across) + self.column;
                let (dy, argmax) = (&dy[at..at + self.columns], &argmax[at..at + self.columns]);
                // SAFETY: both have `columns` elements.
                let all: L = unsafe { load(dy.as_ptr(), self.columns) };
                for place in 0..4 {
                    // SAFETY: as above.
                    let is_argmax = unsafe { L::bytes_equal(argmax.as_ptr(), place as u8, self.columns) };
                    let dy_here = all.keep(is_argmax);
                    let y = line * lines.step + place / 2 * strides[0] + tap;
                    let x = (2 * across + place % 2) * strides[1] * input[2] + first;
                    let values = &self.lines[y * lines.stride + x..][..K];
                    for (sum, value) in partial.iter_mut().zip(values) {
                        *sum = L::splat(*value).mul_add(dy_here, *sum);
                    }
                }
            }
        }
        for (k, value) in partial.iter().enumerate() {
            self.block.add(*value, tap * pooled.tap_row() + first + k, self.column, sums);
        }
        K
    }

    /// Adds the gradients of all windows that have an argmax.
    #[inline(always)]
    fn bias<L: Lanes>(&self, row: usize, sums: &mut [f32]) {
        let Sums { pooled, dy, argmax, .. } = *self.block.work;
        let mut sum = L::splat(0.0);
        for line in 0..self.block.count {
            for across in 0..pooled.output()[1] {
                let at = self.block.at(line, across) + self.column;
                let (dy, argmax) = (&dy[at..at + self.columns], &argmax[at..at + self.columns]);
                // SAFETY: both have `columns` elements.
                unsafe {
                    let none = L::bytes_equal(argmax.as_ptr(), Pool2D::NO_ARGMAX, self.columns);
                    sum = sum.add(load::<L>(dy.as_ptr(), self.columns).keep(!none));
                }
            }
        }
        self.block.add(sum, row, self.column, sums);
    }
}
