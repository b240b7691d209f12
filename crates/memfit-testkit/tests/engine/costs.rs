//! Every op can be timed, and every time can be a time.

use std::collections::BTreeSet;

use memfit_device::{Allowance, Line, Table};
use memfit_grad::{Optimizer, Training};
use memfit_ir::{Bytes, DType, Kind, TensorId};
use memfit_testkit::harness::problem;
use memfit_testkit::op_cases::op_cases;

#[test]
fn every_op_can_be_timed_forward_and_backward() {
    let setup = memfit_cpu::open(Some(2)).unwrap();
    let allowance = Allowance { bytes: Bytes::mib(8), seconds: 600.0 };
    let mut known = Table::new();
    let mut ops = BTreeSet::new();
    for case in op_cases() {
        let differentiable = (0..case.forward.tensors.len()).map(TensorId).filter(|id| {
            let tensor = &case.forward.tensors[id.0];
            let is_leaf = tensor.kind == Kind::Input || tensor.kind == Kind::Weight { trainable: true };
            is_leaf && tensor.dtype == DType::F32
        });
        let training = Training {
            losses: vec![case.loss.clone()],
            sample_weights: usize::from(case.sample_weights),
            gradients_of: differentiable.collect(),
            ..Training::new(Optimizer::sgd(0.1))
        };
        let graph = problem(&case.forward, &training, 7).graph;
        let measured = setup.measure(&graph, 7, allowance, &mut known);
        for (node, cost) in graph.nodes.iter().zip(&measured.costs) {
            let line = Line { nanos_fixed: cost.nanos_fixed, nanos_per_row: cost.nanos_per_row };
            assert!(node.op.is_view() || line.is_sane(), "{}: {}: {line:?}", case.name, node.op.name());
            let is_known = known.contains_key(&graph.signature(node));
            assert_ne!(node.op.is_view(), is_known, "{}: {}", case.name, node.op.name());
            ops.insert(node.op.name());
        }
    }
    assert!(40 <= ops.len(), "only {ops:?}");
}
