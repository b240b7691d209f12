//! Kernels for GPUs without a GPU: every node of the op table gives what the CPU gives when its kernels run as C++.
//!
//! Needs a compiler for C++, and says that it skips where there is none. Kernels with instructions that have
//! no form in C++ (products of groups of warps) are counted as not run. A compiler that defines
//! `__CUDA_ARCH__=750` (`CXX` names it) takes what stands for the instructions that came with 8.0. What it
//! cannot see: speed, and whether threads that run at once get in each other's way.

mod emulator;

mod joined;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use emulator::{Emulator, Places, Running, Wanted, is_plain, kernels};
use memfit_cuda::lowered;
use memfit_cuda::work::{Address, Argument, Kernel, Lowered, Source};
use memfit_ir::{Bytes, Graph};
use memfit_testkit::device_graphs::device_graphs;
use memfit_testkit::node_runs::{CONTEXT, NodeRun, on_cpu};
use memfit_testkit::op_cases::ROWS;

/// The results of an op's nodes.
#[derive(Default)]
struct Tally {
    agree: usize,
    differ: usize,
    /// With a kernel that is not run here.
    not_run: usize,
    worst: f64,
}

#[derive(Default)]
struct Findings {
    tally: BTreeMap<&'static str, Tally>,
    failures: Vec<String>,
}

/// `ONLY` picks cases by a part of their names.
#[test]
fn every_kernel_gives_what_the_cpu_gives() {
    let only = std::env::var("ONLY").unwrap_or_default();
    // f16 and bf16 differ only in how a value is read: a few graphs are enough for the second type.
    let of_first = |(index, (name, _)): &(usize, (String, Graph))| !name.starts_with("f16") || index % 8 == 0;
    let graphs = device_graphs().into_iter().enumerate().filter(of_first).map(|(_, graph)| graph);
    let graphs: Vec<_> = graphs.filter(|(name, _)| name.contains(&only)).collect();
    let mut wanted = Wanted::new();
    for (_, graph) in &graphs {
        for node in &graph.nodes {
            for (fresh, tf32) in [(true, false), (false, false), (true, true), (false, true)] {
                let lowered = lowered(graph, node, ROWS, fresh, tf32);
                for kernel in kernels(&lowered).filter(|kernel| is_plain(&kernel.source)) {
                    wanted.entry(kernel.source.clone()).or_default().insert(kernel.entry);
                }
            }
        }
    }
    let start = Instant::now();
    let Some(built) = Emulator::build(&wanted) else {
        println!("skipped: no compiler for C++ (c++, g++ or clang++, or what CXX names)");
        return;
    };
    let emulator = built.unwrap_or_else(|words| panic!("a kernel does not compile:\n{words}"));
    println!("{} texts, compiled in {:.1} s", wanted.len(), start.elapsed().as_secs_f64());
    let (next, findings) = (AtomicUsize::new(0), Mutex::new(Findings::default()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let mut running = emulator.start();
                while let Some((name, graph)) = graphs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    on_cpu(graph, &mut |run| compare(&mut running, name, graph, run, &findings));
                }
            });
        }
    });
    let Findings { tally, failures } = findings.into_inner().unwrap();
    for (op, Tally { agree, differ, not_run, worst }) in &tally {
        println!(
            "{op:<34} {agree:>5} agree {differ:>5} differ {not_run:>5} not run here   worst {worst:.1e}"
        );
    }
    for failure in failures.iter().take(60) {
        println!("{failure}");
    }
    assert!(failures.is_empty(), "{} nodes differ", failures.len());
}

/// Kernels with a mistake each: the emulator finds each mistake in at least one order of threads.
#[test]
fn mistakes_are_found() {
    const TEXT: &str = r#"
        extern "C" __global__ void right(float* x) {
            __shared__ float parts[64];
            parts[threadIdx.x] = (float)threadIdx.x;
            __syncthreads();
            x[threadIdx.x] = parts[63 - threadIdx.x] + warp_sum(1.0f);
        }
        extern "C" __global__ void lacks_a_barrier(float* x) {
            __shared__ float parts[64];
            parts[threadIdx.x] = -1.0f;
            __syncthreads();
            parts[threadIdx.x] = (float)threadIdx.x;
            x[threadIdx.x] = parts[63 - threadIdx.x] + warp_sum(1.0f);
        }
        extern "C" __global__ void writes_behind_the_end(float* x) { x[threadIdx.x + 1] = 32.0f; }
        extern "C" __global__ void leaves_a_thread_out(float* x) { if (threadIdx.x != 5) x[threadIdx.x] = warp_sum(1.0f); }
    "#;
    let source = Source { text: TEXT, defines: String::new() };
    let entries = ["right", "lacks_a_barrier", "writes_behind_the_end", "leaves_a_thread_out"];
    let wanted = Wanted::from([(source.clone(), entries.into())]);
    let Some(built) = Emulator::build(&wanted) else { return };
    let emulator = built.unwrap();
    let mut running = emulator.start();
    let mut is_right = |entry: &'static str| {
        [true, false].into_iter().all(|forwards| {
            let arguments = vec![Argument::At(Address::Workspace(Bytes::ZERO))];
            let lowered = Lowered::from(Kernel {
                source: source.clone(),
                entry,
                blocks: [1; 3],
                threads: 64,
                arguments,
            });
            let mut memory = Memory { bytes: vec![], operands: vec![], workspace: 0, used: vec![] };
            memory.workspace = memory.take(&[POISON; 256]);
            let places = Places { context: 0, operands: &[], workspace: memory.workspace };
            let ran = running.run(&mut memory.bytes, &lowered, &places, forwards).is_ok();
            let values = memory.bytes[..256].as_chunks().0.iter().map(|four| f32::from_ne_bytes(*four));
            ran && memory.is_intact()
                && values.zip(0u8..).all(|(value, index)| value == f32::from(95 - index))
        })
    };
    assert_eq!(entries.map(&mut is_right), [true, false, false, false]);
}

/// Bytes between operands, which no kernel may write.
const MARGIN: usize = 256;

/// Fills memory that is not written yet: NaN in every type of float.
const POISON: u8 = 0xFF;

/// Memory of a launch: the context, the operands, and the workspace.
struct Memory {
    bytes: Vec<u8>,
    operands: Vec<u64>,
    workspace: u64,
    /// Buffers that a kernel may write, and where they end.
    used: Vec<(usize, usize)>,
}

impl Memory {
    /// Memory for a run in which some outputs share the buffer of an input.
    fn new(run: &NodeRun<'_>, workspace: usize, shared: &[(usize, usize)]) -> Memory {
        let mut memory = Memory { bytes: Vec::new(), operands: Vec::new(), workspace: 0, used: Vec::new() };
        memory.take(&context());
        for (place, (id, bytes)) in run.ids.iter().zip(&run.before).enumerate() {
            // A tensor that is read twice has one buffer.
            let mut known = run.ids[..place].iter().position(|other| other == id);
            known = known.or(shared.iter().find(|(output, _)| *output == place).map(|(_, input)| *input));
            let known = known.map(|other| memory.operands[other]);
            let poison = vec![POISON; bytes.len()];
            let at = known.unwrap_or_else(|| memory.take(if run.is_output(place) { &poison } else { bytes }));
            memory.operands.push(at);
        }
        memory.workspace = memory.take(&vec![POISON; workspace]);
        memory
    }

    fn take(&mut self, bytes: &[u8]) -> u64 {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.used.push((start, self.bytes.len()));
        self.bytes.resize((self.bytes.len() + MARGIN).next_multiple_of(MARGIN), POISON);
        start as u64
    }

    /// Whether nothing was written outside the buffers.
    fn is_intact(&self) -> bool {
        let starts = self.used.iter().skip(1).map(|(start, _)| *start).chain([self.bytes.len()]);
        let mut margins = self.used.iter().zip(starts).flat_map(|((_, end), next)| &self.bytes[*end..next]);
        margins.all(|byte| *byte == POISON)
    }
}

/// `Context` as kernels read it.
fn context() -> Vec<u8> {
    let rates = u64::from(CONTEXT.learning_rate.to_bits()) | u64::from(CONTEXT.loss_scale.to_bits()) << 32;
    let (start, rows, total) = (CONTEXT.row_start as u64, CONTEXT.rows as u64, CONTEXT.rows_total as u64);
    let words = [CONTEXT.step, CONTEXT.iteration, start, rows, total, CONTEXT.seed, rates, 0, 0];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Outputs and the inputs over which they may be written, as operands, one for each output.
fn in_place(run: &NodeRun<'_>) -> Vec<(usize, usize)> {
    let inputs = &run.node.inputs;
    let mut shared: Vec<(usize, usize)> = Vec::new();
    for (output, input) in run.node.in_place() {
        let output = inputs.len() + output;
        let is_read_once = inputs.iter().filter(|id| **id == inputs[input]).count() == 1;
        let fits = run.after[output].len() == run.before[input].len();
        if is_read_once && fits && shared.iter().all(|(known, taken)| *known != output && *taken != input) {
            shared.push((output, input));
        }
    }
    shared
}

fn compare(
    running: &mut Running<'_>,
    name: &str,
    graph: &Graph,
    run: &NodeRun<'_>,
    findings: &Mutex<Findings>,
) {
    let [exact, rounded] = [false, true].map(|tf32| lowered(graph, run.node, ROWS, run.fresh, tf32));
    compare_one(running, name, graph, run, (&exact, false), findings);
    if exact.work != rounded.work {
        compare_one(running, name, graph, run, (&rounded, true), findings);
    }
}

/// Compares one lowering of a node: in full precision, or in TF32.
fn compare_one(
    running: &mut Running<'_>,
    name: &str,
    graph: &Graph,
    run: &NodeRun<'_>,
    (lowered, tf32): (&Lowered, bool),
    findings: &Mutex<Findings>,
) {
    let op = run.node.op.name();
    if kernels(lowered).any(|kernel| !is_plain(&kernel.source)) {
        findings.lock().unwrap().tally.entry(op).or_default().not_run += 1;
        return;
    }
    let mut worst = (0.0, String::new());
    let shared = in_place(run);
    for shared in if shared.is_empty() { vec![vec![]] } else { vec![vec![], shared] } {
        let mut memory = Memory::new(run, lowered.workspace.to_usize(), &shared);
        let places = Places { context: 0, operands: &memory.operands, workspace: memory.workspace };
        let outcome = running.run(&mut memory.bytes, lowered, &places, run.fresh);
        let is_compared = |place: usize| {
            run.is_compared(graph, place, tf32) && shared.iter().all(|(_, input)| *input != place)
        };
        let gaps = match outcome {
            Err(words) => vec![(f64::INFINITY, words)],
            Ok(()) if !memory.is_intact() => vec![(f64::INFINITY, "bytes outside its operands".to_owned())],
            Ok(()) => (0..run.after.len())
                .filter(|place| is_compared(*place))
                .map(|place| {
                    let start = usize::try_from(memory.operands[place]).unwrap();
                    run.gap(graph, place, &memory.bytes[start..start + run.after[place].len()])
                })
                .collect(),
        };
        let how = if shared.is_empty() { "" } else { ", in place" };
        for (gap, words) in gaps {
            worst = if worst.0 < gap { (gap, words + how) } else { worst };
        }
    }
    let mut findings = findings.lock().unwrap();
    let count = findings.tally.entry(op).or_default();
    if worst.0 <= run.limit(graph, tf32) {
        count.agree += 1;
        count.worst = count.worst.max(worst.0);
    } else {
        count.differ += 1;
        let (fresh, how) = (run.fresh, if tf32 { " in TF32" } else { "" });
        findings
            .failures
            .push(format!("{op}{how} fresh={fresh} in {name}: off by {:.1e} in {}", worst.0, worst.1));
    }
}
