//! What a node costs: a rough time, and no workspace.

use memfit_ir::{Cost, CostClass, Graph, Node};

/// Rough figures of plain loops: plans need ratios between nodes, not truth.
const OPERATIONS_PER_NANO: f64 = 0.5;
const BYTES_PER_NANO: f64 = 1.0;
const LAUNCH_NANOS: f64 = 2000.0;

/// The estimate of a node.
pub(crate) fn cost(graph: &Graph, node: &Node) -> Cost {
    let nanos = |rows: usize| {
        operations(graph, node, rows) / OPERATIONS_PER_NANO + bytes(graph, node, rows) / BYTES_PER_NANO
    };
    Cost {
        nanos_fixed: LAUNCH_NANOS + nanos(0),
        nanos_per_row: (nanos(1) - nanos(0)).max(0.0),
        ..Cost::default()
    }
}

/// An operation for each element, and for products two for each pair of factors: of matrices of `m·k`, `k·n` and `m·n` elements these
/// are `m·n·k`, the root of the product of their sizes.
fn operations(graph: &Graph, node: &Node, rows: usize) -> f64 {
    let ids = node.inputs.iter().chain(&node.outputs).chain(&node.updates);
    let mut sizes: Vec<f64> = ids.map(|id| graph.tensors[id.0].shape.elements(rows) as f64).collect();
    match node.op.cost_class() {
        CostClass::Bytes => sizes.iter().sum(),
        CostClass::Product | CostClass::Convolution => {
            sizes.sort_by(f64::total_cmp);
            2.0 * sizes.iter().rev().take(3).product::<f64>().sqrt()
        }
    }
}

fn bytes(graph: &Graph, node: &Node, rows: usize) -> f64 {
    let ids = node.inputs.iter().chain(&node.outputs).chain(&node.updates);
    ids.map(|id| graph.tensors[id.0].bytes(rows).0 as f64).sum()
}
