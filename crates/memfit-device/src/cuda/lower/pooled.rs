//! A convolution and the max pool behind it: the kernels of both, with the image between them in the workspace.

use std::slice::from_ref;

use memfit_ir::{Conv2D, Graph, Node, Op, Phase, PooledConv2D, Shape, Tensor, TensorId};

use super::{columns, convolution, pool};
use crate::cuda::call::{Call, Operand};
use crate::cuda::work::{Address, Argument, Lowered, Work};

/// The largest of every window of `x ∗ kernel + bias`, and its place.
pub(super) fn forward(call: &Call<'_>, conv: &PooledConv2D) -> Lowered {
    let (mut lowered, between) = with_between(call, conv, call.input(1).shape().last());
    let inputs: Vec<Place> = (0..call.node.inputs.len()).map(|index| Place::of(call.input(index))).collect();
    let [y, winners] = [0, 1].map(|index| Place::of(call.output(index)));
    let convolved = Stage::new(Op::Conv2D(conv.conv.clone()), &inputs, from_ref(&between), &[]);
    convolved.append(&mut lowered, call, |call| convolution::forward(call, &conv.conv));
    let pooled = Stage::new(Op::MaxPool2D(PooledConv2D::POOL), &[between], &[y, winners], &[]);
    pooled.append(&mut lowered, call, |call| {
        let mut pooled = pool::max_pool(call, &PooledConv2D::POOL);
        for work in &mut pooled.work {
            if let (Work::Kernel(kernel), true) = (work, conv.relu) {
                kernel.source.defines += "#define RELU\n";
            }
        }
        pooled
    });
    lowered
}

/// The gradients of the kernel and the bias, added to what is there.
pub(super) fn grad_kernel(call: &Call<'_>, conv: &PooledConv2D) -> Lowered {
    let (x, dy, winners) = (call.input(0), call.input(1), call.input(2));
    let (mut lowered, between) = with_between(call, conv, dy.shape().last());
    let [height, width, _] = between.dims();
    let spread = Op::MaxPool2DGrad(PooledConv2D::POOL, [height, width]);
    let spread = Stage::new(spread, &[dy, winners].map(Place::of), from_ref(&between), &[]);
    spread.append(&mut lowered, call, |call| pool::max_pool_grad(call, &PooledConv2D::POOL));
    let inner: &Conv2D = &conv.conv;
    let images = [Place::of(x), between.clone()];
    let filter = Stage::new(Op::Conv2DGradKernel(inner.clone()), &images, &[], &[Place::of(call.update(0))]);
    filter.append(&mut lowered, call, |call| convolution::grad_kernel(call, inner));
    if call.node.updates.len() == 2 {
        let bias = Stage::new(Op::BiasGrad, &[between], &[], &[Place::of(call.update(1))]);
        bias.append(&mut lowered, call, columns::bias_grad);
    }
    lowered
}

/// A workspace that begins with the image between convolution and pool.
fn with_between(call: &Call<'_>, conv: &PooledConv2D, channels: usize) -> (Lowered, Place) {
    let x = call.input(0);
    let [height, width, _] = x.dims() else { panic!("the shape rules ask for images of three dimensions") };
    let [height, width] = conv.between([*height, *width]);
    let tensor = Tensor { shape: Shape::rows([height, width, channels]), ..x.tensor.clone() };
    let mut lowered = Lowered::default();
    let address = lowered.scratch(tensor.shape.bytes(tensor.dtype, call.rows));
    (lowered, Place { tensor, address })
}

/// A tensor and where it stands.
#[derive(Clone)]
struct Place {
    tensor: Tensor,
    address: Address,
}

impl Place {
    fn of(operand: Operand<'_>) -> Place {
        Place { tensor: operand.tensor.clone(), address: operand.address() }
    }

    fn dims(&self) -> [usize; 3] {
        self.tensor.shape.dims[..].try_into().expect("the image between is one")
    }
}

/// One of the nodes that the node stands for, alone in a graph of its own.
struct Stage {
    graph: Graph,
    places: Vec<Address>,
}

impl Stage {
    fn new(op: Op, inputs: &[Place], outputs: &[Place], updates: &[Place]) -> Stage {
        let mut graph = Graph::default();
        let layer = graph.layer("pooled");
        let operands = || inputs.iter().chain(outputs).chain(updates);
        graph.tensors = operands().map(|place| place.tensor.clone()).collect();
        let behind = inputs.len() + outputs.len();
        let ids = |range: std::ops::Range<usize>| range.map(TensorId).collect::<Vec<_>>();
        graph.nodes.push(Node {
            op,
            inputs: ids(0..inputs.len()),
            outputs: ids(inputs.len()..behind),
            updates: ids(behind..behind + updates.len()),
            layer,
            phase: Phase::Piece,
        });
        Stage { graph, places: operands().map(|place| place.address).collect() }
    }

    /// Adds what runs for the node, with its operands where they stand and its scratch memory behind what is taken already.
    fn append(&self, lowered: &mut Lowered, call: &Call<'_>, lower: impl Fn(&Call<'_>) -> Lowered) {
        let part = lower(&Call { graph: &self.graph, node: &self.graph.nodes[0], ..*call });
        let base = lowered.scratch(part.workspace);
        let moved = |address: Address| match address {
            Address::Operand(index, offset) => self.places[index].behind(offset),
            Address::Workspace(offset) => base.behind(offset),
        };
        lowered.work.extend(part.work.into_iter().map(|work| with_places(work, &moved)));
    }
}

/// The same with every address changed.
fn with_places(work: Work, moved: &impl Fn(Address) -> Address) -> Work {
    let kernel = |mut kernel: crate::cuda::work::Kernel| {
        for argument in &mut kernel.arguments {
            if let Argument::At(address) = argument {
                *address = moved(*address);
            }
        }
        kernel
    };
    match work {
        Work::Kernel(each) => Work::Kernel(kernel(each)),
        Work::Update(each) => Work::Update(kernel(each)),
        Work::Bias(each) => Work::Bias(kernel(each)),
        Work::Zero { to, bytes } => Work::Zero { to: moved(to), bytes },
        Work::Copy { from, to, bytes } => Work::Copy { from: moved(from), to: moved(to), bytes },
        Work::Product(mut product) => {
            for address in [&mut product.a, &mut product.b, &mut product.d] {
                *address = moved(*address);
            }
            product.bias = product.bias.map(moved);
            Work::Product(product)
        }
        Work::Convolution(mut each) => {
            for address in [&mut each.x, &mut each.filter, &mut each.y] {
                *address = moved(*address);
            }
            each.bias = each.bias.map(moved);
            Work::Convolution(each)
        }
    }
}
