//! What backward keeps, chosen for bytes: sign bits instead of a ReLU's output, and nothing that nobody reads.

use memfit_ir::{Binary, DType, Graph, Kind, Link, Node, NodeId, Op, Phase, Shape, Unary};

use crate::training::single_link;

/// Where a ReLU's output is kept for its own gradient alone, keeps one bit an element instead.
pub fn sign_bits(graph: &mut Graph, forward_nodes: usize) {
    let mut readers_backward = vec![0usize; graph.tensors.len()];
    for node in &graph.nodes[forward_nodes..] {
        for input in &node.inputs {
            readers_backward[input.0] += 1;
        }
    }
    let mut producers = vec![None; graph.tensors.len()];
    for (index, node) in graph.nodes[..forward_nodes].iter().enumerate() {
        for output in &node.outputs {
            producers[output.0] = Some(NodeId(index));
        }
    }
    // The forward node behind which each row of bits is taken, with the tensors it links.
    let mut inserted: Vec<(NodeId, Node)> = Vec::new();
    for index in forward_nodes..graph.nodes.len() {
        let node = &graph.nodes[index];
        let is_relu = single_link(&node.op)
            .is_some_and(|link| *link == Link::Binary(Binary::Derivative(Unary::Relu), 0, 1));
        if !is_relu {
            continue;
        }
        let (dy, y, layer) = (node.inputs[0], node.inputs[1], node.layer);
        let alone = readers_backward[y.0] == 1 && !graph.keep.contains(&y);
        let (true, Some(producer)) = (alone, producers[y.0]) else { continue };
        let dims = vec![graph.tensors[y.0].shape.elements_per_row().div_ceil(8)];
        let name = format!("{}:bits", graph.layers[layer.0]);
        let shape = Shape { dims, ..graph.tensors[y.0].shape.clone() };
        let bits = graph.tensor(name, shape, DType::U8, Kind::Activation, layer);
        let take = Node {
            op: Op::SignBits,
            inputs: vec![y],
            outputs: vec![bits],
            updates: vec![],
            layer,
            phase: Phase::Piece,
        };
        inserted.push((producer, take));
        graph.nodes[index].op = Op::MaskBits;
        graph.nodes[index].inputs = vec![dy, bits];
    }
    insert_behind(graph, inserted);
}

/// Drops nodes whose outputs nobody reads and that change nothing.
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
    inserted.sort_by_key(|(behind, _)| *behind);
    let mut inserted = inserted.into_iter().peekable();
    let nodes = std::mem::take(&mut graph.nodes);
    for (index, node) in nodes.into_iter().enumerate() {
        graph.nodes.push(node);
        while let Some((_, node)) = inserted.next_if(|(behind, _)| behind.0 == index) {
            graph.nodes.push(node);
        }
    }
}
