//! An exact rewrite of forward graphs: a ReLU that feeds only a max pool moves after it.
//!
//! The max of ReLUs is the ReLU of the max, and its argmax is the same wherever the gradient is not 0. So
//! neither values nor gradients change, and the tensors between the two shrink to the size of the pool's
//! output.

use memfit_ir::{Chain, Graph, Op, TensorId, Unary};

/// Moves every such ReLU.
pub(crate) fn relu_behind_pool(graph: &mut Graph) {
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.tensors.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        for tensor in &node.inputs {
            readers[tensor.0].push(index);
        }
    }
    // A ReLU that moved comes later in the graph and may meet the next pool there.
    for first in 0..graph.nodes.len() {
        let Some(second) = pool_behind_relu(graph, &readers, first) else { continue };
        let (before, relu) = (graph.nodes[first].inputs[0], graph.nodes[first].outputs[0]);
        let pooled = graph.nodes[second].outputs[0];
        graph.nodes[first].inputs = vec![pooled];
        graph.nodes[second].inputs = vec![before];
        graph.nodes.swap(first, second);
        graph.tensors[relu.0].shape = graph.tensors[pooled.0].shape.clone();

        let moved = std::mem::replace(&mut readers[pooled.0], vec![second]);
        for reader in &moved {
            replace(&mut graph.nodes[*reader].inputs, pooled, relu);
        }
        readers[relu.0] = moved;
        replace(&mut graph.outputs, pooled, relu);
    }
}

/// The pool that is the only reader of this node, if this is a plain ReLU and the pool makes images smaller.
fn pool_behind_relu(graph: &Graph, readers: &[Vec<usize>], index: usize) -> Option<usize> {
    let node = &graph.nodes[index];
    if node.op != Op::Elementwise(Chain::unary(Unary::Relu)) {
        return None;
    }
    let relu = node.outputs[0];
    let [reader] = readers[relu.0][..] else { return None };
    let pool = &graph.nodes[reader];
    let elements = |tensor: TensorId| graph.tensors[tensor.0].shape.elements_per_row();
    let suits = matches!(pool.op, Op::MaxPool2D(_))
        && !graph.outputs.contains(&relu)
        && graph.activities.iter().all(|(tensor, _)| *tensor != relu)
        && elements(pool.outputs[0]) < elements(relu);
    suits.then_some(reader)
}

fn replace(tensors: &mut [TensorId], old: TensorId, new: TensorId) {
    tensors.iter_mut().filter(|tensor| **tensor == old).for_each(|tensor| *tensor = new);
}
