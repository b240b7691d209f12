//! Costs: workspace that is enough for every smaller micro-batch, and times that order nodes sensibly.

use memfit_ir::{Bytes, Conv2D, DType, Graph, Kind, Op, Pads, Shape};

use crate::open;

/// A dense layer and a convolution with their gradients.
fn graph() -> Graph {
    let mut graph = Graph::default();
    let layer = graph.layer("layer");
    let mut tensor = |shape: Shape| graph.tensor("tensor", shape, DType::F32, Kind::Activation, layer);
    let (x, kernel, dy) =
        (tensor(Shape::rows([300])), tensor(Shape::fixed([300, 40])), tensor(Shape::rows([40])));
    let (images, filters) = (tensor(Shape::rows([9, 9, 8])), tensor(Shape::fixed([3, 3, 8, 16])));
    let dy_image = tensor(Shape::rows([9, 9, 16]));
    let pads = Pads { top: 1, bottom: 1, left: 1, right: 1 };
    let conv = Conv2D { kernel: [3, 3], strides: [1, 1], dilation: [1, 1], groups: 1, pads };
    for (op, inputs, updates) in [
        (Op::Dense, vec![x, kernel], vec![]),
        (Op::DenseGradInput, vec![dy, kernel], vec![]),
        (Op::DenseGradKernel, vec![x, dy], vec![kernel]),
        (Op::Conv2D(conv.clone()), vec![images, filters], vec![]),
        (Op::Conv2DGradInput(conv.clone(), [9, 9]), vec![dy_image, filters], vec![]),
        (Op::Conv2DGradKernel(conv), vec![images, dy_image], vec![filters]),
        (Op::Reshape(vec![3, 100]), vec![x], vec![]),
    ] {
        graph.push_updating(op, &inputs, &updates, Kind::Activation, layer).unwrap();
    }
    graph
}

#[test]
fn more_rows_take_longer_and_views_cost_a_launch() {
    let graph = graph();
    let costs = open(Some(1)).unwrap().costs(&graph);
    for (cost, node) in costs.iter().zip(&graph.nodes) {
        assert!(0.0 < cost.nanos_fixed, "{}", node.op.name());
        assert_eq!(0.0 < cost.nanos_per_row, !node.op.is_view(), "{}", node.op.name());
    }
    let faster = open(Some(2)).unwrap().costs(&graph);
    assert!(faster[0].nanos(1000) < costs[0].nanos(1000));
    assert_eq!(costs[6].workspace(1 << 20), Bytes::ZERO);
}
