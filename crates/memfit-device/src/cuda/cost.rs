//! What a node costs on a GPU: the workspace of its kernels and libraries, and its time, roughly.

use memfit_ir::{Bytes, Cost, DType, Graph, Node};

use super::gpu::Gpu;
use super::lowered;
use super::work::Work;
use crate::cpu::cost::line_above;

/// Rough figures of a data-centre GPU: plans need ratios between nodes, not truth.
const BYTES_PER_NANO: f64 = 2500.0;
const FLOPS_PER_NANO_SINGLE: f64 = 100_000.0;
const FLOPS_PER_NANO_HALF: f64 = 400_000.0;
const LAUNCH_NANOS: f64 = 3000.0;

/// What a node costs in pieces of up to so many rows.
pub(crate) fn cost(gpu: &Gpu, graph: &Graph, node: &Node, most: usize) -> Cost {
    let own = |rows: usize| lowered(graph, node, rows, false).workspace.0;
    let (fixed, per_row) = line_above(own, most, most);
    // An algorithm that wants more than there is at some other number of rows is not chosen there.
    let libraries = gpu.workspace(graph, node, most).map_or(Bytes::ZERO, |(_, libraries)| libraries);
    let nanos = |rows: usize| nanos(graph, node, rows);
    Cost {
        workspace_fixed: Bytes(fixed) + libraries,
        workspace_per_row: Bytes(per_row),
        nanos_fixed: nanos(0),
        nanos_per_row: nanos(1) - nanos(0),
        measured: None,
    }
}

fn nanos(graph: &Graph, node: &Node, rows: usize) -> f64 {
    if node.op.is_view() {
        return 0.0;
    }
    let Node { inputs, outputs, updates, .. } = node;
    let operands = inputs.iter().chain(outputs).chain(updates).chain(updates);
    let tensors = operands.map(|id| &graph.tensors[id.0]);
    let moved: f64 = tensors.map(|tensor| tensor.shape.bytes(tensor.dtype, rows).0 as f64).sum();
    let lowered = lowered(graph, node, rows.max(1), false);
    let share = rows.min(1) as f64;
    let calculated: f64 = lowered.work.iter().map(|work| flops(work) * share).sum();
    LAUNCH_NANOS * lowered.work.len() as f64 + moved / BYTES_PER_NANO + calculated
}

/// The time of the arithmetic of library calls.
fn flops(work: &Work) -> f64 {
    let rate = |dtype: DType| if dtype == DType::F32 { FLOPS_PER_NANO_SINGLE } else { FLOPS_PER_NANO_HALF };
    match work {
        Work::Product(product) => {
            let multiplied = product.m as f64 * product.n as f64 * product.k as f64 * product.count as f64;
            2.0 * multiplied / rate(product.dtype)
        }
        Work::Convolution(convolution) => {
            let taps =
                convolution.kernel.iter().product::<usize>() * convolution.input[2] / convolution.groups;
            let outputs = convolution.rows * convolution.output.iter().product::<usize>();
            2.0 * taps as f64 * outputs as f64 / rate(convolution.dtype)
        }
        Work::Kernel(_) | Work::Bias(_) | Work::Update(_) | Work::Zero { .. } | Work::Copy { .. } => 0.0,
    }
}
