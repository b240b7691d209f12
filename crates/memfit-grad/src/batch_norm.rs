//! The gradient of a batch normalisation replaces two nodes: the gradient of the ReLU after it, and that of
//! the bias before it.

use memfit_ir::Operand::{Beta, Dx, Dy, Gamma, Mean, Variance, X};
use memfit_ir::{Binary, Chain, Fused, Graph, Link, Node, NodeId, Op, TensorId};

use crate::compact::saturation;
use crate::training::single_link;

/// The gradient of a ReLU after a normalisation runs in that of the normalisation, which reads the ReLU's
/// operands already: neither signs nor a masked gradient are stored. Only neighbours are joined, so nothing
/// lives longer than it did.
pub fn relu_inside(graph: &mut Graph) {
    let mut readers = vec![0usize; graph.tensors.len()];
    for input in graph.nodes.iter().flat_map(|node| &node.inputs) {
        readers[input.0] += 1;
    }
    for tensor in graph.keep.iter().chain(&graph.outputs) {
        readers[tensor.0] += 1;
    }
    let mut gone = vec![false; graph.nodes.len()];
    for index in 1..graph.nodes.len() {
        let (before, node) = (&graph.nodes[index - 1], &graph.nodes[index]);
        if let Some((op, inputs)) = joined(graph, before, node).filter(|_| readers[node.input(Dy).0] == 1) {
            gone[index - 1] = true;
            (graph.nodes[index].op, graph.nodes[index].inputs) = (op, inputs);
        }
    }
    let mut gone = gone.into_iter();
    graph.nodes.retain(|_| !gone.next().expect("one mark a node"));
}

/// A ReLU's gradient and that of the normalisation before it as one, if they are.
fn joined(graph: &Graph, relu: &Node, node: &Node) -> Option<(Op, Vec<TensorId>)> {
    let Op::BatchNormGrad(norm) = &node.op else { return None };
    let below = saturation(&relu.op).filter(|_| relu.outputs[..] == [node.input(Dy)])?;
    let Link::Binary(Binary::Derivative(function), ..) = single_link(&relu.op)? else { return None };
    let [dy, y] = relu.inputs[..] else { return None };
    let produced = |tensor: TensorId| graph.producer(tensor).map(|NodeId(index)| &graph.nodes[index]);
    let forward = produced(y).filter(|node| node.op == Op::Elementwise(Chain::unary(*function)))?;
    let normalised =
        produced(forward.input(X)).filter(|forward| forward.op == Op::BatchNorm(norm.clone()))?;
    let of = |node: &Node| [X, Mean, Variance].map(|operand| node.input(operand));
    if of(normalised) != of(node) {
        return None;
    }
    let weights = node.input_if_given(Gamma).into_iter().chain(normalised.input_if_given(Beta));
    let inputs = [dy].into_iter().chain(of(node)).chain(weights).collect();
    Some((Op::Fused(Fused::BatchNormReluGrad(norm.clone(), below)), inputs))
}

/// A bias before a normalisation that subtracts the mean learns nothing: the gradient through the
/// normalisation adds up to 0 in every channel, but for roundings. That sum is not computed.
pub fn drop_bias_gradients(graph: &mut Graph) {
    let mut adds_up_to_nothing = vec![false; graph.tensors.len()];
    for node in &mut graph.nodes {
        if let Op::BatchNormGrad(_) | Op::Fused(Fused::BatchNormReluGrad(..)) = node.op {
            adds_up_to_nothing[node.output(Dx).0] = true;
        }
        if node.op == Op::BiasGrad && adds_up_to_nothing[node.input(Dy).0] {
            (node.op, node.inputs) = (Op::AddZero, vec![]);
        }
    }
}
