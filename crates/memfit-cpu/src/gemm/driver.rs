//! The packed-panel driver: cuts a product in tasks, packs operands for the microkernel, adds partial sums in
//! order.

use std::ops::Range;

use super::super::lanes::{COLUMNS_MAX, Kernel, Lanes, Level, ROWS_MAX};
use super::super::microkernel::{Panels, Stripe, View};
use super::super::threads::{Shared, Threads};

/// The most depth that is packed at once: a panel of the left operand stays in the first-level cache.
pub(crate) const DEPTH_MAX: usize = 256;
/// Floats between the rows of a packed left panel: not a power of two, so that rows do not share cache sets.
pub(crate) const LEFT_STRIDE: usize = DEPTH_MAX + 16;
/// The most columns of a task: `DEPTH_MAX` of them, packed, fit in the second-level cache.
const COLUMNS_TASK: usize = 512;
/// The most rows of a task, but for products of little depth and few columns.
const ROWS_TASK: usize = 264;
/// The fewest rows and columns of a task: below, packing takes too much of the time.
const ROWS_TASK_MIN: usize = 48;
const COLUMNS_TASK_MIN: usize = 64;
/// How many tasks there should be for every thread, so that none waits long for the last.
const TASKS_THREAD: usize = 2;
/// How many register tiles are computed between two questions for what comes next.
const TILES_ASKED: usize = 8;
/// About the fewest multiplications that are worth a task.
const WORK_TASK: usize = 1 << 20;
/// How many tasks a product should have at least before they grow.
const TASKS_MIN: usize = 16;
/// The most partial results of one product.
const SPLITS_MAX: usize = 8;
/// The least depth worth a partial result.
const DEPTH_SPLIT: usize = 1024;
/// The most floats of all partial results together.
pub(crate) const PARTIALS_MAX: usize = 1 << 19;
/// Results of at least this many bytes that are written once, by several threads, are written past the
/// caches: bytes that other threads still hold in their caches are slow to write, and the caches cannot keep
/// so much until it is read.
pub(crate) const STREAMED: usize = 4 << 20;
/// Floats in a cache line.
pub(crate) const LINE: usize = 16;

/// Floats of the buffer for the left operand: at least one packed panel.
pub(crate) const LEFT_FLOATS: usize = 16384;
const _: () = assert!(LEFT_FLOATS >= ROWS_MAX * LEFT_STRIDE);

/// The left operand, m x k.
pub(crate) trait Left: Sync {
    /// Where a block of depth that starts at `start` ends, at or before `end` and no more than `DEPTH_MAX`
    /// further.
    fn block_end(&self, start: usize, end: usize) -> usize {
        block_end(start, end)
    }

    /// Shows the first of some rows over `depth`, and returns how many: packed in `buffer`, or in place where
    /// that suits a right operand of `columns` columns.
    fn panel(
        &self,
        level: Level,
        rows: Range<usize>,
        depth: Range<usize>,
        columns: usize,
        buffer: &mut [f32],
    ) -> (View, usize);

    /// Shows all of some rows over `depth` at once, packed in `buffer`, where that fits and suits a right
    /// operand of `columns` columns.
    fn block(
        &self,
        _level: Level,
        _rows: Range<usize>,
        _depth: Range<usize>,
        _columns: usize,
        _buffer: &mut [f32],
    ) -> Option<View> {
        None
    }

    /// Asks for rows that are shown next, where that takes little.
    fn prefetch(&self, _rows: Range<usize>, _depth: Range<usize>) {}
}

/// The right operand, k x n.
pub(crate) trait Right: Sync {
    /// Shows a part of the operand in panels two vectors wide: packed in `buffer`, or in place where that
    /// suits a left operand of `rows` rows.
    fn panels(
        &self,
        level: Level,
        depth: Range<usize>,
        columns: Range<usize>,
        rows: usize,
        buffer: &mut [f32],
    ) -> Panels;

    /// Asks for a share, `share` of `of`, of a part that is shown next, where that takes little.
    fn prefetch(&self, _depth: Range<usize>, _columns: Range<usize>, _share: Range<usize>, _of: usize) {}
}

/// Where rows of the result go.
pub(crate) trait Target: Sync {
    /// Where a row and those after it go.
    fn run(&self, row: usize) -> Run;
}

/// Some rows of the result at a constant distance.
pub(crate) struct Run {
    /// Column 0 of the first row.
    pub(crate) start: usize,
    pub(crate) step: usize,
    /// How many rows there are.
    pub(crate) rows: usize,
}

/// All rows at a constant distance.
pub(crate) struct Strided {
    pub(crate) start: usize,
    pub(crate) stride: usize,
}

impl Target for Strided {
    fn run(&self, row: usize) -> Run {
        Run { start: self.start + row * self.stride, step: self.stride, rows: usize::MAX }
    }
}

/// Some rows in a buffer of their own.
struct Following {
    first: usize,
    stride: usize,
}

impl Target for Following {
    fn run(&self, row: usize) -> Run {
        Run { start: (row - self.first) * self.stride, step: self.stride, rows: usize::MAX }
    }
}

/// A product and where it goes. `target` gives every row n floats of its own.
pub(crate) struct Product<'a, A, B, C> {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) left: A,
    pub(crate) right: B,
    pub(crate) target: C,
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) accumulate: bool,
    /// In how many parts, summed apart, the depth is cut.
    pub(crate) splits: usize,
}

/// How many parts the depth of a product is cut in when its result alone would not keep many threads busy.
pub(crate) fn splits(m: usize, n: usize, k: usize) -> usize {
    let tiles = m.div_ceil(ROWS_TASK) * n.div_ceil(COLUMNS_TASK);
    let wanted = (2 * SPLITS_MAX / tiles.max(1)).min(SPLITS_MAX);
    wanted.min(k / DEPTH_SPLIT).min(PARTIALS_MAX / (m * n).max(1)).max(1)
}

/// Whether a product of this size may be summed in parts, whatever its depth.
pub(crate) fn may_split(m: usize, n: usize) -> bool {
    2 * m * n <= PARTIALS_MAX
}

/// How many tasks at least the columns of a product are cut in: each packs the left operand for itself.
pub(crate) fn columns_tasks(n: usize) -> usize {
    n.div_ceil(COLUMNS_TASK)
}

/// At least as many floats as the partial results of `splits(m, n, k)` have, never more for a smaller `m` or
/// `k`.
pub(crate) fn partials_max(m: usize, n: usize, k: usize) -> usize {
    (m * n * SPLITS_MAX.min(k / DEPTH_SPLIT)).min(PARTIALS_MAX)
}

/// How many floats of workspace a product needs, besides its partial results.
pub(crate) fn workspace(n: usize, k: usize, threads: usize) -> usize {
    threads * worker_floats(n, k) + LINE
}

/// How many floats of workspace a worker has: one left panel and the right panels of a task, or, in the same
/// room, one right panel and the rows of a task.
pub(crate) fn worker_floats(n: usize, k: usize) -> usize {
    let columns = n.min(COLUMNS_TASK).next_multiple_of(COLUMNS_MAX);
    LEFT_FLOATS + (columns * k.min(DEPTH_MAX)).next_multiple_of(LINE)
}

impl<A: Left, B: Right, C: Target> Product<'_, A, B, C> {
    /// Computes the product into `result`.
    pub(crate) fn run(&self, threads: &Threads, result: &mut [f32], workspace: &mut [f32]) {
        if self.m == 0 || self.n == 0 {
            return;
        }
        let workspace = aligned(workspace);
        let (workers, partials) = workspace.split_at_mut(threads.count() * worker_floats(self.n, self.k));
        let (workers, result) = (Shared::new(workers), &Shared::new(result));
        if self.splits == 1 {
            let (target, bias, accumulate) = (&self.target, self.bias, self.accumulate);
            let streams = threads.count() > 1 && STREAMED <= self.m * self.n * size_of::<f32>();
            self.multiply(threads, &Destination { result, target, bias, accumulate, streams }, &workers);
        } else {
            let partials = &Shared::new(partials);
            let target = &Strided { start: 0, stride: self.n };
            let (accumulate, streams) = (false, false);
            let destination = Destination { result: partials, target, bias: None, accumulate, streams };
            self.multiply(threads, &destination, &workers);
            self.add_partials(threads, result, partials);
        }
    }

    /// Computes all tiles of all splits; split `s` goes `s * m * n` floats further in the destination.
    fn multiply(&self, threads: &Threads, destination: &Destination<impl Target>, workers: &Shared<f32>) {
        let tiles = self.tiles(threads.count());
        let counts = [self.m.div_ceil(tiles[0]), self.n.div_ceil(tiles[1])];
        let split = self.k.div_ceil(self.splits);
        let floats = worker_floats(self.n, self.k);
        threads.for_each(self.splits * counts[0] * counts[1], |task, worker| {
            let (row, column) = (task / counts[1] % counts[0], task % counts[1]);
            let part = task / (counts[0] * counts[1]);
            let tile = Tile {
                rows: row * tiles[0]..self.m.min((row + 1) * tiles[0]),
                columns: column * tiles[1]..self.n.min((column + 1) * tiles[1]),
                depth: self.k.min(part * split)..self.k.min((part + 1) * split),
                offset: part * self.m * self.n,
            };
            // SAFETY: a worker runs one task at a time.
            let scratch = unsafe { workers.slice(worker * floats..(worker + 1) * floats) };
            self.tile(threads.level(), &tile, destination, scratch);
        });
    }

    /// Rows and columns of a task. They may follow the number of threads, for they do not change a bit of the
    /// result: every element is summed over the same blocks of depth, in the same order, whatever tile it is
    /// in.
    fn tiles(&self, threads: usize) -> [usize; 2] {
        let Product { m, n, k, splits, .. } = *self;
        // What is written once, after one block of depth, need not stay in a cache.
        let least = if k.div_ceil(splits) <= DEPTH_MAX { 2 * ROWS_TASK } else { ROWS_TASK };
        let rows = (WORK_TASK / (n * k).max(1)).min(m / TASKS_MIN).max(least);
        let mut most = [rows, COLUMNS_TASK];
        loop {
            let tiles = [even_tile(m, most[0], ROWS_MAX), even_tile(n, most[1], COLUMNS_MAX)];
            let tasks = splits * m.div_ceil(tiles[0]) * n.div_ceil(tiles[1]);
            if threads == 1 || tasks >= TASKS_THREAD * threads {
                return tiles;
            }
            // The side that is longer, measured in the smallest tiles worth a task.
            let sides = [tiles[0] / ROWS_TASK_MIN, tiles[1] / COLUMNS_TASK_MIN];
            match sides {
                [0..=1, 0..=1] => return tiles,
                [rows, columns] if rows > columns => most[0] = tiles[0] / 2,
                _ => most[1] = tiles[1] / 2,
            }
        }
    }

    /// Computes one tile, one block of depth after the other.
    fn tile(&self, level: Level, tile: &Tile, destination: &Destination<impl Target>, scratch: &mut [f32]) {
        let Tile { rows, columns, depth, .. } = tile;
        let mut block = depth.start..self.left.block_end(depth.start, depth.end);
        loop {
            let end = block.end;
            let next = end..if end < depth.end { self.left.block_end(end, depth.end) } else { end };
            let (right, left) = scratch.split_at_mut(2 * level.lanes() * block.len());
            match self.left.block(level, rows.clone(), block.clone(), columns.len(), left) {
                Some(left) => self.pass_right(level, tile, destination, left, [&block, &next], right),
                None => self.pass_left(level, tile, destination, [&block, &next], scratch),
            }
            if next.is_empty() {
                break;
            }
            block = next;
        }
        if destination.streams {
            level.call(Fence);
        }
    }

    /// Computes one block of depth: the left operand is there, and panels of the right one are packed and
    /// pass by, each in the first-level cache for all rows.
    fn pass_right(
        &self,
        level: Level,
        tile: &Tile,
        destination: &Destination<impl Target>,
        left: View,
        [block, next]: [&Range<usize>; 2],
        buffer: &mut [f32],
    ) {
        let Tile { rows, columns, .. } = tile;
        let (height, width) = (rows.len(), 2 * level.lanes());
        let panel_at = |start: usize| start..columns.end.min(start + width);
        for panel in columns.clone().step_by(width).map(panel_at) {
            let right = self.right.panels(level, block.clone(), panel.clone(), height, buffer);
            // What comes next is asked for while this panel is computed: the next one, and a share of the
            // next block of the left operand.
            let (depth_next, columns_next) = match panel.end < columns.end {
                true => (block, panel_at(panel.end)),
                false => (next, panel_at(columns.start)),
            };
            if !next.is_empty() {
                let share = |column: usize| rows.start + (column - columns.start) * height / columns.len();
                self.left.prefetch(share(panel.start)..share(panel.end), next.clone());
            }
            let step = TILES_ASKED * level.rows();
            for first in (0..height).step_by(step) {
                let part = first..height.min(first + step);
                if !depth_next.is_empty() {
                    self.right.prefetch(depth_next.clone(), columns_next.clone(), part.clone(), height);
                }
                let rows = rows.start + part.start..rows.start + part.end;
                let left = left.from(first, level.rows());
                let panel = Panel { rows, columns: panel.clone(), left, depth: block.clone(), right };
                destination.compute(level, tile, panel);
            }
        }
    }

    /// Computes one block of depth: the right operand is packed, and the left one passes by panel by panel.
    fn pass_left(
        &self,
        level: Level,
        tile: &Tile,
        destination: &Destination<impl Target>,
        [block, next]: [&Range<usize>; 2],
        scratch: &mut [f32],
    ) {
        let (left_buffer, right_buffer) = scratch.split_at_mut(LEFT_FLOATS);
        let Tile { rows, columns, .. } = tile;
        let right = self.right.panels(level, block.clone(), columns.clone(), rows.len(), right_buffer);
        let (mut rows, height, first) = (rows.clone(), rows.len(), rows.start);
        while !rows.is_empty() {
            let (left, count) =
                self.left.panel(level, rows.clone(), block.clone(), columns.len(), left_buffer);
            // Both come while this panel is computed: what lies in another core's cache, or in memory, takes
            // long.
            let end = rows.start + count;
            self.left.prefetch(end..rows.end.min(end + count), block.clone());
            if !next.is_empty() {
                let share = rows.start - first..end - first;
                self.right.prefetch(next.clone(), columns.clone(), share, height);
            }
            let (rows_shown, columns, depth) = (rows.start..end, columns.clone(), block.clone());
            destination.compute(level, tile, Panel { rows: rows_shown, columns, left, depth, right });
            rows.start = end;
        }
    }

    /// Computes some rows alone, one after the other, with the sums that `run` makes of them: `scratch` is a
    /// worker's, `partial` has room for as many rows as there are if the product may be split.
    pub(crate) fn rows(
        &self,
        level: Level,
        rows: Range<usize>,
        scratch: &mut [f32],
        partial: &mut [f32],
        result: &mut [f32],
    ) {
        let split = self.k.div_ceil(self.splits);
        let count = rows.len() * self.n;
        let target = &Following { first: rows.start, stride: self.n };
        let columns = even_tile(self.n, COLUMNS_TASK, COLUMNS_MAX);
        let mut compute = |part: usize, into: &mut [f32]| {
            let result = &Shared::new(into);
            let destination = Destination { result, target, bias: None, accumulate: false, streams: false };
            for column in (0..self.n).step_by(columns) {
                let tile = Tile {
                    rows: rows.clone(),
                    columns: column..self.n.min(column + columns),
                    depth: self.k.min(part * split)..self.k.min((part + 1) * split),
                    offset: 0,
                };
                self.tile(level, &tile, &destination, scratch);
            }
        };
        if self.splits == 1 {
            return compute(0, &mut result[..count]);
        }
        result[..count].fill(0.0);
        for part in 0..self.splits {
            compute(part, &mut partial[..count]);
            result.iter_mut().zip(&partial[..count]).for_each(|(result, partial)| *result += *partial);
        }
    }

    /// Adds the partial results, in their order, to the result.
    fn add_partials(&self, threads: &Threads, result: &Shared<f32>, partials: &Shared<f32>) {
        let rows = even_tile(self.m, (8192 / self.n).max(1), 1);
        threads.for_each(self.m.div_ceil(rows), |task, _| {
            for row in task * rows..self.m.min((task + 1) * rows) {
                let start = self.target.run(row).start;
                // SAFETY: every row of the result is written by one task.
                let result = unsafe { result.slice(start..start + self.n) };
                if !self.accumulate {
                    result.fill(0.0);
                }
                for split in 0..self.splits {
                    let start = (split * self.m + row) * self.n;
                    // SAFETY: every row of the partial results is read by one task.
                    let partial = unsafe { partials.slice(start..start + self.n) };
                    result.iter_mut().zip(partial).for_each(|(result, partial)| *result += *partial);
                }
                if let Some(bias) = self.bias {
                    result.iter_mut().zip(bias).for_each(|(result, bias)| *result += bias);
                }
            }
        });
    }
}

/// One task: a tile of one partial result.
struct Tile {
    rows: Range<usize>,
    columns: Range<usize>,
    depth: Range<usize>,
    /// Where the partial result starts.
    offset: usize,
}

/// Rows of the left operand, and what they are multiplied with.
struct Panel {
    rows: Range<usize>,
    columns: Range<usize>,
    left: View,
    depth: Range<usize>,
    right: Panels,
}

/// Where a product goes, and what is added to it.
struct Destination<'a, D> {
    result: &'a Shared<'a, f32>,
    target: &'a D,
    bias: Option<&'a [f32]>,
    accumulate: bool,
    /// Whether tiles of one block of depth are written past the caches.
    streams: bool,
}

impl<D: Target> Destination<'_, D> {
    /// Computes what a panel gives to its rows of a tile, run by run.
    fn compute(&self, level: Level, tile: &Tile, panel: Panel) {
        let Panel { mut rows, columns, mut left, depth, right } = panel;
        let first = depth.start == tile.depth.start;
        let streams = self.streams && !self.accumulate && depth == tile.depth && level.lanes() == LINE;
        while !rows.is_empty() {
            let run = self.target.run(rows.start);
            let count = run.rows.min(rows.len());
            let start = tile.offset + run.start;
            let end = start + (count - 1) * run.step + columns.end;
            assert!(end <= self.result.len(), "the result lies inside its slice");
            let target = self.result.pointer().wrapping_add(start + columns.start);
            let whole = [columns.len(), run.step].iter().all(|floats| floats.is_multiple_of(LINE))
                && target.addr().is_multiple_of(LINE * size_of::<f32>());
            level.call(Stripe {
                left,
                rows: count,
                depth: depth.len(),
                right,
                columns: columns.len(),
                target,
                target_step: run.step,
                bias: self.bias.filter(|_| first).map(|bias| bias[columns.clone()].as_ptr()),
                accumulate: self.accumulate || !first,
                streams: streams && whole,
            });
            rows.start += count;
            if !rows.is_empty() {
                left = left.from(count, level.rows());
            }
        }
    }
}

/// Makes what was written past the caches visible to other threads.
struct Fence;

impl Kernel for Fence {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        L::fence();
    }
}

/// Where the first of some blocks of depth ends that cover a range evenly.
pub(crate) fn block_end(start: usize, end: usize) -> usize {
    end.min(start + even_tile(end - start, DEPTH_MAX, 1))
}

/// The size of tiles of at most `most` (at least one) that cover `length` evenly, a multiple of `unit`.
pub(crate) fn even_tile(length: usize, most: usize, unit: usize) -> usize {
    let tiles = length.div_ceil(most).max(1);
    length.div_ceil(tiles).next_multiple_of(unit).max(1)
}

/// The workspace from its first cache line on.
pub(crate) fn aligned(workspace: &mut [f32]) -> &mut [f32] {
    let skip = workspace.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
    &mut workspace[skip..]
}
