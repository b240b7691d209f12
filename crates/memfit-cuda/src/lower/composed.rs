//! A node as several others, one after the other, with what is between them in the workspace.

use memfit_ir::{Graph, Node, Op, Tensor, TensorId};

use super::lower;
use crate::call::Call;
use crate::work::{Address, Argument, Convolution, Kernel, Lowered, Product, Work};

/// The parts of a node. Their tensors are its operands, inputs before outputs before updates, and after them
/// temporaries.
pub(super) struct Parts {
    /// What is made, and in the place of which of these: the same bytes may be read under another shape, or
    /// used again.
    pub(super) made: Vec<(Tensor, usize)>,
    /// Op, inputs, outputs and updates of each part.
    pub(super) nodes: Vec<(Op, [Vec<usize>; 3])>,
}

/// What the parts of a node run.
pub(super) fn composed(call: &Call<'_>, parts: Parts) -> Lowered {
    let Node { inputs, outputs, updates, layer, phase, .. } = call.node;
    let operands = inputs.iter().chain(outputs).chain(updates).map(|id| call.graph.tensors[id.0].clone());
    let mut graph = Graph { tensors: operands.collect(), ..Graph::default() };
    let count = graph.tensors.len();
    let mut lowered = Lowered::default();
    let mut places: Vec<Address> = Vec::new();
    for (index, (tensor, place)) in parts.made.into_iter().enumerate() {
        let is_own = place == index;
        places.push(if is_own { lowered.scratch(tensor.bytes(call.rows)) } else { places[place] });
        graph.tensors.push(tensor);
    }
    for (op, operands) in parts.nodes {
        let [inputs, outputs, updates] = operands.map(|ids| ids.into_iter().map(TensorId).collect());
        let node = Node { op, inputs, outputs, updates, layer: *layer, phase: *phase };
        let part = lower(&Call { graph: &graph, node: &node, ..*call });
        let start = lowered.scratch(part.workspace);
        let ids: Vec<TensorId> =
            [&node.inputs[..], &node.outputs, &node.updates].into_iter().flatten().copied().collect();
        let address = |address: Address| match address {
            Address::Workspace(offset) => start.offset(offset),
            Address::Operand(index, offset) => match ids[index].0.checked_sub(count) {
                Some(made) => places[made].offset(offset),
                None => Address::Operand(ids[index].0, offset),
            },
        };
        lowered.work.extend(part.work.into_iter().map(|work| moved(work, &address)));
    }
    lowered
}

/// Work whose operands stand elsewhere.
fn moved(work: Work, address: &impl Fn(Address) -> Address) -> Work {
    let kernel = |kernel: Kernel| Kernel {
        arguments: kernel
            .arguments
            .into_iter()
            .map(|argument| match argument {
                Argument::At(at) => Argument::At(address(at)),
                Argument::Null
                | Argument::Context
                | Argument::Long(_)
                | Argument::Int(_)
                | Argument::Float(_) => argument,
            })
            .collect(),
        ..kernel
    };
    match work {
        Work::Kernel(of) => Work::Kernel(kernel(of)),
        Work::Update(of) => Work::Update(kernel(of)),
        Work::Finish(of) => Work::Finish(kernel(of)),
        Work::Zero { to, bytes } => Work::Zero { to: address(to), bytes },
        Work::Copy { from, to, bytes } => Work::Copy { from: address(from), to: address(to), bytes },
        Work::Product(of) => Work::Product(Product {
            a: address(of.a),
            b: address(of.b),
            d: address(of.d),
            bias: of.bias.map(address),
            ..of
        }),
        Work::Convolution(of) => Work::Convolution(Convolution {
            x: address(of.x),
            filter: address(of.filter),
            y: address(of.y),
            bias: of.bias.map(address),
            ..of
        }),
    }
}
