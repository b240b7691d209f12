//! Gradients of biases are summed where they have the fewest terms, or where another node reads the terms
//! already: a sum over an image takes as long as a mask over it.

use memfit_ir::Operand::{Argmax, Dx, Dy};
use memfit_ir::{Fused, Graph, Node, NodeId, Op};

/// The gradient of a max pool gives every element of `dy` to one pixel, so the sum over the image is the sum
/// over `dy`: it is taken before the pool's gradient, where there is less to read.
pub fn before_pools(graph: &mut Graph) {
    let mut waiting: Vec<Vec<Node>> = vec![Vec::new(); graph.nodes.len()];
    let mut moved = vec![false; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        if let Some((pool, summed)) = before_pool(graph, node) {
            waiting[pool].push(summed);
            moved[index] = true;
        }
    }
    let nodes = std::mem::take(&mut graph.nodes);
    for ((node, before), moved) in nodes.into_iter().zip(waiting).zip(moved) {
        graph.nodes.extend(before);
        graph.nodes.extend((!moved).then_some(node));
    }
}

/// The gradient of a max pool in front of which a bias's gradient can be summed, and that sum.
fn before_pool(graph: &Graph, node: &Node) -> Option<(usize, Node)> {
    let image = (node.op == Op::BiasGrad).then(|| node.input(Dy))?;
    let NodeId(index) = graph.producer(image)?;
    let pool = &graph.nodes[index];
    let Op::MaxPool2DGrad(geometry, _) = &pool.op else { return None };
    let (dy, argmax) = (pool.input(Dy), pool.input(Argmax));
    let NodeId(forward) = graph.producer(argmax).filter(|_| geometry.is_inside())?;
    // A window without an argmax gives no gradient.
    let all_have_argmax = matches!(graph.nodes[forward].op, Op::MaxPool2D(_));
    let (op, inputs) =
        if all_have_argmax { (Op::BiasGrad, vec![dy]) } else { (Op::ArgmaxBiasGrad, vec![dy, argmax]) };
    Some((index, Node { op, inputs, ..node.clone() }))
}

/// A ReLU's gradient adds up what it writes where a bias asks for that sum.
pub fn with_masks(graph: &mut Graph) {
    let mut masks: Vec<Option<usize>> = vec![None; graph.tensors.len()];
    let mut joined = vec![false; graph.nodes.len()];
    for (index, joined) in joined.iter_mut().enumerate() {
        let node = &graph.nodes[index];
        if node.op == Op::MaskBits {
            masks[node.output(Dx).0] = Some(index);
        } else if node.op == Op::BiasGrad
            && let Some(mask) = masks[node.input(Dy).0].take()
        {
            let updates = node.updates.clone();
            (graph.nodes[mask].op, graph.nodes[mask].updates) = (Op::Fused(Fused::MaskBitsBiasGrad), updates);
            *joined = true;
        }
    }
    let mut joined = joined.into_iter();
    graph.nodes.retain(|_| !joined.next().expect("one mark a node"));
}
