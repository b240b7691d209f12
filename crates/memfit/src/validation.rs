//! Validation while a job trains: planned before it starts, and run in the bytes that hold other values than
//! weights in training. The command runs it over files, and a session over rows of its caller's.
//!
//! At the end of an epoch only what stays is alive: weights, optimizer state, sums. All pages after these are
//! given back, an arena for the evaluation takes their place, and the weights are copied over.

use memfit_data::Source;
use memfit_device::{Backend, HUGE_PAGE};
use memfit_formats::Mode;
use memfit_grad::evaluation_graph;
use memfit_ir::{Budget, Bytes, CheckedPlan, Plan, Problem, TensorId};
use memfit_run::{Means, Runner};

use crate::caller::ValidationRows;
use crate::job::{DataSection, OneOrMany};
use crate::pass::Pass;
use crate::prepare::{problem_of, training};
use crate::{Costs, Error, Job, ModelFile, Observer, compiled, data};

/// A planned evaluation of a model in training.
pub(crate) struct Validation<'a> {
    job: Job,
    /// None while it runs.
    plan: Option<CheckedPlan>,
    pub(crate) source: Box<dyn Source + 'a>,
    /// Weights in the training's graph, and in the evaluation's.
    weights: Vec<(TensorId, TensorId)>,
    /// What stays of the training meanwhile.
    bytes_beside: Bytes,
}

/// The evaluation that a job asks for, before it is planned.
pub(crate) struct Unplanned {
    job: Job,
    problem: Problem,
    pub(crate) source: Box<dyn Source>,
    weights: Vec<(TensorId, TensorId)>,
}

/// The same without its problem, while that is planned.
pub(crate) struct Waiting {
    job: Job,
    pub(crate) source: Box<dyn Source>,
    weights: Vec<(TensorId, TensorId)>,
}

impl Unplanned {
    /// Opens it, where a job asks for one, on the device of its training.
    pub(crate) fn of(
        job: &Job,
        trained: &ModelFile,
        setup: &dyn Backend,
    ) -> Result<Option<Unplanned>, Error> {
        let Some(job) = validation_job(job)? else { return Ok(None) };
        let model = ModelFile::open(&job, Mode::Inference)?;
        let (training, _) = training(&job, &model.model.graph, &compiled(&job, &model)?)?;
        let graph = evaluation_graph(&model.model.graph, &training)?;
        setup.make_ready(&graph)?;
        let source = data::open(&job, &graph)?;
        let problem = problem_of(&job, graph, setup, &*source, job.caller.pinned_validation.clone())?;
        let weights = tensors(trained).into_iter().zip(tensors(&model)).collect();
        Ok(Some(Unplanned { job, problem, source, weights }))
    }

    /// What is to be planned, and the rest.
    pub(crate) fn split(self) -> (Waiting, Problem) {
        let Unplanned { job, problem, source, weights } = self;
        (Waiting { job, source, weights }, problem)
    }
}

impl Waiting {
    /// Adds its plan next to that of a training.
    pub(crate) fn planned(self, plan: CheckedPlan, training: &Plan) -> Validation<'static> {
        let Waiting { job, source, weights } = self;
        Validation { job, plan: Some(plan), source, weights, bytes_beside: bytes_beside(training) }
    }
}

/// What stays of a training between its steps, in whole huge pages, as it is given back.
pub(crate) fn bytes_beside(training: &Plan) -> Bytes {
    staying(training).align_up(HUGE_PAGE)
}

impl Validation<'_> {
    /// What a budget leaves while it runs.
    pub(crate) fn room(&self, budget: &Budget) -> Bytes {
        let peak = self.plan.as_ref().map_or(Bytes::ZERO, |plan| plan.plan().bytes_peak);
        budget.arena().saturating_sub(self.bytes_beside + budget.arena_for(peak))
    }

    /// Its plan, while it does not run.
    pub(crate) fn plan_of(&self) -> Option<&CheckedPlan> {
        self.plan.as_ref()
    }

    /// Rows of a step at most.
    pub(crate) fn rows_at_once(&self) -> usize {
        self.job.train.batch
    }

    pub(crate) fn seed(&self) -> u64 {
        self.job.train.seed
    }

    /// Takes its arena, yet without weights, where a training held what no two steps share.
    pub(crate) fn begin(&mut self, training: &mut Runner) -> Result<Runner, Error> {
        let plan = self.plan.take().expect("a validation ends before it runs again");
        let staying = staying(training.plan().plan());
        assert!(staying <= self.bytes_beside, "{staying} stay where {} were counted", self.bytes_beside);
        training.give_back(staying);
        Ok(Runner::new(plan, training.backend_beside(), &self.job.caller.folder)?)
    }

    /// Copies the weights that a training has now.
    pub(crate) fn copy_weights(&self, training: &Runner, runner: &mut Runner) {
        for (from, to) in &self.weights {
            runner.bytes_mut(*to).copy_from_slice(training.bytes(*from));
        }
    }

    /// Gives its arena back, and the training its bytes.
    pub(crate) fn end(&mut self, runner: Runner, training: &mut Runner) -> Result<(), Error> {
        self.stop(runner);
        Ok(training.take_again()?)
    }

    /// Gives its arena back.
    pub(crate) fn stop(&mut self, runner: Runner) {
        self.plan = Some(runner.finish().0);
    }

    /// Loss and metrics over all rows, with the weights that a training has now; none where the observer asked to stop.
    pub(crate) fn run(
        &mut self,
        training: &mut Runner,
        observer: &mut dyn Observer,
    ) -> Result<Option<Means>, Error> {
        let mut runner = self.begin(training)?;
        self.copy_weights(training, &mut runner);
        let inputs = runner.plan().problem().graph.inputs.clone();
        let (rows_at_once, seed) = (self.rows_at_once(), self.seed());
        let pass = Pass { source: &mut *self.source, inputs: &inputs, rows_at_once, seed };
        let ran = pass.run(&mut runner, None, observer)?;
        let means = runner.epoch();
        self.end(runner, training)?;
        Ok(ran.map(|_| means))
    }
}

/// Where what stays between steps ends in the arena of a plan.
fn staying(plan: &Plan) -> Bytes {
    plan.persistent.iter().map(|(_, slot)| slot.end()).max().unwrap_or_default()
}

/// The job that evaluates what this one trains, where it asks for that.
fn validation_job(job: &Job) -> Result<Option<Job>, Error> {
    let over = match &job.caller.validation {
        Some(rows) => Some(over_rows(job, rows)),
        None => over_data(job)?,
    };
    Ok(over.map(|mut job| {
        // Measured times would change little here, and the training's offload file has the disk.
        job.memory.costs = Costs::Analytic;
        job.memory.disk = None;
        job
    }))
}

/// The same job over rows that the caller brings.
fn over_rows(job: &Job, rows: &ValidationRows) -> Job {
    let mut job = job.clone();
    job.train.batch = rows.batch;
    job.caller.sample_weights = rows.weights_of_samples.len();
    job.caller.weights_of_samples.clone_from(&rows.weights_of_samples);
    if let Some(config) = &rows.config {
        job.caller.config = Some(config.clone());
    }
    job
}

/// The same job over its validation data, or over the rows that it holds out.
fn over_data(job: &Job) -> Result<Option<Job>, Error> {
    let data = &job.data;
    let mut caller = job.caller.clone();
    let is_callers = caller.rows.as_ref().is_some_and(|rows| rows.validates());
    let is_given =
        is_callers || !data.validation_x.paths().is_empty() || !data.validation_y.paths().is_empty();
    let data = match (is_given, data.validation_split) {
        (false, None) => return Ok(None),
        (true, Some(_)) => {
            let problem = "give either validation data or a share of the rows, not both";
            return Err(Error::job("data.validation_split", problem));
        }
        (true, None) => DataSection {
            x: data.validation_x.clone(),
            y: data.validation_y.clone(),
            sample_weight: data.validation_sample_weight.clone(),
            ..DataSection::default()
        },
        (false, Some(share)) => {
            caller.held_out = Some(share);
            DataSection {
                validation_split: None,
                validation_x: OneOrMany::None,
                validation_y: OneOrMany::None,
                ..data.clone()
            }
        }
    };
    Ok(Some(Job { data: data.in_order(), caller, ..job.clone() }))
}

/// The tensors of a model's weights, in Keras's order.
fn tensors(model: &ModelFile) -> Vec<TensorId> {
    model.model.weights.iter().map(|weight| weight.tensor).collect()
}
