//! Everything up to the one-way door, in stages: the model, its gradients, rows and device are opened
//! (`opened`), the problem is asked (`asked`) and solved, and a refusal is explained.

mod asked;
mod opened;
mod training;

pub(crate) use asked::{Asked, problem_of, with_graph};
use memfit_data::Source;
use memfit_device::Backend;
use memfit_device::heap;
use memfit_ir::{Bytes, CheckedPlan, Plan, Problem};
use memfit_plan::DoesNotFit;
use opened::Opened;
pub(crate) use training::{graph_at, training};

use crate::budget::{Runtime, Watch};
use crate::charge::Charge;
use crate::costs::{self, Costs, CostsUsed};
use crate::precision::PrecisionSummary;
use crate::saving::Files;
use crate::solve::{Ask, Chosen, Solved, solve};
use crate::state::Variable;
use crate::validation::{Unplanned, Validation, Waiting};
use crate::{Compiled, Error, Job, ModelFile, log, tries};

/// How many threads to use; what the machine allows where it is not said.
pub type Threads = Option<usize>;

/// A job with its answer, before any memory is taken.
pub struct Prepared<'a> {
    /// The device, still able to allocate.
    pub setup: Box<dyn Backend>,
    /// The rows.
    pub source: Box<dyn Source + 'a>,
    /// What the process holds besides the arena.
    pub runtime: Runtime,
    /// The problem that was solved, or not.
    pub problem: Problem,
    /// The plan, or why there is none.
    pub outcome: Result<CheckedPlan, Box<DoesNotFit>>,
    /// The smallest budget: the job is accepted there and above, and refused below.
    pub smallest: Bytes,
    /// Its validation, where it has one and fits.
    pub(crate) validation: Option<Validation<'a>>,
    /// What is charged for other plans of the same problem, and what no plan can go below.
    pub(crate) charge: Charge,
    pub(crate) floor: Bytes,
    /// The model and the file that holds its weights.
    pub model: ModelFile,
    /// What the model is compiled with.
    pub compiled: Compiled,
    /// The optimizer's variables in the model's file; none where it does not hold them.
    pub(crate) resumes: Option<Vec<Variable>>,
    /// The files that training writes.
    pub(crate) saving: Files,
    /// Names of the metrics, in the graph's order.
    pub metrics: Vec<String>,
    /// The costs by which the fastest was chosen.
    pub costs: CostsUsed,
    /// What half types saved, where there are any.
    pub precision: Option<PrecisionSummary>,
    /// Time the planner took.
    pub seconds_planning: f64,
}

/// Builds the problem of a job and plans it; where nothing fits, looks for what would.
pub fn prepare(job: &Job, threads: Threads) -> Result<Prepared<'static>, Error> {
    prepare_and(job, threads, tries::find_hints)
}

/// The same without looking for what would fit, which takes more plans: for answers that do not say it.
pub fn prepare_without_hints(job: &Job, threads: Threads) -> Result<Prepared<'static>, Error> {
    prepare_and(job, threads, |_, _, _| {})
}

/// The stages one after the other: each has one result, which the next takes.
fn prepare_and(
    job: &Job,
    threads: Threads,
    find_hints: impl FnOnce(&mut DoesNotFit, &tries::Base<'_>, &dyn Backend),
) -> Result<Prepared<'static>, Error> {
    job.check()?;
    let watch = Watch::begin(job.caller.baseline);
    let (opened, before) = heap::measured(|| Opened::of(job, threads));
    let Opened { model, compiled, training, metrics, resumes, saving, asked, precision, validation } =
        opened?;
    let Asked { setup, source, problem } = asked;
    let (validation, problem_validation) = validation.map(Unplanned::split).unzip();
    let beside = validation.as_ref().map_or(Bytes::ZERO, |waiting| waiting.source.bytes());
    let for_file = for_file(job, &model, &compiled, &saving);
    let (input, for_caller) = (source.bytes() + beside, handed_over(job, &model, 0));
    let ask = Ask { job, watch: &watch, before, setup: &*setup, input, for_file, for_caller };
    let Solved { runtime, problem, outcome, charge, smallest, floor, costs, seconds_planning } =
        solve(&ask, problem, problem_validation)?;
    let outcome = outcome.map_err(|answer| {
        let forward = &model.model.graph;
        let (training, compiled, problem) = (&training, &compiled, &problem);
        let base = tries::Base { job, forward, training, compiled, problem };
        explained(answer, |answer| find_hints(answer, &base, &*setup))
    });
    let (outcome, validation) = with_validation(outcome, validation);
    Ok(Prepared {
        setup,
        source,
        runtime,
        problem,
        outcome,
        smallest,
        validation,
        charge,
        floor,
        model,
        compiled,
        resumes,
        saving,
        metrics,
        costs,
        precision,
        seconds_planning,
    })
}

/// What writing files and handing variables to the caller takes at the end: one comes after the other, so the
/// larger of the two counts.
fn for_file(job: &Job, model: &ModelFile, compiled: &Compiled, saving: &Files) -> Bytes {
    let for_caller = handed_over(job, model, 1 + compiled.optimizer.rule.state(&[1, 1]).len());
    saving.bytes_writing().unwrap_or_default().max(for_caller) + log::bytes(job)
}

/// A refusal with what would fit. Where something else than the smallest plan asks for more, changes of the
/// plan do not help.
fn explained(mut answer: Box<DoesNotFit>, find_hints: impl FnOnce(&mut DoesNotFit)) -> Box<DoesNotFit> {
    if answer.hints.is_empty() {
        find_hints(&mut answer);
    }
    answer
}

/// The plan of the training, and the validation with its own.
fn with_validation(
    outcome: Result<Chosen, Box<DoesNotFit>>,
    waiting: Option<Waiting>,
) -> (Result<CheckedPlan, Box<DoesNotFit>>, Option<Validation<'static>>) {
    match outcome {
        Ok(Chosen { plan, validation: planned }) => {
            let validation = waiting.zip(planned).map(|(waiting, of)| waiting.planned(of, plan.plan()));
            (Ok(plan), validation)
        }
        Err(answer) => (Err(answer), None),
    }
}

/// The memory that a caller needs while variables move from and to him, one after the other: what he says, or
/// twice the largest, once as an array and once in transfer, since each leaves its slot before the next
/// comes. To that comes an eighth of all small ones, of which the allocator keeps freed heap. `back` is how
/// many go back for each weight.
pub(crate) fn handed_over(job: &Job, model: &ModelFile, back: usize) -> Bytes {
    /// Arrays from this size on have pages of their own, whatever the allocator has learnt.
    const OF_ITS_OWN: Bytes = Bytes(32 << 20);
    if job.caller.baseline == Bytes::ZERO {
        return Bytes::ZERO;
    }
    let sizes = model.model.weights.iter().map(|weight| Bytes::of::<f32>(weight.dims.iter().product()));
    let largest = sizes.clone().max().unwrap_or_default();
    let small = sizes.filter(|size| *size < OF_ITS_OWN).sum::<Bytes>();
    job.caller.handover.unwrap_or(largest * 2) + Bytes(small.0 * back as u64 / 8)
}

impl Prepared<'_> {
    /// Measures costs where that was not needed for the plan, for answers that speak of time; for a few seconds where it is not said.
    pub fn measure_costs(&mut self, seconds: Option<f64>) {
        if self.costs.costs == Costs::Analytic {
            let of = costs::Process { baseline: self.runtime.baseline, files: self.runtime.files };
            self.costs = costs::measure(&*self.setup, &mut self.problem, of, seconds);
        }
    }

    /// The smallest budget for another plan of the same problem, which the program then holds instead of this one.
    pub(crate) fn smallest_for(&self, other: &Plan) -> Bytes {
        self.charge.of_plan(&self.problem, other).max(self.floor)
    }
}
