//! What a node costs on a GPU: the workspace of its kernels and libraries, and its time, roughly.

use memfit_device::workspace::line_above;
use memfit_ir::{
    Attention, Bytes, Cost, DType, Graph, LOW_WORKSPACE, LowWorkspace, Nanos, Node, Op, TensorId,
};

use super::gpu::Gpu;
use super::work::Work;

/// What a node costs in micro-batches of up to `most` rows.
pub(crate) fn cost(gpu: &Gpu, graph: &Graph, node: &Node, most: usize) -> Cost {
    let own = |rows: usize| gpu.lowered(graph, node, rows).workspace.0;
    let (fixed, per_row) = line_above(own, most, most);
    // An algorithm that needs more workspace than there is at another number of rows is not chosen there.
    let rows = most.max(1);
    let algorithms = gpu.algorithms(graph, node, rows).unwrap_or_default();
    let judged = || gpu.workspace(graph, node, most).map_or(Bytes::ZERO, |(_, libraries)| libraries);
    let libraries = algorithms.first().map_or_else(judged, |(libraries, _)| *libraries);
    let nanos = |rows: usize| nanos(gpu, graph, node, rows);
    Cost {
        workspace_fixed: Bytes(fixed) + libraries,
        workspace_per_row: Bytes(per_row),
        nanos_fixed: nanos(0),
        nanos_per_row: ((nanos(rows) - nanos(0)) / rows as f64).max(0.0),
        measured: None,
        leaner: low_workspace(&algorithms, rows, Bytes(fixed)),
    }
}

/// Library algorithms that need less workspace than the fastest one, which comes on top of the kernels' own.
fn low_workspace(
    algorithms: &[(Bytes, f32)],
    rows: usize,
    own: Bytes,
) -> [Option<LowWorkspace>; LOW_WORKSPACE] {
    let Some(((_, fastest), rest)) = algorithms.split_first() else { return [None; LOW_WORKSPACE] };
    let mut found = rest.iter().map(|(libraries, milliseconds)| LowWorkspace {
        workspace_fixed: own + *libraries,
        nanos: Nanos { fixed: 0.0, per_row: f64::from(milliseconds - fastest) * 1e6 / rows as f64 },
    });
    std::array::from_fn(|_| found.next())
}

/// The time of a node at `rows` rows, as memory and arithmetic bound it.
fn nanos(gpu: &Gpu, graph: &Graph, node: &Node, rows: usize) -> f64 {
    if node.op.is_view() {
        return 0.0;
    }
    let Node { inputs, outputs, updates, .. } = node;
    let operands = inputs.iter().chain(outputs).chain(updates).chain(updates);
    let tensors = operands.map(|id| &graph.tensors[id.0]);
    let moved: f64 = tensors.map(|tensor| tensor.shape.bytes(tensor.dtype, rows).0 as f64).sum();
    let lowered = gpu.lowered(graph, node, rows.max(1));
    let mut flops = [0.0; 2];
    for (dtype, count) in lowered.work.iter().filter_map(flops_of_library).filter(|_| 0 < rows) {
        flops[usize::from(dtype != DType::F32)] += count;
    }
    if let Op::Attention(kind) | Op::AttentionGrad(kind) = &node.op {
        let first = usize::from(matches!(node.op, Op::AttentionGrad(_)));
        let tensor = &graph.tensors[inputs[first].0];
        flops[usize::from(tensor.dtype != DType::F32)] +=
            flops_of_attention(graph, kind, &inputs[first..], first == 1) * rows as f64;
    }
    gpu.roofline.nanos(lowered.work.len(), moved, flops)
}

/// The arithmetic of a library's call, and the type that it is on.
fn flops_of_library(work: &Work) -> Option<(DType, f64)> {
    match work {
        Work::Product(product) => {
            let multiplied = product.m as f64 * product.n as f64 * product.k as f64 * product.count as f64;
            Some((product.dtype, 2.0 * multiplied))
        }
        Work::Convolution(convolution) => {
            let taps =
                convolution.kernel.iter().product::<usize>() * convolution.input[2] / convolution.groups;
            let outputs = convolution.rows * convolution.output.iter().product::<usize>();
            Some((convolution.dtype, 2.0 * taps as f64 * outputs as f64))
        }
        Work::Kernel(_) | Work::Finish(_) | Work::Update(_) | Work::Zero { .. } | Work::Copy { .. } => None,
    }
}

/// The arithmetic of one row of an attention, whose queries come first: two products forward, five backward.
fn flops_of_attention(graph: &Graph, kind: &Attention, inputs: &[TensorId], backward: bool) -> f64 {
    let dims = |index: usize| &graph.tensors[inputs[index].0].shape.dims;
    let (queries, keys, values) = (dims(0), dims(1), dims(2));
    let pairs = (queries[0] * queries[1] * keys[0]) as f64 * if kind.causal { 0.5 } else { 1.0 };
    let [of_keys, of_values] = if backward { [3.0, 2.0] } else { [1.0, 1.0] };
    2.0 * pairs * (of_keys * queries[2] as f64 + of_values * values[2] as f64)
}
