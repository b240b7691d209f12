//! The heap, counted to the byte: alone in its process, since every other test allocates too.

use memfit_cpu::open;
use memfit_device::Context;
use memfit_device::heap::{Counting, live};
use memfit_ir::{Bytes, Chain, DType, Graph, Kind, NodeId, Op, Shape, Slot, Unary};

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn bytes_are_counted_until_they_are_freed_and_launches_leave_none() {
    let before = live();
    let mut bytes: Vec<u8> = Vec::with_capacity(1000);
    assert_eq!(live(), before + 1000);
    bytes.reserve_exact(5000);
    assert_eq!(live(), before + 5000);
    drop(bytes);
    let zeros = vec![0u8; 3000];
    assert_eq!(live(), before + 3000);
    drop(zeros);
    assert_eq!(live(), before);

    let mut graph = Graph::default();
    let layer = graph.layer("layer");
    let x = graph.tensor("x", Shape::rows([20_000]), DType::F32, Kind::Input, layer);
    for op in [Op::Elementwise(Chain::unary(Unary::Gelu)), Op::Softmax, Op::Dropout { rate: 0.5, seed: 1 }] {
        graph.push(op, &[x], layer).unwrap();
    }
    let mut device = open(Some(2)).unwrap().seal(Bytes::mib(8)).unwrap();
    let args = [0, 4 << 20].map(|offset| Slot { offset: Bytes(offset), bytes: Bytes(160_000) });
    let workspace = Slot { offset: Bytes::ZERO, bytes: Bytes::ZERO };
    let context = Context {
        step: 0,
        iteration: 0,
        row_start: 0,
        rows: 2,
        rows_total: 2,
        learning_rate: 0.1,
        loss_scale: 1.0,
        seed: 0,
    };
    let mut round =
        || (0..3).for_each(|node| device.launch(&graph, NodeId(node), &args, workspace, false, &context));
    // The first round may warm up the threads.
    (0..10).for_each(|_| round());
    let before = live();
    (0..200).for_each(|_| round());
    assert_eq!(live(), before, "a launch leaves nothing on the heap");
}
