//! Changes that make a problem fit, each tried by planning it.

use std::fmt;

use memfit_ir::{Bytes, Pinned, Plan, Problem};

use crate::moves::split;
use crate::{DoesNotFit, choose, seconds};

/// A change of a job as data: each front end writes it in its own syntax, `--batch 22` or `batch_size=22`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Another budget, in whole mebibytes.
    Budget {
        /// How many.
        mebibytes: u64,
    },
    /// Another batch.
    Batch {
        /// Its rows.
        rows: usize,
    },
    /// Room on a disk, in whole mebibytes.
    Disk {
        /// How many.
        mebibytes: u64,
    },
    /// BatchNormalization over each micro-batch by itself.
    AllowBatchnormSplit,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Budget { mebibytes } => write!(f, "a budget of {mebibytes} MiB"),
            Change::Batch { rows } => write!(f, "a batch of {rows}"),
            Change::Disk { mebibytes } => write!(f, "room for {mebibytes} MiB on a disk"),
            Change::AllowBatchnormSplit => f.write_str("allowing the split"),
        }
    }
}

/// Writes a change in some syntax.
pub type Syntax<'a> = &'a dyn Fn(Change) -> String;

/// A change with which the job fits.
#[derive(Clone, Debug, PartialEq)]
pub enum Hint {
    /// Normalise each micro-batch by itself.
    AllowBatchnormSplit {
        /// The budget that its plan needs.
        smallest: Bytes,
    },
    /// Room on a disk.
    Disk {
        /// How much of it the plan uses.
        size: Bytes,
        /// Expected time of a step over that of the smallest plan without.
        time_relative: f64,
        /// The budget that this plan needs.
        smallest: Bytes,
    },
    /// A smaller batch.
    SmallerBatch {
        /// One that fits.
        batch: usize,
        /// The one that does not.
        instead_of: usize,
        /// Whether one row more was planned and does not fit.
        is_largest: bool,
        /// Whether a layer takes statistics over the rows, which are fewer then.
        mixes_rows: bool,
        /// The budget that its plan needs.
        smallest: Bytes,
    },
    /// The budget is below what the program itself takes.
    BelowRuntime,
    /// A change of the model or of its training, tried by the caller.
    Changed {
        /// What is changed, in one word for programs.
        kind: &'static str,
        /// What to do, and what it does to the result.
        text: String,
        /// The budget that its plan needs.
        smallest: Bytes,
    },
    /// Something else to know.
    Other(String),
}

/// In graphs of more nodes, a plan takes so long that only hints that need few plans are tried.
const NODES_FOR_SIX_PLANS: usize = 1_000;

impl Hint {
    /// What is changed, in one word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Hint::AllowBatchnormSplit { .. } => "allow_batchnorm_split",
            Hint::Disk { .. } => "disk",
            Hint::SmallerBatch { .. } => "batch",
            Hint::BelowRuntime => "budget",
            Hint::Changed { kind, .. } => kind,
            Hint::Other(_) => "other",
        }
    }

    /// A budget at which it fits with the change; none where the change was not planned.
    pub fn budget(&self) -> Option<Bytes> {
        match self {
            Hint::AllowBatchnormSplit { smallest }
            | Hint::Disk { smallest, .. }
            | Hint::SmallerBatch { smallest, .. }
            | Hint::Changed { smallest, .. } => Some(*smallest),
            Hint::BelowRuntime | Hint::Other(_) => None,
        }
    }
}

impl DoesNotFit {
    /// How many plans may be tried to find the best size of a change: six, fewer for a large graph, none for
    /// a huge one.
    pub fn plans_for_a_try(problem: &Problem) -> usize {
        if choose::is_large(problem) {
            return 0;
        }
        if problem.graph.nodes.len() < NODES_FOR_SIX_PLANS { 6 } else { 3 }
    }

    /// Looks for changes of the problem that make it fit, those that leave the result as it is first.
    pub fn find_hints(&mut self, problem: &Problem) {
        if problem.budget.total < problem.budget.runtime {
            self.hints.push(Hint::BelowRuntime);
            return;
        }
        if !problem.pinned.is_empty() {
            self.hints.extend(unpinned(problem));
            return;
        }
        let plans = DoesNotFit::plans_for_a_try(problem);
        if plans == 0 {
            let nodes = problem.graph.nodes.len();
            self.untried = Some(format!(
                "the graph has {nodes} nodes, each plan takes seconds: no disk and no smaller batch was tried"
            ));
        } else {
            self.hints.extend(disk(problem, self.seconds_smallest));
            self.hints.extend(smaller_batch(problem, plans));
        }
        self.hints.extend(allow_batchnorm_split(problem));
    }
}

/// The same problem with nothing decided beforehand.
fn unpinned(problem: &Problem) -> Option<Hint> {
    let free = Problem { pinned: Pinned::default(), ..problem.clone() };
    let plan = choose::fastest(&free)?;
    let (count, smallest) = (plan.micro_batches(), problem.budget.smallest(plan.bytes_peak));
    Some(Hint::Other(format!(
        "with the number of micro-batches left open it fits within {smallest}, in {count}"
    )))
}

fn disk(problem: &Problem, seconds_smallest: f64) -> Option<Hint> {
    if problem.budget.host != Bytes::ZERO {
        return None;
    }
    let mut roomy = problem.clone();
    roomy.budget.host = Bytes(1 << 50);
    let plan = choose::fastest(&roomy)?;
    Some(Hint::Disk {
        size: plan.bytes_host,
        time_relative: seconds(&roomy, &plan) / seconds_smallest,
        smallest: problem.budget.smallest(plan.bytes_peak),
    })
}

fn allow_batchnorm_split(problem: &Problem) -> Option<Hint> {
    if split::may_split(problem) {
        return None;
    }
    let allowed = Problem { allow_batchnorm_split: true, ..problem.clone() };
    if !split::may_split(&allowed) {
        return None;
    }
    let smallest = problem.budget.smallest(choose::fastest(&allowed)?.bytes_peak);
    Some(Hint::AllowBatchnormSplit { smallest })
}

/// The largest batch that fits, found by a few plans between what fits without computing anything twice and
/// the whole batch.
fn smaller_batch(problem: &Problem, plans: usize) -> Option<Hint> {
    let of = |batch: usize| Problem { batch, ..problem.clone() };
    let (mut low, _) = split::largest_batch(problem);
    let mut high = problem.batch;
    let mut found: Option<(usize, Plan)> =
        low.filter(|batch| *batch < high).map(|batch| (batch, split::smallest_unsplit(&of(batch))));
    for _ in 0..plans {
        let middle = low.unwrap_or(0) + (high - low.unwrap_or(0)) / 2;
        if middle == 0 || high <= low.unwrap_or(0) + 1 {
            break;
        }
        match choose::fastest(&of(middle)) {
            Some(plan) => {
                low = Some(middle);
                found = Some((middle, plan));
            }
            None => high = middle,
        }
    }
    let (batch, plan) = found?;
    Some(Hint::SmallerBatch {
        batch,
        instead_of: problem.batch,
        is_largest: high == batch + 1,
        mixes_rows: problem.graph.nodes.iter().any(|node| node.op.mixes_rows()),
        smallest: problem.budget.smallest(plan.bytes_peak),
    })
}

impl Hint {
    /// The change as data; none where it is words alone.
    pub fn change(&self) -> Option<Change> {
        match self {
            Hint::AllowBatchnormSplit { .. } => Some(Change::AllowBatchnormSplit),
            Hint::Disk { size, .. } => Some(Change::Disk { mebibytes: mebibytes(*size) }),
            Hint::SmallerBatch { batch, .. } => Some(Change::Batch { rows: *batch }),
            Hint::BelowRuntime | Hint::Changed { .. } | Hint::Other(_) => None,
        }
    }

    /// What to do and what it does, with the change in some syntax.
    pub fn text(&self, syntax: Syntax<'_>) -> String {
        let change = self.change().map(syntax).unwrap_or_default();
        match self {
            Hint::AllowBatchnormSplit { smallest } => format!(
                "a layer mixes the rows of the batch (BatchNormalization in training), which forbids a split; \
                 {change} fits within {smallest} and normalises each micro-batch by itself"
            ),
            Hint::Disk { time_relative, smallest, .. } => {
                let time = (time_relative - 1.0).max(0.0) * 100.0;
                format!(
                    "{change} makes it fit within {smallest}, with the same result, \
                     about {time:.0} % slower than the smallest plan without"
                )
            }
            Hint::SmallerBatch { batch, instead_of, is_largest, mixes_rows, smallest } => {
                let largest =
                    if *is_largest { format!(", and {} does not", batch + 1) } else { String::new() };
                let steps = *instead_of as f64 / *batch as f64;
                let statistics =
                    if *mixes_rows { "; BatchNormalization then sees fewer rows at once" } else { "" };
                format!(
                    "{change} instead of {instead_of} fits within {smallest}{largest}: {steps:.2} times the \
                     steps an epoch, with noisier gradients{statistics}"
                )
            }
            Hint::BelowRuntime => "the program itself takes more than the budget; raise it".to_owned(),
            Hint::Changed { text, .. } | Hint::Other(text) => text.clone(),
        }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&|change| change.to_string()))
    }
}

/// Bytes in whole mebibytes, rounded up.
pub(crate) fn mebibytes(bytes: Bytes) -> u64 {
    bytes.0.div_ceil(1 << 20)
}
