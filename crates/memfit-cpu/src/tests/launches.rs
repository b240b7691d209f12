//! What a launch refuses: plans that were not checked.

use memfit_ir::{Binary, Bytes, Chain, DType, Graph, Kind, NodeId, Op, Shape, Slot};

use memfit_device::Context;

use crate::open;

fn slot(offset: u64, bytes: u64) -> Slot {
    Slot { offset: Bytes(offset), bytes: Bytes(bytes) }
}

/// Whether an addition of two tensors of four floats, or its gradient by a dense layer, runs with these
/// slots.
fn runs(op: Op, args: [Slot; 3], workspace: Slot) -> bool {
    let mut graph = Graph::default();
    let layer = graph.layer("layer");
    let mut tensor = || graph.tensor("tensor", Shape::rows([4]), DType::F32, Kind::Activation, layer);
    let inputs = [tensor(), tensor()];
    graph.push(op, &inputs, layer).unwrap();
    let mut device = open(Some(1)).unwrap().seal(Bytes(4096)).unwrap();
    let context = Context {
        step: 0,
        iteration: 0,
        row_start: 0,
        rows: 1,
        rows_total: 1,
        learning_rate: 0.1,
        loss_scale: 1.0,
        seed: 0,
    };
    let launch = || device.launch(&graph, NodeId(0), &args, workspace, false, &context);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(launch)).is_ok()
}

#[test]
fn slots_that_share_bytes_or_are_too_small_are_refused() {
    let add = || Op::Elementwise(Chain::binary(Binary::Add));
    let (a, b, c, none) = (slot(0, 16), slot(64, 16), slot(128, 16), slot(0, 0));
    for (op, args, workspace, expected) in [
        (add(), [a, b, c], none, true),
        (add(), [a, b, a], none, true),
        (add(), [a, a, a], none, true),
        (add(), [slot(0, 128), b, c], none, true),
        (add(), [slot(0, 128), b, slot(64, 16)], none, false),
        (add(), [a, b, slot(128, 8)], none, false),
        (add(), [a, b, slot(4096, 16)], none, false),
        (add(), [a, b, c], slot(128, 64), false),
        (Op::SoftmaxGrad, [a, b, b], none, true),
        (Op::Concat(0), [a, b, slot(128, 32)], none, true),
        (Op::Concat(0), [slot(0, 32), b, slot(0, 32)], none, false),
    ] {
        assert_eq!(runs(op.clone(), args, workspace), expected, "{} {args:?} {workspace:?}", op.name());
    }
}

#[test]
fn launches_count_towards_the_peak() {
    let mut graph = Graph::default();
    let layer = graph.layer("layer");
    let x = graph.tensor("x", Shape::rows([4]), DType::F32, Kind::Input, layer);
    graph.push(Op::Softmax, &[x], layer).unwrap();
    let mut device = open(Some(2)).unwrap().seal(Bytes(4096)).unwrap();
    let context = Context {
        step: 0,
        iteration: 0,
        row_start: 0,
        rows: 1,
        rows_total: 1,
        learning_rate: 0.1,
        loss_scale: 1.0,
        seed: 0,
    };
    device.launch(&graph, NodeId(0), &[slot(0, 16), slot(256, 16)], slot(0, 0), false, &context);
    assert_eq!(device.bytes_peak(), Bytes(272));
    assert_eq!(device.floats(slot(256, 16)), [0.25; 4]);
}
