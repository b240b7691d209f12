//! Products with so few rows that time goes into reading the right operand, once and from where it lies.

mod narrow;
mod short;
mod transposed;
mod wide;

use super::super::lanes::{LANES_MAX, Level};
use super::super::threads::{Shared, Threads};
use super::Gemm;
use super::driver::{PARTIALS_MAX, even_tile};
use narrow::Narrow;
use short::{DEPTH_SHORT, Short};
use transposed::Transposed;
use wide::Wide;

/// The most rows that are few, and where rows of the right operand are no longer than `COLUMNS_NARROW`.
const ROWS_FEW: usize = 8;
pub(super) const ROWS_FEW_NARROW: usize = 32;
const COLUMNS_NARROW: usize = 32;
/// The most where columns of a transposed right operand are short.
const ROWS_FEW_SHORT: usize = 32;
/// The most columns of a task: the result's rows stay in the first-level cache.
const COLUMNS_TASK: usize = 1024;
/// The fewest floats of the right operand that are worth a task.
const FLOATS_TASK: usize = 1 << 15;
/// About how many tasks a product is cut in.
const TASKS: usize = 64;
/// Bytes of a result that is gone from every cache before anybody reads it.
pub(super) const STREAMED: usize = 32 << 20;

/// Whether a product has few rows and a right operand that is worth it, for these vectors.
pub(super) fn applies(shape: &Gemm, level: Level) -> bool {
    let columns_min = if shape.transpose_b { 16 } else { 1 };
    let rows = if is_short(shape) && !turns_over(level) { ROWS_FEW } else { rows_few(shape) };
    shape.m <= rows && shape.n >= columns_min && shape.n * shape.k >= FLOATS_TASK / 8
}

/// Whether columns of a transposed right operand are short.
fn is_short(shape: &Gemm) -> bool {
    shape.transpose_b && shape.k <= DEPTH_SHORT
}

/// Whether such columns are turned over once for all rows. That pays where a vector is a cache line: of
/// shorter ones, which go to many rows by turns, each line would be written in parts.
fn turns_over(level: Level) -> bool {
    level.lanes() == LANES_MAX
}

/// The most rows that are few, whatever rows this shape has.
fn rows_few(shape: &Gemm) -> usize {
    match shape.transpose_b {
        true if is_short(shape) => ROWS_FEW_SHORT,
        false if shape.n <= COLUMNS_NARROW => ROWS_FEW_NARROW,
        true | false => ROWS_FEW,
    }
}

/// At least as many floats as the partial results of such a product with no more rows have.
pub(super) fn partials_max(shape: &Gemm) -> usize {
    partials(&Gemm { m: shape.m.min(rows_few(shape)), ..*shape })
}

fn partials(shape: &Gemm) -> usize {
    let chunks = Plan::new(shape).chunks;
    if chunks == 1 { 0 } else { chunks * shape.m * shape.n }
}

/// How a product is cut in tasks.
struct Plan {
    /// In how many parts the depth is cut, and the depth of one.
    chunks: usize,
    depth: usize,
    /// How many columns a task has, and how many such tiles there are.
    columns: usize,
    tiles: usize,
}

impl Plan {
    fn new(shape: &Gemm) -> Plan {
        let columns = even_tile(shape.n, COLUMNS_TASK, 16);
        let tiles = shape.n.div_ceil(columns);
        let memory = PARTIALS_MAX / (rows_few(shape) * shape.n).max(1);
        let work = shape.k.saturating_mul(shape.n.min(columns)) / FLOATS_TASK;
        let chunks = (TASKS / tiles.max(1)).min(work).min(memory).max(1);
        let depth = even_tile(shape.k, shape.k.div_ceil(chunks).max(1), 4);
        Plan { chunks, depth, columns, tiles }
    }
}

/// The left operand: element (row, depth) is at `start + row * row_step + depth * depth_step`.
#[derive(Clone, Copy)]
struct Rows {
    start: *const f32,
    row_step: usize,
    depth_step: usize,
    count: usize,
}

impl Rows {
    /// Element (row, depth), where a row past the last one is the last one.
    ///
    /// # Safety
    /// The depth exists.
    #[inline(always)]
    unsafe fn value(&self, row: usize, depth: usize) -> f32 {
        // SAFETY: the row exists, and the caller guarantees the depth.
        unsafe { *self.start.add(row.min(self.count - 1) * self.row_step + depth * self.depth_step) }
    }
}

/// Computes the product; see `gemm`.
pub(super) fn run(
    threads: &Threads,
    shape: &Gemm,
    a: &[f32],
    b: &[f32],
    bias: Option<&[f32]>,
    c: &mut [f32],
    accumulate: bool,
    workspace: &mut [f32],
) {
    let Gemm { m, n, k, transpose_a, transpose_b } = *shape;
    let plan = Plan::new(shape);
    let (row_step, depth_step) = if transpose_a { (1, m) } else { (k, 1) };
    let (partials, c) = (Shared::new(&mut workspace[..partials(shape)]), Shared::new(c));
    threads.for_each(plan.chunks * plan.tiles, |task, _| {
        let (chunk, tile) = (task / plan.tiles, task % plan.tiles);
        let depth = k.min(chunk * plan.depth)..k.min((chunk + 1) * plan.depth);
        let columns = tile * plan.columns..n.min((tile + 1) * plan.columns);
        let (target, first) = if plan.chunks == 1 { (&c, 0) } else { (&partials, chunk * m) };
        // A transposed operand passes once, and needs nothing there before.
        let add = !transpose_b || (plan.chunks == 1 && (accumulate || bias.is_some()));
        for row in (first..first + m).filter(|_| add) {
            // SAFETY: every tile of every chunk is written by one task.
            let target = unsafe { target.slice(row * n + columns.start..row * n + columns.end) };
            match plan.chunks {
                1 => start(target, bias.map(|bias| &bias[columns.clone()]), accumulate),
                _ => target.fill(0.0),
            }
        }
        let start =
            if transpose_b { columns.start * k + depth.start } else { depth.start * n + columns.start };
        let task = Task {
            rows: Rows {
                start: a.as_ptr().wrapping_add(depth.start * depth_step),
                row_step,
                depth_step,
                count: m,
            },
            depth: depth.len(),
            right: &b[start.min(b.len())..],
            right_step: if transpose_b { k } else { n },
            columns: columns.len(),
            target: target.pointer().wrapping_add(first * n + columns.start),
            target_step: n,
            add,
            streams: STREAMED <= m * n * size_of::<f32>(),
        };
        task.run(threads, transpose_b);
    });
    if plan.chunks > 1 {
        add_partials(threads, &plan, [m, n], &c, &partials, bias, accumulate);
    }
}

/// What is there before the product is added.
fn start(target: &mut [f32], bias: Option<&[f32]>, accumulate: bool) {
    if !accumulate {
        target.fill(0.0);
    }
    if let Some(bias) = bias {
        target.iter_mut().zip(bias).for_each(|(target, bias)| *target += bias);
    }
}

/// Adds the partial results, in their order, to the result.
fn add_partials(
    threads: &Threads,
    plan: &Plan,
    [m, n]: [usize; 2],
    c: &Shared<f32>,
    partials: &Shared<f32>,
    bias: Option<&[f32]>,
    accumulate: bool,
) {
    threads.for_each(plan.tiles, |tile, _| {
        let columns = tile * plan.columns..n.min((tile + 1) * plan.columns);
        for row in 0..m {
            // SAFETY: every tile of the result is written by one task.
            let target = unsafe { c.slice(row * n + columns.start..row * n + columns.end) };
            start(target, bias.map(|bias| &bias[columns.clone()]), accumulate);
            for chunk in 0..plan.chunks {
                let first = (chunk * m + row) * n;
                // SAFETY: every tile of the partial results is read by one task.
                let partial = unsafe { partials.slice(first + columns.start..first + columns.end) };
                target.iter_mut().zip(partial).for_each(|(target, partial)| *target += *partial);
            }
        }
    });
}

/// A product and where it goes.
struct Task<'a> {
    rows: Rows,
    depth: usize,
    /// The right operand from the first element that the task uses on.
    right: &'a [f32],
    right_step: usize,
    columns: usize,
    target: *mut f32,
    target_step: usize,
    /// Whether the product is added to what is there.
    add: bool,
    /// Whether it is written past the caches, where a kernel can.
    streams: bool,
}

impl Task<'_> {
    fn run(self, threads: &Threads, transposed: bool) {
        let level = threads.level();
        if transposed && self.right_step <= DEPTH_SHORT && turns_over(level) {
            level.call(Short(self));
        } else if transposed {
            level.call(Transposed(self));
        } else if self.columns == self.right_step && self.columns <= 2 * level.lanes() {
            level.call(Narrow(self));
        } else {
            level.call(Wide(self));
        }
    }
}
