//! Rows of the op table, and graphs, for convolutions with a max pool after them, which run as one kernel.

use memfit_ir::{
    Chain, Conv2D, DType, Fused, Graph, Kind, LossKind, Node, Op, Pads, Phase, PooledConv2D, Shape, TensorId,
    Unary,
};

use crate::op_cases::{Add, Builder, OpCase, case};

/// Filter, padding, height, width and channels of the image, and filters.
type Sizes = ([usize; 2], Pads, [usize; 3], usize);

pub(crate) fn add(add: Add<'_>) {
    let none = Pads::default();
    let around = |pad: usize| Pads { top: pad, bottom: pad, left: pad, right: pad };
    let sizes: [Sizes; 6] = [
        ([3, 3], none, [9, 8, 3], 5),
        ([3, 3], around(1), [8, 7, 1], 20),
        ([3, 3], none, [4, 7, 2], 32),
        ([5, 5], around(2), [7, 6, 1], 17),
        ([2, 3], Pads { top: 0, bottom: 1, left: 1, right: 1 }, [7, 7, 3], 6),
        ([3, 3], none, [6, 7, 4], 50),
    ];
    for (kernel, pads, image, filters) in sizes {
        let conv = Conv2D { kernel, strides: [1, 1], dilation: [1, 1], groups: 1, pads };
        let name = format!("{kernel:?} on {image:?} to {filters}");
        for relu in [false, true] {
            let tail = if relu { ", relu" } else { "" };
            let pool_after = move |b: &mut Builder, between| {
                let pooled = b.op(Op::MaxPool2D(PooledConv2D::POOL), &[between]);
                let function = Op::Elementwise(Chain::unary(Unary::Relu));
                if relu { b.op(function, &[pooled]) } else { pooled }
            };
            // Few filters: among many windows, some have two values that are equal when rounded to f16 or
            // bf16.
            if filters <= 6 {
                add(&format!("conv2d and max_pool2d {name}{tail}"), &{
                    let conv = conv.clone();
                    move |b: &mut Builder| {
                        let x = b.input(image);
                        let between = b.conv(x, conv.clone(), filters);
                        pool_after(b, between)
                    }
                });
            }
            // An image that depends on no weight needs only the filter's gradient.
            add(&format!("first conv2d and max_pool2d {name}{tail}"), &{
                let conv = conv.clone();
                move |b: &mut Builder| {
                    let ids = b.ids([image[0], image[1]], 50);
                    let colours = b.fixed("colours", &[50, image[2]]);
                    let x = b.op(Op::Embedding, &[ids, colours]);
                    let between = b.conv(x, conv.clone(), filters);
                    pool_after(b, between)
                }
            });
        }
    }
    // Winograd, for filters with many taps. The filters are not learned, since the finite differences of each
    // tap would take minutes.
    for learned in ["image", "bias"] {
        let conv = Conv2D { kernel: [5, 5], strides: [1, 1], dilation: [1, 1], groups: 1, pads: around(2) };
        add(&format!("conv2d_max_pool at points, by its {learned}"), &{
            let pooled = PooledConv2D { conv, relu: learned == "bias" };
            move |b: &mut Builder| {
                let ids = b.ids([2, 14], 3);
                let colours = match learned {
                    "image" => b.weight("colours", &[3, 16]),
                    _ => b.fixed("colours", &[3, 16]),
                };
                let x = b.op(Op::Embedding, &[ids, colours]);
                let (kernel, bias) = (b.fixed("kernel", &[5, 5, 16, 16]), b.weight("bias", &[16]));
                b.op(Op::Fused(Fused::Conv2DMaxPool(pooled.clone())), &[x, kernel, bias])
            }
        });
    }
    for (relu, strides) in [(false, [1, 1]), (true, [1, 1]), (true, [2, 1])] {
        let conv = Conv2D { kernel: [3, 3], strides, dilation: [1, 1], groups: 1, pads: none };
        add(&format!("conv2d_max_pool without bias, relu {relu} strides {strides:?}"), &{
            let pooled = PooledConv2D { conv: conv.clone(), relu };
            move |b: &mut Builder| {
                let x = b.input([6, 5, 3]);
                let kernel = b.weight("kernel", &[3, 3, 3, 4]);
                b.op(Op::Fused(Fused::Conv2DMaxPool(pooled.clone())), &[x, kernel])
            }
        });
    }
}

/// Dense layers that fuse with the pool before them: image, filter, padding, filters and units.
pub(crate) fn add_dense(add: Add<'_>) {
    let none = Pads::default();
    let around = |pad: usize| Pads { top: pad, bottom: pad, left: pad, right: pad };
    let sizes = [
        ([9, 8, 3], 3, none, 5, 3),
        ([7, 6, 1], 5, around(2), 17, 10),
        ([4, 7, 2], 3, around(1), 32, 1),
        ([8, 9, 3], 5, none, 6, 18),
        ([6, 7, 1], 3, none, 20, 4),
    ];
    for (image, taps, pads, filters, units) in sizes {
        let conv = Conv2D { kernel: [taps; 2], strides: [1, 1], dilation: [1, 1], groups: 1, pads };
        for relu in [false, true] {
            let pooled = PooledConv2D { conv: conv.clone(), relu };
            let tail = if relu { ", relu" } else { "" };
            add(&format!("dense {units} after max_pool2d of {taps} on {image:?} to {filters}{tail}"), &{
                move |b: &mut Builder| {
                    let ids = b.ids([image[0], image[1]], 50);
                    let colours = b.fixed("colours", &[50, image[2]]);
                    let x = b.op(Op::Embedding, &[ids, colours]);
                    let [height, width] = pooled.between([image[0], image[1]]).map(|size| size / 2);
                    let filter = b.weight("filter", &[taps, taps, image[2], filters]);
                    let bias = b.weight("bias", &[filters]);
                    let kernel = b.weight("kernel", &[height * width * filters, units]);
                    let kernel_bias = b.weight("kernel_bias", &[units]);
                    let op = Op::Fused(Fused::Conv2DMaxPoolDense(pooled.clone()));
                    b.op(op, &[x, filter, bias, kernel, kernel_bias])
                }
            });
        }
    }
}

/// A dense layer that fuses with the pool before it, of which an update can be fused with the gradient.
pub(crate) fn dense_after_a_pool() -> OpCase {
    case("", LossKind::MeanSquaredError, &|b| {
        let ids = b.ids([8, 9], 50);
        let colours = b.fixed("colours", &[50, 3]);
        let x = b.op(Op::Embedding, &[ids, colours]);
        let filter = b.weight("filter", &[3, 3, 3, 5]);
        let bias = b.weight("bias", &[5]);
        let kernel = b.weight("kernel", &[3 * 3 * 5, 4]);
        let kernel_bias = b.weight("kernel_bias", &[4]);
        let pads = Pads::default();
        let conv = Conv2D { kernel: [3, 3], strides: [1, 1], dilation: [1, 1], groups: 1, pads };
        let op = Op::Fused(Fused::Conv2DMaxPoolDense(PooledConv2D { conv, relu: true }));
        b.op(op, &[x, filter, bias, kernel, kernel_bias])
    })
}

/// The gradient of the input of a convolution with a max pool inside that no device computes by Winograd.
pub(crate) fn through_a_pool() -> Graph {
    let mut graph = Graph::default();
    let layer = graph.layer("layer");
    let x = graph.tensor("x", Shape::rows([7, 6, 3]), DType::F32, Kind::Input, layer);
    let dy = graph.tensor("dy", Shape::rows([2, 2, 5]), DType::F32, Kind::Input, layer);
    let kernel = Kind::Weight { trainable: false };
    let kernel = graph.tensor("kernel", Shape::fixed([3, 3, 3, 5]), DType::F32, kernel, layer);
    let conv = Conv2D { kernel: [3, 3], strides: [1, 1], dilation: [1, 1], groups: 1, pads: Pads::default() };
    let pooled = PooledConv2D { conv, relu: true };
    let forward = Op::Fused(Fused::Conv2DMaxPool(pooled.clone()));
    let argmax = graph.push(forward, &[x, kernel], layer).expect("shapes fit")[1];
    let backward = Op::Fused(Fused::Conv2DMaxPoolGradInput(pooled, [7, 6]));
    graph.push(backward, &[dy, argmax, kernel], layer).expect("shapes fit");
    graph
}

/// A convolution with its pool and the gradient of its weights: tensors in the order x, filter, bias, y,
/// argmax, dy and both sums.
pub fn pooled_graph(pooled: &PooledConv2D, image: [usize; 3], filters: usize) -> (Graph, [TensorId; 8]) {
    let mut graph = Graph::default();
    let layer = graph.layer("layer");
    let shape = Shape::fixed([pooled.conv.kernel[0], pooled.conv.kernel[1], image[2], filters]);
    let x = graph.tensor("x", Shape::rows(image), DType::F32, Kind::Input, layer);
    let weight = Kind::Weight { trainable: true };
    let filter = graph.tensor("filter", shape.clone(), DType::F32, weight, layer);
    let bias = graph.tensor("bias", Shape::fixed([filters]), DType::F32, weight, layer);
    let made = graph
        .push(Op::Fused(Fused::Conv2DMaxPool(pooled.clone())), &[x, filter, bias], layer)
        .expect("shapes fit");
    let pooled_shape = graph.tensors[made[0].0].shape.clone();
    let dy = graph.tensor("dy", pooled_shape, DType::F32, Kind::Input, layer);
    let dfilter = graph.tensor("dfilter", shape, DType::F32, Kind::Gradient, layer);
    let dbias = graph.tensor("dbias", Shape::fixed([filters]), DType::F32, Kind::Gradient, layer);
    graph.nodes.push(Node {
        op: Op::Fused(Fused::Conv2DMaxPoolGradKernel(pooled.clone())),
        inputs: vec![x, dy, made[1]],
        outputs: vec![],
        updates: vec![dfilter, dbias],
        layer,
        phase: Phase::Piece,
    });
    (graph, [x, filter, bias, made[0], made[1], dy, dfilter, dbias])
}
