//! Readers of a value that is not stored: it is made in the workspace, and then read as if it had been.

use memfit_ir::{Node, Op, Producer};

use super::composed::{Parts, composed};
use crate::call::Call;
use crate::work::Lowered;

/// The kernels of a recomputed producer, and after them those of the consumer, whose first input is the
/// producer's output.
pub(super) fn recomputed(call: &Call<'_>, producer: &Producer, reader: Op) -> Lowered {
    let Node { inputs, outputs, updates, .. } = call.node;
    let (read, made_inputs) = (inputs.len(), producer.inputs());
    let written = read + outputs.len();
    let count = written + updates.len();
    let op = producer.op().expect("the shape rules require a producer with an op");
    let first = (op, [(0..made_inputs).collect(), vec![count], Vec::new()]);
    let reads = std::iter::once(count).chain(made_inputs..read).collect();
    let second = (reader, [reads, (read..written).collect(), (written..count).collect()]);
    let made = call.graph.tensors[inputs[0].0].clone();
    composed(call, Parts { made: vec![(made, 0)], nodes: vec![first, second] })
}
