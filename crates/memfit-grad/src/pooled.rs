//! A convolution and the max pool after it become one node, so that the image between them is never stored.
//!
//! Two kinds of convolutions are joined: those of few channels, whose output is many times larger than their
//! input, and those that the device computes by Winograd and takes a pool inside, where a tile is a window of the pool. In all others the
//! products cost more than the bytes. The gradients of both are here too.

use memfit_ir::Operand::{Argmax, Bias, Filter, FilterBias, Kernel, X, Y};
use memfit_ir::{
    Chain, Conv2D, DType, Fused, Graph, Kind, Node, Op, PooledConv2D, Shape, TensorId, Unary, Winograd,
};

use crate::GradError;
use crate::rules::{Backward, needs};

/// With this many channels or more, there is more to compute than to move.
const CHANNELS: usize = 16;
/// The most products of one output.
const PRODUCTS: usize = 128;
/// The most units of a dense layer that takes a pool inside, and the fewest floats that it reads of a row.
const UNITS: usize = 32;
const FLOATS: usize = 1 << 16;

/// The node that alone reads each tensor, where there is one. `wanted` names tensors that have other readers.
fn only_readers(graph: &Graph, wanted: &[TensorId]) -> Vec<Option<usize>> {
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.tensors.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        for tensor in &node.inputs {
            readers[tensor.0].push(index);
        }
    }
    let asked = graph.outputs.iter().chain(&graph.keep).chain(wanted);
    let others = graph.activities.iter().map(|(tensor, _)| tensor);
    for tensor in asked.chain(others) {
        // No single reader then.
        readers[tensor.0].extend([usize::MAX; 2]);
    }
    let only = |readers: Vec<usize>| match readers[..] {
        [reader] => Some(reader),
        _ => None,
    };
    readers.into_iter().map(only).collect()
}

/// A ReLU after a max pool runs in it: a result that it made 0 has no argmax, so that backward needs no
/// signs.
pub fn relu_inside(graph: &mut Graph, wanted: &[TensorId]) {
    let readers = only_readers(graph, wanted);
    let mut gone = vec![false; graph.nodes.len()];
    for index in 0..graph.nodes.len() {
        let Op::MaxPool2D(pool) = &graph.nodes[index].op else { continue };
        let relu = readers[graph.nodes[index].output(Y).0]
            .filter(|reader| graph.nodes[*reader].op == Op::Elementwise(Chain::unary(Unary::Relu)));
        let Some(relu) = relu.filter(|_| pool.can_rectify()) else { continue };
        gone[relu] = true;
        let (op, y) = (Op::MaxPool2DRelu(pool.clone()), graph.nodes[relu].output(Y));
        let argmax = graph.nodes[index].output(Argmax);
        (graph.nodes[index].op, graph.nodes[index].outputs) = (op, vec![y, argmax]);
    }
    let mut gone = gone.into_iter();
    graph.nodes.retain(|_| !gone.next().expect("one mark a node"));
}

/// Joins every such pair, and a ReLU after it. `winograd` says which convolutions use it with a pool inside, `wanted` names tensors that
/// have other readers.
pub fn pool_inside(graph: &mut Graph, winograd: Option<Winograd>, wanted: &[TensorId]) {
    let readers = only_readers(graph, wanted);
    let only_reader = |tensor: TensorId| readers[tensor.0];
    let mut gone = vec![false; graph.nodes.len()];
    for first in 0..graph.nodes.len() {
        let Op::Conv2D(conv) = &graph.nodes[first].op else { continue };
        let Some(second) = only_reader(graph.nodes[first].output(Y)) else { continue };
        if graph.nodes[second].op != Op::MaxPool2D(PooledConv2D::POOL) {
            continue;
        }
        let by_winograd = winograd.is_some_and(|winograd| uses_winograd(graph, first, conv, winograd));
        if !(pays(graph, first, conv) || by_winograd) {
            continue;
        }
        let relu = only_reader(graph.nodes[second].output(Y))
            .filter(|reader| graph.nodes[*reader].op == Op::Elementwise(Chain::unary(Unary::Relu)));
        let pooled = PooledConv2D { conv: conv.clone(), relu: relu.is_some() };
        if let Some(relu) = relu {
            graph.nodes[second].outputs =
                vec![graph.nodes[relu].output(Y), graph.nodes[second].output(Argmax)];
            gone[relu] = true;
        }
        gone[first] = true;
        let (inputs, layer) = (graph.nodes[first].inputs.clone(), graph.nodes[first].layer);
        let joined = &mut graph.nodes[second];
        (joined.op, joined.inputs, joined.layer) = (Op::Fused(Fused::Conv2DMaxPool(pooled)), inputs, layer);
    }
    let mut gone = gone.into_iter();
    graph.nodes.retain(|_| !gone.next().expect("one mark a node"));
}

/// A dense layer of few units that alone reads what such a pair gives takes it inside, where nothing before it learns: what the pool
/// gives is never stored, and what goes back through it is not either.
pub fn dense_inside(graph: &mut Graph, wanted: &[TensorId]) {
    let (readers, needs) = (only_readers(graph, wanted), needs(graph, wanted));
    let mut gone = vec![false; graph.nodes.len()];
    for first in 0..graph.nodes.len() {
        let Op::Fused(Fused::Conv2DMaxPool(pooled)) = &graph.nodes[first].op else { continue };
        let reader_of = |index: usize| readers[graph.nodes[index].output(Y).0];
        let view = reader_of(first).filter(|view| matches!(graph.nodes[*view].op, Op::Reshape(_)));
        let Some(view) = view else { continue };
        let Some(last) = reader_of(view).filter(|last| graph.nodes[*last].op == Op::Dense) else { continue };
        let [conv, dense] = [first, last].map(|index| &graph.nodes[index]);
        let inputs: Vec<TensorId> = conv.inputs.iter().chain(&dense.inputs[1..]).copied().collect();
        let [image, weights @ ..] = &inputs[..] else { continue };
        let is = |id: &TensorId, kind: Kind| graph.tensors[id.0].kind == kind;
        let suits = weights.len() == 4
            && weights.iter().all(|id| is(id, Kind::Weight { trainable: true }))
            && !needs[image.0]
            && pooled.picks(graph.tensors[image.0].shape.last());
        if !suits || !takes(&graph.tensors[dense.input(Kernel).0].shape.dims) {
            continue;
        }
        let (op, argmax) = (Op::Fused(Fused::Conv2DMaxPoolDense(pooled.clone())), conv.output(Argmax));
        (gone[first], gone[view]) = (true, true);
        let joined = &mut graph.nodes[last];
        (joined.op, joined.inputs) = (op, inputs);
        joined.outputs.push(argmax);
    }
    let mut gone = gone.into_iter();
    graph.nodes.retain(|_| !gone.next().expect("one mark a node"));
}

/// Whether a dense layer with a kernel of these dimensions has few units, and inputs that are expensive to
/// store.
fn takes(kernel: &[usize]) -> bool {
    matches!(kernel, [floats, units] if *units <= UNITS && FLOATS <= *floats)
}

/// Whether a convolution of f32 uses Winograd.
fn uses_winograd(graph: &Graph, node: usize, conv: &Conv2D, winograd: Winograd) -> bool {
    let [x, y] = [graph.nodes[node].input(X), graph.nodes[node].output(Y)].map(|id| &graph.tensors[id.0]);
    let across = |shape: &Shape| shape.dims[1];
    x.dtype == DType::F32
        && winograd.takes(conv, [&x.shape, &y.shape].map(across), [&x.shape, &y.shape].map(Shape::last))
}

/// Whether a convolution of few channels and its pool are faster as one.
fn pays(graph: &Graph, node: usize, conv: &Conv2D) -> bool {
    let image = &graph.tensors[graph.nodes[node].input(X).0];
    let channels = image.shape.last();
    // f16 and bf16 are rounded before the pool, so that the argmax is that of Keras.
    image.dtype == DType::F32
        && conv.groups == 1
        && conv.dilation == [1, 1]
        && conv.strides == [1, 1]
        && channels < CHANNELS
        && conv.kernel[0] * conv.kernel[1] * channels <= PRODUCTS
}

impl Backward {
    /// The gradient of a convolution with its pool, and a dense layer after them where it is fused too. No other fused op stands in a
    /// forward graph.
    pub(crate) fn pooled(&mut self, fused: &Fused, node: &Node, dy: TensorId) -> Result<(), GradError> {
        if let Fused::Conv2DMaxPool(pooled) = fused {
            self.pooled_conv(pooled, node, dy);
            Ok(())
        } else if let Fused::Conv2DMaxPoolDense(pooled) = fused
            && !self.needs[node.input(X).0]
        {
            self.pooled_dense(pooled, node, dy);
            Ok(())
        } else {
            Err(self.no_rule(node))
        }
    }

    /// With Winograd, or without a gradient of the input, the gradient of the image between convolution and
    /// pool is never needed.
    fn pooled_conv(&mut self, pooled: &PooledConv2D, node: &Node, dy: TensorId) {
        let (x, argmax, layer) = (node.input(X), node.output(Argmax), node.layer);
        let (kernel, bias) = (node.input(Kernel), node.input_if_given(Bias));
        let image = self.image_size(x);
        let [channels, filters] = [x, dy].map(|id| self.graph.tensors[id.0].shape.last());
        let size = [image[0], image[1], channels];
        if self.winograd.is_some_and(|winograd| winograd.takes_pooled(pooled, size, filters)) {
            self.weight(
                Op::Fused(Fused::Conv2DMaxPoolGradKernel(pooled.clone())),
                &[x, dy, argmax],
                kernel,
                layer,
            );
            if let Some(bias) = bias {
                let (op, summed) = if pooled.relu {
                    (Op::ArgmaxBiasGrad, vec![dy, argmax])
                } else {
                    (Op::BiasGrad, vec![dy])
                };
                self.weight(op, &summed, bias, layer);
            }
            if self.needs[x.0] {
                let op = Op::Fused(Fused::Conv2DMaxPoolGradInput(pooled.clone(), image));
                let dx = self.flow(op, &[dy, argmax, kernel], layer);
                self.add(x, dx);
            }
            return;
        }
        if self.needs[x.0] {
            let op = Op::MaxPool2DGrad(PooledConv2D::POOL, pooled.between(image));
            let between = self.flow(op, &[dy, argmax], layer);
            let conv = &pooled.conv;
            self.kernel_and_bias(Op::Conv2DGradKernel(conv.clone()), node, between);
            let dx = self.flow(Op::Conv2DGradInput(conv.clone(), image), &[between, kernel], layer);
            return self.add(x, dx);
        }
        let weights = || [kernel].into_iter().chain(bias);
        if weights().any(|weight| self.needs[weight.0]) {
            let updates: Vec<TensorId> = weights().map(|weight| self.weight_gradient(weight)).collect();
            let op = Op::Fused(Fused::Conv2DMaxPoolGradKernel(pooled.clone()));
            self.graph
                .push_updating(op, &[x, dy, argmax], &updates, Kind::Flow, layer)
                .expect("operands come from a forward node that passed the shape rules");
        }
    }

    /// One node for the gradients of the dense layer's kernel and of the filter and bias before it: the
    /// pool's output is recomputed, and its gradient is never stored.
    fn pooled_dense(&mut self, pooled: &PooledConv2D, node: &Node, dy: TensorId) {
        let [x, filter, filter_bias, kernel] =
            [X, Filter, FilterBias, Kernel].map(|operand| node.input(operand));
        let updates = [kernel, filter, filter_bias].map(|weight| self.weight_gradient(weight));
        let reads = [x, filter, filter_bias, kernel, node.output(Argmax), dy];
        self.graph
            .push_updating(
                Op::Fused(Fused::Conv2DMaxPoolDenseGrad(pooled.clone())),
                &reads,
                &updates,
                Kind::Flow,
                node.layer,
            )
            .expect("operands come from a forward node that passed the shape rules");
        self.weight(Op::BiasGrad, &[dy], node.input(Bias), node.layer);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use memfit_ir::{Capabilities, Fusions, Loss, LossKind, Pads, WinogradFilter};

    use super::*;
    use crate::{Optimizer, Training};

    const WINOGRAD: Winograd = Winograd {
        filters: &[WinogradFilter { taps: 5, points: 6, channels_min: 16 }],
        width_min: 14,
        width_min_deep: 14,
        channels_deep: usize::MAX,
        products_max: 1.0,
    };

    /// The names of the ops of a convolution of `channels` channels, a pool and a ReLU, after all rewrites
    /// that join them.
    fn ops(channels: usize, dtype: DType, change: impl Fn(&mut Graph, [TensorId; 3])) -> Vec<&'static str> {
        let mut graph = Graph::default();
        let layer = graph.layer("layer");
        let image = graph.tensor("image", Shape::rows([9, 8, channels]), dtype, Kind::Input, layer);
        let shape = Shape::fixed([3, 3, channels, 4]);
        let kernel = graph.tensor("kernel", shape, DType::F32, Kind::Weight { trainable: true }, layer);
        let conv =
            Conv2D { kernel: [3, 3], strides: [1, 1], dilation: [1, 1], groups: 1, pads: Pads::default() };
        let between = graph.push(Op::Conv2D(conv), &[image, kernel], layer).unwrap()[0];
        let pooled = graph.push(Op::MaxPool2D(PooledConv2D::POOL), &[between], layer).unwrap()[0];
        let relu = Op::Elementwise(Chain::unary(Unary::Relu));
        let activated = graph.push(relu, &[pooled], layer).unwrap()[0];
        graph.outputs = vec![activated];
        change(&mut graph, [between, pooled, activated]);
        pool_inside(&mut graph, Some(WINOGRAD), &[]);
        graph.nodes.iter().map(|node| node.op.name()).collect()
    }

    /// The names of the ops of a convolution with its pool and a dense layer of `units` units over images of
    /// a size, after all rewrites that join them.
    fn dense_ops(side: usize, units: usize, change: impl Fn(&mut Graph, [TensorId; 3])) -> Vec<&'static str> {
        let mut graph = Graph::default();
        let layer = graph.layer("layer");
        let image = graph.tensor("image", Shape::rows([side, side, 3]), DType::F32, Kind::Input, layer);
        let mut weight = |name: &str, dims: &[usize]| {
            graph.tensor(
                name,
                Shape::fixed(dims.to_vec()),
                DType::F32,
                Kind::Weight { trainable: true },
                layer,
            )
        };
        let floats = (side / 2 - 1).pow(2) * 8;
        let (filter, bias) = (weight("filter", &[3, 3, 3, 8]), weight("bias", &[8]));
        let (kernel, kernel_bias) = (weight("kernel", &[floats, units]), weight("kernel_bias", &[units]));
        let conv =
            Conv2D { kernel: [3, 3], strides: [1, 1], dilation: [1, 1], groups: 1, pads: Pads::default() };
        let pooled = Op::Fused(Fused::Conv2DMaxPool(PooledConv2D { conv, relu: true }));
        let pooled = graph.push(pooled, &[image, filter, bias], layer).unwrap()[0];
        let flat = graph.push(Op::Reshape(vec![floats]), &[pooled], layer).unwrap()[0];
        let y = graph.push(Op::Dense, &[flat, kernel, kernel_bias], layer).unwrap()[0];
        graph.outputs = vec![y];
        change(&mut graph, [image, flat, kernel]);
        dense_inside(&mut graph, &[]);
        graph.nodes.iter().map(|node| node.op.name()).collect()
    }

    #[test]
    fn a_dense_layer_of_few_units_takes_a_large_pool_inside_where_nothing_before_it_learns() {
        let apart = ["conv2d_max_pool", "reshape", "dense"];
        assert_eq!(dense_ops(200, 10, |_, _| {}), ["conv2d_max_pool_dense"]);
        assert_eq!(dense_ops(100, 10, |_, _| {}), apart);
        assert_eq!(dense_ops(200, 33, |_, _| {}), apart);
        assert_eq!(dense_ops(200, 10, |graph, [_, flat, _]| graph.keep.push(flat)), apart);
        let learned = Kind::Weight { trainable: true };
        assert_eq!(dense_ops(200, 10, |graph, [image, ..]| graph.tensors[image.0].kind = learned), apart);
        let frozen = Kind::Weight { trainable: false };
        assert_eq!(dense_ops(200, 10, |graph, [.., kernel]| graph.tensors[kernel.0].kind = frozen), apart);
    }

    #[test]
    fn a_pool_runs_in_the_convolution_before_it_where_the_image_between_has_no_other_reader() {
        let apart = ["conv2d", "max_pool2d", "elementwise"];
        assert_eq!(ops(3, DType::F32, |_, _| {}), ["conv2d_max_pool"]);
        assert_eq!(ops(3, DType::F32, |graph, [between, ..]| graph.outputs.push(between)), apart);
        assert_eq!(ops(3, DType::F32, |graph, [between, ..]| graph.keep.push(between)), apart);
        let with_relu = ["conv2d_max_pool", "elementwise"];
        assert_eq!(ops(3, DType::F32, |graph, [_, pooled, _]| graph.outputs.push(pooled)), with_relu);
        assert_eq!(ops(16, DType::F32, |_, _| {}), apart);
        assert_eq!(ops(3, DType::BF16, |_, _| {}), apart);
    }

    /// The ops of a graph that trains a convolution of `channels` channels and its pool, after a layer that
    /// learns too.
    fn trained_ops(channels: usize, fusions: Fusions) -> Vec<&'static str> {
        let mut graph = Graph::default();
        let layer = graph.layer("layer");
        let image = graph.tensor("image", Shape::rows([14, 14, channels]), DType::F32, Kind::Input, layer);
        let mut weight = |name: &str, dims: &[usize]| {
            let (shape, kind) = (Shape::fixed(dims.to_vec()), Kind::Weight { trainable: true });
            graph.tensor(name, shape, DType::F32, kind, layer)
        };
        let (scale, bias) = (weight("scale", &[channels]), weight("bias", &[channels]));
        let kernel = weight("kernel", &[5, 5, channels, channels]);
        let pads = Pads { top: 2, bottom: 2, left: 2, right: 2 };
        let conv = Conv2D { kernel: [5, 5], strides: [1, 1], dilation: [1, 1], groups: 1, pads };
        let scaled =
            graph.push(Op::Affine { scale: true, center: false }, &[image, scale], layer).unwrap()[0];
        let between = graph.push(Op::Conv2D(conv), &[scaled, kernel, bias], layer).unwrap()[0];
        let pooled = graph.push(Op::MaxPool2D(PooledConv2D::POOL), &[between], layer).unwrap()[0];
        let relu = Op::Elementwise(Chain::unary(Unary::Relu));
        graph.outputs = graph.push(relu, &[pooled], layer).unwrap();
        let loss = Loss { kind: LossKind::MeanSquaredError, weight: 1.0 };
        let capabilities = Capabilities { fusions, ..Capabilities::default() };
        let training = Training { losses: vec![loss], capabilities, ..Training::new(Optimizer::sgd(0.1)) };
        let graph = crate::training_graph(&graph, &training).unwrap();
        let of_images = |name: &&str| name.contains("conv2d") || name.contains("pool");
        graph.nodes.iter().map(|node| node.op.name()).filter(of_images).collect()
    }

    #[test]
    fn by_winograd_the_image_between_has_no_gradient_either() {
        let joined = ["conv2d_max_pool", "conv2d_max_pool_grad_kernel", "conv2d_max_pool_grad_input"];
        let apart =
            ["conv2d", "max_pool2d_relu", "max_pool2d_grad", "conv2d_grad_kernel", "conv2d_grad_input"];
        let winograd = Fusions { winograd_max_pool: Some(WINOGRAD), ..Fusions::default() };
        assert_eq!(trained_ops(16, winograd), joined);
        assert_eq!(trained_ops(16, Fusions::default()), apart);
        // The device takes no fewer channels by Winograd, and more than few are not joined without it.
        let few = ["conv2d_max_pool", "max_pool2d_grad", "conv2d_grad_kernel", "conv2d_grad_input"];
        assert_eq!(trained_ops(5, winograd), few);
        assert_eq!(trained_ops(15, winograd), apart);
    }
}
