//! A slow f64 interpreter of forward graphs, by the functions of `memfit-reference`: values and losses for gradients by differences.

use memfit_device::Context;
use memfit_ir::{Graph, LossKind, TensorId};
use memfit_reference::{Call, compute, mean_loss};

use crate::harness::Values;
use crate::op_cases::ROWS;

/// Computes every tensor of a forward graph from inputs and weights.
pub fn evaluate(graph: &Graph, rows: usize, given: &Values) -> Values {
    // The harness trains step 0 with seed 5.
    let context = Context {
        step: 0,
        iteration: 0,
        row_start: 0,
        rows,
        rows_total: rows,
        learning_rate: 0.0,
        loss_scale: 1.0,
        seed: 5,
    };
    let mut values = given.clone();
    for node in &graph.nodes {
        let known = |ids: &[TensorId]| ids.iter().map(|id| &values[id][..]).collect::<Vec<_>>();
        let (inputs, updates) = (known(&node.inputs), known(&node.updates));
        let computed = compute(&Call { graph, node, context: &context, overwrite: false, inputs, updates });
        values.extend(node.outputs.iter().copied().zip(computed.outputs));
    }
    values
}

/// A loss over a batch, weighted rows included.
pub fn loss(
    kind: &LossKind,
    classes: usize,
    prediction: &[f64],
    target: &[f64],
    weights: Option<&[f64]>,
) -> f64 {
    mean_loss(kind, classes, ROWS, prediction, target, weights)
}
