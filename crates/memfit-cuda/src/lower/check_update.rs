//! What an update would write: the update runs on copies in the workspace, and the copies are looked at.

use memfit_ir::Operand::Weight;
use memfit_ir::{CheckUpdate, Node, Op, Tensor, Update};

use super::composed::{Parts, composed};
use crate::call::Call;
use crate::work::Lowered;

/// Copies, the update, and a check of every copy.
pub(super) fn check_update(call: &Call<'_>, check: &CheckUpdate) -> Lowered {
    let Node { inputs, .. } = call.node;
    let (at, found_inf) = (call.input(Weight).index, inputs.len());
    let read = at..inputs.len();
    let copies = found_inf + 1..found_inf + 1 + read.len();
    let tensors: Vec<Tensor> = inputs[at..].iter().map(|id| call.graph.tensors[id.0].clone()).collect();
    let copied = read.zip(copies.clone()).zip(&tensors).map(|((from, to), tensor)| {
        (Op::Reshape(tensor.shape.dims.clone()), [vec![from], vec![to], Vec::new()])
    });
    let update = Op::Update(Update { guarded: false, ..check.update.clone() });
    let looked =
        copies.clone().map(|copy| (Op::CheckFinite(check.number), [vec![copy], Vec::new(), vec![found_inf]]));
    let updated = (update, [(0..at).collect(), Vec::new(), copies.clone().collect()]);
    let opened = call.overwrite.then(|| (Op::Zero, [Vec::new(), vec![found_inf], Vec::new()]));
    let nodes = opened.into_iter().chain(copied).chain([updated]).chain(looked).collect();
    let made = tensors.into_iter().enumerate().map(|(index, tensor)| (tensor, index)).collect();
    composed(&Call { overwrite: false, ..*call }, Parts { made, nodes })
}
