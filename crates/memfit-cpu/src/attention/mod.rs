//! Attention in tiles: scores of some queries and some keys at a time, in a worker's own memory. No matrix of
//! all queries and keys is ever stored; backward computes the scores of a tile again from the sums that
//! forward kept.

mod forward;
mod grad;
mod hiding;
mod kernels;

use std::ops::Range;

use memfit_ir::{Attention, Shape};

use super::floats::Floats;
use super::gemm::driver::{LINE, aligned};
use super::gemm::operand::PackPanels;
use super::lanes::{COLUMNS_MAX, Level};
use super::microkernel::{Panels, Stripe, View};
use super::operands::Operands;
use super::threads::{Shared, Threads};

pub(crate) use forward::{forward, workspace as forward_workspace};
pub(crate) use grad::{grad, workspace as grad_workspace};

/// The sizes of an attention's operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) rows: usize,
    pub(crate) queries: usize,
    pub(crate) keys: usize,
    pub(crate) heads: usize,
    pub(crate) key_heads: usize,
    /// Floats of a query and of a key.
    pub(crate) width: usize,
    /// Floats of a value.
    pub(crate) value_width: usize,
}

impl Sizes {
    /// Sizes from the shapes of queries, keys and values.
    pub(crate) fn new([q, k, v]: [&Shape; 3], rows: usize) -> Sizes {
        let [queries, heads, width] = axes(q);
        let [keys, key_heads, _] = axes(k);
        Sizes { rows, queries, keys, heads, key_heads, width, value_width: v.last() }
    }

    /// How many pairs of a query and a key meet in all heads of all rows.
    pub(crate) fn scores(&self, kind: &Attention) -> f64 {
        let (queries, keys) = (self.queries as f64, self.keys as f64);
        let before = queries.min(keys);
        let pairs = match skips(kind) {
            false => queries * keys,
            true => before * (before + 1.0) / 2.0 + (queries - before) * keys,
        };
        (self.rows * self.heads) as f64 * pairs
    }

    /// The rows of one head of queries, in a tensor with as many floats a query as `width`.
    fn query_head(&self, tensor: Floats, row: usize, head: usize, width: usize) -> Rows {
        Rows::new(tensor, [self.rows, self.queries, self.heads, width], row, head)
    }

    /// The rows of one head of keys or values.
    fn key_head(&self, tensor: Floats, row: usize, head: usize, width: usize) -> Rows {
        Rows::new(tensor, [self.rows, self.keys, self.key_heads, width], row, head)
    }
}

/// Whether tiles that the causal mask hides are skipped. With other masks a query may take the mean of all
/// values, and no tile is skipped.
fn skips(kind: &Attention) -> bool {
    kind.causal && kind.masks() == 0
}

/// How many of some keys the queries before `end` see; those that come first.
fn seen(kind: &Attention, end: usize, keys: &Range<usize>) -> usize {
    match skips(kind) {
        false => keys.len(),
        true => end.saturating_sub(keys.start).min(keys.len()),
    }
}

/// Rows of floats, `step` apart. The code that builds them keeps readers and writers of the same floats
/// apart.
#[derive(Clone, Copy)]
struct Rows {
    start: *mut f32,
    step: usize,
}

// SAFETY: rows are read and written only by kernels, whose callers hand every task its own.
unsafe impl Sync for Rows {}
// SAFETY: as above.
unsafe impl Send for Rows {}

impl Rows {
    /// One head of a tensor of `rows` rows, `positions` positions, `heads` heads and `width` floats.
    fn new(tensor: Floats, [rows, positions, heads, width]: [usize; 4], row: usize, head: usize) -> Rows {
        assert_eq!(tensor.len(), rows * positions * heads * width, "a tensor has the elements of its shape");
        assert!(row < rows && head < heads, "a head lies inside its tensor");
        let start = tensor.pointer().wrapping_add((row * positions * heads + head) * width);
        Rows { start, step: heads * width }
    }

    /// Rows of scratch memory.
    fn over(floats: &mut [f32], step: usize) -> Rows {
        Rows { start: floats.as_mut_ptr(), step }
    }

    /// The rows from one on.
    fn from(self, row: usize) -> Rows {
        Rows { start: self.start.wrapping_add(row * self.step), ..self }
    }

    /// These rows as the left operand of a product.
    fn left(self) -> View {
        View::new(self.start, self.step, false)
    }

    /// Their transpose as the left operand of a product.
    fn left_transposed(self) -> View {
        View::new(self.start, self.step, true)
    }

    /// Packs the first `depth` of these rows as the right operand of a product with `columns` columns.
    fn right(self, level: Level, depth: usize, columns: usize, buffer: &mut [f32]) -> Panels {
        self.pack(level, false, depth, columns, buffer)
    }

    /// Packs their transpose: the first `columns` rows, over `depth` floats of each.
    fn right_transposed(self, level: Level, depth: usize, columns: usize, buffer: &mut [f32]) -> Panels {
        self.pack(level, true, depth, columns, buffer)
    }

    fn pack(
        self,
        level: Level,
        transposed: bool,
        depth: usize,
        columns: usize,
        buffer: &mut [f32],
    ) -> Panels {
        let (from, stride) = (self.start.cast_const(), self.step);
        PackPanels { from, stride, transposed, depth: 0..depth, depth_panel: depth, columns }
            .pack(level, buffer)
    }
}

/// Floats that a right operand of such a size takes when it is packed.
fn packed(depth: usize, columns: usize) -> usize {
    depth * columns.next_multiple_of(COLUMNS_MAX)
}

/// Writes or adds a product of rows × depth and depth × columns.
fn multiply(
    level: Level,
    [rows, depth, columns]: [usize; 3],
    left: View,
    right: Panels,
    target: Rows,
    accumulate: bool,
) {
    if rows == 0 || columns == 0 {
        return;
    }
    let Rows { start: target, step: target_step } = target;
    let (bias, streams) = (None, false);
    level.call(Stripe { left, rows, depth, right, columns, target, target_step, bias, accumulate, streams });
}

/// Floats between rows of a tile of scores: not a power of two, so that rows do not share cache sets.
fn tile_step(keys: usize) -> usize {
    keys.next_multiple_of(LINE) + LINE
}

/// A range in parts of at most `size`.
fn parts(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(size).map(move |start| start..end.min(start + size))
}

/// The scratch memory of one worker, split into parts that each begin on a cache line.
struct Scratch<'a>(&'a mut [f32]);

impl<'a> Scratch<'a> {
    fn take(&mut self, floats: usize) -> &'a mut [f32] {
        let (part, rest) = std::mem::take(&mut self.0).split_at_mut(floats.next_multiple_of(LINE));
        self.0 = rest;
        &mut part[..floats]
    }
}

/// Floats of scratch memory that parts of these sizes take.
fn scratch_floats(buffers: &[usize]) -> usize {
    buffers.iter().map(|floats| floats.next_multiple_of(LINE)).sum()
}

/// Floats of workspace in which every worker has `worker` of them.
fn workspace_floats(worker: usize, threads: usize) -> usize {
    threads * worker + LINE
}

/// Runs tasks, each with the scratch memory of its worker.
fn run(operands: &Operands, tasks: usize, worker_floats: usize, body: impl Fn(usize, Scratch) + Sync) {
    let threads: &Threads = operands.threads;
    let workspace = Shared::new(aligned(operands.workspace().floats()));
    threads.for_each(tasks, |task, worker| {
        // SAFETY: a worker runs one task at a time.
        body(task, Scratch(unsafe { workspace.slice(worker * worker_floats..(worker + 1) * worker_floats) }));
    });
}

fn axes(shape: &Shape) -> [usize; 3] {
    shape.dims[..].try_into().expect("the shape rules ask for positions, heads and floats")
}
