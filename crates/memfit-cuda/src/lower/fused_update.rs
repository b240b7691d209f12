//! A fused optimizer update: the whole gradient is computed in the workspace, and then the update is applied.

use memfit_ir::Operand::Weight;
use memfit_ir::{FusedUpdate, Node, Op};

use super::composed::{Parts, composed};
use crate::call::Call;
use crate::work::Lowered;

/// What the gradient op runs, and after it the update of its first sum.
pub(super) fn applied(call: &Call<'_>, applied: &FusedUpdate) -> Lowered {
    let Node { inputs, updates, .. } = call.node;
    let (read, count) = (inputs.len(), inputs.len() + updates.len());
    // Other sums of the gradient op stand before the weight, and what its update changes after it.
    let weight = call.update(Weight).index;
    let gradient = count;
    let mut reads: Vec<usize> = (0..read).collect();
    if let Some(place) = applied.weight_at {
        reads.insert(place, weight);
    }
    let sums = std::iter::once(gradient).chain(read..weight).collect();
    let nodes = vec![
        (Op::Zero, [Vec::new(), vec![gradient], Vec::new()]),
        ((*applied.gradient).clone(), [reads, Vec::new(), sums]),
        (Op::Update(applied.update.clone()), [vec![gradient], Vec::new(), (weight..count).collect()]),
    ];
    let made = call.graph.tensors[updates[weight - read].0].clone();
    composed(call, Parts { made: vec![(made, 0)], nodes })
}
