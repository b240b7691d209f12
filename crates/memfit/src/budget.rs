//! The line and what stands below it: what the program itself takes is measured and is a line of the budget.

use std::sync::atomic::{AtomicU64, Ordering};

use memfit_device::{Setup, heap, process};
use memfit_ir::Bytes;

use crate::{Error, Job};

/// What the program holds beside its files, counted so that the same job gets the same plan twice though the system maps a few pages
/// more or fewer: twice the heap that lives and a little, since that count is exact, as long as holes in the heap take no more; else
/// up to the next of 2, 6, 10 … MiB.
fn in_steps(program: Bytes) -> Bytes {
    const COARSE: u64 = 4 << 20;
    const BELOW: u64 = 2 << 20;
    let files = files();
    let beside = program.saturating_sub(files);
    let counted = of_heap(heap::live());
    files + if beside <= counted { counted } else { (beside + Bytes(BELOW)).align_up(COARSE) - Bytes(BELOW) }
}

/// What so much heap counts for: holes take as much again.
fn of_heap(live: u64) -> Bytes {
    const LEAST: u64 = 2 << 20;
    const FINE: u64 = 256 << 10;
    Bytes(LEAST + live * 2).align_up(FINE)
}

/// What is held of a GPU is counted in steps of this, so that the same job gets the same plan twice.
const STEP_GPU: u64 = 8 << 20;

/// What the driver takes of a GPU when launches are recorded, and when libraries load a kernel at its first launch.
const RECORDED: u64 = 32 << 20;

/// Stack that a worker may still touch behind the measurement.
const STACK_PER_THREAD: u64 = 256 << 10;

/// Heap of the training loop: a record, a line of output, the progress bar.
const LOOP: u64 = 1 << 20;

/// The share of what the machine allows that a default budget leaves to others: one sixteenth.
const MARGIN: u64 = 16;

/// One line of what the process holds besides the arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it is.
    pub name: &'static str,
    /// How much.
    pub bytes: Bytes,
}

/// What the process holds besides the arena.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runtime {
    /// What the process held before the job came, which no line counts: that of the program that called us.
    pub baseline: Bytes,
    /// Line by line.
    pub lines: Vec<Line>,
    /// The heap that lived then, in a program that counts it.
    pub heap: u64,
}

impl Runtime {
    /// Measures the process as it is now: the program, its libraries, the graph and the plan; or what the driver, the kernels
    /// and the libraries hold of a GPU.
    pub fn measure(setup: &Setup, input: Bytes, file: Bytes, baseline: Bytes) -> Result<Runtime, Error> {
        if let Some(gpu) = setup.gpu() {
            let held = gpu.bytes_used().map_err(memfit_device::DeviceError::from)?;
            let lines = vec![
                Line { name: "driver, kernels, libraries", bytes: held.align_up(STEP_GPU) },
                Line { name: "recorded launches", bytes: Bytes(RECORDED) },
            ];
            return Ok(Runtime { baseline: Bytes::ZERO, lines, heap: 0 });
        }
        Ok(Runtime::of_process(setup.threads(), input, file, baseline))
    }

    fn of_process(threads: usize, input: Bytes, file: Bytes, baseline: Bytes) -> Runtime {
        process::trim();
        let line = |name, bytes| Line { name, bytes };
        Runtime {
            baseline,
            heap: heap::live(),
            lines: vec![
                line("program, graph and plan", in_steps(process::resident().saturating_sub(baseline))),
                line("thread stacks", stacks(threads)),
                line("input pipeline", input),
                line("training loop", Bytes(LOOP)),
                line(if baseline == Bytes::ZERO { "model file" } else { "weights handed over" }, file),
            ],
        }
    }

    /// Counts ahead what planning so many nodes leaves behind, in a process whose heap is not counted: to plan twice takes longer.
    pub(crate) fn expect_plan(&mut self, nodes: usize) {
        const PER_NODE: u64 = 6 << 10;
        if self.heap == 0 && self.baseline != Bytes::ZERO {
            self.lines[0].bytes += Bytes(nodes as u64 * PER_NODE);
        }
    }

    /// All lines together, in whole pages.
    pub fn total(&self) -> Bytes {
        self.lines.iter().map(|line| line.bytes).sum::<Bytes>().align_up(4096)
    }

    /// The same if the program held a plan of so much heap instead of one of `now`, and what little else comes with it.
    pub(crate) fn total_with(&self, plan: u64, now: u64) -> Bytes {
        const BESIDE: u64 = 32 << 10;
        let counts = |heap: u64| if self.heap == 0 { Bytes::ZERO } else { of_heap(heap) };
        self.total() + counts(self.heap.saturating_sub(now) + plan + BESIDE) - counts(self.heap)
    }
}

/// Stacks of the workers and of the program.
pub(crate) fn stacks(threads: usize) -> Bytes {
    Bytes(STACK_PER_THREAD) * (threads as u64 + 1)
}

/// The most that planning of so many nodes has held so far above a baseline, and what another run may hold beyond it, up to the next
/// whole MiB. Its threads meet otherwise, another line has other packings looked for, and what is freed leaves other holes: of the
/// same few hundred nodes, runs were seen to differ by 6 MiB.
pub(crate) fn planning_peak(nodes: usize, baseline: Bytes) -> Bytes {
    const PER_NODE: u64 = 16 << 10;
    const MOST: u64 = 8 << 20;
    let peak = planning_peak_now().saturating_sub(baseline);
    let another_run = (nodes as u64 * PER_NODE).min(MOST) + peak.saturating_sub(files()).0 / 8;
    (peak + Bytes(another_run)).align_up(1 << 20)
}

/// Begins to look at what a job takes in a process that held this much before. The peak that the process had then is no job's;
/// where the system does not let it begin anew, planning is taken to hold nothing.
pub(crate) fn begin(baseline: Bytes) {
    let files =
        if baseline == Bytes::ZERO { process::populate_program() } else { process::populate_library() };
    FILES.store(files.0, Ordering::Relaxed);
    if baseline == Bytes::ZERO {
        process::give_back_early();
        return;
    }
    let (peak, before) = if process::reset_peak() { (0, 0) } else { (u64::MAX, baseline.0) };
    PEAK_BEFORE.store(before, Ordering::Relaxed);
    PEAK_MEASURING.store(peak, Ordering::Relaxed);
}

/// Gives back what training does not need of what planning did: freed heap, and the program's pages, which count in full as they may
/// all come back. Within somebody else's process, or beside a GPU's libraries, those pages are not ours to judge.
pub(crate) fn planning_ended(job: &Job) {
    process::trim();
    if job.memory.baseline == Bytes::ZERO && !job.is_on_gpu() {
        process::give_back_program();
    }
}

/// The size of the files that the program runs from; of the library alone within somebody else's process.
static FILES: AtomicU64 = AtomicU64::new(0);

/// The size of the files that the program runs from: the same in every run of one build.
pub(crate) fn files() -> Bytes {
    Bytes(FILES.load(Ordering::Relaxed))
}

/// The peak of the process when measuring last ended, and what planning had held before.
static PEAK_MEASURING: AtomicU64 = AtomicU64::new(0);
static PEAK_BEFORE: AtomicU64 = AtomicU64::new(0);

/// The most that planning has held so far. Measuring takes what room there is under the line, and is no part of it.
pub(crate) fn planning_peak_now() -> Bytes {
    let peak = process::resident_peak();
    if peak.0 <= PEAK_MEASURING.load(Ordering::Relaxed) {
        return Bytes(PEAK_BEFORE.load(Ordering::Relaxed));
    }
    peak
}

/// Told when measuring has ended, with the peak of planning before it began.
pub(crate) fn measuring_ended(before: Bytes) {
    PEAK_BEFORE.store(before.0, Ordering::Relaxed);
    PEAK_MEASURING.store(process::resident_peak().0, Ordering::Relaxed);
}

/// The budget when none is given: what the machine really allows above a baseline, less a sixteenth.
pub fn default_budget(baseline: Bytes) -> Bytes {
    let allowed = process::limits().available.saturating_sub(baseline);
    allowed - Bytes(allowed.0 / MARGIN)
}

/// The same on a device: of a GPU, what is free or ours already, less a sixteenth.
pub(crate) fn default_budget_on(setup: &Setup, baseline: Bytes) -> Result<Bytes, Error> {
    let Some(gpu) = setup.gpu() else { return Ok(default_budget(baseline)) };
    let failed = memfit_device::DeviceError::from;
    let allowed = gpu.bytes_free().map_err(failed)?.0 + gpu.bytes_used().map_err(failed)?;
    Ok(allowed - Bytes(allowed.0 / MARGIN))
}
