//! Lines that can be times, time that is shared out, and memory that is not exceeded.

use memfit_ir::{Bytes, Cost, DType, Graph, Kind, Op, Shape};

use super::{Allowance, Line, Table, level};
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
fn a_line_never_falls_never_begins_below_0_and_meets_the_larger_time() {
    for (one, rows, many) in [
        (100.0, 8, 800.0),
        (100.0, 8, 150.0),
        (100.0, 8, 90.0),
        (100.0, 8, 100_000.0),
        (1.0, 2, 1.0),
        (5e9, 1000, 5.0),
    ] {
        let line = Line::through(one, rows, many);
        assert!(line.is_sane(), "{line:?}");
        assert!((line.nanos(rows) - many).abs() <= 0.1 * rows as f64, "{line:?} at {rows} is not {many}");
        assert!(line.nanos_fixed <= one, "{line:?}");
    }
    let estimate = Cost { nanos_fixed: 200.0, nanos_per_row: 50.0, ..Cost::default() };
    assert_eq!(Line::like(&estimate, 2, 600.0), Line { nanos_fixed: 400.0, nanos_per_row: 100.0 });
    for insane in [(-1.0, 2.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (0.0, 0.0)] {
        assert!(!Line { nanos_fixed: insane.0, nanos_per_row: insane.1 }.is_sane());
    }
}

#[test]
fn what_short_launches_leave_long_ones_have() {
    assert_eq!(level(vec![1.0, 100.0, 200.0], 101.0), 50.0);
    assert_eq!(level(vec![1.0, 100.0, 200.0], 301.0), f64::INFINITY);
    assert_eq!(level(vec![10.0, 10.0], 2.0), 1.0);
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
fn a_glance_times_the_longest_of_each_class_first() {
    let (graph, setup) = (graph(300), open(Some(1)).unwrap());
    let mut kinds = super::kinds(&graph, &setup.costs(&graph), 64);
    super::most_telling_first(&graph, &mut kinds);
    let ops: Vec<&str> = kinds.iter().map(|kind| graph.nodes[kind.node.0].op.name()).collect();
    let is_product = |name: &&&str| name.starts_with("dense");
    assert_eq!(ops[..2].iter().filter(is_product).count(), 1, "{ops:?}");
    assert!(kinds[2..].is_sorted_by(|one, next| next.nanos <= one.nanos), "{ops:?}");
    // What is timed and what is not make up the whole.
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
