//! From a problem to a plan that fits its budget, or the answer why there is none.
//!
//! A plan is made in three stages: a *schedule* says what happens in which order, *storage* says which values
//! share bytes and how long each buffer lives, *placing* packs the buffers into the arena, above the
//! persistent tensors. A move changes the schedule to buy bytes: `release` (an update as early as its
//! gradient is whole), `reorder` (what frees more comes first), `split` (the batch in micro-batches),
//! `region` (a prefix of the network in slices of the batch, or its last layer), `fuse_producer` (readers
//! recompute an activation), `fuse_update` (the optimizer runs where the gradient is computed), `recompute` (a
//! value given up and computed again, or copied out and in again). The *choice* is the fastest of all that fits.
//!
//! # Decisions
//!
//! - **Plans are pure:** one problem, one plan, byte for byte; no hash order, clock, thread race or
//!   environment decides anything. Measured costs are part of the problem.
//! - **In one micro-batch,** the zero of a gradient is dropped and its first producer overwrites it, and the
//!   update comes right after the last, so that the gradient lives as short as it can.
//! - **The choice does not depend on the budget** (`choose`): all points of all search paths are what there
//!   is to choose from; the fastest whose *packed* peak fits is taken, and the one with the lowest packed
//!   peak is the smallest budget. So a larger budget never gives a slower plan or a refusal.
//! - **Recomputing is searched down and up again** (`moves/recompute`), for each micro-batch size, level by
//!   level: above a level, what costs the least time for the bytes it gives is given up; from the bottom up,
//!   what costs the most for its bytes is kept again as soon as there is room, and what is expensive is
//!   tried in another way. Where the network is a chain of segments, equal blocks are solved once
//!   (`moves/recompute/blocks.rs`), and a dynamic program over them (`moves/recompute/chain.rs`) says what
//!   each gives up; the upward path begins there if that is faster. The chain sees far, but knows whole
//!   segments alone; the search sees single values of any graph, but only near where it stands. Only downward
//!   paths by estimates say how low one can go.
//! - **`region`** (`moves/region.rs`) picks the cut and the counts that are planned beside the whole batch.
//!   The values of the slices wait for backward, or their forward stands in the graph twice. The last layer
//!   in slices is planned beside the split batch where it predicts an eighth of what waits for backward, in
//!   two or four slices of the whole batch: logits of a large vocabulary then never exist whole.
//! - **`fuse_producer`** fuses, by estimates, what its readers recompute in less time than its node takes; that
//!   graph is planned beside the whole one, and has no place where everything fits.
//! - **`fuse_update`** is tried first for the whole batch, since it is faster; on a GPU it is not offered.
//! - **Devices offer algorithms, the plan chooses** (`ways`): schedules are made with the least workspaces;
//!   then every launch takes the fastest algorithm whose workspace has room beside what lives at its time, up
//!   to one of a few heights that do not depend on the budget.
//! - **A copy to or from offload memory runs beside launches,** between the step that begins it and its
//!   `Wait` (`transfers`): it begins as early as bytes lie free and waits as late as it may, once every
//!   offset is known.
//! - **Rows of the next step may wait on the device** (`ahead`), in a place above everything else, which the
//!   plan counts and has where the budget leaves room.
//! - **A refusal speaks of the smallest plan:** `reason` says why each holder of its peak is there, `hints`
//!   changes the problem and plans it again, at most six times a hint.

mod ahead;
mod choose;
mod does_not_fit;
mod figures;
mod hints;
mod lives;
pub mod moves;
mod pinned;
mod place;
mod reason;
mod schedule;
mod storage;
mod timeline;
mod transfers;
mod ways;
mod wiring;

pub use choose::{Gauge, curve, fastest, first, least_seconds, smallest, smallest_measured, threads};
pub use does_not_fit::DoesNotFit;
pub use hints::{Change, Hint, Syntax};
use moves::region::Candidates;
pub use moves::split::largest_batch;
pub use pinned::{CannotPin, may_pin};
pub use reason::{Dominant, Needed, Reason, Why};
pub use timeline::{Group, Held, Holder, Moment, Timeline, timeline};

use std::borrow::Cow;

use memfit_ir::{Bytes, Place, Plan, Problem};

/// The problem whose nodes one of our plans refers to: the given one, or the same with the plan's rewrites.
pub fn solved<'a>(problem: &'a Problem, plan: &Plan) -> Cow<'a, Problem> {
    problem.rewritten(&plan.rewrites).expect("a plan's rewrites suit its problem")
}

/// The fastest plan that fits, or what would.
pub fn plan(problem: &Problem) -> Result<Plan, Box<DoesNotFit>> {
    plan_and_lowest(problem, &|_| true).0
}

/// The same, and the plan with the lowest peak, where one was searched for and is not the answer's own. A
/// plan that fits takes memory itself: `may_hold` says whether there is room for it too.
pub fn plan_and_lowest(
    problem: &Problem,
    may_hold: &dyn Fn(&Plan) -> bool,
) -> (Result<Plan, Box<DoesNotFit>>, Option<Plan>) {
    let problem = &*pinned::restricted(problem);
    if let Some(plan) = choose::unsplit(problem, may_hold) {
        return (Ok(ahead::with_room_for_rows(problem, plan)), None);
    }
    let candidates = Candidates::of(problem);
    let choices = choose::Choices::new(&candidates, moves::recompute::Direction::DownAndUp);
    let smallest = choices.smallest();
    match choices.fastest(&smallest, may_hold) {
        Some(plan) => (Ok(ahead::with_room_for_rows(problem, plan)), Some(smallest)),
        None => (Err(Box::new(DoesNotFit::of_smallest(problem, smallest))), None),
    }
}

/// The whole batch with nothing computed twice, where it fits and may be held: no choice hangs on time then.
pub fn unsplit(problem: &Problem, may_hold: &dyn Fn(&Plan) -> bool) -> Option<Plan> {
    let problem = &*pinned::restricted(problem);
    choose::unsplit(problem, may_hold).map(|plan| ahead::with_room_for_rows(problem, plan))
}

/// The fastest plan that fits and may be held, beside a small one that does and is known.
pub fn fastest_beside(problem: &Problem, small: &Plan, may_hold: &dyn Fn(&Plan) -> bool) -> Plan {
    let problem = &*pinned::restricted(problem);
    let candidates = Candidates::of(problem);
    let choices = choose::Choices::new(&candidates, moves::recompute::Direction::DownAndUp);
    let found = choices.fastest(small, may_hold).unwrap_or_else(|| small.clone());
    ahead::with_room_for_rows(problem, found)
}

/// The smallest budget for which the problem has a plan.
pub fn smallest_budget(problem: &Problem) -> Bytes {
    problem.budget.smallest(choose::smallest(problem).bytes_peak)
}

/// How many launches of one micro-batch run a node that ran before.
pub fn nodes_recomputed(plan: &Plan) -> usize {
    let mut nodes: Vec<memfit_ir::NodeId> = plan
        .body
        .iter()
        .filter_map(|step| match step {
            memfit_ir::Step::Launch { node, .. } => Some(*node),
            memfit_ir::Step::Copy { .. } | memfit_ir::Step::Wait(_) => None,
        })
        .collect();
    let launches = nodes.len();
    nodes.sort_unstable();
    nodes.dedup();
    launches - nodes.len()
}

/// Launches of a micro-batch that run a low-workspace algorithm.
pub fn launches_leaner(problem: &Problem, plan: &Plan) -> usize {
    let problem = &*solved(problem, plan);
    let is_leaner = |step: &&memfit_ir::Step| match step {
        memfit_ir::Step::Launch { node, workspace, .. } => {
            let rows = problem.graph.rows_of(*node, plan.micro_batch);
            workspace.bytes < problem.costs[node.0].workspace(rows)
        }
        memfit_ir::Step::Copy { .. } | memfit_ir::Step::Wait(_) => false,
    };
    plan.body.iter().filter(is_leaner).count()
}

/// The largest workspace of a launch.
pub fn bytes_workspace(plan: &Plan) -> Bytes {
    let workspace = |step: &memfit_ir::Step| match step {
        memfit_ir::Step::Launch { workspace, .. } => workspace.bytes,
        memfit_ir::Step::Copy { .. } | memfit_ir::Step::Wait(_) => Bytes::ZERO,
    };
    plan.steps().map(workspace).max().unwrap_or_default()
}

/// Bytes that are copied out to offload memory for each micro-batch.
pub fn bytes_offloaded(plan: &Plan) -> Bytes {
    plan.steps()
        .map(|step| match step {
            memfit_ir::Step::Copy { to: Place::Host(slot), .. } => slot.bytes,
            memfit_ir::Step::Copy { .. } | memfit_ir::Step::Launch { .. } | memfit_ir::Step::Wait(_) => {
                Bytes::ZERO
            }
        })
        .sum()
}

/// Time of one training step by the problem's costs, in seconds.
pub fn seconds(problem: &Problem, plan: &Plan) -> f64 {
    let problem = &*solved(problem, plan);
    let nanos = |steps: &[memfit_ir::Step], rows: usize| -> f64 {
        let share = rows as f64 / plan.micro_batch as f64;
        steps
            .iter()
            .map(|step| match step {
                memfit_ir::Step::Launch { node, workspace, .. } => {
                    let (cost, at) = (&problem.costs[node.0], |rows| problem.graph.rows_of(*node, rows));
                    let beyond = cost.nanos_beyond(workspace.bytes, at(plan.micro_batch));
                    cost.nanos(at(rows)) + beyond.unwrap_or_default().at(at(rows))
                }
                memfit_ir::Step::Copy { from: Place::Feed(_), to: Place::Arena(slot) } => {
                    slot.bytes.0 as f64 * problem.transfers.nanos_per_byte_fed * share
                }
                memfit_ir::Step::Copy { from: Place::Host(slot), .. }
                | memfit_ir::Step::Copy { to: Place::Host(slot), .. } => {
                    slot.bytes.0 as f64 * problem.transfers.nanos_per_byte_moved * share
                }
                memfit_ir::Step::Copy { .. } | memfit_ir::Step::Wait(_) => 0.0,
            })
            .sum()
    };
    let once = nanos(&plan.prologue, 0) + nanos(&plan.epilogue, 0);
    let body: f64 = match plan.micro_batches() <= moves::split::EVERY_NUMBER {
        true => plan.pieces(plan.batch).map(|(_, rows)| nanos(&plan.body, rows)).sum(),
        false => {
            let full = plan.batch / plan.micro_batch;
            let rest = plan.batch - full * plan.micro_batch;
            let last = if rest == 0 { 0.0 } else { nanos(&plan.body, rest) };
            nanos(&plan.body, plan.micro_batch) * full as f64 + last
        }
    };
    (once + body) / 1e9
}

/// The same of the fastest plan there is: the whole batch with nothing computed twice.
pub fn seconds_unsplit(problem: &Problem) -> f64 {
    let whole = |problem: &Problem| seconds(problem, &moves::split::pieces_of(problem, problem.batch));
    moves::fuse_update::fused(problem).map_or_else(|| whole(problem), |fused| whole(&fused))
}
