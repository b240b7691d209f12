//! The problem of a graph, with the device and the rows that it is about.

use memfit_data::Source;
use memfit_device::Backend;
use memfit_device::heap::Taken;
use memfit_ir::{Budget, Bytes, Graph, Pinned, Problem};

use super::Threads;
use crate::budget::{Watch, allowed_on, default_budget_on};
use crate::solve::{Ask, Solved, solve};
use crate::{Error, Job, Size, data};

/// A problem with the device and the rows that it is about.
pub(crate) struct Asked {
    pub(crate) setup: Box<dyn Backend>,
    pub(crate) source: Box<dyn Source>,
    pub(crate) problem: Problem,
}

/// The device and the rows of what was planned, and the plan.
pub(crate) type Ready = (Box<dyn Backend>, Box<dyn Source>, Solved);

impl Asked {
    /// Opens the data and the device of a graph.
    pub(crate) fn of(job: &Job, graph: Graph, threads: Threads, pinned: Pinned) -> Result<Asked, Error> {
        let source = data::open(job, &graph)?;
        let setup = job.open_device(threads)?;
        setup.make_ready(&graph)?;
        let problem = problem_of(job, graph, &*setup, &*source, pinned)?;
        Ok(Asked { setup, source, problem })
    }

    /// Plans it: `for_file` is what writing a file takes at the end, `before` what opening it all took.
    pub(crate) fn solve(
        self,
        job: &Job,
        watch: &Watch,
        before: Taken,
        for_file: Bytes,
    ) -> Result<Ready, Error> {
        let Asked { setup, source, problem } = self;
        let (input, for_caller) = (source.bytes(), Bytes::ZERO);
        let ask = Ask { job, watch, before, setup: &*setup, input, for_file, for_caller };
        let solved = solve(&ask, problem, None)?;
        Ok((setup, source, solved))
    }
}

/// The problem of a graph within the job's budget; what the process holds besides the arena is not known yet.
pub(crate) fn problem_of(
    job: &Job,
    graph: Graph,
    setup: &dyn Backend,
    source: &dyn Source,
    pinned: Pinned,
) -> Result<Problem, Error> {
    let total = match job.memory.budget {
        Some(Size::Bytes(budget)) => budget,
        Some(share @ Size::Share(_)) => share.of(allowed_on(setup, job.caller.baseline)?),
        None => default_budget_on(setup, job.caller.baseline)?,
    };
    let disk = job.memory.disk.as_ref().map_or(Bytes::ZERO, |disk| disk.size);
    let host = job.memory.host.unwrap_or(disk);
    let is_synthetic = (0..graph.inputs.len()).all(|field| source.synthetic_values(field).is_some());
    let problem = Problem {
        costs: setup.costs(&graph),
        costs_rewritten: setup.costs_rewritten(&graph),
        budget: Budget { total, runtime: Bytes::ZERO, granule: setup.capabilities().granule, host },
        graph,
        batch: job.train.batch,
        allow_batchnorm_split: job.memory.allow_batchnorm_split,
        transfers: setup.transfers(is_synthetic),
        pinned,
    };
    if !is_countable(&problem) {
        let text =
            format!("a batch of {} rows of this model holds more bytes than can be counted", problem.batch);
        return Err(Error::job("train.batch", text));
    }
    memfit_plan::may_pin(&problem)
        .map_err(|cannot| Error::job("memory.micro_batches (--micro-batches)", cannot.to_string()))?;
    Ok(problem)
}

/// Whether all values of a step together, and all workspaces, have a size far below what a number holds.
fn is_countable(problem: &Problem) -> bool {
    const MOST: u128 = 1 << 58;
    let values = problem.graph.tensors.iter().map(|tensor| u128::from(tensor.bytes(1).0));
    let workspaces = problem.costs.iter().map(|cost| u128::from(cost.workspace(1).0));
    values.chain(workspaces).sum::<u128>() * (problem.batch as u128) < MOST
}

/// The same problem of another graph, by estimates.
pub(crate) fn with_graph(setup: &dyn Backend, problem: &Problem, graph: Graph) -> Problem {
    let (costs, costs_rewritten) = (setup.costs(&graph), setup.costs_rewritten(&graph));
    Problem { costs, costs_rewritten, graph, ..problem.clone() }
}
