//! Apply: the optimizer update of a weight is fused into the op that computes its gradient, block by block,
//! so the gradient never exists whole. Exact, bit for bit, and faster, since nothing of it goes through
//! memory. Only for a batch of one micro-batch, whose gradients are whole at once.

use memfit_ir::{Bytes, FusedUpdate, Problem, TensorId, UpdateFusion};

/// The most columns of a kernel whose update is fused whatever the size of `dy`.
const COLUMNS: usize = 64;
/// The most elements of `dy` for a kernel of more columns: every block of its gradient reads all of `dy`, in
/// the second-level cache.
const SLOPES: usize = 1 << 16;
/// Smaller gradients stay in the caches between producer and update, and take no room.
const LARGE: Bytes = Bytes::mib(1);

/// The same problem with every large gradient applied that can be; none where there is no such gradient.
pub fn applied(problem: &Problem) -> Option<Problem> {
    if problem.costs_applied.is_empty() || problem.graph.region.is_some() {
        return None;
    }
    let is_offered = |id: &TensorId| problem.costs_applied.contains_key(id);
    let is_large = |id: &TensorId| LARGE <= problem.graph.tensors[id.0].bytes(1);
    let gradients: Vec<TensorId> = UpdateFusion::all(&problem.graph)
        .into_iter()
        .filter(|applying| spares(problem, applying))
        .map(|applying| applying.gradient)
        .filter(|id| is_offered(id) && is_large(id))
        .collect();
    if gradients.is_empty() { None } else { FusedUpdate::rewritten(problem, &gradients).ok() }
}

/// Whether a gradient is narrow, or computed from a small `dy`. Its operands wait until the kernel's old
/// values have been read, and must take less room than the gradient would.
fn spares(problem: &Problem, applying: &UpdateFusion) -> bool {
    let (tensor, batch) = (|id: &TensorId| &problem.graph.tensors[id.0], problem.batch);
    let gradient = tensor(&applying.gradient);
    let [x, dy] = match applying.node.inputs[..] {
        [x, dy] if COLUMNS < gradient.shape.last() => [x, dy].map(|id| tensor(&id)),
        _ => return true,
    };
    dy.shape.elements(batch) <= SLOPES && x.bytes(batch) + dy.bytes(batch) <= gradient.bytes(1)
}
