//! A fused update: the optimizer update of a weight is fused into the op that computes its gradient, block by block,
//! so the gradient never exists whole. Exact, bit for bit, and faster, since nothing of it goes through
//! memory. Only for a batch of one micro-batch, whose gradients are whole at once.

use std::borrow::Cow;

use memfit_ir::{Bytes, Problem, Rewrite, Rewritten, TensorId, UpdateFusion};

/// The most columns of a kernel whose update is fused whatever the size of `dy`.
const COLUMNS: usize = 64;
/// The most elements of `dy` for a kernel of more columns: every block of its gradient reads all of `dy`, in
/// the second-level cache.
const DY_ELEMENTS: usize = 1 << 16;
/// Smaller gradients stay in the caches between producer and update, and take no room.
const LARGE: Bytes = Bytes::mib(1);

/// The same problem with every update of a large gradient fused that can be; none where there is none.
pub fn fused(problem: &Problem) -> Option<Problem> {
    let is_update = |key: &Rewritten| matches!(key, Rewritten::Update(_));
    if !problem.costs_rewritten.keys().any(is_update) || problem.graph.region().is_some() {
        return None;
    }
    let is_offered = |id: &TensorId| problem.costs_rewritten.contains_key(&Rewritten::Update(*id));
    let is_large = |id: &TensorId| LARGE <= problem.graph.tensors[id.0].bytes(1);
    let fusions: Vec<Rewrite> = UpdateFusion::all(&problem.graph)
        .into_iter()
        .filter(|fusion| spares(problem, fusion))
        .map(|fusion| fusion.gradient)
        .filter(|id| is_offered(id) && is_large(id))
        .map(Rewrite::FuseUpdate)
        .collect();
    if fusions.is_empty() {
        return None;
    }
    problem.rewritten(&fusions).ok().map(Cow::into_owned)
}

/// Whether a gradient is narrow, or computed from a small `dy`. Its operands wait until the kernel's old
/// values have been read, and must take less room than the gradient would.
fn spares(problem: &Problem, fusion: &UpdateFusion) -> bool {
    let (tensor, batch) = (|id: &TensorId| &problem.graph.tensors[id.0], problem.batch);
    let gradient = tensor(&fusion.gradient);
    let [x, dy] = match fusion.node.inputs[..] {
        [x, dy] if COLUMNS < gradient.shape.last() => [x, dy].map(|id| tensor(&id)),
        _ => return true,
    };
    dy.shape.elements(batch) <= DY_ELEMENTS && x.bytes(batch) + dy.bytes(batch) <= gradient.bytes(1)
}
