//! Forward graphs in f16 and bf16: what a mixed policy makes of a graph in single precision.

use std::collections::BTreeMap;

use memfit_ir::{DType, Graph, Kind, Op, Tensor, TensorId, infer};

/// The graph with its inputs cast to a type and everything after them computed in it. Tensors keep their ids.
pub fn in_type(forward: &Graph, dtype: DType) -> Graph {
    let mut graph = Graph { nodes: vec![], ..forward.clone() };
    let mut cast: BTreeMap<TensorId, TensorId> = BTreeMap::new();
    for node in &forward.nodes {
        let mut node = node.clone();
        for input in &mut node.inputs {
            let tensor = &graph.tensors[input.0];
            // Indices of rows of a table are not cast, and neither are weights.
            let is_value = tensor.kind == Kind::Input && node.op != Op::Embedding;
            if is_value && tensor.dtype == DType::F32 {
                let layer = node.layer;
                let from = *input;
                *input = *cast.entry(from).or_insert_with(|| {
                    graph.push(Op::Cast(dtype), &[from], layer).expect("floats can be cast")[0]
                });
            }
        }
        let operands: Vec<&Tensor> = node.inputs.iter().map(|id| &graph.tensors[id.0]).collect();
        let types = infer(&node.op, &operands).expect("a type changes no shape");
        for (output, made) in node.outputs.iter().zip(types) {
            graph.tensors[output.0].dtype = made.dtype;
        }
        graph.nodes.push(node);
    }
    graph
}
