//! The line and what stands below it: what the program itself takes is measured and is a line of the budget.

use memfit_device::process;
use memfit_ir::Bytes;

/// The program's own memory is counted up to the next of 3, 7, 11, 15 … MiB, so that the same job gets the same plan twice though
/// the system maps a few pages more or fewer. A small job holds 9 to 10 MiB, far from where the count would change.
pub(crate) fn in_steps(program: Bytes) -> Bytes {
    const STEP: u64 = 4 << 20;
    const BELOW: u64 = 1 << 20;
    (program + Bytes(BELOW)).align_up(STEP) - Bytes(BELOW)
}

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
    /// Line by line.
    pub lines: Vec<Line>,
}

impl Runtime {
    /// Measures the process as it is now: the program, its libraries, the graph and the plan.
    pub fn measure(threads: usize, input: Bytes, file: Bytes) -> Runtime {
        process::trim();
        let line = |name, bytes| Line { name, bytes };
        Runtime {
            lines: vec![
                line("program, graph and plan", in_steps(process::resident())),
                line("thread stacks", Bytes(STACK_PER_THREAD) * (threads as u64 + 1)),
                line("input pipeline", input),
                line("training loop", Bytes(LOOP)),
                line("model file", file),
            ],
        }
    }

    /// All lines together, in whole pages.
    pub fn total(&self) -> Bytes {
        self.lines.iter().map(|line| line.bytes).sum::<Bytes>().align_up(4096)
    }
}

/// The budget when none is given: what the machine really allows, less a sixteenth.
pub fn default_budget() -> Bytes {
    let allowed = process::limits().available;
    allowed - Bytes(allowed.0 / MARGIN)
}
