//! What a node costs: a rough time, and no workspace.

use memfit_ir::{Cost, CostClass, Graph, Node, Op, Tensor};

/// Rough figures of plain loops: plans need ratios between nodes, not truth.
const OPERATIONS_PER_NANO: f64 = 0.5;
const BYTES_PER_NANO: f64 = 1.0;
const LAUNCH_NANOS: f64 = 2000.0;

/// The estimate of a node.
pub(crate) fn cost(graph: &Graph, node: &Node) -> Cost {
    let [none, one] = [0, 1].map(|rows| nanos(graph, node, rows));
    Cost { nanos_fixed: LAUNCH_NANOS + none, nanos_per_row: (one - none).max(0.0), ..Cost::default() }
}

/// Time at this number of rows. A fused op takes as long as its parts.
fn nanos(graph: &Graph, node: &Node, rows: usize) -> f64 {
    if let Op::Fused(fused) = &node.op {
        let types: Vec<&Tensor> = node.inputs.iter().map(|id| &graph.tensors[id.0]).collect();
        let parts = fused.decompose(&types, node.updates.len()).and_then(|parts| parts.graph(graph, node));
        let parts = parts.expect("the node's shapes fit");
        return parts.nodes.iter().map(|part| nanos(&parts, part, rows)).sum();
    }
    operations(graph, node, rows) / OPERATIONS_PER_NANO + bytes(graph, node, rows) / BYTES_PER_NANO
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

#[cfg(test)]
mod tests {
    use memfit_ir::{DType, Fused, Kind, Shape};

    use super::*;

    #[test]
    fn a_fused_op_takes_as_long_as_its_parts() {
        let mut graph = Graph::default();
        let layer = graph.layer("layer");
        let mut value = |name: &str, dtype: DType, features: usize| {
            graph.tensor(name, Shape::rows([features]), dtype, Kind::Flow, layer)
        };
        let [a, b] = ["a", "b"].map(|name| value(name, DType::F32, 64));
        let bits = value("bits", DType::U8, 8);
        let sum = Op::Elementwise(memfit_ir::Chain::binary(memfit_ir::Binary::Add));
        let between = graph.push(sum, &[a, b], layer).expect("the shapes fit")[0];
        graph.push(Op::MaskBits, &[between, bits], layer).expect("the shapes fit");
        graph.push(Op::Fused(Fused::MaskBitsOfSum), &[a, b, bits], layer).expect("the shapes fit");
        let [first, second, fused] = [0, 1, 2].map(|node| cost(&graph, &graph.nodes[node]).nanos_per_row);
        assert!(0.0 < fused && fused == first + second, "{fused} of {first} and {second}");
    }
}
