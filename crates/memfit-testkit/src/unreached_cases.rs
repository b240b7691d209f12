//! Graphs of ops that no row of the op table has, since they have no gradient or come from a rewrite: for one device beside another.

use memfit_grad::{Optimizer, Training, training_graph};
use memfit_ir::{
    Attention, AttentionDropout, Augment, Binary, Budget, Bytes, Chain, Change, Cost, DType, Fill, Graph,
    Interpolation, Kind, Link, LossKind, Norm, Op, Problem, Region, Sampling, Shape, Transfers, Unary,
};

use crate::op_cases::{ROWS, case};

/// All graphs, with their names.
pub(crate) fn unreached_cases() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for dtype in [DType::F32, DType::BF16] {
        for (scale, center) in [(true, true), (false, false)] {
            let name = format!("batch norm and what is behind it, of {dtype}, scale {scale}");
            graphs.push((name, batch_norm_then(&Norm { epsilon: 1e-3, scale, center }, dtype)));
        }
        for change in changes() {
            graphs.push((format!("augment {change:?} of {dtype}"), augment(change, dtype)));
        }
    }
    graphs.push(("a region in slices".to_owned(), in_slices()));
    graphs
}

/// A normalisation with a chain behind it, and its moving statistics.
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
    let op = Op::BatchNormThen(norm.clone(), Chain { inputs: 2, links });
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
    let training = Training { losses: vec![case.loss], ..Training::new(Optimizer::sgd(0.1)) };
    let graph = training_graph(&case.forward, &training).expect("the case trains");
    let none = Cost {
        workspace_fixed: Bytes::ZERO,
        workspace_per_row: Bytes::ZERO,
        nanos_fixed: 0.0,
        nanos_per_row: 0.0,
        measured: None,
    };
    let budget = Budget { total: Bytes::ZERO, runtime: Bytes::ZERO, granule: Bytes::ZERO, host: Bytes::ZERO };
    let costs = vec![none; graph.nodes.len()];
    let problem = Problem {
        graph,
        costs,
        budget,
        batch: ROWS,
        allow_batchnorm_split: false,
        transfers: Transfers::default(),
    };
    let attention = problem.graph.nodes.iter().find(|node| matches!(node.op, Op::Attention(_)));
    let boundary = attention.expect("it has one").outputs[0];
    Region { boundary, slices: 2, keeps: false }.applied(&problem).expect("it can be cut there").graph
}
