//! Training graphs on whose nodes other devices are compared with the CPU: the op table in every type, and
//! cases that it does not have.

use memfit_grad::{Optimizer, Training, training_graph};
use memfit_ir::{Attention, Capabilities, DType, Graph, Kind, Op, Shape, TensorId};

use crate::device_cases::{device_cases, size_cases};
use crate::halves::in_type;
use crate::op_cases::{OpCase, op_cases};

/// The training graphs of the op table in every type, with their names.
pub fn device_graphs() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        for case in op_cases().into_iter().chain(size_cases()) {
            let forward =
                if dtype == DType::F32 { case.forward.clone() } else { in_type(&case.forward, dtype) };
            graphs.push((
                format!("{dtype} {}", case.name),
                trained(&case, &forward, memfit_cpu::capabilities()),
            ));
            // Products read weights that a node before them rounds.
            if dtype != DType::F32 && case.name.contains("dense") {
                let name = format!("{dtype} {} for a GPU", case.name);
                graphs.push((name, trained(&case, &forward, memfit_cuda::capabilities())));
            }
        }
        // Queries, keys, heads, key heads and width: heads as tensor cores take them, tiles that are full and that are not.
        for sizes in [
            [70, 70, 2, 2, 64],
            [150, 130, 2, 1, 64],
            [128, 256, 2, 2, 64],
            [256, 128, 4, 2, 64],
            [33, 200, 2, 2, 128],
            [130, 70, 2, 1, 32],
        ] {
            for causal in [false, true] {
                let name = format!("{dtype} attention of large heads {sizes:?}, causal {causal}");
                graphs.push((name, attention(dtype, sizes, causal)));
            }
        }
    }
    graphs.extend(device_cases());
    graphs
}

fn trained(case: &OpCase, forward: &Graph, capabilities: Capabilities) -> Graph {
    let is_leaf = |id: &TensorId| {
        let tensor = &forward.tensors[id.0];
        let leaf = tensor.kind == Kind::Input || tensor.kind == Kind::Weight { trainable: true };
        leaf && tensor.dtype == DType::F32
    };
    let training = Training {
        losses: vec![case.loss.clone()],
        sample_weights: usize::from(case.sample_weights),
        capabilities,
        gradients_of: (0..forward.tensors.len()).map(TensorId).filter(is_leaf).collect(),
        ..Training::new(Optimizer::sgd(0.0))
    };
    training_graph(forward, &training).expect("the case trains")
}

/// Attention and its gradients, from queries, keys, values and `dy` that are cast where they are not of this
/// type.
pub fn attention(dtype: DType, sizes: [usize; 5], causal: bool) -> Graph {
    let [queries, keys, heads, key_heads, width] = sizes;
    let mut graph = Graph::default();
    let layer = graph.layer("attention");
    let mut input = |name: &str, dims: [usize; 3]| {
        let x = graph.tensor(name, Shape::rows(dims), DType::F32, Kind::Input, layer);
        if dtype == DType::F32 { x } else { graph.push(Op::Cast(dtype), &[x], layer).expect("shapes fit")[0] }
    };
    let q = input("q", [queries, heads, width]);
    let [k, v] = ["k", "v"].map(|name| input(name, [keys, key_heads, width]));
    let dy = input("dy", [queries, heads, width]);
    let kind = Attention { scale: 1.0 / (width as f32).sqrt(), causal, ..Attention::default() };
    let [y, logsumexp] = graph.push(Op::Attention(kind.clone()), &[q, k, v], layer).expect("shapes fit")[..]
    else {
        panic!("attention writes values and sums")
    };
    graph.push(Op::AttentionGrad(kind), &[dy, q, k, v, y, logsumexp], layer).expect("shapes fit");
    graph
}
