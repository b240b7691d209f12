//! What the process holds besides arenas, line by line. `charge` adds what plans take.

use memfit_device::{Backend, heap, process};
use memfit_ir::{ArenaMemory, Bytes};

use crate::{Error, Job};

/// What heap of this size counts for: holes take as much again.
fn of_heap(live: u64) -> Bytes {
    const LEAST: u64 = 2 << 20;
    const FINE: u64 = 256 << 10;
    Bytes(LEAST + live * 2).align_up(FINE)
}

/// What a program that does not count its heap holds beside its files: up to the next of 2, 6, 10 … MiB, so that the same job gets the
/// same plan twice though the system maps a few pages more or fewer.
fn in_steps(beside: Bytes) -> Bytes {
    const COARSE: u64 = 4 << 20;
    const BELOW: u64 = 2 << 20;
    (beside + Bytes(BELOW)).align_up(COARSE) - Bytes(BELOW)
}

/// What is held of a GPU is counted in steps of this, so that the same job gets the same plan twice.
const STEP_GPU: u64 = 8 << 20;

/// What the driver takes of a GPU when launches are captured as a graph, and when libraries load a kernel at
/// its first launch.
const RECORDED: u64 = 32 << 20;

/// Stack that a worker may still touch after the measurement.
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
    /// What the process held before the job, in a program that calls memfit. No line counts it.
    pub baseline: Bytes,
    /// Line by line; the first is the program's own.
    pub lines: Vec<Line>,
    /// The size of the files that the program runs from, which names its build.
    pub(crate) files: Bytes,
    /// Heap of the program without plans, where it counts its heap.
    pub(crate) heap: Option<u64>,
}

/// Where the line of the file stands.
const FILE: usize = 4;

impl Runtime {
    /// What the process holds now: the program, its libraries and the graph; or what the driver, the kernels and the libraries hold
    /// of a GPU. In a program that counts its heap, nothing of it is measured, so that the same job gets the same figures twice.
    pub(crate) fn of(
        setup: &dyn Backend,
        input: Bytes,
        file: Bytes,
        nodes: usize,
        watch: &Watch,
    ) -> Result<Runtime, Error> {
        if let Some(memory) = setup.memory()? {
            let lines = vec![
                Line { name: "driver, kernels, libraries", bytes: memory.held.align_up(STEP_GPU) },
                Line { name: "recorded launches", bytes: Bytes(RECORDED) },
            ];
            return Ok(Runtime { baseline: Bytes::ZERO, lines, files: watch.files, heap: None });
        }
        process::trim();
        let heap = heap::is_counted().then(|| watch.held() + HEAP_BESIDE);
        let program = match heap {
            Some(heap) => of_heap(heap),
            None => {
                let held = process::resident().saturating_sub(watch.baseline + watch.files);
                in_steps(held) + Bytes(nodes as u64 * PLAN_PER_NODE)
            }
        };
        let line = |name, bytes| Line { name, bytes };
        let file_name = if watch.baseline == Bytes::ZERO { "model file" } else { "weights handed over" };
        let lines = vec![
            line("program, graph and plan", watch.files + program),
            line("thread stacks", stacks(setup.threads())),
            line("input pipeline", input),
            line("training loop", Bytes(LOOP)),
            line(file_name, file),
        ];
        Ok(Runtime { baseline: watch.baseline, lines, files: watch.files, heap })
    }

    /// All lines together, in whole pages.
    pub fn total(&self) -> Bytes {
        self.lines.iter().map(|line| line.bytes).sum::<Bytes>().align_up(4096)
    }

    /// The same process with plans of this much heap.
    pub(crate) fn with_heap(&self, plans: u64) -> Runtime {
        let mut runtime = self.clone();
        if let Some(heap) = &mut runtime.heap {
            *heap += plans;
            runtime.lines[0].bytes = runtime.files + of_heap(*heap);
        }
        runtime
    }

    /// Has something else held in place of a file that is written.
    pub(crate) fn set_file(&mut self, name: &'static str, bytes: Bytes) {
        if let Some(line) = self.lines.get_mut(FILE) {
            *line = Line { name, bytes };
        }
    }

    /// What planning counts for whose heap, with all that was held before, is this much at its peak; nothing in a process whose heap is
    /// not counted. Holes take a quarter, and threads of the planner and the packer some stack and some heap that they keep.
    pub(crate) fn planning(&self, heap: u64, threads: usize) -> Bytes {
        const LEAST: u64 = 512 << 10;
        const PER_THREAD: u64 = 256 << 10;
        const HOLES: u64 = 32 << 20;
        const FINE: u64 = 256 << 10;
        if !self.is_counted() {
            return Bytes::ZERO;
        }
        let beside = heap + (heap / 4).min(HOLES) + LEAST + PER_THREAD * threads as u64;
        (self.files + Bytes(beside)).align_up(FINE)
    }

    /// Whether the program counts its heap.
    pub(crate) fn is_counted(&self) -> bool {
        self.heap.is_some()
    }
}

/// Heap that a plan of one node leaves, in a process whose heap is not counted.
const PLAN_PER_NODE: u64 = 6 << 10;

/// Heap of the program itself, and of what little comes with a plan.
const HEAP_BESIDE: u64 = 16 << 10;

/// Stacks of the workers and of the program.
pub(crate) fn stacks(threads: usize) -> Bytes {
    Bytes(STACK_PER_THREAD) * (threads as u64 + 1)
}

/// Looks at what a job takes of a process from the moment it begins. Heap is counted on the thread that plans the job, so that two jobs
/// in one process do not see each other.
pub(crate) struct Watch {
    /// What the process held before, of a program that trains within itself.
    pub(crate) baseline: Bytes,
    /// The size of the files that the program runs from, the same in every run of one build; of the library alone within the process of
    /// another program.
    pub(crate) files: Bytes,
    heap: i64,
}

impl Watch {
    /// Begins with a job. The peak that the process had before is no job's.
    pub(crate) fn begin(baseline: Bytes) -> Watch {
        let files = if baseline == Bytes::ZERO {
            process::give_back_early();
            process::populate_program()
        } else {
            process::reset_peak();
            process::populate_library()
        };
        Watch { baseline, files, heap: heap::here() }
    }

    /// Heap that this thread took since.
    pub(crate) fn held(&self) -> u64 {
        (heap::here() - self.heap).max(0) as u64
    }
}

/// Releases memory that planning needed and training does not: freed heap, and the program's pages. These
/// count in full, as they may all come back. In the process of another program, or next to the libraries of a device with memory of
/// its own, those pages may belong to others and stay.
pub(crate) fn planning_ended(job: &Job) {
    process::trim();
    if job.caller.baseline == Bytes::ZERO && job.capabilities().arena == ArenaMemory::Process {
        process::give_back_program();
    }
}

/// The budget when none is given: what the machine really allows above a baseline, less a sixteenth.
pub fn default_budget(baseline: Bytes) -> Bytes {
    let allowed = process::limits().beside_threads().available.saturating_sub(baseline);
    allowed - Bytes(allowed.0 / MARGIN)
}

/// The same on a device: of a GPU, what is free or ours already, less a sixteenth.
pub(crate) fn default_budget_on(setup: &dyn Backend, baseline: Bytes) -> Result<Bytes, Error> {
    let allowed = allowed_on(setup, baseline)?;
    Ok(allowed - Bytes(allowed.0 / MARGIN))
}

/// What may be held on a device above a baseline: of a GPU, what is free or ours already.
pub(crate) fn allowed_on(setup: &dyn Backend, baseline: Bytes) -> Result<Bytes, Error> {
    Ok(match setup.memory()? {
        Some(memory) => memory.free + memory.held,
        None => process::limits().available.saturating_sub(baseline),
    })
}
