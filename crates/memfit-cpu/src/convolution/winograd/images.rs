//! The convolution itself, and with a filter turned round its gradient by the input.

use std::marker::PhantomData;
use std::ops::Range;

use super::super::super::gemm::driver::{LINE, aligned, block_end};
use super::super::super::lanes::{self, COLUMNS_MAX, Kernel, LANES_MAX, Lanes, Level, ROWS_MAX};
use super::super::super::microkernel::{Panels, Stripe, View};
use super::super::super::threads::{Shared, Threads};
use super::super::Convolution;
use super::super::gather::Gather;
use super::super::pooled;
use super::transform::taken;
use super::unpooled::{self, Unpooled};
use super::{Five, Grid, Input, Layout, Scheme, TILES_MOST, Then, Three, Tile, Tiles, margin_floats, square};

/// About the most floats of a transformed filter: of a larger one, some output channels at a time.
const FILTER_FLOATS: usize = 1 << 20;
/// About the most floats of a group of transformed tiles, before and after the products.
const GROUP_FLOATS: usize = 1 << 17;
/// Channels of a filter that a task transforms.
const CHANNELS_TASK: usize = 16;

/// The taps of a filter, `[height][width][channels in][channels out]`.
#[derive(Clone, Copy)]
pub(in super::super) struct Filter<'a> {
    values: &'a [f32],
    /// Channels in and out of the filter as it is stored.
    channels: [usize; 2],
    /// Whether it is used backwards: taps in reverse, and from output to input channels.
    backwards: bool,
}

impl<'a> Filter<'a> {
    /// The filter of a convolution.
    pub(in super::super) fn of(shape: &Convolution, values: &'a [f32], backwards: bool) -> Filter<'a> {
        Filter { values, channels: [shape.input[2], shape.output[2]], backwards }
    }
}

/// How the work is cut.
#[derive(Clone, Copy)]
struct Sizes {
    points: usize,
    /// Channels that are summed over, and those of the result.
    depth: usize,
    columns: usize,
    /// How many of these are computed at a time.
    chunk: usize,
    tiles: usize,
    left: Layout,
    product: Layout,
}

impl Sizes {
    fn new(taps: usize, depth: usize, columns: usize) -> Sizes {
        let points = taps + 1;
        let square = points * points;
        let most = (FILTER_FLOATS / (square * depth)).max(1) / COLUMNS_MAX * COLUMNS_MAX;
        let chunk = columns.min(most.max(COLUMNS_MAX));
        let row = |columns: usize| Layout::new(0, columns).row;
        let tiles = GROUP_FLOATS / (square * (row(depth) + row(chunk))) / ROWS_MAX * ROWS_MAX;
        let tiles = tiles.clamp(ROWS_MAX, TILES_MOST);
        let (left, product) = (Layout::new(tiles, depth), Layout::new(tiles, chunk));
        Sizes { points, depth, columns, chunk, tiles, left, product }
    }

    /// Floats of the filter of a chunk, at one point.
    fn filter_point(&self) -> usize {
        self.chunk.next_multiple_of(COLUMNS_MAX) * self.depth
    }

    /// Floats of the lines that a group sees.
    fn window(&self, gather: &Gather, tiles: &Tiles) -> usize {
        unpooled::floats(tiles.lines_seen(self.tiles, gather.down.taps), gather.across.size, self.depth)
    }

    fn worker(&self) -> usize {
        let square = self.points * self.points;
        // Taps that wait to be turned round lie where tiles do later.
        let taps = (self.points - 1) * (self.points - 1) * CHANNELS_TASK * LANES_MAX;
        let group = square * (self.left.point + self.product.point) + margin_floats(self.points, self.depth);
        group.max(taps).next_multiple_of(LINE)
    }
}

/// How many floats of workspace [`convolve`] needs for a filter of `taps` taps along each axis, `depth` input
/// and `columns` output channels.
pub(in super::super) fn workspace(taps: usize, depth: usize, columns: usize, threads: usize) -> usize {
    let sizes = Sizes::new(taps, depth, columns);
    sizes.points * sizes.points * sizes.filter_point() + threads * sizes.worker() + LINE
}

/// How many floats more it needs where its images are the gradient of a pool's input, given what sees them.
pub(in super::super) fn unpooled_workspace(gather: &Gather, columns: usize, threads: usize) -> usize {
    let sizes = Sizes::new(gather.down.taps, gather.channels, columns);
    threads * sizes.window(gather, &Tiles::new(gather, 2))
}

/// What is convolved.
pub(in super::super) struct Images<'a> {
    /// A grid, and how it sees the images.
    pub(in super::super) gather: &'a Gather<'a>,
    pub(in super::super) rows: usize,
    /// Where they are not stored, the gradient of the pool's output that they are computed from.
    pub(in super::super) unpooled: Option<Unpooled<'a>>,
}

/// Where the maximum of each tile is written instead of all its pixels: whether negative maxima become zero,
/// and where the argmax is written.
pub(in super::super) struct Pool<'a> {
    pub(in super::super) relu: bool,
    pub(in super::super) argmax: &'a mut [u8],
}

/// Convolves images, and adds a bias.
pub(in super::super) fn convolve(
    threads: &Threads,
    images: &Images,
    filter: Filter,
    bias: Option<&[f32]>,
    result: &mut [f32],
    pool: Option<Pool>,
    workspace: &mut [f32],
) {
    let gather = images.gather;
    if images.unpooled.is_none() {
        gather.check(&(0..images.rows * gather.positions()), &(0..gather.floats()));
    }
    match gather.down.taps {
        3 => Run::<Three, 4, 2, 3>::new(images, filter, bias, pool).all(threads, result, workspace),
        5 => Run::<Five, 6, 2, 5>::new(images, filter, bias, pool).all(threads, result, workspace),
        taps => unreachable!("no scheme for {taps} taps"),
    }
}

struct Run<'a, S, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize> {
    scheme: PhantomData<S>,
    images: &'a Images<'a>,
    filter: Filter<'a>,
    bias: Option<&'a [f32]>,
    pool: Option<Argmax<'a>>,
    sizes: Sizes,
    tiles: Tiles,
}

/// A [`Pool`], whose parts tasks share.
struct Argmax<'a> {
    relu: bool,
    places: Shared<'a, u8>,
}

impl<'a, S: Scheme<POINTS, OUTPUTS, TAPS>, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize>
    Run<'a, S, POINTS, OUTPUTS, TAPS>
{
    fn new(
        images: &'a Images<'a>,
        filter: Filter<'a>,
        bias: Option<&'a [f32]>,
        pool: Option<Pool<'a>>,
    ) -> Self {
        let [inputs, outputs] = filter.channels;
        let (depth, columns) = if filter.backwards { (outputs, inputs) } else { (inputs, outputs) };
        assert!(depth == images.gather.channels && filter.values.len() == TAPS * TAPS * depth * columns);
        let (sizes, tiles) = (Sizes::new(TAPS, depth, columns), Tiles::new(images.gather, OUTPUTS));
        let pool = pool.map(|pool| Argmax { relu: pool.relu, places: Shared::new(pool.argmax) });
        Run { scheme: PhantomData, images, filter, bias, pool, sizes, tiles }
    }

    fn all(&self, threads: &Threads, result: &mut [f32], workspace: &mut [f32]) {
        let Sizes { columns, chunk, tiles, .. } = self.sizes;
        let Images { gather, rows, unpooled } = *self.images;
        let windows = gather.down.positions / OUTPUTS * (gather.across.positions / OUTPUTS);
        let pixels = if self.pool.is_some() { windows } else { gather.positions() };
        assert!(result.len() == rows * pixels * columns, "the result has its size");
        let one_argmax_each = self.pool.as_ref().is_none_or(|pool| pool.places.len() == result.len());
        assert!(one_argmax_each, "an argmax for each result");
        let (level, count) = (threads.level(), self.tiles.count(rows));
        let floats = POINTS * POINTS * self.sizes.filter_point();
        let (filter, workers) = aligned(workspace).split_at_mut(floats);
        let (filter, workers, result) = (Shared::new(filter), Shared::new(workers), Shared::new(result));
        let window = unpooled.map_or(0, |_| self.sizes.window(gather, &self.tiles));
        let worker_floats = self.sizes.worker() + window;
        // SAFETY: a worker runs one task at a time.
        let scratch =
            |worker: usize| unsafe { workers.slice(worker * worker_floats..(worker + 1) * worker_floats) };
        for start in (0..columns).step_by(chunk) {
            let part = start..columns.min(start + chunk);
            let channels = self.sizes.depth;
            threads.for_each(channels.div_ceil(CHANNELS_TASK), |task, worker| {
                let channels = task * CHANNELS_TASK..channels.min((task + 1) * CHANNELS_TASK);
                let (to, buffer) = (filter.pointer(), scratch(worker).as_mut_ptr());
                let columns = part.clone();
                level.call(Taps { run: self, channels, columns, to, buffer, shared: threads.count() > 1 });
            });
            threads.for_each(count.div_ceil(tiles), |task, worker| {
                let group = task * tiles..count.min((task + 1) * tiles);
                self.group(level, group, &part, filter.pointer(), &result, scratch(worker));
            });
        }
    }

    /// Computes some output channels of a group of tiles.
    fn group(
        &self,
        level: Level,
        group: Range<usize>,
        columns: &Range<usize>,
        filter: *const f32,
        result: &Shared<f32>,
        scratch: &mut [f32],
    ) {
        let Sizes { depth, left, product, .. } = self.sizes;
        let (tiles, rest) = scratch.split_at_mut(POINTS * POINTS * left.point);
        let (products, rest) = rest.split_at_mut(POINTS * POINTS * product.point);
        let (margin, window) = rest.split_at_mut(margin_floats(POINTS, depth));
        let gather = match &self.images.unpooled {
            None => *self.images.gather,
            Some(unpooled) => {
                let lines = self.tiles.lines(self.images.gather, &group, POINTS);
                unpooled.show(level, lines, self.images.gather, window)
            }
        };
        level.call(Input::<S, POINTS, OUTPUTS, TAPS> {
            scheme: PhantomData,
            gather: &gather,
            tiles: self.tiles,
            group: group.clone(),
            channels: 0..depth,
            margin: margin.as_mut_ptr(),
            to: tiles.as_mut_ptr(),
            layout: left,
        });
        let width = 2 * level.lanes();
        for point in 0..POINTS * POINTS {
            let mut block = 0..block_end(0, depth);
            while !block.is_empty() {
                let from = tiles.as_ptr().wrapping_add(point * left.point + block.start);
                let start = filter.wrapping_add(point * self.sizes.filter_point() + block.start * width);
                level.call(Stripe {
                    left: View::new(from, left.row, false),
                    rows: group.len(),
                    depth: block.len(),
                    right: Panels { start, depth_step: width, panel_step: width * depth },
                    columns: columns.len(),
                    target: products.as_mut_ptr().wrapping_add(point * product.point),
                    target_step: product.row,
                    bias: None,
                    accumulate: block.start > 0,
                    streams: false,
                });
                block = block.end..block_end(block.end, depth);
            }
        }
        let (columns, from) = (columns.clone(), products.as_ptr());
        match &self.pool {
            None => level.call(Output { run: self, group, columns, from, result }),
            Some(argmax) => level.call(MaxOutput { run: self, group, columns, from, result, argmax }),
        }
    }
}

/// Transforms some of a filter's input channels to points, in panels two vectors wide.
struct Taps<'a, S, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize> {
    run: &'a Run<'a, S, POINTS, OUTPUTS, TAPS>,
    channels: Range<usize>,
    columns: Range<usize>,
    to: *mut f32,
    /// Room for taps that are turned round.
    buffer: *mut f32,
    /// Whether other threads read this too, and have read what stands there.
    shared: bool,
}

impl<S: Scheme<POINTS, OUTPUTS, TAPS>, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize> Kernel
    for Taps<'_, S, POINTS, OUTPUTS, TAPS>
{
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Filter { values, channels: [inputs, outputs], backwards } = self.run.filter;
        let (depth, point) = (self.run.sizes.depth, self.run.sizes.filter_point());
        let width = 2 * L::COUNT;
        // As in an update of weights: lines that other cores have in caches of their own are slow to write
        // there.
        let then = if self.shared && L::COUNT == LINE { Then::Stream } else { Then::Store };
        let mut column = self.columns.start;
        while column < self.columns.end {
            let count = L::COUNT.min(self.columns.end - column);
            let place = column - self.columns.start;
            let to = self.to.wrapping_add(place / width * width * depth + place % width);
            let mut from = values.as_ptr().wrapping_add(self.channels.start * outputs + column);
            let (mut tap, mut step) = ((inputs * outputs) as isize, outputs);
            if backwards {
                let tap_floats = CHANNELS_TASK * L::COUNT;
                for tap in 0..TAPS * TAPS {
                    let start = (tap * inputs + column) * outputs + self.channels.start;
                    let from = values[start..].as_ptr();
                    let to = self.buffer.wrapping_add(tap * tap_floats);
                    // SAFETY: these channels are in the filter, and the buffer has room for every tap.
                    unsafe { lanes::transpose(from, outputs, count, self.channels.len(), to, L::COUNT) };
                }
                from = self.buffer.wrapping_add((TAPS * TAPS - 1) * tap_floats).cast_const();
                (tap, step) = (-(tap_floats as isize), L::COUNT);
            }
            for (at, channel) in self.channels.clone().enumerate() {
                let start = from.wrapping_add(at * step);
                let from = Grid { start, row: TAPS as isize * tap, column: tap, rows: TAPS, columns: TAPS };
                let to = Layout { row: 0, point }.grid(to.wrapping_add(channel * width), POINTS);
                // SAFETY: the taps are in the filter or the buffer, and a point's panels, which begin with a
                // cache line, have room for every channel.
                unsafe { square::<L, S::Filter, TAPS, POINTS>(from, to, count, then) };
            }
            column += L::COUNT;
        }
        L::fence();
    }
}

/// Transforms products at points to the pixels of a group of tiles.
struct Output<'a, S, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize> {
    run: &'a Run<'a, S, POINTS, OUTPUTS, TAPS>,
    group: Range<usize>,
    columns: Range<usize>,
    from: *const f32,
    result: &'a Shared<'a, f32>,
}

impl<S: Scheme<POINTS, OUTPUTS, TAPS>, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize> Kernel
    for Output<'_, S, POINTS, OUTPUTS, TAPS>
{
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Run { images, sizes, tiles, bias, .. } = self.run;
        let [height, width] = [images.gather.down.positions, images.gather.across.positions];
        for (slot, index) in self.group.clone().enumerate() {
            let Tile { image, y, x } = tiles.tile(index);
            let pixel = ((image * height + y) * width + x) * sizes.columns;
            assert!(pixel + self.columns.end <= self.result.len(), "a tile lies inside its image");
            let (rows, columns) = (OUTPUTS.min(height - y), OUTPUTS.min(width - x));
            let mut column = self.columns.start;
            while column < self.columns.end {
                let count = L::COUNT.min(self.columns.end - column);
                let from = self.from.wrapping_add(slot * sizes.product.row + column - self.columns.start);
                let from = sizes.product.grid(from, POINTS);
                let start = self.result.pointer().wrapping_add(pixel + column);
                let row = (width * sizes.columns) as isize;
                let to = Grid { start, row, column: sizes.columns as isize, rows, columns };
                // SAFETY: the bias has a value for every channel.
                let bias = bias.map(|bias| unsafe { lanes::load::<L>(bias.as_ptr().add(column), count) });
                let then = bias.map_or(Then::Store, Then::Add);
                // SAFETY: every point has products of this tile; the pixels that are there belong to this
                // task.
                unsafe { square::<L, S::Output, POINTS, OUTPUTS>(from, to, count, then) };
                column += L::COUNT;
            }
        }
    }
}

/// Transforms products at points to the maximum pixel of every tile, and its argmax.
struct MaxOutput<'a, S, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize> {
    run: &'a Run<'a, S, POINTS, OUTPUTS, TAPS>,
    group: Range<usize>,
    columns: Range<usize>,
    from: *const f32,
    result: &'a Shared<'a, f32>,
    argmax: &'a Argmax<'a>,
}

impl<S: Scheme<POINTS, OUTPUTS, TAPS>, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize> Kernel
    for MaxOutput<'_, S, POINTS, OUTPUTS, TAPS>
{
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Run { images, sizes, tiles, bias, .. } = self.run;
        let positions = [images.gather.down.positions, images.gather.across.positions];
        let [height, width] = positions.map(|positions| positions / OUTPUTS);
        for (slot, index) in self.group.clone().enumerate() {
            let Tile { image, y, x } = tiles.tile(index);
            let (down, across) = (y / OUTPUTS, x / OUTPUTS);
            if height <= down || width <= across {
                continue;
            }
            let window = ((image * height + down) * width + across) * sizes.columns;
            assert!(window + self.columns.end <= self.result.len(), "a window lies inside its image");
            let mut column = self.columns.start;
            while column < self.columns.end {
                let count = L::COUNT.min(self.columns.end - column);
                let from = self.from.wrapping_add(slot * sizes.product.row + column - self.columns.start);
                let from = sizes.product.grid(from, POINTS);
                // SAFETY: every point has products of this tile, and the bias a value for every channel;
                // windows belong to one task, and each has a result and an argmax.
                unsafe {
                    let rows = taken::<L, S::Output, POINTS, OUTPUTS>(from, count);
                    let mut pixels = [rows[0][0], rows[0][1], rows[1][0], rows[1][1]];
                    if let Some(bias) = bias {
                        let bias = lanes::load::<L>(bias.as_ptr().add(column), count);
                        for pixel in &mut pixels {
                            *pixel = pixel.add(bias);
                        }
                    }
                    let y = self.result.pointer().add(window + column);
                    let argmax = self.argmax.places.pointer().add(window + column);
                    pooled::write(L::max_and_argmax(pixels), self.argmax.relu, count, y, argmax);
                }
                column += L::COUNT;
            }
        }
    }
}
