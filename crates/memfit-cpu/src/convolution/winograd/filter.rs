//! The gradient by the filter: transformed tiles of `dy` times transformed tiles of the input, summed over
//! all tiles.

use std::marker::PhantomData;
use std::ops::Range;

use super::super::super::gemm::driver::{LINE, PARTIALS_MAX, aligned};
use super::super::super::lanes::{COLUMNS_MAX, Kernel, Lanes, Level};
use super::super::super::microkernel::{Panels, Stripe, View};
use super::super::super::producer::Made;
use super::super::super::threads::{Shared, Threads};
use super::super::Convolution;
use super::super::gather::Gather;
use super::super::grad_kernel_of::Window;
use super::transform::given;
use super::{
    Five, Grid, Input, Layout, Scheme, TILES_MOST, Then, Three, Tile, Tiles, Unpooled, margin_floats, square,
};

/// The most channels of a task, in and out.
const CHANNELS_IN: usize = 64;
pub(in super::super) const CHANNELS_OUT: usize = 64;
/// Tiles of a group where there are many points: fewer, so that all points of a group stay in the
/// second-level cache.
const TILES_MANY_POINTS: usize = TILES_MOST / 2;
/// How many tasks there should be, and the most parts of the tiles that are summed apart.
const TASKS: usize = 16;
const PARTS_MOST: usize = 8;

/// How the work is cut.
#[derive(Clone, Copy)]
struct Sizes {
    channels: [usize; 2],
    /// Channels in and out of a task.
    blocks: [usize; 2],
    points: usize,
    /// Tiles of a group.
    tiles: usize,
    kernel_floats: usize,
    seen: Layout,
    sums: Layout,
    /// Floats of a group's `dy` at one point.
    dy_point: usize,
}

impl Sizes {
    fn new(shape: &Convolution) -> Sizes {
        let channels = [shape.input[2], shape.output[2]];
        let points = shape.kernel[0] + 1;
        // With more points, fewer channels: sums of a task stay in the second-level cache.
        let blocks = [channels[0].min(CHANNELS_IN * 4 / (2 * points - 4)), channels[1].min(CHANNELS_OUT)];
        let tiles = if points > 4 { TILES_MANY_POINTS } else { TILES_MOST };
        Sizes {
            channels,
            blocks,
            points,
            tiles,
            kernel_floats: shape.kernel_floats(),
            seen: Layout::new(tiles, blocks[0]),
            sums: Layout::new(blocks[0], blocks[1]),
            dy_point: blocks[1].next_multiple_of(COLUMNS_MAX) * tiles + LINE,
        }
    }

    fn worker(&self) -> usize {
        let square = self.points * self.points;
        let floats = square * (self.seen.point + self.sums.point + self.dy_point);
        (floats + margin_floats(self.points, self.channels[0])).next_multiple_of(LINE)
    }

    /// Tasks of one part of the tiles.
    fn tasks(&self) -> usize {
        self.channels[0].div_ceil(self.blocks[0]) * self.channels[1].div_ceil(self.blocks[1])
    }

    /// The most parts of the tiles.
    fn parts_most(&self) -> usize {
        let wanted = (TASKS / self.tasks()).min(PARTS_MOST);
        wanted.min(PARTIALS_MAX / self.kernel_floats.max(1)).max(1)
    }

    /// In how many parts `tiles` tiles are summed.
    fn parts(&self, tiles: usize) -> usize {
        self.parts_most().min(tiles / (4 * TILES_MOST)).max(1)
    }

    /// Floats of all partial results.
    fn partials(&self) -> usize {
        if self.parts_most() > 1 { self.parts_most() * self.kernel_floats } else { 0 }
    }
}

/// How many floats of workspace [`grad_kernel`] needs, whatever the number of images.
pub(in super::super) fn grad_kernel_workspace(shape: &Convolution, threads: usize) -> usize {
    let sizes = Sizes::new(shape);
    sizes.partials() + threads * sizes.worker() + LINE
}

/// Lines that a group of tiles sees, from the first to the last, at most.
fn lines_seen(shape: &Convolution) -> usize {
    Tiles::new(&Gather::of_input(shape, &[], 0), 2).lines_seen(Sizes::new(shape).tiles, shape.kernel[0])
}

/// How many more floats each thread needs where images are recomputed.
pub(in super::super) fn window(shape: &Convolution) -> usize {
    Window::floats(lines_seen(shape), shape.input[1], Sizes::new(shape).blocks[0])
}

/// The gradient of the output.
#[derive(Clone, Copy)]
pub(in super::super) enum Dy<'a> {
    Stored(&'a [f32]),
    Unpooled(Unpooled<'a>),
}

/// Computes the gradient by the filter; `x` are the images, or what they are made of. Where `accumulate`,
/// adds it to what is there.
pub(in super::super) fn grad_kernel(
    threads: &Threads,
    shape: &Convolution,
    x: &[f32],
    made: Option<&Made>,
    dy: Dy,
    dkernel: &mut [f32],
    accumulate: bool,
    workspace: &mut [f32],
) {
    let gather = Gather::of_input(shape, x, 0);
    gather.check(&(0..shape.rows * gather.positions()), &(0..gather.floats()));
    match shape.kernel[0] {
        3 => {
            Run::<Three, 4, 2, 3>::new(shape, &gather, made, dy).all(threads, dkernel, accumulate, workspace)
        }
        5 => Run::<Five, 6, 2, 5>::new(shape, &gather, made, dy).all(threads, dkernel, accumulate, workspace),
        taps => unreachable!("no scheme for {taps} taps"),
    }
}

struct Run<'a, S, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize> {
    scheme: PhantomData<S>,
    gather: &'a Gather<'a>,
    /// How the images are recomputed, and how many lines of them a group sees.
    made: Option<(&'a Made<'a>, usize)>,
    dy: Dy<'a>,
    sizes: Sizes,
    tiles: Tiles,
    /// Of all images.
    count: usize,
}

/// Channels in and out of one task.
#[derive(Clone)]
struct Block {
    inputs: Range<usize>,
    outputs: Range<usize>,
}

impl<'a, S: Scheme<POINTS, OUTPUTS, TAPS>, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize>
    Run<'a, S, POINTS, OUTPUTS, TAPS>
{
    fn new(shape: &Convolution, gather: &'a Gather<'a>, made: Option<&'a Made<'a>>, dy: Dy<'a>) -> Self {
        let tiles = Tiles::new(gather, OUTPUTS);
        Run {
            scheme: PhantomData,
            gather,
            made: made.map(|made| (made, lines_seen(shape))),
            dy,
            sizes: Sizes::new(shape),
            tiles,
            count: tiles.count(shape.rows),
        }
    }

    fn all(&self, threads: &Threads, dkernel: &mut [f32], accumulate: bool, workspace: &mut [f32]) {
        let Sizes { channels, blocks, kernel_floats, .. } = self.sizes;
        let parts = self.sizes.parts(self.count);
        let (partials, workers) = aligned(workspace).split_at_mut(self.sizes.partials());
        let window =
            self.made.map_or(0, |(_, lines)| Window::floats(lines, self.gather.across.size, blocks[0]));
        let floats = self.sizes.worker() + window;
        let (result, partials, workers) =
            (&Shared::new(dkernel), Shared::new(partials), Shared::new(workers));
        let (tasks, across) = (self.sizes.tasks(), channels[1].div_ceil(blocks[1]));
        let tiles = self.count.div_ceil(parts).next_multiple_of(TILES_MOST);
        threads.for_each(parts * tasks, |task, worker| {
            let (part, task) = (task / tasks, task % tasks);
            let range = |index: usize, side: usize| {
                index * blocks[side]..channels[side].min((index + 1) * blocks[side])
            };
            let block = Block { inputs: range(task / across, 0), outputs: range(task % across, 1) };
            // SAFETY: a worker runs one task at a time.
            let scratch = unsafe { workers.slice(worker * floats..(worker + 1) * floats) };
            let tiles = self.count.min(part * tiles)..self.count.min((part + 1) * tiles);
            let (to, start) = if parts == 1 { (result, 0) } else { (&partials, part * kernel_floats) };
            let accumulate = accumulate && parts == 1;
            self.part(threads.level(), tiles, &block, scratch);
            let sums = scratch.as_ptr();
            assert!(start + kernel_floats <= to.len(), "a filter lies inside its slice");
            let to = to.pointer().wrapping_add(start);
            threads.level().call(TapGradient { run: self, block, from: sums, to, accumulate });
        });
        if parts > 1 {
            add_partials(threads, result, &partials, parts, accumulate);
        }
    }

    /// Sums the products at all points over some tiles, at the start of `scratch`.
    fn part(&self, level: Level, tiles: Range<usize>, block: &Block, scratch: &mut [f32]) {
        let Sizes { seen, sums, dy_point, .. } = self.sizes;
        let (sums_buffer, rest) = scratch.split_at_mut(POINTS * POINTS * sums.point);
        let (seen_buffer, rest) = rest.split_at_mut(POINTS * POINTS * seen.point);
        let (dy_buffer, rest) = rest.split_at_mut(POINTS * POINTS * dy_point);
        let margin_floats = margin_floats(POINTS, self.sizes.channels[0]);
        let (margin, room) = rest.split_at_mut(margin_floats);
        let mut window =
            self.made.map(|(made, lines)| Window::new(made, self.gather, block.inputs.clone(), lines, room));
        if tiles.is_empty() {
            sums_buffer.fill(0.0);
        }
        let width = 2 * level.lanes();
        for start in tiles.clone().step_by(self.sizes.tiles) {
            let group = start..tiles.end.min(start + self.sizes.tiles);
            let (gather, channels) = match &mut window {
                None => (*self.gather, block.inputs.clone()),
                Some(window) => {
                    let lines = self.tiles.lines(self.gather, &group, POINTS);
                    (window.show(level, lines, self.gather), 0..block.inputs.len())
                }
            };
            level.call(Input::<S, POINTS, OUTPUTS, TAPS> {
                scheme: PhantomData,
                gather: &gather,
                tiles: self.tiles,
                group: group.clone(),
                channels,
                margin: margin.as_mut_ptr(),
                to: seen_buffer.as_mut_ptr(),
                layout: seen,
            });
            let to = dy_buffer.as_mut_ptr();
            level.call(TransformDy { run: self, group: group.clone(), channels: block.outputs.clone(), to });
            for point in 0..POINTS * POINTS {
                let right = dy_buffer.as_ptr().wrapping_add(point * dy_point);
                level.call(Stripe {
                    left: View::new(seen_buffer.as_ptr().wrapping_add(point * seen.point), seen.row, true),
                    rows: block.inputs.len(),
                    depth: group.len(),
                    right: Panels { start: right, depth_step: width, panel_step: width * self.sizes.tiles },
                    columns: block.outputs.len(),
                    target: sums_buffer.as_mut_ptr().wrapping_add(point * sums.point),
                    target_step: sums.row,
                    bias: None,
                    accumulate: start > tiles.start,
                    streams: false,
                });
            }
        }
    }
}

/// Transforms `dy` of a group of tiles to points, in panels two vectors wide.
struct TransformDy<'a, S, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize> {
    run: &'a Run<'a, S, POINTS, OUTPUTS, TAPS>,
    group: Range<usize>,
    channels: Range<usize>,
    to: *mut f32,
}

impl<S: Scheme<POINTS, OUTPUTS, TAPS>, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize> Kernel
    for TransformDy<'_, S, POINTS, OUTPUTS, TAPS>
{
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Run { gather, dy, sizes, tiles, .. } = self.run;
        let (pixel, panel) = (sizes.channels[1], 2 * L::COUNT);
        for (slot, index) in self.group.clone().enumerate() {
            let tile = tiles.tile(index);
            let mut channel = self.channels.start;
            while channel < self.channels.end {
                let count = L::COUNT.min(self.channels.end - channel);
                let place = channel - self.channels.start;
                let to = place / panel * panel * sizes.tiles + slot * panel + place % panel;
                let layout = Layout { row: 0, point: sizes.dy_point };
                let to = layout.grid(self.to.wrapping_add(to), POINTS);
                // SAFETY: a point's panels have room for every tile.
                unsafe {
                    match dy {
                        Dy::Stored(dy) => {
                            let from = stored(dy, gather, &tile, pixel, channel, OUTPUTS);
                            square::<L, S::OutputGradient, OUTPUTS, POINTS>(from, to, count, Then::Store);
                        }
                        Dy::Unpooled(dy) => {
                            let from = dy.tile::<L, OUTPUTS>(&tile, channel, count);
                            given::<L, S::OutputGradient, OUTPUTS, POINTS>(&from, to, count);
                        }
                    }
                }
                channel += L::COUNT;
            }
        }
    }
}

/// `dy` of a tile, from a channel on, as far as the tile lies inside the image.
#[inline(always)]
fn stored(
    dy: &[f32],
    gather: &Gather,
    tile: &Tile,
    pixel: usize,
    channel: usize,
    outputs: usize,
) -> Grid<*const f32> {
    let [height, width] = [gather.down.positions, gather.across.positions];
    let (rows, columns) = (outputs.min(height - tile.y), outputs.min(width - tile.x));
    let first = ((tile.image * height + tile.y) * width + tile.x) * pixel;
    assert!(first + ((rows - 1) * width + columns) * pixel <= dy.len(), "the gradients exist");
    let start = dy.as_ptr().wrapping_add(first + channel);
    Grid { start, row: (width * pixel) as isize, column: pixel as isize, rows, columns }
}

/// Transforms sums at points to the gradient of the taps.
struct TapGradient<'a, S, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize> {
    run: &'a Run<'a, S, POINTS, OUTPUTS, TAPS>,
    block: Block,
    from: *const f32,
    to: *mut f32,
    accumulate: bool,
}

impl<S: Scheme<POINTS, OUTPUTS, TAPS>, const POINTS: usize, const OUTPUTS: usize, const TAPS: usize> Kernel
    for TapGradient<'_, S, POINTS, OUTPUTS, TAPS>
{
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Sizes { channels: [inputs, outputs], sums, .. } = self.run.sizes;
        let tap = (inputs * outputs) as isize;
        for (row, input) in self.block.inputs.clone().enumerate() {
            let mut output = self.block.outputs.start;
            while output < self.block.outputs.end {
                let count = L::COUNT.min(self.block.outputs.end - output);
                let from = self.from.wrapping_add(row * sums.row + output - self.block.outputs.start);
                let from = sums.grid(from, POINTS);
                let start = self.to.wrapping_add(input * outputs + output);
                let to = Grid { start, row: TAPS as isize * tap, column: tap, rows: TAPS, columns: TAPS };
                let then = if self.accumulate { Then::Accumulate } else { Then::Store };
                // SAFETY: every point has sums of these channels, and so has the filter, for this task alone.
                unsafe { square::<L, S::TapGradient, POINTS, TAPS>(from, to, count, then) };
                output += L::COUNT;
            }
        }
    }
}

/// Adds the partial results, in their order.
fn add_partials(
    threads: &Threads,
    result: &Shared<f32>,
    partials: &Shared<f32>,
    parts: usize,
    accumulate: bool,
) {
    const FLOATS: usize = 8192;
    let length = result.len();
    threads.for_each(length.div_ceil(FLOATS), |task, _| {
        let range = task * FLOATS..length.min((task + 1) * FLOATS);
        // SAFETY: every part of the result belongs to one task.
        let result = unsafe { result.slice(range.clone()) };
        if !accumulate {
            result.fill(0.0);
        }
        for part in 0..parts {
            // SAFETY: as above.
            let partial = unsafe { partials.slice(part * length + range.start..part * length + range.end) };
            result.iter_mut().zip(partial).for_each(|(result, partial)| *result += *partial);
        }
    });
}
