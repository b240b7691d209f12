//! The GPU compared with the CPU: every node of the op table gives what the CPU gives.
//!
//! Tests print why they skip where there is no GPU; that every kernel compiles is what `tools/cuda-kernels` sees without one. This binary
//! can be copied to a machine that has a GPU and no cargo.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on says where it stopped"
)]

#[path = "cuda/ahead.rs"]
mod ahead;
#[path = "cuda/attention.rs"]
mod attention;
#[path = "cuda/bytes.rs"]
mod bytes;
#[path = "cuda/copies.rs"]
mod copies;
#[path = "cuda/moves.rs"]
mod moves;
#[path = "cuda/pooled.rs"]
mod pooled;
#[path = "cuda/scaled.rs"]
mod scaled;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use memfit::DeviceChoice as Choice;
use memfit_cuda::lowered;
use memfit_device::Context;
use std::time::Instant;

use memfit_ir::{Bytes, Conv2D, DType, Graph, Kind, NodeId, Op, Pads, Shape, Slot, TensorId};
use memfit_testkit::device_graphs::device_graphs;
use memfit_testkit::node_runs::{CONTEXT, device, on_cpu};
use memfit_testkit::op_cases::ROWS;

/// Whether there is a GPU; says so where there is none.
fn has_gpu() -> bool {
    let found = Choice::Best.settled() == Choice::Cuda(0);
    if !found {
        println!("skipped: no GPU with its libraries");
    }
    found
}

/// Every node alone, from the same bytes on both devices. `ONLY` picks cases by a part of their names, `SKIP` leaves ops out, and
/// `SHARE=2/8` takes every eighth case, so that several processes share the work.
#[test]
fn every_node_agrees_with_the_cpu() {
    if !has_gpu() {
        return;
    }
    // Opening takes a moment, and one that is open is shared.
    let _open = memfit_cuda::open(0, ROWS, false).unwrap();
    let only = std::env::var("ONLY").unwrap_or_default();
    let skipped: BTreeSet<String> =
        std::env::var("SKIP").unwrap_or_default().split(',').map(str::to_owned).collect();
    let mut tally: BTreeMap<String, Tally> = BTreeMap::new();
    let mut failures = Vec::new();
    let share = std::env::var("SHARE").ok();
    let share = share.as_deref().and_then(|share| share.split_once('/'));
    let (mine, of): (usize, usize) =
        share.map_or((0, 1), |(mine, of)| (mine.parse().unwrap(), of.parse().unwrap()));
    let graphs = device_graphs();
    let chosen = graphs.iter().filter(|(name, _)| name.contains(&only)).skip(mine).step_by(of);
    for (name, graph) in chosen {
        compare_nodes(name, graph, false, &skipped, &mut tally, &mut failures);
        let changes =
            |node| lowered(graph, node, ROWS, false, false) != lowered(graph, node, ROWS, false, true);
        if graph.nodes.iter().any(changes) {
            compare_nodes(name, graph, true, &skipped, &mut tally, &mut failures);
        }
    }
    for (op, Tally { agree, differ, left_out, worst }) in &tally {
        println!("{op:<34} {agree:>5} agree {differ:>5} differ {left_out:>5} left out   worst {worst:.1e}");
    }
    for failure in failures.iter().take(60) {
        println!("{failure}");
    }
    assert!(failures.is_empty(), "{} nodes differ", failures.len());
}

/// The results of an op's nodes.
#[derive(Default)]
struct Tally {
    agree: usize,
    differ: usize,
    left_out: usize,
    worst: f64,
}

fn compare_nodes(
    name: &str,
    graph: &Graph,
    tf32: bool,
    skipped: &BTreeSet<String>,
    tally: &mut BTreeMap<String, Tally>,
    failures: &mut Vec<String>,
) {
    let opened = catch_unwind(AssertUnwindSafe(|| device(Choice::Cuda(0), graph, tf32)));
    let Ok((mut gpu, slots, workspaces)) = opened else {
        failures.push(format!("{name}: the device does not open"));
        return;
    };
    on_cpu(graph, &mut |run| {
        let op = run.node.op.name();
        let count = tally.entry(op.to_owned()).or_default();
        if skipped.contains(op) {
            count.left_out += usize::from(!run.fresh);
            return;
        }
        let args: Vec<Slot> = run.ids.iter().map(|id| slots[id.0]).collect();
        for (place, (slot, bytes)) in args.iter().zip(&run.before).enumerate() {
            let to = gpu.bytes_mut(*slot);
            if run.is_output(place) { to.fill(0xFF) } else { to.copy_from_slice(bytes) }
        }
        let launched = catch_unwind(AssertUnwindSafe(|| {
            gpu.launch(graph, NodeId(run.index), &args, workspaces[run.index], run.fresh, &CONTEXT);
            gpu.synchronise();
        }));
        let mut worst: (f64, String) = (0.0, String::new());
        if let Err(panic) = launched {
            let words = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            if words.contains("ILLEGAL") || words.contains("LAUNCH_FAILED") {
                // Nothing runs on a device after this; the next call leaves the op out.
                println!("BROKEN {op} in {name}: {words}");
                std::process::exit(3);
            }
            worst = (f64::INFINITY, words);
        } else {
            let compared = |(place, _): &(usize, _)| run.is_compared(graph, *place, tf32);
            for (place, slot) in args.iter().enumerate().filter(compared) {
                let gap = run.gap(graph, place, gpu.bytes(*slot));
                worst = if worst.0 < gap.0 { gap } else { worst };
            }
        }
        if worst.0 <= run.limit(graph, tf32) {
            count.agree += 1;
            count.worst = count.worst.max(worst.0);
        } else {
            count.differ += 1;
            let (fresh, how) = (run.fresh, if tf32 { " in TF32" } else { "" });
            failures
                .push(format!("{op}{how} fresh={fresh} in {name}: off by {:.1e} in {}", worst.0, worst.1));
        }
    });
}

/// Prints the times and workspaces of convolutions of well-known networks; it never fails.
#[test]
#[ignore = "a table to be read"]
fn times_of_convolutions() {
    if !has_gpu() {
        return;
    }
    let _open = memfit_cuda::open(0, 1, true).unwrap();
    // Rows, side, channels in and out, filter, stride, padding.
    for (dtype, rows, side, from, to, filter, stride, pad) in [
        (DType::F32, 8, 1024, 3, 32, 3, 1, 0),
        (DType::F32, 32, 128, 3, 256, 3, 1, 1),
        (DType::F32, 32, 128, 256, 256, 3, 1, 1),
        (DType::F32, 32, 64, 256, 512, 3, 1, 1),
        (DType::F32, 32, 64, 512, 512, 3, 1, 1),
        (DType::F32, 32, 32, 512, 1024, 3, 1, 1),
        (DType::F32, 32, 32, 1024, 1024, 3, 1, 1),
        (DType::BF16, 128, 128, 256, 256, 3, 1, 1),
        (DType::BF16, 128, 64, 512, 512, 3, 1, 1),
        (DType::BF16, 128, 32, 1024, 1024, 3, 1, 1),
        (DType::BF16, 128, 128, 3, 256, 3, 1, 1),
        (DType::BF16, 256, 230, 3, 64, 7, 2, 0),
        (DType::BF16, 256, 56, 64, 64, 3, 1, 1),
        (DType::BF16, 256, 56, 64, 256, 1, 1, 0),
        (DType::BF16, 256, 56, 256, 512, 1, 2, 0),
        (DType::BF16, 256, 28, 128, 128, 3, 1, 1),
        (DType::BF16, 256, 14, 256, 256, 3, 1, 1),
        (DType::BF16, 256, 7, 512, 512, 3, 1, 1),
        (DType::F32, 128, 56, 64, 64, 3, 1, 1),
        (DType::F32, 128, 14, 256, 256, 3, 1, 1),
    ] {
        let pads = Pads { top: pad, bottom: pad, left: pad, right: pad };
        let conv = Conv2D { kernel: [filter; 2], strides: [stride; 2], dilation: [1, 1], groups: 1, pads };
        let what = format!("{dtype} {rows}x{side}x{side}x{from} to {to}, {filter}x{filter}/{stride}");
        let timed = catch_unwind(AssertUnwindSafe(|| time_convolution(dtype, rows, side, from, to, conv)));
        println!(
            "{what:<44} {}",
            timed.unwrap_or_else(|panic| format!("{:?}", panic.downcast_ref::<String>()))
        );
    }
}

fn time_convolution(dtype: DType, rows: usize, side: usize, from: usize, to: usize, conv: Conv2D) -> String {
    const RUNS: usize = 5;
    let mut graph = Graph::default();
    let layer = graph.layer("conv");
    let x = graph.tensor("x", Shape::rows([side, side, from]), dtype, Kind::Activation, layer);
    let [height, width] = conv.kernel;
    let weight = Shape::fixed([height, width, from, to]);
    let kernel = graph.tensor("kernel", weight.clone(), DType::F32, Kind::Weight { trainable: true }, layer);
    let dkernel = graph.tensor("dkernel", weight, DType::F32, Kind::Gradient, layer);
    let y = graph.push(Op::Conv2D(conv.clone()), &[x, kernel], layer).unwrap()[0];
    graph.push(Op::Conv2DGradInput(conv.clone(), [side, side]), &[y, kernel], layer).unwrap();
    graph.push_updating(Op::Conv2DGradKernel(conv.clone()), &[x, y], &[dkernel], Kind::Flow, layer).unwrap();
    let setup = memfit_cuda::open(0, rows, true).unwrap();
    setup.make_ready(&graph).unwrap();
    let costs = setup.costs(&graph);
    let mut end = Bytes::ZERO;
    let mut place = |bytes: Bytes| {
        let slot = Slot { offset: end, bytes };
        end = slot.end().align_up(256);
        slot
    };
    let slots: Vec<Slot> = graph.tensors.iter().map(|tensor| place(tensor.bytes(rows))).collect();
    let most = costs.iter().map(|cost| cost.workspace(rows)).max().unwrap();
    let room = place(most);
    let mut gpu = setup.seal(room.end().align_up(2 << 20)).unwrap();
    for (index, byte) in gpu.bytes_mut(slots[x.0]).iter_mut().enumerate() {
        *byte = if index % 2 == 1 { 0x3F - (index / 2 * 7919 % 4) as u8 } else { (index * 31) as u8 };
    }
    let flops =
        2.0 * (rows * graph.tensors[y.0].shape.elements_per_row()) as f64 * (height * width * from) as f64;
    let mut text = String::new();
    let context = Context { rows, rows_total: rows, ..CONTEXT };
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
        run(2);
        let seconds = run(RUNS);
        let rate = flops / seconds / 1e12;
        text += &format!("{:8.3} ms {rate:5.0} TF {:>10}  ", seconds * 1e3, workspace.bytes.to_string());
    }
    text
}

/// Where the time of a job's step goes, node by node: `JOB` names its file, `BATCH` and `POLICY` change it.
#[test]
#[ignore = "a table to be read"]
fn times_of_the_nodes_of_a_job() {
    let Ok(path) = std::env::var("JOB") else { return };
    if !has_gpu() {
        return;
    }
    let mut job = memfit::Job::read(std::path::Path::new(&path)).unwrap();
    if let Ok(batch) = std::env::var("BATCH") {
        job.train.batch = batch.parse().unwrap();
    }
    job.train.precision = std::env::var("POLICY").ok().map(|policy| policy.parse().unwrap());
    job.train.device = Choice::Cuda(0);
    job.memory.budget = Some(Bytes(100 << 30).into());
    let prepared = memfit::prepare_without_hints(&job, None).unwrap();
    let (graph, batch) = (&prepared.problem.graph, job.train.batch);
    let allowance = memfit_device::Allowance { bytes: Bytes(60 << 30), seconds: 30.0 };
    let measured = prepared.setup.measure(graph, batch, allowance, &mut memfit_device::Table::new());
    let mut sums: BTreeMap<String, (f64, usize, f64)> = BTreeMap::new();
    let (mut total, mut moved_total) = (0.0, 0.0);
    for (node, cost) in graph.nodes.iter().zip(&measured.costs) {
        let operands = node.inputs.iter().chain(&node.outputs).chain(&node.updates);
        let moved: u64 = operands.map(|id| graph.tensors[id.0].bytes(batch).0).sum();
        let entry = sums.entry(graph.signature(node)).or_default();
        let milliseconds = cost.nanos(batch) / 1e6;
        *entry = (entry.0 + milliseconds, entry.1 + 1, entry.2 + moved as f64);
        total += milliseconds;
        moved_total += moved as f64;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    println!(
        "{path} batch {batch}: {total:.2} ms in {} nodes, {:.1} GB",
        graph.nodes.len(),
        moved_total / 1e9
    );
    for (signature, (milliseconds, count, moved)) in sums.iter().take(40) {
        let rate = moved / milliseconds / 1e9;
        println!(
            "{milliseconds:8.3} ms {count:>4}x {rate:6.2} TB/s  {}",
            signature.chars().take(150).collect::<String>()
        );
    }
}
