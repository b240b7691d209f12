//! Rows of the next micro-batch that wait on the device: a slot for them above all other buffers, where there
//! is room for one.

use memfit_ir::{ALIGNMENT, Bytes, Plan, Problem, Slot};

/// The plan with such a place, where rows can come in beside launches and the budget has room. What fits at all, and what is
/// chosen, does not hang on it.
pub fn with_room_for_rows(problem: &Problem, plan: Plan) -> Plan {
    let graph = &crate::solved(problem, &plan).graph;
    let waits =
        plan.fed_first().map(|(id, _)| graph.tensors[id.0].bytes(plan.micro_batch).align_up(ALIGNMENT));
    let slot = Slot { offset: plan.bytes_peak.align_up(ALIGNMENT), bytes: waits.sum() };
    let fits = problem.budget.arena_for(slot.end()) <= problem.budget.arena();
    if !problem.transfers.feeds_ahead || slot.bytes == Bytes::ZERO || !fits {
        return plan;
    }
    Plan { ahead: Some(slot), bytes_peak: slot.end(), ..plan }
}
