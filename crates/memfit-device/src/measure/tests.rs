//! Lines that can be times, time that is shared out, and which nodes come first.

use memfit_ir::{Cost, DType, Graph, Kind, Op, Shape};

use super::{Line, kinds, level, most_telling_first};

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
fn a_glance_times_the_longest_of_each_class_first() {
    let mut graph = Graph::default();
    let layer = graph.layer("layer");
    let mut tensor = |shape: Shape| graph.tensor("tensor", shape, DType::F32, Kind::Activation, layer);
    let (x, dy) = (tensor(Shape::rows([300])), tensor(Shape::rows([40])));
    let (kernel, dkernel) = (tensor(Shape::fixed([300, 40])), tensor(Shape::fixed([300, 40])));
    let sum = tensor(Shape::fixed([1]));
    let mut nanos = Vec::new();
    for (op, inputs, updates, nanos_per_row) in [
        (Op::Dense, vec![x, kernel], vec![], 30.0),
        (Op::DenseGradInput, vec![dy, kernel], vec![], 20.0),
        (Op::DenseGradKernel, vec![x, dy], vec![dkernel], 40.0),
        (Op::SumSquares, vec![dkernel], vec![sum], 3.0),
        (Op::Reshape(vec![2, 20]), vec![dy], vec![], 0.0),
        (Op::Softmax, vec![dy], vec![], 5.0),
    ] {
        graph.push_updating(op, &inputs, &updates, Kind::Activation, layer).unwrap();
        nanos.push(nanos_per_row);
    }
    let costs: Vec<Cost> =
        nanos.into_iter().map(|nanos_per_row| Cost { nanos_per_row, ..Cost::default() }).collect();
    let mut kinds = kinds(&graph, &costs, 64);
    most_telling_first(&graph, &mut kinds);
    let ops: Vec<&str> = kinds.iter().map(|kind| graph.nodes[kind.node.0].op.name()).collect();
    let is_product = |name: &&&str| name.starts_with("dense");
    assert_eq!(ops[..2].iter().filter(is_product).count(), 1, "{ops:?}");
    assert!(kinds[2..].is_sorted_by(|one, next| next.nanos <= one.nanos), "{ops:?}");
}
