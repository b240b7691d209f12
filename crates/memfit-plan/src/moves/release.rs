//! Release: an update is applied as soon as its gradient is whole and no later node reads the old weight, so
//! that the gradient does not live to the end of the step. Exact: every value is computed from the same
//! values as before.

use memfit_ir::{Bytes, Graph, NodeId, Op, Phase};

/// Updates of less than this wait for the next that is larger: a device may run both at once, and their gradients take no room.
const SMALL: Bytes = Bytes(128 << 10);

/// All nodes in an order that puts each node of the end as early as its operands allow.
pub fn early_updates(graph: &Graph) -> Vec<NodeId> {
    // The position after which a tensor is last written, and last touched at all; 0 is the start.
    let mut written = vec![0; graph.tensors.len()];
    let mut touched = vec![0; graph.tensors.len()];
    // Nodes of the end by the position of the micro-batch's node they may follow.
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
    join_small(graph, &mut followers);
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

/// Lets small updates follow the same node as the next larger update, where there is one and no other node of
/// the end touches their weights.
fn join_small(graph: &Graph, followers: &mut [Vec<NodeId>]) {
    let mut users = vec![0usize; graph.tensors.len()];
    for node in graph.nodes.iter().filter(|node| node.phase == Phase::End) {
        node.inputs.iter().chain(&node.outputs).chain(&node.updates).for_each(|tensor| users[tensor.0] += 1);
    }
    let is_update = |id: &NodeId| matches!(graph.nodes[id.0].op, Op::Update(_));
    let bytes = |id: &NodeId| -> Bytes {
        graph.nodes[id.0].updates.iter().map(|tensor| graph.tensors[tensor.0].bytes(1)).sum()
    };
    let is_small = |id: &NodeId| {
        let node = &graph.nodes[id.0];
        let alone = node.inputs.iter().chain(&node.updates).all(|tensor| users[tensor.0] == 1);
        is_update(id) && alone && bytes(id) < SMALL
    };
    let is_large = |id: &NodeId| is_update(id) && SMALL <= bytes(id);
    let Some(last) = followers.iter().rposition(|nodes| nodes.iter().any(is_large)) else { return };
    let mut waiting = Vec::new();
    for nodes in &mut followers[..=last] {
        if nodes.iter().any(is_large) {
            nodes.append(&mut waiting);
        } else {
            waiting.extend(nodes.iter().copied().filter(is_small));
            nodes.retain(|id| !is_small(id));
        }
    }
}
