//! Regularizers and constraints as nodes: what weights cost, and where they must stay.

use memfit_ir::{DType, Graph, Kind, Op, Shape, TensorId};

use crate::training::{opened, push_end};

/// Adds what trainable weights cost to the loss, and to those gradients that there are.
pub(crate) fn add(graph: &mut Graph, gradients: &[(TensorId, TensorId)]) {
    let trainable =
        |graph: &Graph, id: TensorId| graph.tensors[id.0].kind == Kind::Weight { trainable: true };
    let penalties: Vec<_> =
        graph.penalties.iter().copied().filter(|(weight, _)| trainable(graph, *weight)).collect();
    if penalties.is_empty() {
        return;
    }
    let layer = graph.layer("loss");
    let sum = opened(graph, "penalties", Kind::Statistic, layer);
    for (weight, regularizer) in penalties {
        let gradient = gradients.iter().find(|(known, _)| *known == weight).map(|(_, gradient)| *gradient);
        let updates = std::iter::once(sum).chain(gradient).collect();
        let layer = graph.tensors[weight.0].layer;
        push_end(graph, Op::Penalty(regularizer), vec![weight], vec![], updates, layer);
    }
}

/// Adds what values cost to the loss; returns each with its gradient.
pub(crate) fn of_values(graph: &mut Graph) -> Vec<(TensorId, TensorId)> {
    let activities = graph.activities.clone();
    if activities.is_empty() {
        return Vec::new();
    }
    let layer = graph.layer("loss");
    let sum = graph.tensor("activities", Shape::fixed([1]), DType::F32, Kind::Statistic, layer);
    let mut seeds = Vec::with_capacity(activities.len());
    for (tensor, regularizer) in activities {
        let layer = graph.tensors[tensor.0].layer;
        let op = Op::ActivityPenalty(regularizer);
        let made = graph.push_updating(op, &[tensor], &[sum], Kind::Flow, layer);
        seeds.push((tensor, made.expect("any floats can be penalised")[0]));
    }
    seeds
}

/// Applies the constraint of a weight, where it has one, after its update.
pub(crate) fn constrain(graph: &mut Graph, weight: TensorId, found_inf: Option<TensorId>) {
    let constraint = graph.constraints.iter().find(|(known, _)| *known == weight).map(|(_, found)| *found);
    if let Some(constraint) = constraint {
        let layer = graph.tensors[weight.0].layer;
        let inputs = found_inf.into_iter().collect();
        push_end(graph, Op::Constrain(constraint), inputs, vec![], vec![weight], layer);
    }
}
