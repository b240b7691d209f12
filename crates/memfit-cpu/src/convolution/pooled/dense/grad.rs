//! Gradients of a dense layer's kernel and of the filter and bias of the convolution before it, block by
//! block.

use std::ops::Range;

use memfit_ir::Pool2D;

use super::super::super::super::gemm::driver::{LINE, aligned};
use super::super::super::super::lanes::{LANES_MAX, Lanes, load, store};
use super::super::super::super::optimizer::Application;
use super::super::super::super::tasks::{self, Cut, Tasks};
use super::super::super::super::threads::{Shared, Threads};
use super::super::super::gather::Gather;
use super::super::{Lines, picked};
use super::{Ahead, Block, IMAGES, PooledDense, lined, turn_over};

/// Images whose blocks wait for the kernel's gradient.
const GROUP: usize = 16;
/// Windows whose products are summed at once where there are registers for them.
const AT_ONCE: usize = 3;
/// Rows of the kernel that are summed at once.
const ROWS: usize = 8;

/// How many floats of workspace `grad` needs: affine in the images.
pub fn grad_workspace(shape: &PooledDense, threads: usize) -> usize {
    let shared = lined(filter_floats(shape)) + dy_floats(shape) + shape.cut().count() * part_floats(shape);
    shared + threads * worker_floats(shape) + LINE
}

/// Floats of the filter: for each vector of channels the bias, then every tap, with zeros after the last
/// channel.
fn filter_floats(shape: &PooledDense) -> usize {
    part_floats(shape)
}

/// Floats of `dy` of all images, each image's in whole vectors.
fn dy_floats(shape: &PooledDense) -> usize {
    shape.pooled.conv.rows * shape.units_padded()
}

/// Floats of a part's sums, laid out as the filter.
fn part_floats(shape: &PooledDense) -> usize {
    (shape.pooled.depth() + 1) * shape.pooled.output()[2].next_multiple_of(LANES_MAX)
}

/// Floats of a worker.
fn worker_floats(shape: &PooledDense) -> usize {
    Scratch::sizes(shape).iter().sum()
}

/// What a worker has for itself.
struct Scratch<'a> {
    /// Lines of the image, then pairs of them.
    lines: &'a mut [f32],
    pairs: &'a mut [f32],
    /// Rows of the kernel, turned over.
    kernel: &'a mut [f32],
    /// A block of the gradient of the pool's output, of some images.
    dpooled: &'a mut [f32],
    /// A block of the pool's output, of a group of images.
    pooled: &'a mut [f32],
    /// A block of one image, for a vector of channels.
    windows: &'a mut [f32],
    /// Gradients of the kernel's rows.
    rows: &'a mut [f32],
}

impl<'a> Scratch<'a> {
    fn sizes(shape: &PooledDense) -> [usize; 7] {
        let (narrowed, depth) = (shape.narrowed(shape.windows()), shape.stride());
        [
            lined(Lines::new(&narrowed).floats(1)),
            lined(picked::pairs_floats(&narrowed)),
            shape.units * depth,
            IMAGES * depth,
            GROUP * depth,
            3 * shape.windows() * LANES_MAX,
            shape.units * depth,
        ]
    }

    #[inline(always)]
    fn new(shape: &PooledDense, floats: &'a mut [f32]) -> Self {
        let [lines, pairs, kernel, dpooled, pooled, windows, _] = Self::sizes(shape);
        let (lines, rest) = floats.split_at_mut(lines);
        let (pairs, rest) = rest.split_at_mut(pairs);
        let (kernel, rest) = rest.split_at_mut(kernel);
        let (dpooled, rest) = rest.split_at_mut(dpooled);
        let (pooled, rest) = rest.split_at_mut(pooled);
        let (windows, rows) = rest.split_at_mut(windows);
        Scratch { lines, pairs, kernel, dpooled, pooled, windows, rows }
    }
}

/// What gradients are made of.
#[derive(Clone, Copy)]
pub struct Grad<'a> {
    /// The images.
    pub x: &'a [f32],
    /// The convolution's filter and bias.
    pub filter: &'a [f32],
    /// Its bias.
    pub bias: &'a [f32],
    /// The argmax of the pool.
    pub argmax: &'a [u8],
    /// The gradient of what the dense layer gave.
    pub dy: &'a [f32],
}

/// The dense layer's kernel, and where its gradient goes, block by block.
pub(crate) enum Learning<'a> {
    /// To a sum: the kernel, and the sum, which counts as 0 unless `accumulate`.
    Sum {
        /// What is read.
        kernel: &'a [f32],
        /// What is added to.
        sum: Shared<'a, f32>,
        /// Whether the sum counts.
        accumulate: bool,
    },
    /// To the kernel itself, by its update.
    Applied(Application<'a>),
}

impl Learning<'_> {
    /// Some of the kernel.
    ///
    /// # Safety
    /// No other task writes it while the slice lives.
    #[inline(always)]
    unsafe fn kernel(&self, range: Range<usize>) -> &[f32] {
        match self {
            Learning::Sum { kernel, .. } => &kernel[range],
            // SAFETY: the caller's promise.
            Learning::Applied(application) => unsafe { application.weight(range) },
        }
    }

    /// Takes the gradient of some of it.
    ///
    /// # Safety
    /// No other task reads or writes it while the slice lives.
    #[inline(always)]
    unsafe fn take<L: Lanes>(&self, range: Range<usize>, gradient: &[f32]) {
        match self {
            Learning::Sum { sum, accumulate, .. } => {
                // SAFETY: the caller's promise.
                let sum = unsafe { sum.slice(range) };
                match accumulate {
                    true => sum.iter_mut().zip(gradient).for_each(|(sum, gradient)| *sum += gradient),
                    false => sum.copy_from_slice(gradient),
                }
            }
            // SAFETY: the caller's promise.
            Learning::Applied(application) => unsafe { application.apply::<L>(range, gradient, true) },
        }
    }

    /// Where all begins that is read or changed for a block.
    #[inline(always)]
    fn starts(&self) -> [Option<*const f32>; 4] {
        match self {
            Learning::Sum { kernel, sum, accumulate } => {
                let sum = sum.pointer().cast_const();
                [Some(kernel.as_ptr()), accumulate.then_some(sum), None, None]
            }
            Learning::Applied(application) => application.starts(),
        }
    }
}

/// Computes the gradients of the dense layer's kernel, of the filter and of its bias. Where `accumulate`,
/// adds the last two to what is there.
pub(crate) fn grad(
    threads: &Threads,
    shape: &PooledDense,
    given: &Grad,
    learning: &Learning,
    [dfilter, dbias]: [&mut [f32]; 2],
    accumulate: bool,
    workspace: &mut [f32],
) {
    shape.check(given.x.len(), given.filter.len());
    let (pooled, units) = (&shape.pooled, shape.units);
    assert!(given.argmax.len() == pooled.output_floats(), "an argmax for each window");
    let (filter, rest) = aligned(workspace).split_at_mut(lined(filter_floats(shape)));
    let (dy_padded, rest) = rest.split_at_mut(dy_floats(shape));
    let cut = shape.cut();
    let (parts, scratch) = rest.split_at_mut(cut.count() * part_floats(shape));
    let lanes = threads.level().lanes();
    pack(shape, lanes, given.filter, given.bias, filter);
    dy_padded.fill(0.0);
    for (to, dy) in dy_padded.chunks_exact_mut(shape.units_padded()).zip(given.dy.chunks_exact(units)) {
        to[..units].copy_from_slice(dy);
    }
    let work = Work {
        shape,
        cut,
        gather: Gather::of_input(&pooled.conv, given.x, 0),
        given,
        learning,
        filter,
        dy_padded,
        parts: Shared::new(parts),
        scratch: Shared::new(scratch),
    };
    tasks::run(threads, cut.count(), &work);
    if !accumulate {
        dfilter.fill(0.0);
        dbias.fill(0.0);
    }
    let channels = pooled.output()[2];
    for part in parts.chunks_exact(part_floats(shape)) {
        for (channel, dbias) in dbias.iter_mut().enumerate() {
            let vector = channel / lanes * (pooled.depth() + 1) * lanes + channel % lanes;
            *dbias += part[vector];
            for tap in 0..pooled.depth() {
                dfilter[tap * channels + channel] += part[vector + (tap + 1) * lanes];
            }
        }
    }
}

/// Writes filter and bias as `filter_floats` says, in vectors of `lanes` lanes.
fn pack(shape: &PooledDense, lanes: usize, filter: &[f32], bias: &[f32], to: &mut [f32]) {
    let (depth, channels) = (shape.pooled.depth(), shape.pooled.output()[2]);
    to.fill(0.0);
    for (tap, values) in std::iter::once(bias).chain(filter.chunks_exact(channels)).enumerate() {
        for (channel, value) in values.iter().enumerate() {
            to[(channel / lanes * (depth + 1) + tap) * lanes + channel % lanes] = *value;
        }
    }
}

struct Work<'a> {
    shape: &'a PooledDense,
    cut: Cut,
    gather: Gather<'a>,
    given: &'a Grad<'a>,
    learning: &'a Learning<'a>,
    filter: &'a [f32],
    /// `dy` of every image, with zeros after the last unit.
    dy_padded: &'a [f32],
    /// The filter's sums of every part.
    parts: Shared<'a, f32>,
    scratch: Shared<'a, f32>,
}

impl Tasks for Work<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, worker: usize) {
        let (part, floats) = (part_floats(self.shape), worker_floats(self.shape));
        // SAFETY: every part is one task, and a worker runs one task at a time.
        let (sums, scratch) = unsafe {
            let sums = self.parts.slice(task * part..(task + 1) * part);
            (sums, self.scratch.slice(worker * floats..(worker + 1) * floats))
        };
        sums.fill(0.0);
        let mut scratch = Scratch::new(self.shape, scratch);
        let range = self.cut.range(task);
        for index in range.clone() {
            let next = range.contains(&(index + 1)).then(|| self.shape.block(index + 1));
            self.block::<L>(&self.shape.block(index), next, &mut scratch, sums);
        }
    }
}

impl Work<'_> {
    /// Computes what a block of every image gives.
    #[inline(always)]
    fn block<L: Lanes>(&self, block: &Block, next: Option<Block>, scratch: &mut Scratch, sums: &mut [f32]) {
        let (units, stride, rows) = (self.shape.units, self.shape.stride(), self.shape.pooled.conv.rows);
        let range = block.start * units..(block.start + block.depth) * units;
        // SAFETY: every block belongs to one task.
        let kernel = unsafe { self.learning.kernel(range.clone()) };
        turn_over::<L>(kernel, units, stride, scratch.kernel);
        let mut ahead = self.learning.starts().map(|start| {
            let block = start.and(next);
            let start = start.unwrap_or(std::ptr::null());
            Ahead::rows(self.shape, block, start, rows * self.times::<L>())
        });
        let mut first = 0;
        while first < rows {
            let group = GROUP.min(rows - first);
            let mut image = 0;
            while image < group {
                let images = IMAGES.min(group - image);
                self.pooled_gradient::<L>(first + image, images, block, scratch.kernel, scratch.dpooled);
                for i in 0..images {
                    let which = [first + image + i, i, image + i];
                    self.image::<L>(which, block, next, &mut ahead, scratch, sums);
                }
                image += images;
            }
            let dy_padded = &self.dy_padded[first * self.shape.units_padded()..];
            let kernel = KernelRows { dy_padded, images: group, pooled: scratch.pooled, stride, units };
            kernel.add::<L>(block.depth, first > 0, scratch.rows);
            first += group;
        }
        // SAFETY: every block belongs to one task.
        unsafe { self.learning.take::<L>(range.clone(), &scratch.rows[..range.len()]) };
    }

    /// How often the next block is asked for while an image is computed: with every row of taps, or where
    /// vectors are short and rows many, with the first of each vector.
    #[inline(always)]
    fn times<L: Lanes>(&self) -> usize {
        let rows = if L::COUNT == LANES_MAX { self.shape.pooled.conv.kernel[0] } else { 1 };
        self.shape.pooled.output()[2].div_ceil(L::COUNT) * rows
    }

    /// The gradient of a block of the pool's output, for some images.
    #[inline(always)]
    fn pooled_gradient<L: Lanes>(
        &self,
        first: usize,
        images: usize,
        block: &Block,
        kernel: &[f32],
        to: &mut [f32],
    ) {
        match images {
            4 => self.pooled_gradient_of::<L, 4>(first, block, kernel, to),
            3 => self.pooled_gradient_of::<L, 3>(first, block, kernel, to),
            2 => self.pooled_gradient_of::<L, 2>(first, block, kernel, to),
            _ => self.pooled_gradient_of::<L, 1>(first, block, kernel, to),
        }
    }

    #[inline(always)]
    fn pooled_gradient_of<L: Lanes, const N: usize>(
        &self,
        first: usize,
        block: &Block,
        kernel: &[f32],
        to: &mut [f32],
    ) {
        let (units, stride, padded) = (self.shape.units, self.shape.stride(), self.shape.units_padded());
        let dy = &self.dy_padded[first * padded..(first + N) * padded];
        assert!(units * stride <= kernel.len() && N * stride <= to.len());
        assert!(block.depth.next_multiple_of(2 * L::COUNT) <= stride);
        // Two vectors at a time, so that each value of `dy` that was read is used twice. Columns end in whole
        // vectors, and a line more.
        for depth in (0..block.depth).step_by(2 * L::COUNT) {
            let mut sums = [[L::splat(0.0); 2]; N];
            for unit in 0..units {
                // SAFETY: checked above.
                let weights = unsafe {
                    let weights = kernel.as_ptr().add(unit * stride + depth);
                    [L::load(weights), L::load(weights.add(L::COUNT))]
                };
                for (image, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: `dy` has a value for every unit.
                    let dy = L::splat(unsafe { *dy.as_ptr().add(image * padded + unit) });
                    for (sum, weights) in sums.iter_mut().zip(weights) {
                        *sum = dy.mul_add(weights, *sum);
                    }
                }
            }
            for (image, sums) in sums.into_iter().enumerate() {
                for (vector, sum) in sums.into_iter().enumerate() {
                    // SAFETY: checked above.
                    unsafe { sum.store(to.as_mut_ptr().add(image * stride + depth + vector * L::COUNT)) };
                }
            }
        }
    }

    /// Adds the gradient of the filter from one image's block, and recomputes the block in its place of the
    /// group.
    #[inline(always)]
    fn image<L: Lanes>(
        &self,
        [image, number, place]: [usize; 3],
        block: &Block,
        next: Option<Block>,
        rows_ahead: &mut [Ahead],
        scratch: &mut Scratch,
        sums: &mut [f32],
    ) {
        let (pooled, stride) = (self.shape.narrowed(block.windows), self.shape.stride());
        let lines = Lines::new(&pooled);
        let place_in_image = [block.line, block.first];
        if let Some((seen, apart)) = lines.seen(&self.gather, image, place_in_image, lines.stride) {
            picked::pairs::<L>(&pooled, seen, apart, scratch.pairs);
        } else {
            lines.copy::<L>(&self.gather, image, place_in_image, 1, scratch.lines);
            picked::pairs::<L>(&pooled, scratch.lines, lines.stride, scratch.pairs);
        }
        let argmax = self.given.argmax.as_ptr();
        let mut ahead = Ahead::image(self.shape, next, &self.gather, argmax, image, self.times::<L>());
        let image_floats: usize = self.shape.pooled.output().iter().product();
        let channels = pooled.output()[2];
        let windows = Windows {
            argmax: &self.given.argmax[image * image_floats + block.start..][..block.depth],
            count: block.windows,
            channels,
            pixel: pooled.conv.input[2],
        };
        let dpooled = &scratch.dpooled[number * stride..][..block.depth];
        let pooled_again = &mut scratch.pooled[place * stride..][..block.depth];
        let (down, vector) = (pooled.conv.kernel[0], (pooled.depth() + 1) * L::COUNT);
        for column in (0..channels).step_by(L::COUNT) {
            let at = column / L::COUNT * vector;
            let (filter, sums) = (&self.filter[at..at + vector], &mut sums[at..at + vector]);
            windows.open::<L>(column, dpooled, filter, sums, scratch.windows);
            for row in 0..down {
                if row == 0 || L::COUNT == LANES_MAX {
                    rows_ahead.iter_mut().chain(&mut ahead).for_each(Ahead::ask);
                }
                let taps = 1 + row * pooled.tap_row();
                let (filter, sums) = (&filter[taps * L::COUNT..], &mut sums[taps * L::COUNT..]);
                let pairs = &scratch.pairs[2 * row * lines.stride..];
                windows.row::<L>(pooled.tap_row(), pairs, filter, sums, scratch.windows);
            }
            windows.close::<L>(column, scratch.windows, pooled_again);
        }
    }
}

/// A block of one image. For a vector of its channels, a buffer has three vectors a window: the argmax as
/// `picked` counts places, `dy`, with 0 where there is no argmax, and the filter's result at the argmax.
struct Windows<'a> {
    argmax: &'a [u8],
    count: usize,
    channels: usize,
    /// Channels of the image.
    pixel: usize,
}

impl Windows<'_> {
    /// Fills the buffer for a vector of channels, and adds to the bias's sums.
    #[inline(always)]
    fn open<L: Lanes>(
        &self,
        column: usize,
        dpooled: &[f32],
        filter: &[f32],
        sums: &mut [f32],
        to: &mut [f32],
    ) {
        let columns = L::COUNT.min(self.channels - column);
        let end = (self.count - 1) * self.channels + column + columns;
        assert!(end <= self.argmax.len() && end <= dpooled.len());
        assert!(3 * self.count * L::COUNT <= to.len() && L::COUNT <= filter.len().min(sums.len()));
        let mut places = [0.0; 8];
        for (place, to) in places[..4].iter_mut().enumerate() {
            *to = f32::from_bits((place / 2 + place % 2 * 2 * self.pixel) as u32);
        }
        // SAFETY: checked above.
        let (bias, mut sum): (L, L) = unsafe { (L::load(filter.as_ptr()), L::load(sums.as_ptr())) };
        for window in 0..self.count {
            let at = window * self.channels + column;
            let to = to.as_mut_ptr().wrapping_add(3 * window * L::COUNT);
            // SAFETY: checked above.
            unsafe {
                let argmax = self.argmax.as_ptr().add(at);
                let none = L::bytes_equal(argmax, Pool2D::NO_ARGMAX, columns);
                let value = load::<L>(dpooled.as_ptr().add(at), columns).keep(!none);
                sum = sum.add(value);
                L::load_bytes(argmax, columns).pick(places.as_ptr()).store(to);
                value.store(to.add(L::COUNT));
                bias.store(to.add(2 * L::COUNT));
            }
        }
        // SAFETY: checked above.
        unsafe { sum.store(sums.as_mut_ptr()) };
    }

    /// Adds the products of a row of taps, as many at once as registers hold.
    #[inline(always)]
    fn row<L: Lanes>(
        &self,
        taps: usize,
        pairs: &[f32],
        filter: &[f32],
        sums: &mut [f32],
        windows: &mut [f32],
    ) {
        let (many, mut first) = (L::ROWS >= 12, 0);
        while first < taps {
            let (pairs, filter) = (&pairs[2 * first..], &filter[first * L::COUNT..]);
            let sums = &mut sums[first * L::COUNT..];
            first += match taps - first {
                15 if many => self.taps::<L, 15>(pairs, filter, sums, windows),
                9 if many => self.taps::<L, 9>(pairs, filter, sums, windows),
                6 if many => self.taps::<L, 6>(pairs, filter, sums, windows),
                3 | 6 => self.taps::<L, 3>(pairs, filter, sums, windows),
                4 => self.taps::<L, 4>(pairs, filter, sums, windows),
                5.. => self.taps::<L, 5>(pairs, filter, sums, windows),
                _ => unreachable!("filters that can be picked have rows of 3, 5, 6, 9 or 15 taps"),
            };
        }
    }

    /// Adds the products of `K` neighbouring taps: with `dy` to the sums, with the filter to the recomputed
    /// block. Returns `K`.
    #[inline(always)]
    fn taps<L: Lanes, const K: usize>(
        &self,
        pairs: &[f32],
        filter: &[f32],
        sums: &mut [f32],
        windows: &mut [f32],
    ) -> usize {
        assert!(2 * (2 * (self.count - 1) * self.pixel + K) + 8 <= pairs.len());
        assert!(K * L::COUNT <= filter.len().min(sums.len()) && 3 * self.count * L::COUNT <= windows.len());
        let (mut weights, mut totals) = ([L::splat(0.0); K], [L::splat(0.0); K]);
        for (k, weights) in weights.iter_mut().enumerate() {
            // SAFETY: checked above.
            *weights = unsafe { L::load(filter.as_ptr().add(k * L::COUNT)) };
        }
        let (mut pairs, mut at) = (pairs.as_ptr(), windows.as_mut_ptr());
        // Some windows at once, or each product would wait for the one before.
        let together = if L::ROWS >= 12 { self.count / AT_ONCE } else { 0 };
        for _ in 0..together {
            // SAFETY: checked above.
            unsafe { products::<L, K, AT_ONCE>(pairs, 4 * self.pixel, at, &weights, &mut totals) };
            pairs = pairs.wrapping_add(AT_ONCE * 4 * self.pixel);
            at = at.wrapping_add(AT_ONCE * 3 * L::COUNT);
        }
        for _ in together * AT_ONCE..self.count {
            // SAFETY: checked above.
            unsafe { products::<L, K, 1>(pairs, 4 * self.pixel, at, &weights, &mut totals) };
            (pairs, at) = (pairs.wrapping_add(4 * self.pixel), at.wrapping_add(3 * L::COUNT));
        }
        for (k, total) in totals.into_iter().enumerate() {
            // SAFETY: checked above.
            unsafe {
                let to = sums.as_mut_ptr().add(k * L::COUNT);
                L::load(to).add(total).store(to);
            }
        }
        K
    }

    /// Writes the recomputed values, and 0 where there is no argmax.
    #[inline(always)]
    fn close<L: Lanes>(&self, column: usize, windows: &[f32], to: &mut [f32]) {
        let columns = L::COUNT.min(self.channels - column);
        let end = (self.count - 1) * self.channels + column + columns;
        assert!(end <= self.argmax.len().min(to.len()) && 3 * self.count * L::COUNT <= windows.len());
        for window in 0..self.count {
            let at = window * self.channels + column;
            // SAFETY: checked above.
            unsafe {
                let none = L::bytes_equal(self.argmax.as_ptr().add(at), Pool2D::NO_ARGMAX, columns);
                let made = L::load(windows.as_ptr().add((3 * window + 2) * L::COUNT)).keep(!none);
                store(made, to.as_mut_ptr().add(at), columns);
            }
        }
    }
}

/// The products of a row of `K` taps and `N` windows, whose pairs lie `step` floats apart.
///
/// # Safety
/// Pairs can be read up to what the last tap of the last window sees, and `windows` has three vectors for
/// each.
#[inline(always)]
unsafe fn products<L: Lanes, const K: usize, const N: usize>(
    pairs: *const f32,
    step: usize,
    windows: *mut f32,
    weights: &[L; K],
    totals: &mut [L; K],
) {
    let nothing = [L::splat(0.0); N];
    let (mut places, mut dpooled, mut made) = (nothing, nothing, nothing);
    for i in 0..N {
        // SAFETY: the caller's promise.
        unsafe {
            let at = windows.add(3 * i * L::COUNT);
            (places[i], dpooled[i]) = (L::load(at), L::load(at.add(L::COUNT)));
            made[i] = L::load(at.add(2 * L::COUNT));
        }
    }
    for k in 0..K {
        for i in 0..N {
            // SAFETY: the caller's promise.
            let seen = unsafe { places[i].pick(pairs.add(i * step + 2 * k)) };
            totals[k] = seen.mul_add(dpooled[i], totals[k]);
            made[i] = seen.mul_add(weights[k], made[i]);
        }
    }
    for (i, made) in made.into_iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { made.store(windows.add((3 * i + 2) * L::COUNT)) };
    }
}

/// Rows of the kernel, and the images whose products make their gradient.
struct KernelRows<'a> {
    dy_padded: &'a [f32],
    images: usize,
    /// The block of every image, `stride` floats apart.
    pooled: &'a [f32],
    stride: usize,
    units: usize,
}

impl KernelRows<'_> {
    /// Writes the gradient of `depth` rows, or adds it to what is there.
    #[inline(always)]
    fn add<L: Lanes>(&self, depth: usize, adds: bool, rows: &mut [f32]) {
        for unit in (0..self.units).step_by(L::COUNT) {
            let whole = depth - depth % ROWS;
            for at in (0..whole).step_by(ROWS) {
                self.rows::<L, ROWS>(at, unit, adds, rows);
            }
            for at in whole..depth {
                self.rows::<L, 1>(at, unit, adds, rows);
            }
        }
    }

    #[inline(always)]
    fn rows<L: Lanes, const N: usize>(&self, at: usize, unit: usize, adds: bool, rows: &mut [f32]) {
        let padded = self.units.next_multiple_of(LANES_MAX);
        let count = L::COUNT.min(self.units - unit);
        assert!((at + N) * self.units <= rows.len() && self.images * padded <= self.dy_padded.len());
        assert!(self.images.saturating_sub(1) * self.stride + at + N <= self.pooled.len());
        let to = rows[at * self.units + unit..].as_mut_ptr();
        let mut sums = [L::splat(0.0); N];
        if adds {
            for (row, sum) in sums.iter_mut().enumerate() {
                // SAFETY: checked above.
                *sum = unsafe { load(to.add(row * self.units), count) };
            }
        }
        for image in 0..self.images {
            // SAFETY: checked above.
            let dy = unsafe { L::load(self.dy_padded.as_ptr().add(image * padded + unit)) };
            for (row, sum) in sums.iter_mut().enumerate() {
                // SAFETY: checked above.
                let value = unsafe { *self.pooled.as_ptr().add(image * self.stride + at + row) };
                *sum = L::splat(value).mul_add(dy, *sum);
            }
        }
        for (row, sum) in sums.into_iter().enumerate() {
            // SAFETY: checked above.
            unsafe { store(sum, to.add(row * self.units), count) };
        }
    }
}
