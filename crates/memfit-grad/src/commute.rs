//! An exact rewrite of forward graphs: a ReLU that feeds only a max pool moves after it.
//!
//! The max of ReLUs is the ReLU of the max, and its argmax is the same wherever the gradient is not 0. So
//! neither values nor gradients change, and the tensors between the two shrink to the size of the pool's
//! output.

use std::borrow::Cow;

use memfit_ir::{Chain, Graph, Op, TensorId, Unary};

/// The graph with every such ReLU moved, but for those whose gradients are `wanted`; it is copied only where
/// there is one.
pub(crate) fn relu_after_pools<'a>(graph: &'a Graph, wanted: &[TensorId]) -> Cow<'a, Graph> {
    let readers = readers_of(graph);
    let is_met = |first: usize| pool_after_relu(graph, &readers, wanted, first).is_some();
    if !(0..graph.nodes.len()).any(is_met) {
        return Cow::Borrowed(graph);
    }
    let mut moved = graph.clone();
    move_all(&mut moved, readers, wanted);
    Cow::Owned(moved)
}

/// The nodes that read each tensor, in order.
fn readers_of(graph: &Graph) -> Vec<Vec<usize>> {
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.tensors.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        for tensor in &node.inputs {
            readers[tensor.0].push(index);
        }
    }
    readers
}

fn move_all(graph: &mut Graph, mut readers: Vec<Vec<usize>>, wanted: &[TensorId]) {
    // A ReLU that moved comes later in the graph and may meet the next pool there.
    for first in 0..graph.nodes.len() {
        let Some(second) = pool_after_relu(graph, &readers, wanted, first) else { continue };
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
        graph.masks.iter_mut().filter(|(id, _)| *id == pooled).for_each(|(id, _)| *id = relu);
    }
}

/// The pool that is the only reader of this node, if this is a plain ReLU and the pool makes images smaller.
fn pool_after_relu(
    graph: &Graph,
    readers: &[Vec<usize>],
    wanted: &[TensorId],
    index: usize,
) -> Option<usize> {
    let node = &graph.nodes[index];
    if node.op != Op::Elementwise(Chain::unary(Unary::Relu)) {
        return None;
    }
    let relu = node.outputs[0];
    let [reader] = readers[relu.0][..] else { return None };
    let pool = &graph.nodes[reader];
    let elements = |tensor: TensorId| graph.tensors[tensor.0].shape.elements_per_row();
    let suits = matches!(pool.op, Op::MaxPool2D(_))
        && ![&graph.outputs[..], &graph.keep, wanted].iter().any(|ids| ids.contains(&relu))
        && graph.activities.iter().all(|(tensor, _)| *tensor != relu)
        && elements(pool.outputs[0]) < elements(relu);
    suits.then_some(reader)
}

fn replace(tensors: &mut [TensorId], old: TensorId, new: TensorId) {
    tensors.iter_mut().filter(|tensor| **tensor == old).for_each(|tensor| *tensor = new);
}

#[cfg(test)]
mod tests {
    use memfit_ir::{Conv2D, DType, Kind, Pads, Pool2D, Shape};

    use super::*;

    fn pool(window: usize) -> Op {
        let pads = Pads { bottom: window % 2, right: window % 2, ..Pads::default() };
        let strides = if window == 2 { [2, 2] } else { [1, 1] };
        Op::MaxPool2D(Pool2D { window: [2, 2], strides, pads })
    }

    /// Images, a convolution, a ReLU, and the pools after it; its tensors from the ReLU on.
    fn network(pools: &[usize]) -> (Graph, Vec<TensorId>) {
        let mut graph = Graph::default();
        let layer = graph.layer("conv2d");
        let x = graph.tensor("x", Shape::rows([8, 8, 3]), DType::F32, Kind::Input, layer);
        let kind = Kind::Weight { trainable: true };
        let kernel = graph.tensor("kernel", Shape::fixed([1, 1, 3, 4]), DType::F32, kind, layer);
        let conv =
            Conv2D { kernel: [1, 1], strides: [1, 1], dilation: [1, 1], groups: 1, pads: Pads::default() };
        let y = graph.push(Op::Conv2D(conv), &[x, kernel], layer).expect("the shapes fit")[0];
        let relu = Op::Elementwise(Chain::unary(Unary::Relu));
        let mut tensors = graph.push(relu, &[y], layer).expect("the shapes fit");
        for window in pools {
            let last = tensors[tensors.len() - 1];
            tensors.push(graph.push(pool(*window), &[last], layer).expect("the shapes fit")[0]);
        }
        graph.inputs = vec![x];
        graph.outputs = vec![tensors[tensors.len() - 1]];
        (graph, tensors)
    }

    fn order(graph: &Graph, wanted: &[TensorId]) -> Vec<&'static str> {
        relu_after_pools(graph, wanted).nodes.iter().map(|node| node.op.name()).collect()
    }

    #[test]
    fn a_relu_moves_after_the_pools_it_feeds_and_is_the_output_there() {
        let (mut graph, tensors) = network(&[2, 2]);
        graph.masks = vec![(tensors[2], graph.inputs[0])];
        let moved = relu_after_pools(&graph, &[]);
        assert_eq!(order(&graph, &[]), ["conv2d", "max_pool2d", "max_pool2d", "elementwise"]);
        assert_eq!((&moved.outputs[..], moved.masks[0].0), (&tensors[..1], tensors[0]));
        assert_eq!(moved.tensors[tensors[0].0].shape.dims, [2, 2, 4]);
        assert_eq!(moved.nodes[3].inputs, [tensors[2]]);
    }

    #[test]
    fn a_relu_that_others_need_as_it_is_stays() {
        let kept = ["conv2d", "elementwise", "max_pool2d"];
        let (graph, tensors) = network(&[2]);
        assert_eq!(order(&graph, &[tensors[0]]), kept, "its gradient is wanted");
        let is_output = Graph { outputs: tensors.clone(), ..graph.clone() };
        assert_eq!(order(&is_output, &[]), kept, "it is an output");
        let mut has_another_reader = graph.clone();
        let layer = has_another_reader.layer("mean");
        has_another_reader.push(Op::GlobalAveragePool2D, &[tensors[0]], layer).expect("the shapes fit");
        assert_eq!(order(&has_another_reader, &[])[..3], kept);
        // A pool that makes nothing smaller.
        assert_eq!(order(&network(&[3]).0, &[]), kept);
    }
}
