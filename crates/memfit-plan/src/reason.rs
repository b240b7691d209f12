//! Why nothing smaller was found: what must be alive together at the peak of the smallest plan, and why each of it must.

use std::cmp::Reverse;
use std::fmt;

use memfit_ir::{Bytes, Kind, Place, Plan, Problem, Step, TensorId};

use crate::timeline::{Group, Holder, Timeline};

/// The most reasons that are listed; the rest is counted.
const REASONS_MOST: usize = 32;

/// What is alive at the peak of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reason {
    /// The largest of it, largest first.
    pub needed: Vec<Needed>,
    /// How many more there are.
    pub others: usize,
    /// What these hold.
    pub bytes_others: Bytes,
}

/// Something that is alive at the peak of a plan: a tensor, or all of a kind where the reason is the same for all.
#[derive(Clone, Debug, PartialEq)]
pub struct Needed {
    /// The tensor, whose workspace it is, or the kind.
    pub name: String,
    /// The layer it belongs to; none for a kind.
    pub layer: Option<String>,
    /// The head it is counted under.
    pub group: Group,
    /// How much.
    pub bytes: Bytes,
    /// Why it must be there.
    pub why: Why,
}

/// The layer that holds the most.
#[derive(Clone, Debug, PartialEq)]
pub struct Dominant {
    /// Its name.
    pub layer: String,
    /// What it holds at the peak.
    pub bytes: Bytes,
    /// Of all that is live in the arena there.
    pub share: f64,
}

/// From this share of the peak on, a layer is named as the one to change.
const DOMINANT: f64 = 0.25;

/// Why a value must be alive at a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It keeps its bytes from step to step.
    Stays,
    /// The step reads it.
    Read,
    /// The step writes it.
    Written,
    /// The step changes it in place.
    Changed,
    /// The step's kernel works in it.
    Workspace,
    /// It is a sum over the micro-batches of the batch, which is whole after the last.
    Summed,
    /// A later step reads it, and giving it up in between lowers no peak.
    WaitsFor {
        /// That step.
        step: usize,
        /// What happens there, and in which layer.
        label: String,
    },
    /// It is read when the training step ends.
    Kept,
}

impl Why {
    /// One word for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Why::Stays => "stays",
            Why::Read => "read",
            Why::Written => "written",
            Why::Changed => "changed",
            Why::Workspace => "workspace",
            Why::Summed => "summed",
            Why::WaitsFor { .. } => "waits",
            Why::Kept => "kept",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Stays => f.write_str("kept from step to step"),
            Why::Read => f.write_str("read by this step"),
            Why::Written => f.write_str("written by this step"),
            Why::Changed => f.write_str("changed in place by this step"),
            Why::Workspace => f.write_str("scratch memory of this step"),
            Why::Summed => f.write_str("summed over the micro-batches until the last is done"),
            Why::WaitsFor { step, label } => write!(f, "saved for step {step}, {label}"),
            Why::Kept => f.write_str("read when the training step ends"),
        }
    }
}

/// What is alive at the peak of a plan, each with its reason.
pub fn reason(problem: &Problem, plan: &Plan, timeline: &Timeline) -> Reason {
    let steps: Vec<&Step> = plan.steps().collect();
    let mut needed: Vec<Needed> = Vec::new();
    for holder in timeline.holders_at_peak() {
        let why = match holder.tensor {
            None => Why::Workspace,
            Some(tensor) => why(problem, plan, timeline, &steps, holder, tensor),
        };
        let (group, bytes) = (holder.group, holder.slot.bytes);
        if !matches!(why, Why::Stays | Why::Summed) {
            let layer = Some(problem.graph.layers[holder.layer.0].clone());
            needed.push(Needed { name: holder.name.clone(), layer, group, bytes, why });
            continue;
        }
        match needed.iter_mut().find(|one| one.layer.is_none() && one.group == group && one.why == why) {
            Some(kind) => kind.bytes += bytes,
            None => needed.push(Needed { name: group.name().to_owned(), layer: None, group, bytes, why }),
        }
    }
    needed.sort_by_key(|one| Reverse(one.bytes));
    let rest = needed.split_off(needed.len().min(REASONS_MOST));
    needed.shrink_to_fit();
    let bytes_others = rest.iter().map(|one| one.bytes).sum();
    Reason { needed, others: rest.len(), bytes_others }
}

/// The layer that holds the most at the peak, where it holds enough to be worth a change.
pub fn dominant(problem: &Problem, timeline: &Timeline) -> Option<Dominant> {
    let mut sums = vec![Bytes::ZERO; problem.graph.layers.len()];
    for holder in timeline.holders_at_peak() {
        sums[holder.layer.0] += holder.slot.bytes;
    }
    let layer = (0..sums.len()).rev().max_by_key(|layer| sums[*layer])?;
    let all: Bytes = sums.iter().copied().sum();
    let (bytes, share) = (sums[layer], sums[layer].0 as f64 / all.0.max(1) as f64);
    (DOMINANT <= share).then(|| Dominant { layer: problem.graph.layers[layer].clone(), bytes, share })
}

fn why(
    problem: &Problem,
    plan: &Plan,
    timeline: &Timeline,
    steps: &[&Step],
    holder: &Holder,
    tensor: TensorId,
) -> Why {
    let graph = &problem.graph;
    if graph.tensors[tensor.0].kind.is_persistent() {
        return Why::Stays;
    }
    match steps[timeline.peak] {
        Step::Launch { node, .. } => {
            let node = &graph.nodes[node.0];
            let operand = |list: &[TensorId], why: Why| list.contains(&tensor).then_some(why);
            let found = operand(&node.outputs, Why::Written)
                .or(operand(&node.updates, Why::Changed))
                .or(operand(&node.inputs, Why::Read));
            if let Some(why) = found {
                return why;
            }
        }
        Step::Copy { to: Place::Arena(slot), .. } if *slot == holder.slot => return Why::Written,
        Step::Copy { from: Place::Arena(slot), .. } if *slot == holder.slot => return Why::Read,
        Step::Copy { .. } | Step::Wait(_) => {}
    }
    if graph.tensors[tensor.0].kind == Kind::Gradient && 1 < plan.micro_batches() {
        return Why::Summed;
    }
    let reads = |step: &Step| match step {
        Step::Launch { node, .. } => {
            let node = &graph.nodes[node.0];
            node.inputs.contains(&tensor) || node.updates.contains(&tensor)
        }
        Step::Copy { from: Place::Arena(slot), .. } => *slot == holder.slot,
        Step::Copy { .. } | Step::Wait(_) => false,
    };
    let next = (timeline.peak + 1..holder.upper).find(|step| reads(steps[*step]));
    match next {
        Some(step) => {
            let moment = &timeline.moments[step];
            let label = match steps[step] {
                Step::Launch { .. } => format!("{} of {}", moment.label, graph.layers[moment.layer.0]),
                Step::Copy { .. } | Step::Wait(_) => moment.label.clone(),
            };
            Why::WaitsFor { step, label }
        }
        None => Why::Kept,
    }
}
