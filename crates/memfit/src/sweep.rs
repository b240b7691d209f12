//! Time against bytes: every plan worth having, from the fastest to the smallest.

use memfit_ir::Bytes;
use memfit_plan::{bytes_offloaded, curve, least_seconds, nodes_recomputed, seconds};
use serde_json::{Value, json};

use crate::Prepared;

/// One plan on the curve.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepPoint {
    /// The smallest budget under which this plan runs.
    pub budget: Bytes,
    /// Highest byte of the arena.
    pub bytes_peak: Bytes,
    /// Of these, what does not stay from step to step: activations, their gradients, workspace, input.
    pub bytes_activations: Bytes,
    /// Expected time of a step over that of the fastest plan.
    pub time_relative: f64,
    /// No plan of this order, with micro-batches of this size, is as small and faster than this.
    pub time_bound: f64,
    /// Micro-batches of a batch.
    pub micro_batches: usize,
    /// Slices in which a prefix of the network runs; 1 where none does.
    pub slices: usize,
    /// Launches of a micro-batch that compute a value again.
    pub nodes_recomputed: usize,
    /// Activations that are not kept, but recomputed inside the backward ops that read them.
    pub values_folded: usize,
    /// Gradients that are applied by a fused optimizer update, and never exist as a whole.
    pub gradients_applied: usize,
    /// Bytes of a micro-batch that are copied out to offload memory.
    pub bytes_offloaded: Bytes,
}

impl SweepPoint {
    /// The plan that a budget buys: the fastest that needs no more.
    pub fn bought(points: &[SweepPoint], budget: Bytes) -> Option<&SweepPoint> {
        points.iter().find(|point| point.budget <= budget)
    }

    /// As a JSON object.
    pub fn to_json(&self) -> Value {
        json!({
            "budget": self.budget.0,
            "bytes_peak": self.bytes_peak.0,
            "bytes_activations": self.bytes_activations.0,
            "time_relative": self.time_relative,
            "time_bound": self.time_bound,
            "micro_batches": self.micro_batches,
            "slices": self.slices,
            "nodes_recomputed": self.nodes_recomputed,
            "values_folded": self.values_folded,
            "gradients_applied": self.gradients_applied,
            "bytes_offloaded": self.bytes_offloaded.0,
        })
    }
}

/// The curve of a job, smallest budget last.
pub fn sweep(prepared: &Prepared) -> Vec<SweepPoint> {
    let problem = &prepared.problem;
    let plans = curve(problem);
    let fastest = plans.first().map_or(1.0, |plan| seconds(problem, plan));
    plans
        .iter()
        .map(|plan| {
            let stays: Bytes = plan.persistent.iter().map(|(_, slot)| slot.bytes).sum();
            SweepPoint {
                budget: prepared.smallest_for(plan),
                bytes_peak: plan.bytes_peak,
                bytes_activations: plan.bytes_peak.saturating_sub(stays),
                time_relative: seconds(problem, plan) / fastest,
                time_bound: least_seconds(problem, plan) / fastest,
                micro_batches: plan.micro_batches(),
                slices: plan.region().map_or(1, |region| region.slices),
                nodes_recomputed: nodes_recomputed(plan),
                values_folded: plan.producers_fused().count(),
                gradients_applied: plan.updates_fused().count(),
                bytes_offloaded: bytes_offloaded(plan),
            }
        })
        .collect()
}
