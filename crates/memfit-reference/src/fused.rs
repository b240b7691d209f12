//! Fused ops: their parts, one after the other. What is between the parts is not rounded, since it is not stored.

use std::collections::BTreeMap;

use memfit_device::Kept;
use memfit_ir::{Fused, TensorId};

use super::call::{Call, Computed};
use super::node;

/// What the parts compute.
pub(crate) fn compute(call: &Call, fused: &Fused) -> Computed {
    let (graph, node) = (call.graph, call.node);
    let tensors: Vec<_> = node.inputs.iter().map(|id| &graph.tensors[id.0]).collect();
    let parts = fused.decompose(&tensors, node.updates.len()).expect("a node's shapes fit its op");
    let small = parts.graph(graph, node).expect("a node's shapes fit its op");
    let (inputs, outputs) = (node.inputs.len(), node.outputs.len());
    // Inputs, outputs and updates are the first tensors of the small graph.
    let updates = call.updates.iter().enumerate().map(|(place, values)| (inputs + outputs + place, values));
    let given = call.inputs.iter().enumerate().chain(updates);
    let mut values: BTreeMap<TensorId, Vec<f64>> =
        given.map(|(place, values)| (TensorId(place), values.to_vec())).collect();
    let mut kept = Kept::default();
    for part in &small.nodes {
        let known = |ids: &[TensorId]| ids.iter().map(|id| &values[id][..]).collect::<Vec<_>>();
        let (read, changed) = (known(&part.inputs), known(&part.updates));
        let of_part = Call { graph: &small, node: part, inputs: read, updates: changed, ..*call };
        let computed = node::compute(&of_part);
        kept.elements += computed.kept.elements;
        kept.state_written |= computed.kept.state_written;
        let ids = part.outputs.iter().chain(&part.updates);
        values.extend(ids.copied().zip(computed.outputs.into_iter().chain(computed.updates)));
    }
    let mut take = |place: usize| values.remove(&TensorId(place)).expect("the parts write it");
    Computed {
        outputs: (inputs..inputs + outputs).map(&mut take).collect(),
        updates: (inputs + outputs..inputs + outputs + node.updates.len()).map(&mut take).collect(),
        kept,
    }
}
