//! Graphs of ops that no row of the op table has, since they have no gradient or come from a rewrite. Two
//! devices are compared on them.

use memfit_grad::{Optimizer, Training, training_graph};
use memfit_ir::{
    Attention, AttentionDropout, Augment, Average, Binary, Budget, Bytes, Chain, Change, Conv2D, Cost, DType,
    Fill, Fused, Graph, Interpolation, Kind, Link, Loss, LossKind, Norm, Op, Pads, Problem, ProducerFusions,
    Region, Rewrite, Rewritten, Sampling, Shape, TensorId, Transfers, Unary, UpdateFusion,
};

use crate::harness::training;
use crate::op_cases::{OpCase, ROWS, case};
use crate::pooled_cases;

/// All graphs, with their names.
pub(crate) fn unreached_cases() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for dtype in [DType::F32, DType::BF16] {
        for (scale, center) in [(true, true), (false, false)] {
            let name = format!("batch norm and what comes after it, of {dtype}, scale {scale}");
            graphs.push((name, batch_norm_then(&Norm { epsilon: 1e-3, scale, center }, dtype)));
        }
        for change in changes() {
            graphs.push((format!("augment {change:?} of {dtype}"), augment(change, dtype)));
        }
    }
    graphs.push(("an embedding whose squares are summed as TensorFlow does".to_owned(), like_tensorflow()));
    graphs.push(("a gradient through a pool and few channels".to_owned(), pooled_cases::through_a_pool()));
    graphs.push(("a region in slices".to_owned(), in_slices()));
    graphs.push(("producers fused into their readers".to_owned(), producers_fused()));
    graphs.push(("updates fused into the ops of their gradients".to_owned(), updates_fused()));
    graphs.push((
        "an update fused into the gradient of a dense layer after a pool".to_owned(),
        with_updates_fused(&pooled_cases::dense_after_a_pool(), Optimizer::adam(), 1),
    ));
    graphs
}

/// An embedding under Adam, with `like = "tensorflow"`.
fn like_tensorflow() -> Graph {
    let mut forward = Graph::default();
    let layer = forward.layer("words");
    let ids = forward.tensor("ids", Shape::rows([3]), DType::I32, Kind::Input, layer);
    let weight = Kind::Weight { trainable: true };
    let table = forward.tensor("table", Shape::fixed([5, 4]), DType::F32, weight, layer);
    forward.inputs.push(ids);
    forward.outputs = forward.push(Op::Embedding, &[ids, table], layer).expect("a table");
    let losses = vec![Loss { kind: LossKind::MeanSquaredError, weight: 1.0 }];
    let training = Training { losses, like_tensorflow: true, ..training(Optimizer::adam()) };
    training_graph(&forward, &training).expect("Adam can do as TensorFlow does")
}

/// A normalisation with a chain after it, and its moving statistics.
fn batch_norm_then(norm: &Norm, dtype: DType) -> Graph {
    let mut graph = Graph::default();
    let layer = graph.layer("norm");
    let dims = [5, 3, 8];
    let mut values = |name: &str| {
        let x = graph.tensor(name, Shape::rows(dims), DType::F32, Kind::Input, layer);
        if dtype == DType::F32 { x } else { graph.push(Op::Cast(dtype), &[x], layer).expect("floats")[0] }
    };
    let (x, other) = (values("x"), values("other"));
    let mut weight = |name: &str| {
        graph.tensor(name, Shape::fixed([8]), DType::F32, Kind::Weight { trainable: false }, layer)
    };
    let mut operands = vec![x];
    operands.extend(norm.scale.then(|| weight("gamma")));
    operands.extend(norm.center.then(|| weight("beta")));
    let moving = ["moving_mean", "moving_variance"].map(weight);
    let statistics = graph.push(Op::BatchNormStatistics, &[x], layer).expect("an image has channels");
    graph
        .push_updating(Op::BatchNormMoving { momentum: 0.9 }, &statistics, &moving, Kind::Flow, layer)
        .expect("statistics are alike");
    operands.extend(statistics);
    operands.push(other);
    let links = vec![Link::Binary(Binary::Add, 0, 1), Link::Unary(Unary::Relu, 2)];
    let op = Op::Fused(Fused::BatchNormThen(norm.clone(), Chain { inputs: 2, links }));
    graph.push(op, &operands, layer).expect("both are of one shape");
    graph
}

fn changes() -> Vec<Change> {
    let sampling = |interpolation, fill| Sampling { interpolation, fill };
    vec![
        Change::Flip { horizontal: true, vertical: true },
        Change::Crop { height: 4, width: 3 },
        Change::Rotate { turns: [-0.2, 0.3], sampling: sampling(Interpolation::Bilinear, Fill::Reflect) },
        Change::Translate {
            height: [-0.4, 0.4],
            width: [-0.3, 0.3],
            sampling: sampling(Interpolation::Nearest, Fill::Wrap),
        },
        Change::Zoom {
            height: [-0.3, 0.4],
            width: None,
            sampling: sampling(Interpolation::Bilinear, Fill::Constant(0.3)),
        },
        Change::Zoom {
            height: [-0.3, 0.4],
            width: Some([0.1, 0.2]),
            sampling: sampling(Interpolation::Nearest, Fill::Nearest),
        },
        Change::Contrast { factor: [0.5, 1.5], range: [-1.0, 1.0] },
        Change::Brightness { share: [-0.5, 0.5], range: [-1.0, 1.0] },
    ]
}

fn augment(change: Change, dtype: DType) -> Graph {
    let mut graph = Graph::default();
    let layer = graph.layer("augment");
    let mut x = graph.tensor("x", Shape::rows([7, 6, 3]), DType::F32, Kind::Input, layer);
    if dtype != DType::F32 {
        x = graph.push(Op::Cast(dtype), &[x], layer).expect("floats can be cast")[0];
    }
    graph.push(Op::Augment(Augment { change, seed: 9 }), &[x], layer).expect("it is an image");
    graph
}

/// Convolutions of all kinds after normalisations and activations. The gradients of their kernels recompute
/// their images.
fn producers_fused() -> Graph {
    let case = case("", LossKind::MeanSquaredError, &|b| {
        let mut x = b.input([6, 5, 4]);
        let one_by_one =
            Conv2D { kernel: [1, 1], strides: [1, 1], dilation: [1, 1], groups: 1, pads: Pads::default() };
        for (kernel, groups) in [(3, 1), (1, 1), (3, 6)] {
            let pad = kernel / 2;
            let conv = Conv2D {
                kernel: [kernel, kernel],
                strides: [1, 1],
                dilation: [1, 1],
                groups,
                pads: Pads { top: pad, bottom: pad, left: pad, right: pad },
            };
            x = b.conv(x, conv, 6);
            let operands = vec![x, b.weight("gamma", &[6]), b.weight("beta", &[6])];
            let normal = b.batch_norm(&Norm { epsilon: 1e-3, scale: true, center: true }, operands);
            let function = if groups == 1 { Unary::Relu } else { Unary::Gelu };
            x = b.op(Op::Elementwise(Chain::unary(function)), &[normal]);
            if kernel == 1 {
                // What is normalised is read once more, so the signs of what the ReLU gave are needed.
                let other = b.op(Op::Elementwise(Chain::unary(Unary::Gelu)), &[normal]);
                let convolved = b.conv(x, one_by_one.clone(), 6);
                x = b.op(Op::Elementwise(Chain::binary(Binary::Add)), &[convolved, other]);
            }
        }
        b.conv(x, one_by_one, 3)
    });
    let training = Training { losses: vec![case.loss], ..training(Optimizer::sgd(0.1)) };
    let graph = training_graph(&case.forward, &training).expect("the case trains");
    let (graph, readers) = ProducerFusions::all(&graph);
    assert!(graph.rewrites.len() == 3 && 3 < readers.len(), "{graph}");
    graph
}

/// A network whose first part runs in slices of the batch, with draws that must not depend on that.
fn in_slices() -> Graph {
    let case = case("", LossKind::MeanSquaredError, &|b| {
        let x = b.input([4, 6]);
        let dense = b.dense(x, 6, true);
        let dropped = b.op(Op::Dropout { rate: 0.3, seed: 9 }, &[dense]);
        let heads = b.op(Op::Reshape(vec![4, 2, 3]), &[dropped]);
        let dropout = Some(AttentionDropout { rate: 0.4, seed: 9 });
        let kind = Attention { scale: 0.7, dropout, ..Attention::default() };
        let seen = b.op(Op::Attention(kind), &[heads, heads, heads]);
        let flat = b.op(Op::Reshape(vec![24]), &[seen]);
        b.dense(flat, 3, true)
    });
    let training = Training { losses: vec![case.loss], ..training(Optimizer::sgd(0.1)) };
    let graph = training_graph(&case.forward, &training).expect("the case trains");
    let problem = problem_of(graph);
    let attention = problem.graph.nodes.iter().find(|node| matches!(node.op, Op::Attention(_)));
    let boundary = attention.expect("it has one").outputs[0];
    Region { boundary, slices: 2, keeps: false }.applied(&problem).expect("it can be cut there").graph
}

/// Dense layers with fused optimizer updates: their kernels' gradients never exist as whole tensors.
fn updates_fused() -> Graph {
    let case = case("", LossKind::MeanSquaredError, &|b| {
        let x = b.input([3, 40]);
        let hidden = b.dense(x, 20, true);
        let flat = b.op(Op::Reshape(vec![60]), &[hidden]);
        b.dense(flat, 5, true)
    });
    let average = Some(Average { momentum: 0.9, overwrite_every: None });
    let optimizer = Optimizer { average, ..Optimizer::adam() };
    with_updates_fused(&case, optimizer, 2)
}

/// The training graph of a case with every update fused that can be; `count` is how many.
fn with_updates_fused(case: &OpCase, optimizer: Optimizer, count: usize) -> Graph {
    let training = Training { losses: vec![case.loss.clone()], ..training(optimizer) };
    let mut problem = problem_of(training_graph(&case.forward, &training).expect("the case trains"));
    let gradients: Vec<TensorId> = UpdateFusion::all(&problem.graph).iter().map(|of| of.gradient).collect();
    assert_eq!(gradients.len(), count);
    problem.costs_rewritten = gradients.iter().map(|id| (Rewritten::Update(*id), Cost::default())).collect();
    let rewrites: Vec<Rewrite> = gradients.into_iter().map(Rewrite::FuseUpdate).collect();
    problem.rewritten(&rewrites).expect("all can be fused").into_owned().graph
}

/// A problem where nothing costs anything.
fn problem_of(graph: Graph) -> Problem {
    let none = Cost {
        workspace_fixed: Bytes::ZERO,
        workspace_per_row: Bytes::ZERO,
        nanos_fixed: 0.0,
        nanos_per_row: 0.0,
        measured: None,
        leaner: Default::default(),
    };
    let budget = Budget { total: Bytes::ZERO, runtime: Bytes::ZERO, granule: Bytes::ZERO, host: Bytes::ZERO };
    let costs = vec![none; graph.nodes.len()];
    Problem {
        graph,
        costs,
        budget,
        batch: ROWS,
        costs_rewritten: Default::default(),
        allow_batchnorm_split: false,
        transfers: Transfers::default(),
        pinned: memfit_ir::Pinned::default(),
    }
}
