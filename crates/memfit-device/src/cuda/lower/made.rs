//! Readers of a value that is not stored: it is made in the workspace, and then read as if it had been.

use memfit_ir::{Graph, Maker, Node, Op, TensorId};

use super::lower;
use crate::cuda::call::Call;
use crate::cuda::work::{Address, Argument, Convolution, Kernel, Lowered, Product, Work};

/// What a maker runs, and behind it a reader whose first input is what was made.
pub(super) fn made(call: &Call<'_>, maker: &Maker, reader: Op) -> Lowered {
    let Node { inputs, outputs, updates, layer, phase, .. } = call.node;
    let operands = inputs.iter().chain(outputs).chain(updates);
    let mut graph =
        Graph { tensors: operands.map(|id| call.graph.tensors[id.0].clone()).collect(), ..Graph::default() };
    let (count, behind) = (graph.tensors.len(), maker.inputs());
    graph.tensors.push(graph.tensors[0].clone());
    let made = TensorId(count);
    let ids = |range: std::ops::Range<usize>| range.map(TensorId);
    let op = maker.op().expect("the shape rules ask for a maker that makes something");
    let first = Node {
        op,
        inputs: ids(0..behind).collect(),
        outputs: vec![made],
        updates: Vec::new(),
        layer: *layer,
        phase: *phase,
    };
    let (read, written) = (inputs.len(), inputs.len() + outputs.len());
    let second = Node {
        op: reader,
        inputs: std::iter::once(made).chain(ids(behind..read)).collect(),
        outputs: ids(read..written).collect(),
        updates: ids(written..count).collect(),
        layer: *layer,
        phase: *phase,
    };
    let mut lowered = Lowered::default();
    let place = lowered.scratch(graph.tensors[count].bytes(call.rows));
    for (node, is_maker) in [(&first, true), (&second, false)] {
        let part = lower(&Call { graph: &graph, node, ..*call });
        let start = lowered.scratch(part.workspace);
        let address = |address: Address| match (address, start) {
            (Address::Workspace(offset), start) => start.behind(offset),
            (Address::Operand(index, offset), _) if is_maker && index == behind => place.behind(offset),
            (Address::Operand(0, offset), _) if !is_maker => place.behind(offset),
            (Address::Operand(index, offset), _) if is_maker => Address::Operand(index, offset),
            (Address::Operand(index, offset), _) => Address::Operand(behind + index - 1, offset),
        };
        lowered.work.extend(part.work.into_iter().map(|work| moved(work, &address)));
    }
    lowered
}

/// Work whose operands stand elsewhere.
pub(super) fn moved(work: Work, address: &impl Fn(Address) -> Address) -> Work {
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
