//! How fast nodes move their bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use memfit_device::Context;
use memfit_ir::{Bytes, DType, Graph, NodeId, Slot, TensorId};
use memfit_testkit::device_cases::speed_cases;

use memfit_testkit::node_runs::CONTEXT;

use super::has_gpu;

/// Prints the times of the nodes of well-known networks, and how many bytes of their operands they move in a
/// second; it never fails. `ONLY` picks cases by a part of their names.
#[test]
#[ignore = "a table to be read"]
fn throughput_of_nodes() {
    if !has_gpu() {
        return;
    }
    let _open = memfit_cuda::open(0, 1, true).unwrap();
    let only = std::env::var("ONLY").unwrap_or_default();
    for (name, graph, rows) in speed_cases().iter().filter(|(name, _, _)| name.contains(&only)) {
        println!("{name}");
        let timed = catch_unwind(AssertUnwindSafe(|| time_nodes(graph, *rows)));
        if let Err(panic) = timed {
            println!("  {:?}", panic.downcast_ref::<String>());
        }
    }
}

fn time_nodes(graph: &Graph, rows: usize) {
    const RUNS: u32 = 20;
    let setup = memfit_cuda::open(0, rows, true).unwrap();
    let costs = setup.costs(graph);
    let mut end = Bytes::ZERO;
    let mut place = |bytes: Bytes| {
        let slot = Slot { offset: end, bytes };
        end = slot.end().align_up(256);
        slot
    };
    let slots: Vec<Slot> = graph.tensors.iter().map(|tensor| place(tensor.bytes(rows))).collect();
    let room = place(costs.iter().map(|cost| cost.workspace(rows)).max().unwrap());
    let mut gpu = setup.seal(room.end().align_up(2 << 20)).unwrap();
    for (tensor, slot) in graph.tensors.iter().zip(&slots) {
        if slot.bytes <= Bytes(256 << 20) {
            let entries = tensor.name.strip_prefix("ids below ").and_then(|text| text.parse().ok());
            fill(tensor.dtype, entries.unwrap_or(1000), gpu.bytes_mut(*slot));
        }
    }
    let context = Context { rows, rows_total: rows, ..CONTEXT };
    for (index, node) in graph.nodes.iter().enumerate() {
        let ids: Vec<TensorId> = [&node.inputs[..], &node.outputs, &node.updates, &node.updates].concat();
        let moved: u64 = ids.iter().map(|id| slots[id.0].bytes.0).sum();
        let ids = &ids[..ids.len() - node.updates.len()];
        let args: Vec<Slot> = ids.iter().map(|id| slots[id.0]).collect();
        let workspace = Slot { bytes: costs[index].workspace(rows), ..room };
        let mut run = |runs: u32| {
            let start = Instant::now();
            for _ in 0..runs {
                gpu.launch(graph, NodeId(index), &args, workspace, false, &context);
            }
            gpu.synchronise();
            start.elapsed().as_secs_f64() / f64::from(runs)
        };
        run(3);
        let seconds = run(RUNS);
        if 5e-6 < seconds {
            let (op, rate, workspace) = (node.op.name(), moved as f64 / seconds / 1e12, workspace.bytes);
            println!("  {op:<28} {:8.3} ms {rate:6.2} TB/s {workspace:>12}", seconds * 1e3);
        }
    }
}

/// Values about one half, or numbers below a count.
fn fill(dtype: DType, below: usize, bytes: &mut [u8]) {
    let mut at = 0;
    for (index, piece) in bytes.chunks_mut(dtype.size() as usize).enumerate() {
        at = (at + 7919 * (index % 5 + 1)) % 65_521;
        let value = at as f32 / 65_521.0 - 0.25;
        match dtype {
            DType::F32 => piece.copy_from_slice(&value.to_ne_bytes()),
            DType::BF16 => piece.copy_from_slice(&value.to_ne_bytes()[2..]),
            DType::F16 => piece.copy_from_slice(&(0x3400 + (at % 2048) as u16).to_ne_bytes()),
            DType::I32 => piece.copy_from_slice(&((at % below) as i32).to_ne_bytes()),
            DType::I64 | DType::U8 | DType::Bool => piece.fill(0),
        }
    }
}
