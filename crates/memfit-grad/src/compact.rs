//! What backward keeps, chosen for bytes: sign bits instead of a ReLU's output, and no value without a
//! reader.

use memfit_ir::Operand::X;
use memfit_ir::{Binary, DType, Graph, Kind, Link, Node, NodeId, Op, Phase, Shape, Unary};

use crate::training::single_link;

/// A ReLU's gradient reads one bit an element instead of its output. Where the output is kept for it alone,
/// the bits are kept instead; where another gradient reads the output before, they are taken right after
/// that, so that the output need not stand beside the gradient that comes next.
pub fn sign_bits(graph: &mut Graph, forward_nodes: usize) {
    let mut readers_backward: Vec<Vec<usize>> = vec![Vec::new(); graph.tensors.len()];
    for (index, node) in graph.nodes.iter().enumerate().skip(forward_nodes) {
        for input in &node.inputs {
            readers_backward[input.0].push(index);
        }
    }
    let mut producers = vec![None; graph.tensors.len()];
    for (index, node) in graph.nodes[..forward_nodes].iter().enumerate() {
        for output in &node.outputs {
            producers[output.0] = Some(index);
        }
    }
    // The node after which each row of bits is taken, with the node that takes them.
    let mut inserted: Vec<(NodeId, Node)> = Vec::new();
    for index in forward_nodes..graph.nodes.len() {
        let node = &graph.nodes[index];
        let Some(below) = saturation(&node.op) else { continue };
        let (dy, y, layer) = (node.input(X), node.input((X, 1)), node.layer);
        let readers = &readers_backward[y.0];
        let kept = graph.keep.contains(&y) || readers.iter().any(|reader| index < *reader);
        let after = match readers.iter().rev().find(|reader| **reader < index) {
            // With nothing in between, nothing is gained.
            Some(reader) if reader + 1 == index => None,
            Some(reader) => Some(*reader),
            None => producers[y.0],
        };
        let (false, Some(after)) = (kept, after) else { continue };
        let dims = vec![graph.tensors[y.0].shape.elements_per_row().div_ceil(8)];
        let name = format!("{}:bits", graph.layers[layer.0]);
        let shape = Shape { dims, ..graph.tensors[y.0].shape.clone() };
        let bits = graph.tensor(name, shape, DType::U8, Kind::Activation, layer);
        let take = Node {
            op: Op::SignBits { below },
            inputs: vec![y],
            outputs: vec![bits],
            updates: vec![],
            layer,
            phase: Phase::Piece,
        };
        inserted.push((NodeId(after), take));
        graph.nodes[index].op = Op::MaskBits;
        graph.nodes[index].inputs = vec![dy, bits];
    }
    insert_behind(graph, inserted);
}

/// Where a ReLU saturates, if an op is the gradient of one that a bit an element suffices for.
pub(crate) fn saturation(op: &Op) -> Option<f32> {
    let Link::Binary(Binary::Derivative(function), 0, 1) = single_link(op)? else { return None };
    if *function == Unary::Relu {
        Some(f32::INFINITY)
    } else if let Unary::ReluGeneral { negative_slope: 0.0, max_value, threshold: 0.0 } = function {
        Some(*max_value)
    } else {
        None
    }
}

/// Drops nodes that update no tensor and whose outputs have no reader.
pub fn drop_dead_nodes(graph: &mut Graph) {
    let mut needed = vec![false; graph.tensors.len()];
    for tensor in &graph.keep {
        needed[tensor.0] = true;
    }
    let mut alive = vec![false; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        alive[index] = !node.updates.is_empty() || node.outputs.iter().any(|output| needed[output.0]);
        if alive[index] {
            for input in &node.inputs {
                needed[input.0] = true;
            }
        }
    }
    let mut alive = alive.into_iter();
    graph.nodes.retain(|_| alive.next().expect("one mark a node"));
}

fn insert_behind(graph: &mut Graph, mut inserted: Vec<(NodeId, Node)>) {
    inserted.sort_by_key(|(after, _)| *after);
    let mut inserted = inserted.into_iter().peekable();
    let nodes = std::mem::take(&mut graph.nodes);
    for (index, node) in nodes.into_iter().enumerate() {
        graph.nodes.push(node);
        while let Some((_, node)) = inserted.next_if(|(after, _)| after.0 == index) {
            graph.nodes.push(node);
        }
    }
}
