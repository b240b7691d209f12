//! Which costs a job is planned by: an estimate, or what its nodes took on this machine.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use memfit_device::{Allowance, Backend, Coverage, process};
use memfit_ir::{ArenaMemory, Bytes, Graph, Problem, ProducerFusions, Rewritten};
use serde::Deserialize;

use crate::{budget, cache};

/// Where the costs of nodes come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Costs {
    /// Each distinct op and shape is timed, once for all jobs of a user on a machine.
    #[default]
    Measured,
    /// Arithmetic and bytes at rough rates: the same plan on every machine.
    Analytic,
}

/// The costs that a job was planned by.
#[derive(Clone, Debug)]
pub struct CostsUsed {
    /// Where they come from. They are estimates, too, where no choice depends on time.
    pub costs: Costs,
    /// How long measuring took.
    pub seconds_measuring: f64,
    /// How much of the step was measured, now or earlier.
    pub coverage: Coverage,
}

/// The target time of measuring. It continues when the next job starts.
const SECONDS: f64 = 3.0;

/// The time for answers that are wanted at once. The most important costs come first.
pub const SECONDS_GLANCE: f64 = 0.05;

/// The same where the machine is so busy that this is too short for anything.
const SECONDS_AT_ONCE: f64 = 0.5;

/// The most memory that measuring takes.
const BYTES: Bytes = Bytes::mib(256);

/// The most that it takes for each second it has: pages that were never touched come slowly, and short measuring must not wait for
/// long memory.
const BYTES_PER_SECOND: Bytes = Bytes::mib(256);

/// Memory of this process that may come and go while it measures: stacks, tables, the file.
const BYTES_BESIDES: Bytes = Bytes::mib(2);

impl Costs {
    /// As it is written in a job.
    pub fn name(self) -> &'static str {
        match self {
            Costs::Measured => "measured",
            Costs::Analytic => "analytic",
        }
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Costs {
    type Err = String;

    fn from_str(text: &str) -> Result<Costs, String> {
        let known = [Costs::Measured, Costs::Analytic];
        let found = known.into_iter().find(|costs| costs.name() == text);
        found.ok_or_else(|| format!("unknown costs `{text}`; write measured or analytic"))
    }
}

impl TryFrom<String> for Costs {
    type Error = String;

    fn try_from(text: String) -> Result<Costs, String> {
        text.parse()
    }
}

impl CostsUsed {
    /// Nothing was measured.
    pub(crate) fn estimated() -> CostsUsed {
        CostsUsed { costs: Costs::Analytic, seconds_measuring: 0.0, coverage: Coverage::default() }
    }
}

/// The process that measures: what it held before the job, and the size of its files, which names the build.
#[derive(Clone, Copy)]
pub(crate) struct Process {
    pub(crate) baseline: Bytes,
    pub(crate) files: Bytes,
}

/// Puts measured costs into a problem: from the user's cache, and for what is missing there by timing it,
/// within the budget and within the given seconds, or a few seconds where none are given.
pub(crate) fn measure(
    setup: &dyn Backend,
    problem: &mut Problem,
    process: Process,
    seconds: Option<f64>,
) -> CostsUsed {
    let Process { baseline, files } = process;
    process::trim();
    let mut seconds = seconds.unwrap_or(SECONDS);
    let path = cache::path(setup, files);
    // What could replace nodes of the graph is timed too.
    let (fused, readers) = ProducerFusions::all(&problem.graph);
    let mut graph = problem.graph.clone();
    graph.nodes.extend(
        readers
            .iter()
            .filter(|id| problem.costs_rewritten.contains_key(&Rewritten::Reader(**id)))
            .map(|id| fused.nodes[id.0].clone()),
    );
    drop(fused);
    let mut known = path.as_deref().map(|path| cache::read(path, &signatures(&graph))).unwrap_or_default();
    let mut measure = |seconds: f64| {
        let bytes = room(setup, problem, baseline, seconds);
        setup.measure(&graph, problem.batch, Allowance { bytes, seconds }, &mut known)
    };
    let mut measured = measure(seconds);
    // However busy the machine is, every start measures some of what is missing.
    while measured.timed == 0
        && measured.coverage.kinds_measured < measured.coverage.kinds
        && seconds < SECONDS_AT_ONCE
    {
        seconds *= 4.0;
        measured = measure(seconds);
    }
    if let Some(path) = path.filter(|_| 0 < measured.timed) {
        cache::add(&path, &known);
    }
    drop(known);
    process::trim();
    if measured.coverage.kinds_measured == 0 {
        return CostsUsed::estimated();
    }
    let mut costs = measured.costs;
    let rest = costs.split_off(problem.graph.nodes.len());
    problem.costs = costs;
    let readers = problem.costs_rewritten.iter_mut().filter(|(of, _)| matches!(of, Rewritten::Reader(_)));
    readers.zip(rest).for_each(|((_, cost), measured)| *cost = measured);
    CostsUsed {
        costs: Costs::Measured,
        seconds_measuring: if measured.timed == 0 { 0.0 } else { measured.seconds },
        coverage: measured.coverage,
    }
}

/// What measuring may take: of a device's own memory all that the arena may, since times are those of full micro-batches.
fn room(setup: &dyn Backend, problem: &Problem, baseline: Bytes, seconds: f64) -> Bytes {
    if setup.capabilities().arena == ArenaMemory::Device {
        return problem.budget.arena();
    }
    let stacks = budget::stacks(setup.threads());
    let room = (problem.budget.total + baseline).min(process::limits().available);
    let most = BYTES.min(Bytes((BYTES_PER_SECOND.0 as f64 * seconds) as u64));
    room.saturating_sub(process::resident() + stacks + BYTES_BESIDES).min(most)
}

fn signatures(graph: &Graph) -> BTreeSet<String> {
    graph.nodes.iter().map(|node| graph.signature(node)).collect()
}
