//! Validation while a job trains: planned before it starts, and run where the training's values between weights were.
//!
//! At the end of an epoch nothing of a step is alive but what stays: weights, optimizer state, sums. The pages behind them are given
//! back, an arena for the evaluation takes their place, and the weights are copied over.

use memfit_data::Source;
use memfit_formats::Mode;
use memfit_grad::{evaluation_graph, training_graph};
use memfit_ir::{ALIGNMENT, Bytes, CheckedPlan, Graph, TensorId};
use memfit_plan::Hint;
use memfit_run::{Means, Runner, StepInput};

use crate::data::Feeder;
use crate::job::{DataSection, OneOrMany};
use crate::prepare::{Prepared, Solved, solve, training};
use crate::state::{self, Holds};
use crate::{Costs, Error, Job, ModelFile, Quiet, Threads, compiled};

/// A planned evaluation of a model in training.
pub(crate) struct Validation {
    job: Job,
    plan: Option<CheckedPlan>,
    source: Box<dyn Source>,
    /// Weights in the training's graph, and in this one.
    weights: Vec<(TensorId, TensorId)>,
    /// What stays of the training meanwhile.
    bytes_beside: Bytes,
}

impl Validation {
    /// Plans the evaluation that a job asks for. This comes before the training is planned, so that what this plan takes counts there.
    pub(crate) fn plan(job: &Job, threads: Threads) -> Result<Option<Validation>, Error> {
        let Some(validation_job) = validation_job(job)? else { return Ok(None) };
        job.check()?;
        let model = ModelFile::open(job, Mode::Training)?;
        let compiled_with = compiled(job, &model)?;
        let (trained, _) = training(job, &model.model.graph, &compiled_with)?;
        let graph = training_graph(&model.model.graph, &trained)?;
        let bytes_beside = bytes_staying(&graph);
        drop(graph);
        let mut validation = Validation {
            job: validation_job,
            plan: None,
            source: Box::new(memfit_data::Synthetic::new(0, Some(0), vec![])),
            weights: state::weights(&model).iter().filter_map(tensor_of).map(|id| (id, id)).collect(),
            bytes_beside,
        };
        drop(model);
        validation.solve(threads)?;
        Ok(Some(validation))
    }

    /// Plans again if what the training's plan takes leaves too little room for the evaluation.
    pub(crate) fn settle(&mut self, prepared: &Prepared, threads: Threads) -> Result<(), Error> {
        let budget = &prepared.problem.budget;
        let peak = self.plan.as_ref().map_or(Bytes::ZERO, |plan| plan.plan().bytes_peak);
        if budget.runtime + self.bytes_beside + budget.arena_for(peak) <= budget.total {
            return Ok(());
        }
        self.plan = None;
        self.solve(threads)
    }

    fn solve(&mut self, threads: Threads) -> Result<(), Error> {
        let model = ModelFile::open(&self.job, Mode::Inference)?;
        let compiled = compiled(&self.job, &model)?;
        let (evaluated, _) = training(&self.job, &model.model.graph, &compiled)?;
        let graph = evaluation_graph(&model.model.graph, &evaluated)?;
        let inner = state::weights(&model);
        for (pair, id) in self.weights.iter_mut().zip(inner.iter().filter_map(tensor_of)) {
            pair.1 = id;
        }
        drop(model);
        let Solved { source, outcome, .. } = solve(&self.job, graph, threads, self.bytes_beside)?;
        let plan = outcome.map_err(|mut answer| {
            let beside = self.bytes_beside;
            answer.hints = vec![Hint::Other(format!(
                "this is the validation, with {beside} of weights and optimizer beside it; a smaller batch takes less, \
                 and without it use `memfit evaluate` behind the training"
            ))];
            answer
        })?;
        (self.source, self.plan) = (source, Some(plan));
        Ok(())
    }

    /// Loss and metrics over all rows, with the weights that a training has now.
    pub(crate) fn run(&mut self, training: &mut Runner) -> Result<Means, Error> {
        let plan = self.plan.take().expect("a validation is planned before it runs");
        training.give_back();
        let inputs = plan.problem().graph.inputs.clone();
        let mut runner = Runner::new(plan, training.setup_beside(), &self.job.folder)?;
        for (from, to) in &self.weights {
            runner.bytes_mut(*to).copy_from_slice(training.bytes(*from));
        }
        let rows = self.source.rows().unwrap_or(0);
        let (mut start, mut step) = (0, 0);
        while start < rows {
            let now = usize::try_from(rows - start).unwrap_or(usize::MAX).min(self.job.train.batch);
            let mut feeder =
                Feeder { source: &mut *self.source, inputs: &inputs, start, observer: &mut Quiet };
            let input = StepInput { step, rows: now, learning_rate: 0.0, seed: self.job.train.seed };
            runner.step(input, &mut feeder)?;
            start += now as u64;
            step += 1;
        }
        let means = runner.epoch();
        self.plan = Some(runner.finish().0);
        training.take_again()?;
        Ok(means)
    }
}

/// The job that evaluates what this one trains, where it asks for that.
fn validation_job(job: &Job) -> Result<Option<Job>, Error> {
    let data = &job.data;
    let is_given = !data.validation_x.paths().is_empty() || !data.validation_y.paths().is_empty();
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
        (false, Some(share)) => DataSection {
            held_out: Some(share),
            validation_split: None,
            validation_x: OneOrMany::None,
            validation_y: OneOrMany::None,
            ..data.clone()
        },
    };
    let mut job = Job { data, ..job.clone() };
    // Times decide nothing here that is worth measuring, and the training's file has the disk.
    job.memory.costs = Costs::Analytic;
    job.memory.disk = None;
    Ok(Some(job))
}

/// What stays of a training graph between its steps, in whole huge pages, as it is given back.
fn bytes_staying(graph: &Graph) -> Bytes {
    let staying = graph.tensors.iter().filter(|tensor| tensor.kind.is_persistent());
    let bytes: Bytes = staying.map(|tensor| tensor.bytes(0).align_up(ALIGNMENT)).sum();
    bytes.align_up(memfit_device::HUGE_PAGE)
}

fn tensor_of(variable: &state::Variable) -> Option<TensorId> {
    match variable.holds {
        Holds::Tensor(tensor) | Holds::Count(tensor) => Some(tensor),
        Holds::Iteration
        | Holds::LearningRate
        | Holds::Nothing
        | Holds::Sum { .. }
        | Holds::NadamProduct { .. }
        | Holds::Placeholder => None,
    }
}
