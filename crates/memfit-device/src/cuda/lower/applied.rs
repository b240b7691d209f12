//! An update behind its gradient in one op: the gradient is made whole in the workspace, and then applied.

use memfit_ir::{Applied, Graph, Node, Op, Phase, TensorId};

use super::lower;
use super::made::moved;
use crate::cuda::call::Call;
use crate::cuda::work::{Address, Lowered, Work};

/// What the gradient op runs, and behind it the update of its first sum.
pub(super) fn applied(call: &Call<'_>, applied: &Applied) -> Lowered {
    let Node { inputs, updates, layer, .. } = call.node;
    let operands = inputs.iter().chain(updates);
    let mut graph =
        Graph { tensors: operands.map(|id| call.graph.tensors[id.0].clone()).collect(), ..Graph::default() };
    // Other sums of the gradient op stand before the weight, with what its update changes behind it.
    let (read, count) = (inputs.len(), graph.tensors.len());
    let weight = count - applied.update.tensors();
    let gradient = TensorId(count);
    graph.tensors.push(graph.tensors[weight].clone());
    let node = |op: Op, inputs: Vec<TensorId>, updates: Vec<TensorId>| Node {
        op,
        inputs,
        outputs: Vec::new(),
        updates,
        layer: *layer,
        phase: Phase::Piece,
    };
    let ids = |range: std::ops::Range<usize>| range.map(TensorId);
    let sums = std::iter::once(gradient).chain(ids(read..weight)).collect();
    let maker = node((*applied.gradient).clone(), ids(0..read).collect(), sums);
    let update = node(Op::Update(applied.update.clone()), vec![gradient], ids(weight..count).collect());
    let mut lowered = Lowered::default();
    let bytes = graph.tensors[count].bytes(call.rows);
    let place = lowered.scratch(bytes);
    lowered.work.push(Work::Zero { to: place, bytes });
    for node in [&maker, &update] {
        let part = lower(&Call { graph: &graph, node, fresh: false, ..*call });
        let start = lowered.scratch(part.workspace);
        let operands: Vec<TensorId> = node.inputs.iter().chain(&node.updates).copied().collect();
        let address = |address: Address| match address {
            Address::Workspace(offset) => start.behind(offset),
            Address::Operand(index, offset) if operands[index] == gradient => place.behind(offset),
            Address::Operand(index, offset) => Address::Operand(operands[index].0, offset),
        };
        lowered.work.extend(part.work.into_iter().map(|work| moved(work, &address)));
    }
    lowered
}
