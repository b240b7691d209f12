//! Attention with heads as tensor cores take them.

use std::time::Instant;

use memfit_device::Context;
use memfit_ir::{Bytes, DType, Kind, NodeId, Slot, TensorId};
use memfit_testkit::device_graphs::attention;
use memfit_testkit::node_runs::CONTEXT;

use super::has_gpu;

/// Prints the time of attention as in GPT-2; it never fails.
#[test]
#[ignore = "a table to be read"]
fn times_of_attention() {
    if !has_gpu() {
        return;
    }
    const RUNS: usize = 20;
    for (rows, tokens, heads, width, causal) in [
        (16, 1024, 12, 64, true),
        (16, 1024, 12, 64, false),
        (4, 4096, 12, 64, true),
        (8, 1024, 12, 128, true),
        (16, 512, 12, 32, true),
    ] {
        let graph = attention(DType::BF16, [tokens, tokens, heads, heads, width], causal);
        let setup = memfit_cuda::open(0, rows, false).unwrap();
        let costs = setup.costs(&graph);
        let mut end = Bytes::ZERO;
        let mut place = |bytes: Bytes| {
            let slot = Slot { offset: end, bytes };
            end = slot.end().align_up(256);
            slot
        };
        let slots: Vec<Slot> = graph.tensors.iter().map(|tensor| place(tensor.bytes(rows))).collect();
        let room = place(costs.iter().map(|cost| cost.workspace(rows)).max().unwrap());
        let mut gpu = setup.seal(room.end().align_up(2 << 20)).unwrap();
        for (tensor, slot) in
            graph.tensors.iter().zip(&slots).filter(|(tensor, _)| tensor.kind == Kind::Input)
        {
            let seed = tensor.name.len() as u32 + u32::from(tensor.name.as_bytes()[0]);
            let mut state = seed.wrapping_mul(0x9E37_79B9);
            for four in gpu.bytes_mut(*slot).as_chunks_mut().0 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *four = (state as f32 / u32::MAX as f32 * 2.0 - 1.0).to_ne_bytes();
            }
        }
        let pairs = (rows * heads * tokens * tokens) as f64 * if causal { 0.5 } else { 1.0 };
        let context = Context { rows, rows_total: rows, ..CONTEXT };
        let mut text = format!("{rows} x {tokens} x {heads} heads of {width}, causal {causal:<5}");
        for (index, node) in graph.nodes.iter().enumerate() {
            let ids: Vec<TensorId> = [&node.inputs[..], &node.outputs, &node.updates].concat();
            let args: Vec<Slot> = ids.iter().map(|id| slots[id.0]).collect();
            let workspace = Slot { bytes: costs[index].workspace(rows), ..room };
            let mut run = |runs: usize| {
                let start = Instant::now();
                for _ in 0..runs {
                    gpu.launch(&graph, NodeId(index), &args, workspace, true, &context);
                }
                gpu.synchronise();
                start.elapsed().as_secs_f64() / runs as f64
            };
            run(3);
            let seconds = run(RUNS);
            // Two products forward, five backward; recomputation does not count.
            let products = match node.op.name() {
                "attention" => 2.0,
                "attention_grad" => 5.0,
                _ => continue,
            };
            let rate = products * 2.0 * pairs * width as f64 / seconds / 1e12;
            text += &format!("  {} {:.3} ms {rate:.0} TF", node.op.name(), seconds * 1e3);
        }
        println!("{text}");
    }
}
