//! Weights that products read as f16 or bf16, rounded once a step: forward and backward then read the same
//! rounded weight, instead of rounding it each time. It is a value like any other: it waits for backward, or
//! is computed again where there is no room for it.

use memfit_ir::Operand::{Bias, Kernel};
use memfit_ir::{DType, Graph, Kind, Node, Op, Operand, Phase, TensorId};

/// Lets products with f16 or bf16 operands read weights that a node before them rounds. Those of a layer are
/// rounded one after the other, so that a device can take them in one launch.
pub fn round_weights(graph: &mut Graph) {
    // Weights in the order in which they are first read, with their rounded copies and the node before which
    // they are rounded.
    let mut rounded: Vec<(TensorId, TensorId, usize)> = Vec::new();
    for index in 0..graph.nodes.len() {
        let node = &graph.nodes[index];
        let weights: Vec<TensorId> =
            weights_of(&node.op).iter().filter_map(|weight| node.input_if_given(*weight)).collect();
        let dtype = node.inputs.first().map_or(DType::F32, |x| graph.tensors[x.0].dtype);
        if weights.is_empty() || dtype == DType::F32 {
            continue;
        }
        for weight in weights {
            let tensor = graph.tensors[weight.0].clone();
            if !matches!(tensor.kind, Kind::Weight { .. }) || tensor.dtype != DType::F32 {
                continue;
            }
            let is_same = |(known, half, _): &&(TensorId, TensorId, usize)| {
                *known == weight && graph.tensors[half.0].dtype == dtype
            };
            let half = match rounded.iter().find(is_same) {
                Some((_, half, _)) => *half,
                None => {
                    let name = format!("{}:rounded", tensor.name);
                    let layer = tensor.layer;
                    let half = graph.tensor(name, tensor.shape, dtype, Kind::Activation, layer);
                    let in_layer =
                        |(known, _, _): &&(TensorId, TensorId, usize)| graph.tensors[known.0].layer == layer;
                    let before = rounded.iter().find(in_layer).map_or(index, |(_, _, before)| *before);
                    rounded.push((weight, half, before));
                    half
                }
            };
            let inputs = graph.nodes[index].inputs.iter_mut();
            inputs.filter(|input| **input == weight).for_each(|input| *input = half);
        }
    }
    let nodes = std::mem::take(&mut graph.nodes);
    for (index, node) in nodes.into_iter().enumerate() {
        for (weight, half, _) in rounded.iter().filter(|(_, _, before)| *before == index) {
            let tensor = &graph.tensors[half.0];
            graph.nodes.push(Node {
                op: Op::Cast(tensor.dtype),
                inputs: vec![*weight],
                outputs: vec![*half],
                updates: vec![],
                layer: tensor.layer,
                phase: Phase::Piece,
            });
        }
        graph.nodes.push(node);
    }
}

/// What of a product's operands are weights.
fn weights_of(op: &Op) -> &'static [Operand] {
    let term = if let Op::Fused(fused) = op { fused.term() } else { None };
    let op = term.as_ref().unwrap_or(op);
    if *op == Op::Dense {
        &[Kernel, Bias]
    } else if *op == Op::DenseGradInput {
        &[Kernel]
    } else {
        &[]
    }
}
