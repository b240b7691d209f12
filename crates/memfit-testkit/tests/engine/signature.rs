//! What signatures say of ops is true of the graphs that run and of the kernels that run them.

use std::collections::BTreeSet;

use expect_test::expect_file;
use memfit::DeviceChoice as Choice;
use memfit_device::Context;
use memfit_ir::{Along, Graph, NodeId, OperandList, Signature, Slot};
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

/// The places of all operands of a list that is there this many times, one after the other.
fn places(list: OperandList, count: usize) -> Vec<usize> {
    let found = list.places().iter().filter_map(|(operand, _)| list.find(*operand, count));
    found.flat_map(|(begin, times)| begin..begin + times).collect()
}

#[test]
fn operands_that_may_share_bytes_have_equal_numbers_of_them() {
    for (name, graph) in device_graphs() {
        for node in &graph.nodes {
            for (output, input) in node.in_place() {
                let (output, input) =
                    (&graph.tensors[node.outputs[output].0], &graph.tensors[node.inputs[input].0]);
                let equal = output.bytes(ROWS) == input.bytes(ROWS);
                assert!(equal, "{name}: {} {} {}", node.op.name(), output.shape, input.shape);
            }
        }
    }
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
    assert_eq!(missing, [""; 0]);
}

/// A node alone on each row gives the bits that it gives on all rows, where its rows are independent; its sums are those of the rows.
#[test]
fn rows_are_as_independent_as_signatures_say() {
    let mut seen = BTreeSet::new();
    for (name, graph) in device_graphs() {
        on_cpu(&graph, &mut |run| {
            if run.fresh && graph.has_own_rows(run.node) {
                compare(&name, &graph, run);
                seen.insert(run.node.op.name());
            }
        });
    }
    for signature in Signature::all() {
        let by_row = matches!(signature.facts.axes.batch, Some(Along::Independent | Along::Summed));
        println!("{} {by_row} {}", signature.name, seen.contains(signature.name));
    }
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
        for place in 0..reads {
            let bytes = &run.before[place][row(place, index)];
            cpu.bytes_mut(args[place])[..bytes.len()].copy_from_slice(bytes);
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
