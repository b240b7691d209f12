//! From a problem to a plan that fits its budget, or the answer why there is none.
//!
//! A plan is made in three stages: a *schedule* says what happens in which order, *storage* says which values share bytes
//! and how long each stretch lives, *placing* packs the stretches into the arena. A move changes the schedule to buy
//! bytes: `release` (an update as early as its gradient is whole), `reorder` (what frees more
//! comes first), `split` (the batch in pieces), `region` (a prefix of the network in slices of the batch), `fold` (values
//! that their readers make again), `apply` (gradients applied where they are made), `recompute` (a value given
//! up and computed again, or copied out and in again: `offload`). The *choice* is the fastest of all that fits.
//!
//! No clock, no thread and no hash order decides anything here: one problem, one plan, byte for byte.

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
use moves::region::Family;
pub use moves::split::largest_batch;
pub use pinned::{CannotPin, may_pin};
pub use reason::{Dominant, Needed, Reason, Why};
pub use timeline::{Group, Held, Holder, Moment, Timeline, timeline};

use std::borrow::Cow;

use memfit_ir::{Applied, Bytes, Fold, Place, Plan, Problem, Region};

/// The problem whose nodes a plan of ours speaks of: the given one, or the same with gradients applied where they are made, values folded
/// or a region in slices.
pub fn solved<'a>(problem: &'a Problem, plan: &Plan) -> Cow<'a, Problem> {
    let applied = Applied::of_plan(problem, plan).expect("a plan applies gradients of its problem");
    let folded = then(applied, |problem| {
        Fold::of_plan(problem, plan).expect("a plan's folds are some of its problem")
    });
    then(folded, |problem| Region::of_plan(problem, plan).expect("a plan's region is one of its problem"))
}

/// What a rewrite makes of a problem, which is copied where it is rewritten alone.
fn then<'a>(problem: Cow<'a, Problem>, rewrite: impl Fn(&Problem) -> Cow<'_, Problem>) -> Cow<'a, Problem> {
    match rewrite(&problem) {
        Cow::Owned(rewritten) => Cow::Owned(rewritten),
        Cow::Borrowed(_) => problem,
    }
}

/// The fastest plan that fits, or what would.
pub fn plan(problem: &Problem) -> Result<Plan, Box<DoesNotFit>> {
    plan_and_lowest(problem, &|_| true).0
}

/// The same, and the plan with the lowest peak, where it was looked for and is not the answer's own. A plan that fits takes memory
/// itself: `may_hold` tells whether there is room for it too.
pub fn plan_and_lowest(
    problem: &Problem,
    may_hold: &dyn Fn(&Plan) -> bool,
) -> (Result<Plan, Box<DoesNotFit>>, Option<Plan>) {
    let problem = &*pinned::restricted(problem);
    if let Some(plan) = choose::unsplit(problem, may_hold) {
        return (Ok(ahead::with_room_for_rows(problem, plan)), None);
    }
    let family = Family::of(problem);
    let choices = choose::Choices::new(&family, moves::recompute::Way::DownAndUp);
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
    let family = Family::of(problem);
    let choices = choose::Choices::new(&family, moves::recompute::Way::DownAndUp);
    let found = choices.fastest(small, may_hold).unwrap_or_else(|| small.clone());
    ahead::with_room_for_rows(problem, found)
}

/// The smallest line under which the problem has a plan.
pub fn smallest_budget(problem: &Problem) -> Bytes {
    problem.budget.smallest(choose::smallest(problem).bytes_peak)
}

/// How many launches of one piece run a node that ran before.
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

/// Launches of a piece that have less workspace than their fastest way takes.
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

/// Bytes that are copied out to the second store for each piece.
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
    moves::apply::applied(problem).map_or_else(|| whole(problem), |applied| whole(&applied))
}
