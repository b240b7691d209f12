//! Regularizers and constraints as nodes: what weights cost, and where they must stay.

use memfit_ir::{Graph, Kind, Op, TensorId};

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

/// Puts a weight back behind its update, where it has a constraint.
pub(crate) fn constrain(graph: &mut Graph, weight: TensorId, verdict: Option<TensorId>) {
    let constraint = graph.constraints.iter().find(|(known, _)| *known == weight).map(|(_, found)| *found);
    if let Some(constraint) = constraint {
        let layer = graph.tensors[weight.0].layer;
        let inputs = verdict.into_iter().collect();
        push_end(graph, Op::Constrain(constraint), inputs, vec![], vec![weight], layer);
    }
}
