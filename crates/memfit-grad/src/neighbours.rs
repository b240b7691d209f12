//! An order in which a device that keeps launches back for a moment finds what reads the same values next to each other.
//!
//! ```text
//! dw2 += gᵀ dy │ dg = dy w2ᵀ │ dh = dg f′(h) │ dw1 += xᵀ dh │ db1 += Σ dh   becomes
//! dg = dy w2ᵀ │ dh = dg f′(h) │ db1 += Σ dh │ (g = f(h) again) │ dw2 += gᵀ dy │ dw1 += xᵀ dh
//! ```

use std::collections::BTreeMap;

use memfit_ir::Operand::{Dy, X, Y};
use memfit_ir::{Graph, Node, Op, TensorId};

/// Puts the gradient of a bias after the elementwise node that computes its terms, and after both the
/// gradient of a kernel that reads a function of the same operand.
pub fn bring_together(graph: &mut Graph) {
    // Gradients of biases by what they sum up; gradients of kernels that read a function, by what that is a function of.
    let mut sums: BTreeMap<TensorId, Vec<usize>> = BTreeMap::new();
    let mut kernels: BTreeMap<TensorId, Vec<usize>> = BTreeMap::new();
    let mut functions: BTreeMap<TensorId, TensorId> = BTreeMap::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        if node.op == Op::BiasGrad {
            sums.entry(node.input(Dy)).or_default().push(index);
        } else if node.op == Op::DenseGradKernel
            && let Some(of) = functions.get(&node.input(X))
        {
            kernels.entry(*of).or_default().push(index);
        } else if is_elementwise(node)
            && let [of] = node.inputs[..]
        {
            functions.insert(node.output(Y), of);
        }
    }
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
    let mut moves = vec![false; graph.nodes.len()];
    for (index, made) in graph.nodes.iter().enumerate().filter(|(_, node)| is_elementwise(node)) {
        let Some(sums) = sums.get(&made.output(Y)) else { continue };
        let earlier = made.inputs.iter().filter_map(|input| kernels.get(input)).flatten();
        for follower in sums.iter().chain(earlier.filter(|kernel| **kernel < index)) {
            if !std::mem::replace(&mut moves[*follower], true) {
                followers[index].push(*follower);
            }
        }
    }
    let mut nodes: Vec<Option<Node>> = std::mem::take(&mut graph.nodes).into_iter().map(Some).collect();
    for index in 0..nodes.len() {
        if !moves[index] {
            graph.nodes.extend(nodes[index].take());
        }
        for follower in &followers[index] {
            graph.nodes.extend(nodes[*follower].take());
        }
    }
}

fn is_elementwise(node: &Node) -> bool {
    matches!(node.op, Op::Elementwise(_))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use memfit_ir::{Capabilities, Chain, DType, Fusions, Kind, LayerId, Loss, LossKind, Shape, Unary};

    use super::*;
    use crate::{Optimizer, Training, training_graph};

    fn dense(graph: &mut Graph, x: TensorId, units: usize, layer: LayerId) -> TensorId {
        let wide = graph.tensors[x.0].shape.last();
        let kind = Kind::Weight { trainable: true };
        let kernel = graph.tensor("kernel", Shape::fixed([wide, units]), DType::F32, kind, layer);
        let bias = graph.tensor("bias", Shape::fixed([units]), DType::F32, kind, layer);
        graph.push(Op::Dense, &[x, kernel, bias], layer).unwrap()[0]
    }

    #[test]
    fn a_bias_and_the_kernel_after_a_function_follow_its_gradient() {
        let mut forward = Graph::default();
        let layer = forward.layer("mlp");
        let x = forward.tensor("x", Shape::rows([4]), DType::F32, Kind::Input, layer);
        let half = forward.push(Op::Cast(DType::BF16), &[x], layer).unwrap()[0];
        let h = dense(&mut forward, half, 8, layer);
        let g = forward.push(Op::Elementwise(Chain::unary(Unary::Gelu)), &[h], layer).unwrap()[0];
        let y = dense(&mut forward, g, 4, layer);
        let y = forward.push(Op::Cast(DType::F32), &[y], layer).unwrap()[0];
        (forward.inputs, forward.outputs) = (vec![x], vec![y]);
        let losses = vec![Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }];
        let fusions = Fusions { neighbours: true, ..Fusions::default() };
        let capabilities = Capabilities { fusions, rounds_weights: true, ..Capabilities::default() };
        let training = Training { losses, capabilities, ..Training::new(Optimizer::sgd(0.1)) };
        let graph = training_graph(&forward, &training).unwrap();
        let at = |found: &dyn Fn(&Node) -> bool| graph.nodes.iter().position(found).unwrap();
        let gradient = at(&|node| is_elementwise(node) && node.inputs.len() == 2);
        let next = &graph.nodes[gradient + 1..gradient + 4];
        assert_eq!(next[0].op, Op::BiasGrad);
        assert_eq!(next[0].inputs, graph.nodes[gradient].outputs);
        assert_eq!((&next[1].op, next[1].input(X)), (&Op::DenseGradKernel, g));
        assert_eq!((&next[2].op, next[2].input(X)), (&Op::DenseGradKernel, half));
        // Two kernels and two biases are rounded, together and once; products read no others.
        let first = at(&|node| matches!(node.op, Op::Cast(DType::BF16)) && node.inputs != [x]);
        let casts = graph.nodes.iter().filter(|node| matches!(node.op, Op::Cast(DType::BF16)));
        assert_eq!(casts.filter(|node| !graph.tensors[node.input(X).0].shape.batched).count(), 4);
        let of_weight = |node: &Node| !graph.tensors[node.input(X).0].shape.batched;
        assert!(graph.nodes[first..first + 4].iter().all(of_weight));
        let products = graph.nodes.iter().filter(|node| matches!(node.op, Op::Dense | Op::DenseGradInput));
        for node in products {
            assert!(node.inputs.iter().all(|input| graph.tensors[input.0].dtype == DType::BF16));
        }
    }
}
