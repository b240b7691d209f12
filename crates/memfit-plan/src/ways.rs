//! Algorithms: where a device offers several algorithms for a node, a launch takes the fastest whose
//! workspace has room beside what lives at its time.
//!
//! Schedules are made with the least workspaces, which no plan can do without. A workspace lives for one
//! launch alone, so how high a launch may reach decides its own algorithm and no other:
//!
//! ```text
//! level  ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─
//!          ┌────┐ fastest              ┌────┐ the next that fits
//!          │    │              least ┌─┤    │
//! values ──┴────┴────────────────────┴─┴────┴───────
//! ```
//!
//! The levels that are tried do not depend on the budget, so that a larger one has more to choose from.

use memfit_ir::{ALIGNMENT, Bytes};

use crate::figures::CostTables;
use crate::schedule::{Event, Schedule};
use crate::storage::Storage;

/// How high a launch may reach with its workspace, in live bytes besides persistent tensors. A launch without
/// that room has the least workspace.
pub type Level = u64;

/// Every launch has the least workspace.
pub const LEAST: Level = 0;

/// Every launch has the workspace of its fastest algorithm.
pub const FASTEST: Level = u64::MAX;

/// Levels between a height and its half.
const PER_HALF: u64 = 16;

/// How many halvings of the height are tried.
const HALVINGS: u64 = 8;

/// A schedule at one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variant {
    /// The level.
    pub level: Level,
    /// Most live bytes.
    pub live: u64,
    /// Time of a step beyond that of the fastest algorithms.
    pub nanos: f64,
}

/// One launch that has several algorithms.
struct Launch {
    time: usize,
    /// Live bytes without its workspace.
    beside: u64,
    /// Bytes of each algorithm's workspace, and time beyond the fastest in a step; the fastest first.
    ways: Vec<(Bytes, f64)>,
}

impl Launch {
    fn at(&self, level: Level) -> (Bytes, f64) {
        let reaches = |workspace: Bytes| self.beside.saturating_add(workspace.align_up(ALIGNMENT).0);
        let fits = self.ways.iter().find(|(workspace, _)| reaches(*workspace) <= level);
        let least = || self.ways.iter().min_by_key(|(workspace, _)| *workspace);
        *fits.or_else(least).expect("there is the fastest way at least")
    }
}

/// Gives every launch of a schedule its workspace at a level, where the storage has the least of each.
pub fn spend(figures: &CostTables, schedule: &Schedule, storage: &mut Storage, level: Level) {
    for launch in launches(figures, schedule, storage) {
        storage.set_workspace(launch.time, launch.at(level).0);
    }
}

/// The peak and time of a schedule at the levels that make a difference: the least workspaces first, the
/// fastest algorithms last. `high` is the height of all levels.
pub fn variants(figures: &CostTables, schedule: &Schedule, live: u64, high: u64) -> Vec<Variant> {
    if !figures.has_ways() {
        return vec![Variant { level: FASTEST, live, nanos: 0.0 }];
    }
    let storage = Storage::new(figures, schedule);
    let launches = launches(figures, schedule, &storage);
    let at = |level: Level| {
        let (mut most, mut nanos) = (live, 0.0);
        for launch in &launches {
            let (workspace, slower) = launch.at(level);
            most = most.max(launch.beside + workspace.align_up(ALIGNMENT).0);
            nanos += slower;
        }
        Variant { level, live: most, nanos }
    };
    let between = (1..PER_HALF * HALVINGS)
        .rev()
        .map(|step| (high >> (step / PER_HALF)) / (2 * PER_HALF) * (2 * PER_HALF - step % PER_HALF));
    let levels = [LEAST, live].into_iter().chain(between.filter(|level| live < *level)).chain([FASTEST]);
    let mut found: Vec<Variant> = Vec::new();
    for variant in levels.map(at) {
        // The least workspaces are packed without anything that was timed: that variant stays.
        if found.last().is_none_or(|last| last.level == LEAST || variant.nanos < last.nanos) {
            found.push(variant);
        }
    }
    found
}

fn launches(figures: &CostTables, schedule: &Schedule, storage: &Storage) -> Vec<Launch> {
    if !figures.has_ways() {
        return Vec::new();
    }
    let (problem, profile) = (figures.problem, storage.profile());
    let micro_batches = problem.batch as f64 / figures.rows.max(1) as f64;
    let launch = |(time, event): (usize, &Event)| {
        let Event::Launch { node, .. } = event else { return None };
        let (cost, rows) = (&problem.costs[node.0], problem.graph.rows_of(*node, figures.rows));
        let in_body = schedule.body <= time && time < schedule.epilogue;
        let times = if in_body { micro_batches } else { 1.0 };
        let ways = cost.ways(rows).map(|(workspace, nanos)| (workspace, nanos.at(rows) * times));
        let least = cost.workspace_least(rows).align_up(ALIGNMENT).0;
        cost.leaner[0]?;
        Some(Launch { time, beside: profile[time] - least, ways: ways.collect() })
    };
    schedule.events.iter().enumerate().filter_map(launch).collect()
}
