//! Split: the batch in micro-batches whose gradients add up. Exact up to rounding, as long as no layer mixes
//! rows.

use memfit_ir::{Bytes, Op, Plan, Problem, Rewrite};

use crate::choose::schedule;
use crate::figures::CostTables;
use crate::moves::fuse_update;
use crate::moves::reorder::reorder;
use crate::place::{Packing, place};
use crate::schedule::{Schedule, whole};
use crate::ways::{FASTEST, LEAST};

/// The plan for micro-batches of `rows`, whatever the budget; the whole batch for a micro-batch of all rows.
pub fn pieces_of(problem: &Problem, rows: usize) -> Plan {
    let figures = CostTables::new(problem, rows);
    place(&figures, &schedule(&figures), Packing::Well, FASTEST)
}

/// The whole batch with nothing computed twice, whatever the budget; with fused updates if that is smaller.
pub fn smallest_unsplit(problem: &Problem) -> Plan {
    let plan = pieces_of(problem, problem.batch);
    let other = fuse_update::fused(problem).map(|fused| pieces_of(&fused, fused.batch));
    other.filter(|other| other.bytes_peak < plan.bytes_peak).unwrap_or(plan)
}

/// Whether the batch may be cut at all.
pub fn may_split(problem: &Problem) -> bool {
    let in_one_piece = problem.graph.rewrites.iter().any(Rewrite::needs_whole_batch);
    // Statistics of micro-batches may be wanted; a loss of micro-batches is never the batch's.
    let is_allowed = |op: &Op| problem.allow_batchnorm_split && op.is_of_batch_norm();
    !in_one_piece && !problem.graph.nodes.iter().any(|node| node.op.mixes_rows() && !is_allowed(&node.op))
}

/// The micro-batch sizes worth trying for a split batch, largest first: the smallest size for each number of
/// micro-batches.
///
/// Of a large batch, numbers of micro-batches are tried that grow by a quarter, so that planning takes no
/// longer for more rows.
pub fn pieces(batch: usize) -> Vec<usize> {
    let next =
        |count: &usize| Some(if batch <= EVERY_NUMBER { count + 1 } else { count + count.div_ceil(4) });
    let counts = std::iter::successors(Some(2), next).take_while(|count| *count < batch);
    let mut sizes: Vec<usize> = counts.map(|count| batch.div_ceil(count)).collect();
    sizes.extend((2 <= batch).then_some(1));
    sizes.dedup();
    sizes
}

/// Up to this many rows of a batch, every number of micro-batches is tried.
pub const EVERY_NUMBER: usize = 4096;

/// The largest batch that trains without a split, and the peak at each batch of a curve that ends there.
///
/// Computed, not tried: every point is a packed plan. `None` where not even one row fits.
pub fn largest_batch(problem: &Problem) -> (Option<usize>, Vec<(usize, Bytes)>) {
    // One order for every batch, so that bytes grow with the rows.
    let ordered =
        |problem: &Problem| reorder(&CostTables::new(problem, problem.batch), whole(&problem.graph));
    let peak_of = |problem: &Problem, schedule: &Schedule, batch: usize| {
        place(&CostTables::new(problem, batch), schedule, Packing::Well, LEAST).bytes_peak
    };
    let fused = fuse_update::fused(problem);
    let (schedule, schedule_fused) = (ordered(problem), fused.as_ref().map(ordered));
    let peak = |batch: usize| {
        let peak = peak_of(problem, &schedule, batch);
        let other = fused.as_ref().zip(schedule_fused.as_ref());
        other.map_or(peak, |(problem, schedule)| peak.min(peak_of(problem, schedule, batch)))
    };
    let fits = |batch: usize| problem.budget.arena_for(peak(batch)) <= problem.budget.arena();
    let mut curve = Vec::new();
    if !fits(1) {
        return (None, vec![(1, peak(1))]);
    }
    // Double until it no longer fits, then close in.
    let mut low = 1;
    curve.push((low, peak(low)));
    while low < 1 << 30 && fits(low * 2) {
        low *= 2;
        curve.push((low, peak(low)));
    }
    let mut high = low * 2;
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    if curve.last().is_some_and(|(batch, _)| *batch < low) {
        curve.push((low, peak(low)));
    }
    curve.push((low + 1, peak(low + 1)));
    (Some(low), curve)
}
