//! The product of a dense layer with what a pool gives, block by block.

use super::super::super::super::gemm::driver::{LINE, aligned};
use super::super::super::super::lanes::{LANES_MAX, Lanes};
use super::super::super::super::tasks::{self, Cut, Tasks};
use super::super::super::super::threads::{Shared, Threads};
use super::super::super::gather::Gather;
use super::super::forward::{Filter, Line, filter_floats};
use super::super::{Lines, winograd_rgb};
use super::{Ahead, Block, IMAGES, PooledDense, lined, turn_over};

/// How many floats of workspace `forward` needs: affine in the images.
pub fn forward_workspace(shape: &PooledDense, threads: usize) -> usize {
    let filter = lined(filter_floats(&shape.pooled));
    filter + lined(partial_floats(shape)) + threads * worker_floats(shape) + LINE
}

/// Floats of all parts' sums.
fn partial_floats(shape: &PooledDense) -> usize {
    shape.cut().count() * shape.pooled.conv.rows * shape.units
}

/// Floats of a worker.
fn worker_floats(shape: &PooledDense) -> usize {
    Scratch::sizes(shape).iter().sum()
}

/// What a worker has for itself.
struct Scratch<'a> {
    /// Lines of the image, and their Winograd transforms.
    lines: &'a mut [f32],
    transform: &'a mut [f32],
    /// Rows of the kernel, turned over.
    kernel: &'a mut [f32],
    /// A block of the pool's output for some images.
    pooled: &'a mut [f32],
    /// A vector of sums for every image and unit.
    sums: &'a mut [f32],
}

impl<'a> Scratch<'a> {
    fn sizes(shape: &PooledDense) -> [usize; 5] {
        let narrowed = shape.narrowed(shape.windows());
        [
            lined(Lines::new(&narrowed).floats(1) + winograd_rgb::reach(&narrowed)),
            lined(winograd_rgb::buffer_floats(&narrowed)),
            shape.units * shape.stride(),
            IMAGES * shape.stride(),
            shape.pooled.conv.rows * shape.units * LANES_MAX,
        ]
    }

    #[inline(always)]
    fn new(shape: &PooledDense, floats: &'a mut [f32]) -> Self {
        let [lines, transform, kernel, pooled, _] = Self::sizes(shape);
        let (lines, rest) = floats.split_at_mut(lines);
        let (transform, rest) = rest.split_at_mut(transform);
        let (kernel, rest) = rest.split_at_mut(kernel);
        let (pooled, sums) = rest.split_at_mut(pooled);
        Scratch { lines, transform, kernel, pooled, sums }
    }
}

/// `y = flattened pool of (x ∗ filter + bias) times kernel + kernel's bias`; writes the argmax of the pool.
pub fn forward(
    threads: &Threads,
    shape: &PooledDense,
    x: &[f32],
    [filter, bias]: [&[f32]; 2],
    [kernel, kernel_bias]: [&[f32]; 2],
    y: &mut [f32],
    argmax: &mut [u8],
    workspace: &mut [f32],
) {
    shape.check(x.len(), filter.len());
    assert_eq!(
        kernel.len(),
        shape.kernel_floats(),
        "a row of the kernel for each float of the pool's output"
    );
    let (rows, units) = (shape.pooled.conv.rows, shape.units);
    assert!(
        y.len() == rows * units && argmax.len() == shape.pooled.output_floats(),
        "an argmax for each window"
    );
    let (packed, rest) = aligned(workspace).split_at_mut(lined(filter_floats(&shape.pooled)));
    let (partial, scratch) = rest.split_at_mut(lined(partial_floats(shape)));
    let cut = shape.cut();
    let work = Forward {
        shape,
        cut,
        gather: Gather::of_input(&shape.pooled.conv, x, 0),
        filter: Filter::pack(&shape.pooled, threads.level(), filter, Some(bias), packed),
        kernel,
        argmax: Shared::new(argmax),
        partial: Shared::new(partial),
        scratch: Shared::new(scratch),
    };
    tasks::run(threads, cut.count(), &work);
    for (row, y) in y.chunks_exact_mut(units.max(1)).enumerate() {
        y.copy_from_slice(kernel_bias);
        for part in 0..cut.count() {
            let partial = &partial[(part * rows + row) * units..][..units];
            y.iter_mut().zip(partial).for_each(|(sum, partial)| *sum += partial);
        }
    }
}

struct Forward<'a> {
    shape: &'a PooledDense,
    cut: Cut,
    gather: Gather<'a>,
    filter: Filter<'a>,
    kernel: &'a [f32],
    argmax: Shared<'a, u8>,
    /// The sums of every part.
    partial: Shared<'a, f32>,
    scratch: Shared<'a, f32>,
}

impl Tasks for Forward<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, worker: usize) {
        let (floats, count) = (worker_floats(self.shape), self.shape.pooled.conv.rows * self.shape.units);
        // SAFETY: a worker runs one task at a time, and every part is one task.
        let (scratch, partial) = unsafe {
            let scratch = self.scratch.slice(worker * floats..(worker + 1) * floats);
            (scratch, self.partial.slice(task * count..(task + 1) * count))
        };
        let mut scratch = Scratch::new(self.shape, scratch);
        scratch.sums.fill(0.0);
        let range = self.cut.range(task);
        for index in range.clone() {
            let next = range.contains(&(index + 1)).then(|| self.shape.block(index + 1));
            self.block::<L>(&self.shape.block(index), next, &mut scratch);
        }
        for (to, vector) in partial.iter_mut().zip(scratch.sums.chunks_exact(LANES_MAX)) {
            *to = vector.iter().sum();
        }
    }
}

impl Forward<'_> {
    /// Computes a block of every image, and adds its products.
    #[inline(always)]
    fn block<L: Lanes>(&self, block: &Block, next: Option<Block>, scratch: &mut Scratch) {
        let PooledDense { pooled, units } = *self.shape;
        let stride = self.shape.stride();
        let rows = &self.kernel[block.start * units..(block.start + block.depth) * units];
        turn_over::<L>(rows, units, stride, scratch.kernel);
        let parts = 3 * pooled.conv.rows;
        let mut rows_ahead = Ahead::rows(self.shape, next, self.kernel.as_ptr(), parts);
        let whole = block.depth.next_multiple_of(L::COUNT);
        let narrowed = self.shape.narrowed(block.windows);
        let lines = Lines::new(&narrowed);
        let image_floats: usize = pooled.output().iter().product();
        let mut image = 0;
        while image < pooled.conv.rows {
            let images = IMAGES.min(pooled.conv.rows - image);
            for (i, to) in scratch.pooled.chunks_exact_mut(stride).take(images).enumerate() {
                let all = self.argmax.pointer().cast_const();
                let mut ahead = Ahead::image(self.shape, next, &self.gather, all, image + i, 3);
                let mut ask = || {
                    rows_ahead.ask();
                    ahead.iter_mut().for_each(Ahead::ask);
                };
                ask();
                to[block.depth..whole].fill(0.0);
                let start = (image + i) * image_floats + block.start;
                // SAFETY: every block of every image belongs to one task.
                let argmax = unsafe { self.argmax.slice(start..start + block.depth) };
                ask();
                let place = [block.line, block.first];
                let seen = lines.seen(&self.gather, image + i, place, winograd_rgb::reach(&narrowed));
                let (lines, stride) = seen.unwrap_or_else(|| {
                    lines.copy::<L>(&self.gather, image + i, place, 1, scratch.lines);
                    (&*scratch.lines, lines.stride)
                });
                let line = Line { pooled: &narrowed, lines, stride };
                self.filter.line::<L>(&line, scratch.transform, &mut to[..block.depth], argmax);
                ask();
            }
            let products = Products { kernel: scratch.kernel, pooled: scratch.pooled, stride, whole, units };
            let sums = &mut scratch.sums[image * units * LANES_MAX..];
            match images {
                4 => products.add::<L, 4>(sums),
                3 => products.add::<L, 3>(sums),
                2 => products.add::<L, 2>(sums),
                _ => products.add::<L, 1>(sums),
            }
            image += images;
        }
    }
}

/// A block of some images, and of the kernel.
struct Products<'a> {
    kernel: &'a [f32],
    pooled: &'a [f32],
    stride: usize,
    /// Floats of the block, in whole vectors.
    whole: usize,
    units: usize,
}

impl Products<'_> {
    /// Adds the products of `N` images to a vector for each unit.
    #[inline(always)]
    fn add<L: Lanes, const N: usize>(&self, sums: &mut [f32]) {
        let mut unit = 0;
        while unit < self.units {
            unit += match self.units - unit {
                4.. if L::COUNT == LANES_MAX => self.units::<L, N, 4>(unit, sums),
                2.. => self.units::<L, N, 2>(unit, sums),
                _ => self.units::<L, N, 1>(unit, sums),
            };
        }
    }

    /// The same for `U` units, from one on; returns `U`.
    #[inline(always)]
    fn units<L: Lanes, const N: usize, const U: usize>(&self, first: usize, sums: &mut [f32]) -> usize {
        assert!((N - 1) * self.stride + self.whole <= self.pooled.len());
        assert!((first + U - 1) * self.stride + self.whole <= self.kernel.len());
        assert!(((N - 1) * self.units + first + U) * LANES_MAX <= sums.len());
        let at = |image: usize, unit: usize| (image * self.units + first + unit) * LANES_MAX;
        let mut total = [[L::splat(0.0); U]; N];
        let (pooled, kernel) = (self.pooled.as_ptr(), self.kernel.as_ptr().wrapping_add(first * self.stride));
        for depth in (0..self.whole).step_by(L::COUNT) {
            let mut weights = [L::splat(0.0); U];
            for (unit, weights) in weights.iter_mut().enumerate() {
                // SAFETY: checked above.
                *weights = unsafe { L::load(kernel.add(unit * self.stride + depth)) };
            }
            for (image, total) in total.iter_mut().enumerate() {
                // SAFETY: checked above.
                let values = unsafe { L::load(pooled.add(image * self.stride + depth)) };
                for (sum, &weights) in total.iter_mut().zip(&weights) {
                    *sum = values.mul_add(weights, *sum);
                }
            }
        }
        for (image, total) in total.iter().enumerate() {
            for (unit, total) in total.iter().enumerate() {
                let to = sums[at(image, unit)..].as_mut_ptr();
                // SAFETY: checked above.
                unsafe { L::load(to).add(*total).store(to) };
            }
        }
        U
    }
}
