//! A problem: the graph, what its nodes cost, and a budget. Plain data, so that it can be solved anywhere.

use std::collections::BTreeMap;

use crate::{Bytes, Graph, Pinned, Rewritten};

/// What the planner is asked: fit this training graph, at these costs, into this budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Forward, backward and optimizer.
    pub graph: Graph,
    /// One cost a node.
    pub costs: Vec<Cost>,
    /// The cost of what a rewrite makes; nothing where the device does not offer it.
    pub costs_rewritten: BTreeMap<Rewritten, Cost>,
    /// What may be used.
    pub budget: Budget,
    /// Rows of one training step.
    pub batch: usize,
    /// Split the batch even where a layer mixes rows, which changes the result.
    pub allow_batchnorm_split: bool,
    /// The cost of copies into the arena and out of it.
    pub transfers: Transfers,
    /// What of the plan is decided beforehand.
    pub pinned: Pinned,
}

/// Nanoseconds for each byte that is copied into the arena, out of it or within it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfers {
    /// To be fed.
    pub nanos_per_byte_fed: f64,
    /// To be moved to offload memory, or back.
    pub nanos_per_byte_moved: f64,
    /// To be copied within the arena.
    pub nanos_per_byte_copied: f64,
    /// Whether rows can come in beside launches, given a place to wait.
    pub feeds_ahead: bool,
}

impl Default for Transfers {
    /// A gigabyte a second is what reading and converting rows takes, half a gigabyte what a plain disk does, ten what memory does.
    fn default() -> Transfers {
        Transfers {
            nanos_per_byte_fed: 1.0,
            nanos_per_byte_moved: 2.0,
            nanos_per_byte_copied: 0.1,
            feeds_ahead: false,
        }
    }
}

/// Nanoseconds to begin a copy.
const NANOS_PER_COPY: f64 = 1_000.0;

/// What a node costs on a device, as a function of the rows of a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Scratch memory whatever the rows.
    pub workspace_fixed: Bytes,
    /// Scratch memory for each row.
    pub workspace_per_row: Bytes,
    /// Time whatever the rows, by an estimate.
    pub nanos_fixed: f64,
    /// Time for each row, by an estimate.
    pub nanos_per_row: f64,
    /// What it took on this machine, where that was measured: it decides what is fastest, but never what fits.
    pub measured: Option<Nanos>,
    /// Low-workspace algorithms that the device offers beside this, the fastest: each with less scratch
    /// memory than the one before it, and slower. A launch's workspace says which of them it uses.
    pub leaner: [Option<LowWorkspace>; LOW_WORKSPACE],
}

/// How many low-workspace algorithms a device offers at most.
pub const LOW_WORKSPACE: usize = 3;

/// Another algorithm that computes a node with less scratch memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LowWorkspace {
    /// Scratch memory whatever the rows; the part for each row is the same in all algorithms.
    pub workspace_fixed: Bytes,
    /// Time beyond that of the fastest algorithm.
    pub nanos: Nanos,
}

/// Time as a function of the rows of a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Nanos {
    /// Whatever the rows.
    pub fixed: f64,
    /// For each row.
    pub per_row: f64,
}

impl Nanos {
    /// The time at this number of rows.
    pub fn at(&self, rows: usize) -> f64 {
        self.fixed + self.per_row * rows as f64
    }
}

impl Cost {
    /// The cost of copying rows within the arena.
    pub fn of_copy(bytes_per_row: Bytes, transfers: &Transfers) -> Cost {
        Cost {
            nanos_fixed: NANOS_PER_COPY,
            nanos_per_row: bytes_per_row.0 as f64 * transfers.nanos_per_byte_copied,
            ..Cost::default()
        }
    }

    /// Scratch memory for a micro-batch of `rows`.
    pub fn workspace(&self, rows: usize) -> Bytes {
        self.workspace_fixed + self.workspace_per_row * rows as u64
    }

    /// All algorithms at `rows`, the fastest first: scratch memory, and time beyond the fastest.
    pub fn ways(&self, rows: usize) -> impl Iterator<Item = (Bytes, Nanos)> {
        let per_row = self.workspace_per_row * rows as u64;
        let leaner =
            self.leaner.into_iter().flatten().map(move |way| (way.workspace_fixed + per_row, way.nanos));
        std::iter::once((self.workspace(rows), Nanos::default())).chain(leaner)
    }

    /// Scratch memory for a micro-batch of `rows` by the algorithm that needs least.
    pub fn workspace_least(&self, rows: usize) -> Bytes {
        self.ways(rows).map(|(workspace, _)| workspace).min().unwrap_or_default()
    }

    /// Time beyond the fastest of the algorithm with this scratch memory at `rows`; none where no algorithm
    /// has it.
    pub fn nanos_beyond(&self, workspace: Bytes, rows: usize) -> Option<Nanos> {
        self.ways(rows).find(|(known, _)| *known == workspace).map(|(_, nanos)| nanos)
    }

    /// Time for a micro-batch of `rows`: measured, or else the estimate.
    pub fn nanos(&self, rows: usize) -> f64 {
        match self.measured {
            Some(nanos) => nanos.at(rows),
            None => self.nanos_estimated(rows),
        }
    }

    /// Time for a micro-batch of `rows` by the estimate, which is the same on every machine and in every run.
    pub fn nanos_estimated(&self, rows: usize) -> f64 {
        self.nanos_fixed + self.nanos_per_row * rows as f64
    }
}

/// The user's budget, and the bytes of it that are taken already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The budget: what the whole process may hold.
    pub total: Bytes,
    /// What the program holds besides the arena.
    pub runtime: Bytes,
    /// The arena is taken in multiples of this.
    pub granule: Bytes,
    /// The second budget: what may be copied out to offload memory; none where it is 0.
    pub host: Bytes,
}

impl Budget {
    /// The largest arena within the budget: nothing where the program alone exceeds it.
    pub fn arena(&self) -> Bytes {
        let room = self.total.saturating_sub(self.runtime).0;
        Bytes(room - room % self.granule.0.max(1))
    }

    /// The size of the arena that is allocated for a peak.
    pub fn arena_for(&self, peak: Bytes) -> Bytes {
        peak.align_up(self.granule.0.max(1))
    }

    /// The smallest budget for a peak.
    pub fn smallest(&self, peak: Bytes) -> Bytes {
        self.runtime + self.arena_for(peak)
    }
}
