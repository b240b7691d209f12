//! A step that changes all or nothing: every result that would outlive it is computed, and looked at, before the first is written.
//!
//! ```text
//! gradients ─▶ [+ sums of the steps before] ─▶ check ─▶ check the updates ─▶ found_inf
//!                                        statistics ─▶ check ─────────────────┘
//! found_inf ─▶ updates, constraints, sums, moving statistics: written only where it is 0
//! ```

use memfit_ir::{CheckUpdate, DType, Graph, Kind, Node, Op, TensorId};

use crate::training::{Written, global_norm, opened, push_end, update_of};
use crate::{Optimizer, penalties};

/// Appends the optimizer: all checks, then everything that is written.
pub(crate) fn add_updates(graph: &mut Graph, gradients: &[(TensorId, TensorId)], optimizer: &Optimizer) {
    penalties::add(graph, gradients);
    let moving = take_moving(graph);
    if gradients.is_empty() && moving.is_empty() {
        return;
    }
    let layer = graph.layer("optimizer");
    let found_inf = opened(graph, "found_inf", Kind::Statistic, layer);
    let mut checks = Checks { found_inf, number: 0 };
    let sums = add_accumulated(graph, gradients, optimizer.accumulation_steps);
    // The numbers of gradients come first and follow backward: the smallest is the first gradient that was not finite.
    for (_, gradient) in gradients {
        checks.add(graph, *gradient);
    }
    for statistic in moving.iter().flat_map(|node| &node.inputs) {
        checks.add(graph, *statistic);
    }
    let global = global_norm(graph, gradients, optimizer);
    let mut updates = Vec::with_capacity(gradients.len());
    for (weight, gradient) in gradients {
        let written = Written::of(graph, *weight, *gradient, optimizer, global);
        checks.add_update(graph, &written, optimizer);
        updates.push((*weight, written));
    }
    for (weight, written) in updates {
        written.add(graph, optimizer, Some(found_inf));
        penalties::constrain(graph, weight, Some(found_inf));
    }
    for (gradient, sum) in sums {
        let layer = graph.tensors[sum.0].layer;
        push_end(graph, Op::KeepAccumulated, vec![gradient, found_inf], vec![], vec![sum], layer);
    }
    for node in moving {
        let inputs = node.inputs.into_iter().chain([found_inf]).collect();
        push_end(graph, node.op, inputs, vec![], node.updates, node.layer);
    }
}

/// Checks that all speak to one number.
struct Checks {
    found_inf: TensorId,
    /// The number of the last check.
    number: usize,
}

impl Checks {
    fn add(&mut self, graph: &mut Graph, tensor: TensorId) {
        self.number += 1;
        let layer = graph.tensors[tensor.0].layer;
        push_end(graph, Op::CheckFinite(self.number), vec![tensor], vec![], vec![self.found_inf], layer);
    }

    fn add_update(&mut self, graph: &mut Graph, written: &Written, optimizer: &Optimizer) {
        self.number += 1;
        let layer = graph.tensors[written.writes[0].0].layer;
        let update = update_of(optimizer, written.writes[0], false);
        let op = Op::CheckUpdate(CheckUpdate { number: self.number, update });
        let reads = [&written.reads[..], &written.writes].concat();
        push_end(graph, op, reads, vec![], vec![self.found_inf], layer);
    }
}

/// Takes the nodes out that write moving statistics in the middle of a step.
fn take_moving(graph: &mut Graph) -> Vec<Node> {
    let nodes = std::mem::take(&mut graph.nodes);
    let (moving, rest) = nodes.into_iter().partition(|node| matches!(node.op, Op::BatchNormMoving { .. }));
    graph.nodes = rest;
    moving
}

/// Where several steps make one update, adds what earlier steps left to each gradient; returns gradients and sums.
fn add_accumulated(
    graph: &mut Graph,
    gradients: &[(TensorId, TensorId)],
    steps: u64,
) -> Vec<(TensorId, TensorId)> {
    if steps == 1 {
        return Vec::new();
    }
    let mut sums = Vec::with_capacity(gradients.len());
    for (weight, gradient) in gradients {
        let (name, shape, layer) = {
            let tensor = &graph.tensors[weight.0];
            (format!("{}/gradient_accumulator", tensor.name), tensor.shape.clone(), tensor.layer)
        };
        let sum = graph.tensor(name, shape, DType::F32, Kind::Optimizer, layer);
        push_end(graph, Op::AddAccumulated(steps), vec![sum], vec![], vec![*gradient], layer);
        sums.push((*gradient, sum));
    }
    sums
}
