//! The GPU beside the CPU: every kernel compiles, and every node of the op table gives what the CPU gives.
//!
//! Compiling needs NVRTC alone (`pip install nvidia-cuda-nvrtc`, then `MEMFIT_CUDA_LIBS=…/site-packages`), running a GPU. Tests
//! skip with a word where there is neither. Built here, this binary can be carried to a machine that has a GPU and no cargo.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on says where it stopped"
)]

#[path = "cuda/attention.rs"]
mod attention;
#[path = "cuda/bytes.rs"]
mod bytes;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use memfit_device::cuda::libraries::{self, Library};
use memfit_device::cuda::{Gpu, compiler, kernel_texts};
use memfit_device::{Choice, Context, Device};
use memfit_grad::{Optimizer, Training, training_graph};
use std::time::Instant;

use memfit_ir::{Bytes, Conv2D, DType, Graph, Kind, NodeId, Op, Pads, Shape, Slot, TensorId, random};
use memfit_testkit::device_cases::{device_cases, size_cases};
use memfit_testkit::halves::in_type;
use memfit_testkit::op_cases::{OpCase, ROWS, draw_values, op_cases};

/// The training graphs of the op table in every type, with their names.
fn graphs() -> Vec<(String, Graph)> {
    let mut graphs = Vec::new();
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        for case in op_cases().into_iter().chain(size_cases()) {
            let forward =
                if dtype == DType::F32 { case.forward.clone() } else { in_type(&case.forward, dtype) };
            graphs.push((format!("{dtype} {}", case.name), trained(&case, &forward)));
        }
        // Queries, keys, heads, key heads and width: heads as tensor cores take them, and tiles that are not full.
        for sizes in [[70, 70, 2, 2, 64], [150, 130, 2, 1, 64], [33, 200, 2, 2, 128], [130, 70, 2, 1, 32]] {
            for causal in [false, true] {
                let name = format!("{dtype} attention of large heads {sizes:?}, causal {causal}");
                graphs.push((name, attention::graph(dtype, sizes, causal)));
            }
        }
    }
    graphs.extend(device_cases());
    graphs
}

fn trained(case: &OpCase, forward: &Graph) -> Graph {
    let is_leaf = |id: &TensorId| {
        let tensor = &forward.tensors[id.0];
        let leaf = tensor.kind == Kind::Input || tensor.kind == Kind::Weight { trainable: true };
        leaf && tensor.dtype == DType::F32
    };
    let training = Training {
        losses: vec![case.loss.clone()],
        sample_weights: usize::from(case.sample_weights),
        gradients_of: (0..forward.tensors.len()).map(TensorId).filter(is_leaf).collect(),
        ..Training::new(Optimizer::sgd(0.0))
    };
    training_graph(forward, &training).unwrap()
}

#[test]
fn every_kernel_compiles() {
    if libraries::missing().contains(&Library::Compiler) {
        println!("skipped: no NVRTC; {}", Library::Compiler.remedy());
        return;
    }
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut missing: BTreeMap<String, usize> = BTreeMap::new();
    for (name, graph) in graphs() {
        let (known, lacking) = kernel_texts(&graph, ROWS);
        texts.extend(known.into_iter().map(|text| (text, name.clone())));
        for what in lacking {
            let op = what.split(' ').next().unwrap().to_owned();
            *missing.entry(op).or_default() += 1;
        }
    }
    let filter = std::env::var("ONLY").unwrap_or_default();
    let mut failures = Vec::new();
    let mut compiled = 0;
    for (text, name) in texts.iter().filter(|(_, name)| name.contains(&filter)) {
        compiled += 1;
        if let Err(words) = compiler::compile(text, "sm_90") {
            failures.push(format!("{name}:\n{words}"));
        }
    }
    println!("{compiled} texts compiled, {} of them wrong", failures.len());
    println!("ops without a kernel: {missing:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Whether there is a GPU; says so where there is none.
fn has_gpu() -> bool {
    let found = Choice::Best.settled() == Choice::Cuda(0);
    if !found {
        println!("skipped: no GPU with its libraries");
    }
    found
}

const CONTEXT: Context = Context {
    step: 3,
    iteration: 3,
    row_start: 0,
    rows: ROWS,
    rows_total: ROWS,
    learning_rate: 0.1,
    loss_scale: 1.0,
    seed: 5,
};

/// Every node alone, from the same bytes on both devices. `ONLY` picks cases by a part of their names, `SKIP` leaves ops out.
#[test]
fn every_node_agrees_with_the_cpu() {
    if !has_gpu() {
        return;
    }
    // Opening takes a moment, and one that is open is shared.
    let _open = memfit_device::open_on(Choice::Cuda(0), Some(1), ROWS, false).unwrap();
    let only = std::env::var("ONLY").unwrap_or_default();
    let skipped: BTreeSet<String> =
        std::env::var("SKIP").unwrap_or_default().split(',').map(str::to_owned).collect();
    let mut tally: BTreeMap<String, Tally> = BTreeMap::new();
    let mut failures = Vec::new();
    for (name, graph) in graphs().iter().filter(|(name, _)| name.contains(&only)) {
        compare_nodes(name, graph, &skipped, &mut tally, &mut failures);
    }
    for (op, Tally { agree, differ, lack, worst }) in &tally {
        println!("{op:<34} {agree:>5} agree {differ:>5} differ {lack:>5} lack a kernel   worst {worst:.1e}");
    }
    for failure in failures.iter().take(60) {
        println!("{failure}");
    }
    assert!(failures.is_empty(), "{} nodes differ", failures.len());
}

/// What came of an op's nodes.
#[derive(Default)]
struct Tally {
    agree: usize,
    differ: usize,
    lack: usize,
    worst: f64,
}

/// A slot for every tensor, one behind the other, and room for a workspace.
fn layout(graph: &Graph, workspace: Bytes) -> (Vec<Slot>, Slot) {
    let mut end = Bytes::ZERO;
    let mut place = |bytes: Bytes| {
        let slot = Slot { offset: end, bytes };
        end = slot.end().align_up(256);
        slot
    };
    let slots = graph.tensors.iter().map(|tensor| place(tensor.bytes(ROWS))).collect();
    (slots, place(workspace))
}

/// A device with room for all tensors of a graph, and where they are.
fn device(choice: Choice, graph: &Graph) -> (Device, Vec<Slot>, Vec<Bytes>, Bytes) {
    let setup = memfit_device::open_on(choice, Some(2), ROWS, false).unwrap();
    let costs = setup.costs(graph);
    let workspaces: Vec<Bytes> = costs.iter().map(|cost| cost.workspace(ROWS)).collect();
    let most = workspaces.iter().copied().max().unwrap_or_default();
    let (slots, workspace) = layout(graph, most);
    let arena = workspace.end().align_up(setup.granule().0).max(setup.granule());
    (setup.seal(arena).unwrap(), slots, workspaces, workspace.offset)
}

fn compare_nodes(
    name: &str,
    graph: &Graph,
    skipped: &BTreeSet<String>,
    tally: &mut BTreeMap<String, Tally>,
    failures: &mut Vec<String>,
) {
    let (mut cpu, slots, workspaces, workspace_at) = device(Choice::Cpu, graph);
    let opened = catch_unwind(AssertUnwindSafe(|| device(Choice::Cuda(0), graph)));
    let Ok((mut gpu, gpu_slots, gpu_workspaces, gpu_workspace_at)) = opened else {
        failures.push(format!("{name}: the device does not open"));
        return;
    };
    let missing: BTreeSet<&str> = Gpu::missing(graph).into_iter().map(|(op, _)| op).collect();
    for (tensor, values) in draw_values(graph, ROWS, 11) {
        let to = cpu.bytes_mut(slots[tensor.0]);
        for (four, value) in to.as_chunks_mut().0.iter_mut().zip(values) {
            let is_integer = graph.tensors[tensor.0].dtype == DType::I32;
            *four = if is_integer { (value as i32).to_ne_bytes() } else { (value as f32).to_ne_bytes() };
        }
    }
    // States of optimizers as they are behind some steps.
    let states = graph.tensors.iter().enumerate().filter(|(_, tensor)| tensor.kind == Kind::Optimizer);
    for (index, _) in states {
        for (at, four) in cpu.bytes_mut(slots[index]).as_chunks_mut().0.iter_mut().enumerate() {
            *four = random::uniform(index as u64, at as u64, 0.05, 0.5).to_ne_bytes();
        }
    }
    for (index, node) in graph.nodes.iter().enumerate() {
        let ids: Vec<TensorId> = [&node.inputs[..], &node.outputs, &node.updates].concat();
        let args: Vec<Slot> = ids.iter().map(|id| slots[id.0]).collect();
        let gpu_args: Vec<Slot> = ids.iter().map(|id| gpu_slots[id.0]).collect();
        let workspace = Slot { offset: workspace_at, bytes: workspaces[index] };
        let gpu_workspace = Slot { offset: gpu_workspace_at, bytes: gpu_workspaces[index] };
        let before: Vec<Vec<u8>> = args.iter().map(|slot| cpu.bytes(*slot).to_vec()).collect();
        let op = node.op.name();
        let count = tally.entry(op.to_owned()).or_default();
        // The last run goes on with what was there, as a second piece of a batch does.
        for fresh in [true, false] {
            for (slot, bytes) in args.iter().zip(&before) {
                cpu.bytes_mut(*slot).copy_from_slice(bytes);
            }
            cpu.launch(graph, NodeId(index), &args, workspace, fresh, &CONTEXT);
            if missing.contains(op) || skipped.contains(op) {
                count.lack += usize::from(!fresh);
                continue;
            }
            for (place, (slot, bytes)) in gpu_args.iter().zip(&before).enumerate() {
                let is_output = (node.inputs.len()..node.inputs.len() + node.outputs.len()).contains(&place);
                let to = gpu.bytes_mut(*slot);
                if is_output { to.fill(0xFF) } else { to.copy_from_slice(bytes) }
            }
            let launched = catch_unwind(AssertUnwindSafe(|| {
                gpu.launch(graph, NodeId(index), &gpu_args, gpu_workspace, fresh, &CONTEXT);
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
                for (place, id) in ids.iter().enumerate() {
                    let tensor = &graph.tensors[id.0];
                    let (got, wanted) = (gpu.bytes(gpu_args[place]), cpu.bytes(args[place]));
                    let gap = gap(tensor.dtype, got, wanted);
                    if worst.0 < gap {
                        worst = (
                            gap,
                            format!(
                                "`{}` {} {}",
                                tensor.name,
                                tensor.dtype,
                                sample(tensor.dtype, got, wanted)
                            ),
                        );
                    }
                }
            }
            let half = ids.iter().any(|id| matches!(graph.tensors[id.0].dtype, DType::F16 | DType::BF16));
            let is_bf16 = ids.iter().any(|id| graph.tensors[id.0].dtype == DType::BF16);
            let limit = if is_bf16 {
                3e-2
            } else if half {
                4e-3
            } else {
                2e-5
            };
            if worst.0 <= limit {
                count.agree += 1;
                count.worst = count.worst.max(worst.0);
            } else {
                count.differ += 1;
                failures.push(format!("{op} fresh={fresh} in {name}: off by {:.1e} in {}", worst.0, worst.1));
            }
        }
    }
}

/// The largest difference relative to the largest value; infinite where numbers that must be equal are not.
fn gap(dtype: DType, got: &[u8], wanted: &[u8]) -> f64 {
    let (Some(got), Some(wanted)) = (numbers(dtype, got), numbers(dtype, wanted)) else {
        return if got == wanted { 0.0 } else { f64::INFINITY };
    };
    let scale =
        wanted.iter().filter(|value| value.is_finite()).fold(1e-3f64, |most, value| most.max(value.abs()));
    got.iter().zip(&wanted).fold(0.0f64, |worst, (got, wanted)| {
        if got == wanted || (got.is_nan() && wanted.is_nan()) {
            return worst;
        }
        let gap = (got - wanted).abs() / scale;
        if gap.is_nan() { f64::INFINITY } else { worst.max(gap) }
    })
}

fn sample(dtype: DType, got: &[u8], wanted: &[u8]) -> String {
    match (numbers(dtype, got), numbers(dtype, wanted)) {
        (Some(got), Some(wanted)) => {
            let worst = (0..got.len()).max_by(|a, b| {
                let gap = |i: usize| if got[i].is_nan() { f64::INFINITY } else { (got[i] - wanted[i]).abs() };
                gap(*a).total_cmp(&gap(*b))
            });
            let at = worst.unwrap_or(0);
            format!("at {at} of {}: {:.6} for {:.6}", got.len(), got[at], wanted[at])
        }
        _ => format!("{:?} for {:?}", &got[..got.len().min(8)], &wanted[..wanted.len().min(8)]),
    }
}

fn numbers(dtype: DType, bytes: &[u8]) -> Option<Vec<f64>> {
    let halves = || bytes.as_chunks().0.iter().map(|two| u16::from_ne_bytes(*two));
    match dtype {
        DType::F32 => {
            Some(bytes.as_chunks().0.iter().map(|four| f64::from(f32::from_ne_bytes(*four))).collect())
        }
        DType::BF16 => Some(halves().map(|half| f64::from(f32::from_bits(u32::from(half) << 16))).collect()),
        DType::F16 => Some(halves().map(from_f16).collect()),
        DType::I32 | DType::I64 | DType::U8 | DType::Bool => None,
    }
}

fn from_f16(half: u16) -> f64 {
    let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, rest) = (i32::from(half >> 10 & 31), f64::from(half & 1023));
    sign * match exponent {
        31 if rest == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        0 => rest * 2f64.powi(-24),
        _ => (1024.0 + rest) * 2f64.powi(exponent - 25),
    }
}

/// How long convolutions of well-known networks take, and their workspaces: to be read, not to fail.
#[test]
#[ignore = "a table to be read"]
fn convolutions_take_so_long() {
    if !has_gpu() {
        return;
    }
    let _open = memfit_device::open_on(Choice::Cuda(0), Some(1), 1, true).unwrap();
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
    let setup = memfit_device::open_on(Choice::Cuda(0), Some(1), rows, true).unwrap();
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
fn nodes_of_a_job_take_so_long() {
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
    job.memory.budget = Some(Bytes(100 << 30));
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
