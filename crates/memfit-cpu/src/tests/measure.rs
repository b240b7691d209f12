//! Measuring: what is known is not timed again, and memory and time are not exceeded.

use memfit_device::{Allowance, Line, Table};
use memfit_ir::{Bytes, Cost, DType, Graph, Kind, Op, Shape};

use crate::open;

/// A dense layer of `width` inputs with its gradients, an update, a view and a sum.
fn graph(width: usize) -> Graph {
    let mut graph = Graph::default();
    let layer = graph.layer("layer");
    let mut tensor = |shape: Shape| graph.tensor("tensor", shape, DType::F32, Kind::Activation, layer);
    let (x, dy) = (tensor(Shape::rows([width])), tensor(Shape::rows([40])));
    let (kernel, dkernel) = (tensor(Shape::fixed([width, 40])), tensor(Shape::fixed([width, 40])));
    let sum = tensor(Shape::fixed([1]));
    for (op, inputs, updates) in [
        (Op::Dense, vec![x, kernel], vec![]),
        (Op::DenseGradInput, vec![dy, kernel], vec![]),
        (Op::DenseGradKernel, vec![x, dy], vec![dkernel]),
        (Op::SumSquares, vec![dkernel], vec![sum]),
        (Op::Reshape(vec![2, 20]), vec![dy], vec![]),
        (Op::Softmax, vec![dy], vec![]),
    ] {
        graph.push_updating(op, &inputs, &updates, Kind::Activation, layer).unwrap();
    }
    graph
}

const VIEW: usize = 4;

fn check(graph: &Graph, costs: &[Cost]) {
    assert_eq!(costs.len(), graph.nodes.len());
    for (node, cost) in graph.nodes.iter().zip(costs) {
        let Cost { nanos_fixed, nanos_per_row, .. } = *cost;
        let name = node.op.name();
        assert!(nanos_fixed.is_finite() && nanos_per_row.is_finite(), "{name}: {cost:?}");
        assert!(0.0 <= nanos_fixed && 0.0 <= nanos_per_row, "{name}: {cost:?}");
        assert_eq!(0.0 < cost.nanos(1), !node.op.is_view(), "{name}: {cost:?}");
    }
}

#[test]
fn what_is_known_is_not_timed_again() {
    let (graph, setup) = (graph(300), open(Some(2)).unwrap());
    let allowance = Allowance { bytes: Bytes::mib(16), seconds: 60.0 };
    let mut known = Table::new();
    let cold = setup.measure(&graph, 64, allowance, &mut known);
    check(&graph, &cold.costs);
    assert_eq!((cold.timed, known.len()), (5, 5), "a view is not timed");
    assert!(known.values().all(Line::is_sane));
    assert_eq!(cold.costs[3].nanos_per_row, 0.0, "a sum over a weight has no rows");
    for (cost, estimate) in cold.costs.iter().zip(setup.costs(&graph)) {
        assert_eq!(cost.workspace(7), estimate.workspace(7), "measuring changes times alone");
    }
    let warm = setup.measure(&graph, 64, allowance, &mut known);
    assert_eq!((warm.timed, warm.costs), (0, cold.costs));
}

#[test]
fn without_time_or_room_the_estimate_serves() {
    let (graph, setup) = (graph(300), open(Some(1)).unwrap());
    for (bytes, seconds) in [(Bytes::mib(16), 0.0), (Bytes::ZERO, 60.0), (Bytes(100), 60.0)] {
        let mut known = Table::new();
        let measured = setup.measure(&graph, 64, Allowance { bytes, seconds }, &mut known);
        check(&graph, &measured.costs);
        assert_eq!((measured.timed, known.len()), (0, 0));
        let estimates = setup.costs(&graph);
        for (index, (cost, estimate)) in measured.costs.iter().zip(estimates).enumerate() {
            assert!(index == VIEW || cost.nanos(64) == estimate.nanos(64));
        }
    }
    let mut known = Table::new();
    let hurried = setup.measure(&graph, 64, Allowance { bytes: Bytes::mib(16), seconds: 1e-9 }, &mut known);
    check(&graph, &hurried.costs);
    assert!(hurried.timed <= 1);
}

#[test]
fn what_is_timed_and_what_is_not_make_up_the_whole() {
    let (graph, setup) = (graph(300), open(Some(1)).unwrap());
    let mut known = Table::new();
    let seconds = 60.0;
    let whole = setup.measure(&graph, 64, Allowance { bytes: Bytes::mib(16), seconds }, &mut known).coverage;
    assert_eq!((whole.kinds_measured, whole.kinds, whole.share), (5, 5, 1.0));
    known.retain(|signature, _| signature.starts_with("dense "));
    let part = setup.measure(&graph, 64, Allowance { bytes: Bytes::ZERO, seconds }, &mut known).coverage;
    assert_eq!((part.kinds_measured, part.kinds), (1, 5));
    assert!(0.0 < part.share && part.share < 1.0, "{part:?}");
}

#[test]
fn what_has_no_room_even_for_a_row_is_scaled_as_its_like_was() {
    let setup = open(Some(1)).unwrap();
    let (small, large) = (graph(300), graph(100_000));
    let mut both = small.clone();
    both.tensors.extend(large.tensors.iter().cloned());
    let shift = small.tensors.len();
    both.nodes.extend(large.nodes.iter().cloned().map(|mut node| {
        let ids = node.inputs.iter_mut().chain(&mut node.outputs).chain(&mut node.updates);
        ids.for_each(|id| id.0 += shift);
        node
    }));
    let mut known = Table::new();
    // The larger kernel alone is 15 MiB.
    let measured = setup.measure(&both, 8, Allowance { bytes: Bytes::mib(4), seconds: 60.0 }, &mut known);
    check(&both, &measured.costs);
    assert_eq!(measured.timed, 5, "what the two have in common, and the products of the small one");
    let estimates = setup.costs(&both);
    let ratio = |node: usize| measured.costs[node].nanos(8) / estimates[node].nanos(8);
    let mut products = [ratio(0), ratio(1), ratio(2)];
    products.sort_by(f64::total_cmp);
    assert!((ratio(6) - products[1]).abs() <= 1e-9 * products[1], "{} and {products:?}", ratio(6));
}
