//! Release: an update is applied as soon as its gradient is whole and nobody needs the old weight, so that the gradient
//! does not live to the end of the step. Exact: every value is computed from the same values as before.

use memfit_ir::{Graph, NodeId, Phase};

/// All nodes in an order that puts each node of the end as early as its operands allow.
pub fn early_updates(graph: &Graph) -> Vec<NodeId> {
    // Position behind which a tensor is last written, and last touched at all; 0 is the start.
    let mut written = vec![0; graph.tensors.len()];
    let mut touched = vec![0; graph.tensors.len()];
    // Nodes of the end by the position of the piece's node they may follow.
    let mut followers: Vec<Vec<NodeId>> = vec![Vec::new(); graph.nodes.len() + 1];
    for (index, node) in graph.nodes.iter().enumerate() {
        let position = match node.phase {
            Phase::Begin | Phase::Piece => index + 1,
            Phase::End => {
                let needs_written = node.inputs.iter().map(|tensor| written[tensor.0]);
                let needs_touched = node.outputs.iter().chain(&node.updates).map(|tensor| touched[tensor.0]);
                needs_written.chain(needs_touched).max().unwrap_or(0)
            }
        };
        for tensor in &node.inputs {
            touched[tensor.0] = touched[tensor.0].max(position);
        }
        for tensor in node.outputs.iter().chain(&node.updates) {
            written[tensor.0] = written[tensor.0].max(position);
            touched[tensor.0] = touched[tensor.0].max(position);
        }
        if node.phase == Phase::End {
            followers[position].push(NodeId(index));
        }
    }
    let mut order = Vec::with_capacity(graph.nodes.len());
    order.append(&mut followers[0]);
    for (index, node) in graph.nodes.iter().enumerate() {
        if node.phase != Phase::End {
            order.push(NodeId(index));
            order.append(&mut followers[index + 1]);
        }
    }
    order
}
