//! A dense layer of few units after a convolution and its pool, all three block by block: the pool's output
//! is as large as many images, and is only ever held in the cache.
//!
//! ```text
//! forward    lines of an image ─▶ windows of a block ─▶ products with the block's rows of the kernel
//!                                                  │    ─▶ sums of every unit
//!                                                  └─▶ argmax, the only output that is stored
//! backward   gradient of a block, from the kernel's rows ─▶ the filter's gradient
//!            windows of a block, recomputed at their argmax ─▶ the gradient of the kernel's rows
//! ```
//!
//! The kernel is read once forward and once backward, whatever the number of images.

mod forward;
mod grad;

pub use forward::{forward, forward_workspace};
pub use grad::grad_workspace;
pub(crate) use grad::{Grad, Learning, grad};

use super::super::super::gemm::driver::LINE;
use super::super::super::lanes::{self, LANES_MAX, Lanes, prefetch_later};
use super::super::super::tasks::Cut;
use super::super::gather::Gather;
use super::{Lines, Pooled, picked, winograd_rgb};

/// About how many floats of the pool's output a block has: with the other buffers they stay in the
/// second-level cache.
const FLOATS: usize = 1024;
/// Windows of a block are a multiple of this, if there are enough: Winograd convolutions compute this many at
/// once.
const WINDOWS: usize = winograd_rgb::WINDOWS;
/// Images whose products with a part of the kernel are summed at once.
const IMAGES: usize = 4;
/// The most lines that a line of windows sees.
const LINES_MAX: usize = 6;
/// The most parts that are summed apart.
const PARTS: usize = 64;

/// The shape of all three.
#[derive(Clone, Copy, Debug)]
pub struct PooledDense {
    /// The convolution and its pool.
    pub pooled: Pooled,
    /// Units of the dense layer, whose kernel has a row for every float of the pool's output.
    pub units: usize,
}

impl PooledDense {
    /// Windows side by side that make a block; the last of a line may have fewer.
    fn windows(&self) -> usize {
        let [_, width, channels] = self.pooled.output();
        let most = (FLOATS / channels.max(1)).clamp(1, width.max(1));
        if most > WINDOWS { most - most % WINDOWS } else { most }
    }

    /// Blocks of a line of windows.
    fn across(&self) -> usize {
        self.pooled.output()[1].div_ceil(self.windows())
    }

    /// How blocks are cut in parts, whatever the number of images.
    fn cut(&self) -> Cut {
        let [height, _, channels] = self.pooled.output();
        Cut::at_most(height * self.across(), 4 * self.windows() * channels, PARTS)
    }

    /// Floats from one column of a block to the next: the largest block in whole vectors, and a cache line
    /// more. Columns that are a multiple of a page apart would evict each other from the first-level cache.
    fn stride(&self) -> usize {
        lined(self.windows() * self.pooled.output()[2]) + LINE
    }

    /// Floats of a row that has a vector's room for the units.
    fn units_padded(&self) -> usize {
        self.units.next_multiple_of(LANES_MAX)
    }

    /// A block by its number.
    #[inline(always)]
    fn block(&self, index: usize) -> Block {
        let [_, width, channels] = self.pooled.output();
        let (line, first) = (index / self.across(), index % self.across() * self.windows());
        let windows = self.windows().min(width - first);
        Block { line, first, windows, start: (line * width + first) * channels, depth: windows * channels }
    }

    /// The geometry of a block, as if it were the whole of a line.
    #[inline(always)]
    fn narrowed(&self, windows: usize) -> Pooled {
        let mut pooled = self.pooled;
        pooled.conv.output[1] = 2 * windows;
        pooled
    }

    /// Floats of the kernel.
    fn kernel_floats(&self) -> usize {
        self.units * self.pooled.output().iter().product::<usize>()
    }

    fn check(&self, images: usize, filter: usize) {
        self.pooled.check();
        assert!(picked::applies(&self.pooled), "the shape rules ask for an argmax that can be picked");
        self.pooled.conv.check(images, filter, self.pooled.conv.output_floats());
    }
}

/// Some windows side by side.
#[derive(Clone, Copy)]
struct Block {
    /// Which line of windows, and the first of them.
    line: usize,
    first: usize,
    windows: usize,
    /// Where their floats begin in the pool's output of one image, and how many there are.
    start: usize,
    depth: usize,
}

/// Writes rows of a kernel as a column for every unit, with zeros up to whole vectors.
#[inline(always)]
fn turn_over<L: Lanes>(rows: &[f32], units: usize, stride: usize, to: &mut [f32]) {
    let depth = rows.len() / units.max(1);
    assert!(depth <= stride && units * stride <= to.len(), "a column for every unit");
    let whole = depth - depth % L::COUNT;
    for at in (0..whole).step_by(L::COUNT) {
        for unit in (0..units).step_by(L::COUNT) {
            let (from, to) = (rows[at * units + unit..].as_ptr(), to[unit * stride + at..].as_mut_ptr());
            // SAFETY: there are at least as many rows as a vector has lanes, and a column for each of these
            // units.
            unsafe { L::transpose(from, units, (units - unit).min(L::COUNT), to, stride) };
        }
    }
    if whole < depth {
        let (from, to) = (rows[whole * units..].as_ptr(), to[whole..].as_mut_ptr());
        // SAFETY: the rows that are left.
        unsafe { lanes::transpose(from, units, depth - whole, units, to, stride) };
    }
    let padded = depth.next_multiple_of(L::COUNT);
    for unit in 0..units {
        to[unit * stride + depth..unit * stride + padded].fill(0.0);
    }
}

/// What the next block reads of a tensor. It comes from memory, in runs too short to be foreseen; so it is
/// asked for little by little while this block is computed.
#[derive(Clone, Copy)]
struct Ahead {
    next: *const f32,
    /// Cache lines that are still to be asked for, and how many at a time.
    lines: usize,
    each: usize,
}

impl Ahead {
    /// A run of floats, prefetched in `parts` parts.
    #[inline(always)]
    fn new(start: *const f32, floats: usize, parts: usize) -> Ahead {
        // One more, since a run may begin within a line.
        let lines = floats.div_ceil(LINE) + 1;
        Ahead { next: start, lines, each: lines.div_ceil(parts.max(1)) }
    }

    /// All rows of a block of a kernel; none where there is no block.
    #[inline(always)]
    fn rows(shape: &PooledDense, block: Option<Block>, kernel: *const f32, parts: usize) -> Ahead {
        let Some(block) = block else { return Ahead { next: kernel, lines: 0, each: 0 } };
        let start = kernel.wrapping_add(block.start * shape.units);
        Ahead::new(start, block.depth * shape.units, parts)
    }

    /// One image's input to a block: as many lines as windows see, and their argmax.
    #[inline(always)]
    fn image(
        shape: &PooledDense,
        block: Option<Block>,
        gather: &Gather,
        argmax: *const u8,
        image: usize,
        parts: usize,
    ) -> [Ahead; LINES_MAX + 1] {
        let mut ahead = [Ahead { next: argmax.cast(), lines: 0, each: 0 }; LINES_MAX + 1];
        let Some(block) = block else { return ahead };
        let lines = Lines::new(&shape.narrowed(block.windows));
        let start = gather.across.seen(2 * block.first, 0) * gather.pixel as isize;
        for (line, ahead) in ahead.iter_mut().enumerate().take(lines.first) {
            let y = gather.down.seen(0, 0) + (block.line * lines.step + line) as isize;
            let row = gather.pixel_row(image, y.max(0) as usize).wrapping_offset(start);
            *ahead = Ahead::new(row, lines.seen, parts);
        }
        let floats: usize = shape.pooled.output().iter().product();
        let argmax = argmax.wrapping_add(image * floats + block.start);
        ahead[LINES_MAX] = Ahead::new(argmax.cast(), block.depth.div_ceil(size_of::<f32>()), parts);
        ahead
    }

    /// Asks for some more.
    #[inline(always)]
    fn ask(&mut self) {
        let lines = self.each.min(self.lines);
        for line in 0..lines {
            prefetch_later(self.next.wrapping_add(line * LINE));
        }
        self.next = self.next.wrapping_add(lines * LINE);
        self.lines -= lines;
    }
}

/// Floats that a buffer in the workspace takes, so that the next one begins on a cache line.
fn lined(floats: usize) -> usize {
    floats.next_multiple_of(LINE)
}

#[cfg(test)]
mod tests;
