//! The answer to `memfit plan`: what holds how much at the peak, and what the split costs.

use memfit_ir::{Bytes, Plan, Problem};
use memfit_plan::{Group, Held, Timeline, timeline};
use serde_json::{Map, Value, json};

use crate::{CostsUsed, PrecisionSummary, Prepared, Runtime};

/// What a plan is summed up by.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Whether it fits the budget; where not, the figures are those of the smallest plan.
    pub fits: bool,
    /// The budget.
    pub budget: Bytes,
    /// Highest byte of the arena.
    pub bytes_peak: Bytes,
    /// The arena as it is taken, in whole pages.
    pub bytes_arena: Bytes,
    /// No packing of this schedule is lower.
    pub bytes_bound: Bytes,
    /// What the process holds besides the arena.
    pub runtime: Runtime,
    /// Live bytes at the peak, by kind.
    pub held: Held,
    /// Live bytes at the peak, by layer, largest first.
    pub layers: Vec<LayerBytes>,
    /// Rows of a step.
    pub batch: usize,
    /// Rows of the data; none where they have no end.
    pub rows_data: Option<u64>,
    /// The seed by which rows are shuffled, where they are.
    pub shuffle_seed: Option<u64>,
    /// Nodes of the graph: forward, backward and optimizer.
    pub nodes: usize,
    /// Rows of a micro-batch.
    pub micro_batch: usize,
    /// Micro-batches of a step.
    pub micro_batches: usize,
    /// The prefix of the network that runs in slices of the batch, where there is one.
    pub region: Option<RegionSummary>,
    /// Launches of a micro-batch that compute a value again.
    pub nodes_recomputed: usize,
    /// Activations that are not kept, but recomputed inside the backward ops that read them.
    pub values_folded: usize,
    /// Gradients that are applied by a fused optimizer update, and never exist as a whole.
    pub gradients_applied: usize,
    /// The largest workspace of a launch.
    pub bytes_workspace: Bytes,
    /// Launches of a micro-batch by a slower algorithm, since the fastest needs more workspace than there is
    /// room for.
    pub launches_leaner: usize,
    /// Bytes of a micro-batch that are copied out to offload memory.
    pub bytes_offloaded: Bytes,
    /// Whether micro-batches are normalised by themselves, which changes the result.
    pub splits_batchnorm: bool,
    /// What half types saved and changed, where there are any.
    pub precision: Option<PrecisionSummary>,
    /// The smallest budget that has a plan.
    pub bytes_smallest_budget: Bytes,
    /// Time the planner took.
    pub seconds_planning: f64,
    /// The costs by which the plan was chosen.
    pub costs: CostsUsed,
    /// Expected time of a step.
    pub seconds_step: f64,
    /// Expected time of a step over the time of an unsplit one.
    pub time_relative: f64,
    /// Steps of the plan: prologue, one micro-batch, epilogue.
    pub steps: usize,
    /// Where the peak stands.
    pub peak_step: usize,
    /// What happens there.
    pub peak_label: String,
    /// The layer it belongs to.
    pub peak_layer: String,
}

/// A prefix of the network, or its last layer, that runs in slices of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionSummary {
    /// How many slices.
    pub slices: usize,
    /// Whether its values wait for backward rather than being computed again.
    pub keeps: bool,
    /// Its layers, from the first to the last.
    pub layers: Vec<String>,
}

impl RegionSummary {
    /// As a JSON object.
    pub fn to_json(&self) -> Value {
        json!({"slices": self.slices, "keeps": self.keeps, "layers": self.layers})
    }
}

/// What one layer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerBytes {
    /// The layer.
    pub layer: String,
    /// Its live bytes at the peak.
    pub bytes: Bytes,
}

impl Summary {
    /// Sums up what was prepared, with the timeline it was read from.
    pub fn new(prepared: &Prepared) -> (Summary, Timeline) {
        let problem = &prepared.problem;
        let (fits, plan) = match &prepared.outcome {
            Ok(checked) => (true, checked.plan()),
            Err(answer) => (false, &answer.plan),
        };
        let timeline = timeline(problem, plan);
        let moment = timeline.moments.get(timeline.peak);
        let layer_of = |index: usize| problem.graph.layers[index].clone();
        let summary = Summary {
            fits,
            budget: problem.budget.total,
            bytes_peak: plan.bytes_peak,
            bytes_arena: problem.budget.arena_for(plan.bytes_peak),
            bytes_bound: plan.bytes_bound,
            runtime: prepared.runtime.clone(),
            held: moment.map(|moment| moment.held).unwrap_or_default(),
            layers: layers(problem, &timeline),
            nodes: problem.graph.nodes.len(),
            batch: plan.batch,
            rows_data: prepared.source.rows(),
            shuffle_seed: prepared.source.shuffle_seed(),
            micro_batch: plan.micro_batch,
            micro_batches: plan.micro_batches(),
            region: region(problem, plan),
            nodes_recomputed: memfit_plan::nodes_recomputed(plan),
            values_folded: plan.producers_fused().count(),
            gradients_applied: plan.updates_fused().count(),
            bytes_workspace: memfit_plan::bytes_workspace(plan),
            launches_leaner: memfit_plan::launches_leaner(problem, plan),
            bytes_offloaded: memfit_plan::bytes_offloaded(plan),
            splits_batchnorm: plan.micro_batches() > 1
                && problem.graph.nodes.iter().any(|node| node.op.mixes_rows()),
            precision: prepared.precision.clone(),
            bytes_smallest_budget: prepared.smallest,
            seconds_planning: prepared.seconds_planning,
            costs: prepared.costs.clone(),
            seconds_step: memfit_plan::seconds(problem, plan),
            time_relative: time_relative(problem, plan),
            steps: timeline.moments.len(),
            peak_step: timeline.peak,
            peak_label: moment.map(|moment| moment.label.clone()).unwrap_or_default(),
            peak_layer: moment.map(|moment| layer_of(moment.layer.0)).unwrap_or_default(),
        };
        (summary, timeline)
    }

    /// What is said of a batch that is larger than the data.
    pub fn note_of_rows(&self) -> Option<String> {
        let rows = self.rows_data.filter(|rows| *rows < self.batch as u64)?;
        Some(format!(
            "the batch of {} rows is larger than the data: every step has all of its {rows} rows",
            self.batch
        ))
    }

    /// As one JSON object.
    pub fn to_json(&self) -> Value {
        let held: Map<String, Value> = Group::ALL
            .iter()
            .map(|group| (group.name().to_owned(), Value::from(self.held.get(*group).0)))
            .collect();
        json!({
            "fits": self.fits,
            "budget": self.budget.0,
            "bytes_peak": self.bytes_peak.0,
            "bytes_arena": self.bytes_arena.0,
            "bytes_bound": self.bytes_bound.0,
            "bytes_runtime": self.runtime.total().0,
            "bytes_baseline": self.runtime.baseline.0,
            "runtime": self.runtime.lines.iter().map(|line| json!({"name": line.name, "bytes": line.bytes.0})).collect::<Value>(),
            "held": held,
            "layers": self.layers.iter().map(|one| json!({"layer": one.layer, "bytes": one.bytes.0})).collect::<Value>(),
            "nodes": self.nodes,
            "batch": self.batch,
            "rows_data": self.rows_data,
            "shuffle_seed": self.shuffle_seed,
            "micro_batch": self.micro_batch,
            "micro_batches": self.micro_batches,
            "region": self.region.as_ref().map(RegionSummary::to_json),
            "nodes_recomputed": self.nodes_recomputed,
            "values_folded": self.values_folded,
            "gradients_applied": self.gradients_applied,
            "bytes_workspace": self.bytes_workspace.0,
            "launches_leaner": self.launches_leaner,
            "bytes_offloaded": self.bytes_offloaded.0,
            "precision": self.precision.as_ref().map(PrecisionSummary::to_json),
            "bytes_smallest_budget": self.bytes_smallest_budget.0,
            "seconds_planning": self.seconds_planning,
            "costs": self.costs.costs.name(),
            "seconds_measuring": self.costs.seconds_measuring,
            "share_measured": self.costs.coverage.share,
            "seconds_step": self.seconds_step,
            "time_relative": self.time_relative,
            "peak_step": self.peak_step,
            "peak_label": self.peak_label,
            "peak_layer": self.peak_layer,
        })
    }
}

fn region(problem: &Problem, plan: &Plan) -> Option<RegionSummary> {
    let region = plan.region()?;
    let layers = region.layers(&problem.graph)?;
    Some(RegionSummary { slices: region.slices, keeps: region.keeps, layers })
}

fn layers(problem: &Problem, timeline: &Timeline) -> Vec<LayerBytes> {
    let mut sums = vec![Bytes::ZERO; problem.graph.layers.len()];
    for holder in timeline.holders_at_peak() {
        sums[holder.layer.0] += holder.slot.bytes;
    }
    let mut layers: Vec<LayerBytes> = sums
        .into_iter()
        .zip(&problem.graph.layers)
        .filter(|(bytes, _)| *bytes != Bytes::ZERO)
        .map(|(bytes, layer)| LayerBytes { layer: layer.clone(), bytes })
        .collect();
    layers.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.layer.cmp(&b.layer)));
    layers
}

fn time_relative(problem: &Problem, plan: &Plan) -> f64 {
    memfit_plan::seconds(problem, plan) / memfit_plan::seconds_unsplit(problem)
}

/// The answer to `memfit batch`.
#[derive(Clone, Debug)]
pub struct BatchCurve {
    /// The budget.
    pub budget: Bytes,
    /// The largest batch that trains unsplit.
    pub largest: Option<usize>,
    /// A batch size and the budget it needs.
    pub points: Vec<(usize, Bytes)>,
}

/// The largest unsplit batch and the curve that leads to it, computed.
pub fn batch_curve(prepared: &Prepared) -> BatchCurve {
    let problem = &prepared.problem;
    let (largest, curve) = memfit_plan::largest_batch(problem);
    let points = curve.into_iter().map(|(batch, peak)| (batch, problem.budget.smallest(peak))).collect();
    BatchCurve { budget: problem.budget.total, largest, points }
}
