//! A fused op means its parts: its kernel gives what the kernels of the parts give, one after the other.

use std::collections::BTreeSet;

use memfit::DeviceChoice as Choice;
use memfit_ir::{Bytes, Graph, NodeId, Op, Slot};
use memfit_testkit::device_graphs::device_graphs;
use memfit_testkit::node_runs::{CONTEXT, NodeRun, device, on_cpu};

#[test]
fn a_fused_op_gives_what_its_parts_give() {
    let mut seen = BTreeSet::new();
    for (name, graph) in device_graphs() {
        // bf16 and f16 differ only in how a value is read.
        let is_fused = graph.nodes.iter().any(|node| matches!(node.op, Op::Fused(_)));
        if is_fused && !name.starts_with("f16") {
            on_cpu(&graph, &mut |run| compare(&name, &graph, run, &mut seen));
        }
    }
    // Every fused op, but for updates, whose parts are compared bit by bit in `applied`.
    assert_eq!(seen.len(), 16, "{seen:?}");
}

fn compare(name: &str, graph: &Graph, run: &NodeRun<'_>, seen: &mut BTreeSet<&'static str>) {
    let Op::Fused(fused) = &run.node.op else { return };
    let inputs: Vec<_> = run.node.inputs.iter().map(|id| &graph.tensors[id.0]).collect();
    let types = fused.infer(&inputs).expect("a node's shapes fit");
    let outputs = run.node.outputs.iter().map(|id| &graph.tensors[id.0]);
    assert!(
        types.iter().zip(outputs).all(|(of, tensor)| (&of.shape, of.dtype) == (&tensor.shape, tensor.dtype))
    );
    let parts = fused.decompose(&inputs, run.node.updates.len()).expect("a node's shapes fit");
    assert_eq!(
        run.node.op.mixes_rows(),
        parts.nodes.iter().any(|part| part.op.mixes_rows()),
        "{}",
        fused.name()
    );
    if run.node.op.name() == "applied" {
        return;
    }
    let small = parts.graph(graph, run.node).expect("a node's shapes fit");
    let (mut cpu, slots, workspaces) = device(Choice::Cpu, &small, false);
    for (place, before) in run.before.iter().enumerate() {
        let to = cpu.bytes_mut(slots[place]);
        let is_sum = run.node.inputs.len() + run.node.outputs.len() <= place;
        if is_sum && run.fresh { to.fill(0) } else { to.copy_from_slice(before) }
    }
    for (index, node) in small.nodes.iter().enumerate() {
        let ids = node.inputs.iter().chain(&node.outputs).chain(&node.updates);
        let args: Vec<Slot> = ids.map(|id| slots[id.0]).collect();
        cpu.launch(&small, NodeId(index), &args, workspaces[index], false, &CONTEXT);
    }
    for place in (run.node.inputs.len()..run.ids.len()).filter(|place| run.is_compared(graph, *place, true)) {
        let got = cpu.bytes(Slot { bytes: Bytes(run.after[place].len() as u64), ..slots[place] });
        let (gap, what) = run.gap(graph, place, got);
        assert!(gap <= run.limit(graph, false), "{name}: {} {what}: {gap}", fused.name());
    }
    seen.insert(fused.name());
}
