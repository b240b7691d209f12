//! What signatures say of ops is true of the graphs that run and of the kernels that run them.

use std::collections::BTreeSet;

use expect_test::expect_file;
use memfit::DeviceChoice as Choice;
use memfit_device::Context;
use memfit_ir::{
    Along, Graph, Kind, LayerId, Node, NodeId, Op, Operand, OperandList, Phase, Signature, Slot, TensorId,
};
use memfit_testkit::device_graphs::device_graphs;
use memfit_testkit::node_runs::{CONTEXT, NodeRun, device, on_cpu};
use memfit_testkit::op_cases::{ROWS, op_cases};

#[test]
fn the_table_of_ops_is_the_frozen_one() {
    let lines: Vec<String> = Signature::all().iter().map(ToString::to_string).collect();
    expect_file!["ops.txt"].assert_eq(&(lines.join("\n") + "\n"));
}

#[test]
fn every_op_has_a_row_in_the_table() {
    let rows: Vec<&str> = Signature::all().iter().map(|signature| signature.name).collect();
    let known: BTreeSet<&str> = rows.iter().copied().collect();
    assert_eq!(known.len(), rows.len(), "a row for each op");
    for (name, graph) in device_graphs() {
        for node in &graph.nodes {
            assert!(known.contains(node.op.name()), "{name}: {}", node.op.name());
        }
    }
}

#[test]
fn nodes_have_the_operands_that_signatures_name() {
    for (name, graph) in device_graphs() {
        for node in &graph.nodes {
            let signature = node.op.signature();
            let operands = [
                ("reads", &node.inputs, signature.inputs),
                ("writes", &node.outputs, signature.outputs),
                ("changes", &node.updates, signature.updates),
            ];
            for (what, ids, list) in operands {
                assert!(list.counts().contains(&ids.len()), "{name}: {} {what} {list}", signature.name);
                assert_eq!(places(list, ids.len()), (0..ids.len()).collect::<Vec<_>>(), "{}", signature.name);
            }
        }
    }
}

/// So that a tensor can be asked for by its name alone.
#[test]
fn no_op_has_a_name_twice() {
    for signature in Signature::all() {
        let lists = [signature.inputs, signature.outputs, signature.updates];
        let names: Vec<Operand> =
            lists.iter().flat_map(|list| list.places()).map(|(name, _)| *name).collect();
        let known: BTreeSet<Operand> = names.iter().copied().collect();
        assert_eq!(known.len(), names.len(), "{}: {names:?}", signature.name);
    }
}

#[test]
#[should_panic(expected = "dense_grad_kernel has no operand `kernel`")]
fn a_name_that_an_op_does_not_have_is_a_bug() {
    let ids = [TensorId(0), TensorId(1), TensorId(2)];
    let node = Node {
        op: Op::DenseGradKernel,
        inputs: ids[..2].to_vec(),
        outputs: vec![],
        updates: ids[2..].to_vec(),
        layer: LayerId(0),
        phase: Phase::Piece,
    };
    assert_eq!([node.input(Operand::Dy), node.tensor(Operand::DKernel)], ids[1..]);
    node.input(Operand::Kernel);
}

/// The places of all operands of a list that is there this many times, one after the other.
fn places(list: OperandList, count: usize) -> Vec<usize> {
    let found = list.places().iter().filter_map(|(operand, _)| list.find(*operand, count));
    found.flat_map(|(begin, times)| begin..begin + times).collect()
}

/// Ops through which gradients pass are the ops that have a rule for it.
#[test]
fn ops_of_forward_graphs_have_gradients() {
    let seen: BTreeSet<&str> = op_cases()
        .iter()
        .flat_map(|case| &case.forward.nodes)
        .map(|node| node.op.signature())
        .filter(|signature| signature.facts.is_differentiable)
        .map(|signature| signature.name)
        .collect();
    let missing: Vec<&str> = Signature::all()
        .iter()
        .filter(|signature| signature.facts.is_differentiable && !seen.contains(signature.name))
        .map(|signature| signature.name)
        .collect();
    // Made by a fusion, with a gradient that is 0, and made where layers have half types: other tests have these.
    assert_eq!(missing, ["max_pool2d_relu", "balance_weights", "cast"]);
}

/// A node alone on each row gives the bits that it gives on all rows, where its rows are independent; its sums are those of the rows.
#[test]
fn rows_are_as_independent_as_signatures_say() {
    let mut seen = BTreeSet::new();
    for (name, graph) in device_graphs() {
        on_cpu(&graph, &mut |run| {
            let of_all_rows = |id: &TensorId| {
                let tensor = &graph.tensors[id.0];
                !tensor.shape.batched || tensor.bytes(ROWS).to_usize() == tensor.bytes(1).to_usize() * ROWS
            };
            // A tensor of a slice has fewer rows than the batch. An optimizer is not linear in what it is given.
            let is_weight = |id: &TensorId| graph.tensors[id.0].kind == Kind::Weight { trainable: true };
            let is_update = run.node.updates.iter().any(is_weight);
            if run.fresh && !is_update && graph.has_own_rows(run.node) && run.ids.iter().all(of_all_rows) {
                compare(&name, &graph, run);
                seen.insert(run.node.op.name());
            }
        });
    }
    let by_row = |signature: &&Signature| {
        matches!(signature.facts.axes.batch, Some(Along::Independent | Along::Summed))
    };
    let all = Signature::all();
    let missing: Vec<&str> = all
        .iter()
        .filter(by_row)
        .map(|signature| signature.name)
        .filter(|name| !seen.contains(name))
        .collect();
    // Rows that change place, what is written before any row, and what an optimizer does with a whole sum.
    assert_eq!(missing, ["take_rows", "put_rows", "zero", "applied"]);
}

fn compare(name: &str, graph: &Graph, run: &NodeRun<'_>) {
    let (mut cpu, slots, workspaces) = device(Choice::Cpu, graph, false);
    let (reads, writes) = (run.node.inputs.len(), run.node.inputs.len() + run.node.outputs.len());
    let args: Vec<Slot> = run.ids.iter().map(|id| slots[id.0]).collect();
    let row = |place: usize, row: usize| {
        let tensor = &graph.tensors[run.ids[place].0];
        let bytes = tensor.bytes(1).to_usize();
        if tensor.shape.batched { row * bytes..(row + 1) * bytes } else { 0..bytes }
    };
    for index in 0..ROWS {
        for (place, slot) in args.iter().enumerate().take(reads) {
            let bytes = &run.before[place][row(place, index)];
            cpu.bytes_mut(*slot)[..bytes.len()].copy_from_slice(bytes);
        }
        let context = Context { row_start: index, rows: 1, ..CONTEXT };
        cpu.launch(graph, NodeId(run.index), &args, workspaces[run.index], index == 0, &context);
        for place in reads..writes {
            let wanted = &run.after[place][row(place, index)];
            assert!(
                &cpu.bytes(args[place])[..wanted.len()] == wanted,
                "{name}: {} row {index}",
                run.node.op.name()
            );
        }
    }
    for place in writes..run.ids.len() {
        let (gap, what) = run.gap(graph, place, cpu.bytes(args[place]));
        assert!(gap <= run.limit(graph, false), "{name}: {} {what}: {gap}", run.node.op.name());
    }
}
