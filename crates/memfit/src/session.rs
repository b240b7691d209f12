//! A model that the caller runs: he brings rows and weights and runs the loop, and the plan decides on
//! memory.

use std::path::{Path, PathBuf};

use memfit_data::{Field, Source};
use memfit_device::{Backend, heap};
use memfit_formats::Mode;
use memfit_grad::{Schedule, evaluation_graph, prediction_graph};
use memfit_ir::{Bytes, CheckedPlan, DType, Graph, TensorId};
use memfit_run::{LossScale, Means, Runner, StepInput, StepRecord};

use crate::budget::Watch;
use crate::lease::Lease;
use crate::prepare::{Asked, Prepared, handed_over, training};
use crate::session_checkpoints::SessionCheckpoints;
use crate::session_rows::SessionRows;
use crate::session_validation::SessionValidation;
use crate::solve::Solved;
use crate::state::{self, Holds, Variable};
use crate::train::within_machine;
use crate::{Error, Job, ModelFile, Quiet, Size, Summary, Threads, compiled, prepare, resume};

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Steps change the weights.
    Training,
    /// Steps give loss and metrics.
    Evaluation,
    /// Steps give predictions.
    Prediction,
}

/// What a variable of a session is to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableKind {
    /// A weight of the model.
    Weight,
    /// State of the optimizer, with a slot in the arena.
    State,
    /// The optimizer's count of updates: see [`Session::iteration`].
    Iteration,
    /// The learning rate, where it is no schedule: given again with each step.
    LearningRate,
    /// State that follows from the count of updates: it is read, and never written.
    Derived,
    /// State of a weight that never gets a gradient: zeros, and nowhere.
    Nothing,
}

/// A variable by Keras's order, with its dimensions there.
#[derive(Clone, Copy, Debug)]
pub struct VariableView<'a> {
    /// Its name, `dense/kernel`.
    pub name: &'a str,
    /// Its dimensions in Keras.
    pub dims: &'a [usize],
    /// What its slot holds.
    pub dtype: DType,
    /// What it is.
    pub kind: VariableKind,
}

/// One step as the caller wants it.
#[derive(Clone, Copy, Debug)]
pub struct StepOf {
    /// The first row in the source.
    pub start: u64,
    /// How many rows: at most the job's batch, and at most a micro-batch where predictions are wanted.
    pub rows: usize,
    /// The learning rate; that of the optimizer's schedule where it is not given.
    pub learning_rate: Option<f32>,
    /// First row and rows of the next step, where it is known already and comes from the same rows in the same order.
    pub next: Option<(u64, usize)>,
}

/// A planned model, whose arena is taken by [`Session::open`] and given back by [`Session::close`] as often as wanted.
pub struct Session {
    purpose: Purpose,
    job: Job,
    threads: Threads,
    memory: Memory,
    rows: SessionRows,
    outputs: Vec<(TensorId, Vec<usize>)>,
    variables: Vec<Variable>,
    weights: usize,
    metrics: Vec<String>,
    schedule: Option<Schedule>,
    summary: Option<Summary>,
    iteration: u64,
    /// The scale of gradients while there is no arena.
    loss_scale: Option<LossScale>,
    /// Where checkpoints go, where the job asks for them.
    checkpoints: Option<SessionCheckpoints>,
    /// What runs between epochs, where the job asks for it.
    validation: Option<SessionValidation>,
}

/// Whether there is an arena.
enum Memory {
    Closed {
        plan: Box<CheckedPlan>,
        setup: Option<Box<dyn Backend>>,
    },
    Open {
        runner: Box<Runner>,
        first_step: u64,
    },
    /// Between the two, or after opening failed.
    Gone,
}

impl Session {
    /// Plans a job for a purpose. No arena is taken yet.
    pub fn plan(job: &Job, purpose: Purpose, threads: Threads) -> Result<Session, Error> {
        let _lease = Lease::take();
        let job = within_machine(job, &mut Quiet);
        match purpose {
            Purpose::Training => Session::for_training(job, threads),
            Purpose::Evaluation | Purpose::Prediction => Session::for_inference(job, purpose, threads),
        }
    }

    fn for_training(job: Job, threads: Threads) -> Result<Session, Error> {
        let (job, checkpoint) = resume::find(job, &mut Quiet)?;
        let mut prepared = prepare(&job, threads)?;
        let validation = prepared.validation.take();
        let summary = Summary::new(&prepared).0;
        let run_state = prepared.outcome.as_ref().ok().filter(|_| job.checkpoint.is_some());
        let run_state = run_state
            .map(|plan| resume::begin(&job, &prepared, plan, validation.as_ref(), checkpoint.as_ref()))
            .transpose()?;
        let Prepared { setup, problem, outcome, model, compiled, metrics, saving, .. } = prepared;
        let mut session =
            Session::new(Purpose::Training, job, threads, &problem.graph, &model, setup, outcome?);
        let state = state::optimizer_variables(&model, &problem.graph, &compiled.optimizer);
        session.variables.extend(state);
        session.metrics = metrics;
        session.schedule = Some(compiled.optimizer.schedule);
        session.summary = Some(summary);
        session.validation = validation.map(SessionValidation::new);
        session.checkpoints = match (run_state, saving.checkpoint) {
            (Some(state), Some(saving)) => {
                Some(SessionCheckpoints::new(&session.job, saving, state, checkpoint)?)
            }
            (Some(_), None) | (None, _) => None,
        };
        Ok(session)
    }

    fn for_inference(job: Job, purpose: Purpose, threads: Threads) -> Result<Session, Error> {
        job.check()?;
        let watch = Watch::begin(job.caller.baseline);
        let model = ModelFile::open(&job, Mode::Inference)?;
        let (graph, metrics) = if purpose == Purpose::Evaluation {
            let compiled = compiled(&job, &model)?;
            let (training, metrics) = training(&job, &model.model.graph, &compiled)?;
            (evaluation_graph(&model.model.graph, &training)?, metrics)
        } else {
            (prediction_graph(&model.model.graph), Vec::new())
        };
        let (asked, before) = heap::measured(|| Asked::of(&job, graph, threads, job.caller.pinned.clone()));
        let for_file = handed_over(&job, &model, 0);
        let (setup, _, Solved { problem, outcome, .. }) = asked?.solve(&job, &watch, before, for_file)?;
        let mut session = Session::new(purpose, job, threads, &problem.graph, &model, setup, outcome?.plan);
        session.metrics = metrics;
        Ok(session)
    }

    fn new(
        purpose: Purpose,
        job: Job,
        threads: Threads,
        graph: &Graph,
        model: &ModelFile,
        setup: Box<dyn Backend>,
        plan: CheckedPlan,
    ) -> Session {
        let output = |id: &TensorId| (*id, graph.tensors[id.0].shape.dims.clone());
        let variables = state::weights(model);
        Session {
            purpose,
            job,
            threads,
            memory: Memory::Closed { plan: Box::new(plan), setup: Some(setup) },
            rows: SessionRows::of(graph),
            outputs: graph.outputs.iter().map(output).collect(),
            weights: variables.len(),
            variables,
            metrics: Vec::new(),
            schedule: None,
            summary: None,
            iteration: 0,
            loss_scale: None,
            checkpoints: None,
            validation: None,
        }
    }

    /// Takes the arena, for which values of the variables are then to be given.
    pub fn open(&mut self) -> Result<(), Error> {
        let Memory::Closed { plan, setup } = std::mem::replace(&mut self.memory, Memory::Gone) else {
            panic!("a session is opened once before it is closed");
        };
        let setup = match setup {
            Some(setup) => setup,
            None => self.job.open_device(self.threads)?,
        };
        let disk = self.job.memory.disk.as_ref();
        let folder = disk.map(|disk| self.job.path(&disk.folder)).unwrap_or_default();
        let mut runner = Box::new(Runner::new(*plan, setup, &folder)?);
        if let Some(scale) = self.loss_scale.take() {
            runner.resume_loss_scale(scale);
        }
        self.memory = Memory::Open { runner, first_step: self.iteration };
        Ok(())
    }

    /// Gives the arena back, and with it the values of the variables.
    pub fn close(&mut self) {
        self.memory = match std::mem::replace(&mut self.memory, Memory::Gone) {
            Memory::Open { runner, .. } => {
                if let Some(validation) = &mut self.validation {
                    validation.stop();
                }
                self.loss_scale = runner.loss_scale().cloned();
                Memory::Closed { plan: Box::new(runner.finish().0), setup: None }
            }
            other @ (Memory::Closed { .. } | Memory::Gone) => other,
        };
    }

    /// Whether the arena is taken.
    pub fn is_open(&self) -> bool {
        matches!(self.memory, Memory::Open { .. })
    }

    /// What a row has: the model's inputs, then in training and evaluation the targets, then the weight where there are weights.
    pub fn fields(&self) -> &[Field] {
        self.validating().map_or(&self.rows.fields, SessionValidation::fields)
    }

    /// Names of the values that are reported beside the loss: the losses of several outputs, and the metrics.
    pub fn metrics(&self) -> &[String] {
        &self.metrics
    }

    /// Dimensions of the outputs, without the rows.
    pub fn output_dims(&self) -> impl Iterator<Item = &[usize]> {
        self.outputs.iter().map(|(_, dims)| dims.as_slice())
    }

    /// Rows of a micro-batch.
    pub fn micro_batch(&self) -> usize {
        match &self.memory {
            Memory::Closed { plan, .. } => plan.plan().micro_batch,
            Memory::Open { runner, .. } => runner.plan().plan().micro_batch,
            Memory::Gone => 0,
        }
    }

    /// The plan in short, where the session is for training.
    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// The budget that holds: the job's, or the machine's where that is lower.
    pub fn budget(&self) -> Option<Bytes> {
        match self.job.memory.budget? {
            Size::Bytes(bytes) => Some(bytes),
            // Of a GPU: its plan has the figure.
            Size::Share(_) => self.summary.as_ref().map(|summary| summary.budget),
        }
    }

    /// Variables by Keras's order: all weights, then in training the optimizer's.
    pub fn variables(&self) -> impl Iterator<Item = VariableView<'_>> {
        self.variables.iter().enumerate().map(|(index, variable)| VariableView {
            name: &variable.name,
            dims: &variable.dims,
            dtype: match variable.holds {
                Holds::Tensor(tensor) | Holds::Count(tensor) | Holds::Sum { tensor, .. } => {
                    self.graph().tensors[tensor.0].dtype
                }
                Holds::Iteration => DType::I64,
                Holds::Placeholder => DType::I32,
                Holds::LearningRate | Holds::Nothing | Holds::NadamProduct { .. } => DType::F32,
            },
            kind: match variable.holds {
                Holds::Tensor(_) | Holds::Count(_) if index < self.weights => VariableKind::Weight,
                Holds::Tensor(_) | Holds::Count(_) | Holds::Sum { .. } => VariableKind::State,
                Holds::Iteration => VariableKind::Iteration,
                Holds::LearningRate => VariableKind::LearningRate,
                Holds::NadamProduct { .. } => VariableKind::Derived,
                Holds::Nothing | Holds::Placeholder => VariableKind::Nothing,
            },
        })
    }

    /// The bytes of a weight or of state, little-endian; none for what has no slot.
    pub fn bytes(&self, variable: usize) -> Option<&[u8]> {
        match self.variables[variable].holds {
            // Keras sets sums of gradients to 0 with the update, and not with the next gradient.
            Holds::Sum { steps, .. } if self.iteration().is_multiple_of(steps) => None,
            Holds::Tensor(tensor) | Holds::Count(tensor) | Holds::Sum { tensor, .. } => {
                Some(self.runner().bytes(tensor))
            }
            Holds::Iteration
            | Holds::LearningRate
            | Holds::Nothing
            | Holds::NadamProduct { .. }
            | Holds::Placeholder => None,
        }
    }

    /// A variable as Keras would hold it now, little-endian: also what has no slot, and sums that Keras sets to 0 sooner.
    ///
    /// # Panics
    /// Where `to` does not have the variable's bytes.
    pub fn read(&self, variable: usize, to: &mut [u8]) {
        match self.variables[variable].bytes(self.runner(), self.iteration(), 0.0) {
            memfit_files::Bytes::Borrowed(bytes) => to.copy_from_slice(bytes),
            memfit_files::Bytes::Number(bytes) => to.copy_from_slice(&bytes[..to.len()]),
            memfit_files::Bytes::Zeros => to.fill(0),
        }
    }

    /// The same for writing.
    pub fn bytes_mut(&mut self, variable: usize) -> Option<&mut [u8]> {
        if let Some(validation) = &mut self.validation {
            validation.weights_written();
        }
        match self.variables[variable].holds {
            Holds::Tensor(tensor) | Holds::Count(tensor) | Holds::Sum { tensor, .. } => {
                Some(self.runner_mut().bytes_mut(tensor))
            }
            Holds::Iteration
            | Holds::LearningRate
            | Holds::Nothing
            | Holds::NadamProduct { .. }
            | Holds::Placeholder => None,
        }
    }

    /// How often weights were updated: what schedules and optimizers count.
    pub fn iteration(&self) -> u64 {
        match &self.memory {
            Memory::Open { runner, first_step } => first_step + runner.updates(),
            Memory::Closed { .. } | Memory::Gone => self.iteration,
        }
    }

    /// Sets the count of updates before a session is opened.
    pub fn set_iteration(&mut self, iteration: u64) {
        assert!(!self.is_open(), "the count of updates is set before the first step");
        self.iteration = iteration;
    }

    /// Writes a checkpoint with what the caller keeps beside the variables, after some steps.
    ///
    /// # Panics
    /// Where the job has no checkpoints, the session is closed, or steps are in flight.
    pub fn write_checkpoint(
        &mut self,
        step: u64,
        learning_rate: f32,
        caller: &str,
    ) -> Result<PathBuf, Error> {
        let iteration = self.iteration();
        let Memory::Open { runner, first_step } = &self.memory else {
            panic!("a checkpoint is written while there is an arena");
        };
        let to = self.checkpoints.as_mut().expect("the job names a folder for checkpoints");
        to.write(runner, *first_step, iteration, step, learning_rate, caller)
    }

    /// What the caller kept in the checkpoint that this session goes on from, and its path; none where it starts from the beginning.
    pub fn goes_on_from(&self) -> Option<(&Path, &str)> {
        self.checkpoints.as_ref().and_then(SessionCheckpoints::goes_on_from)
    }

    /// Opens a session with the values of the checkpoint that it goes on from.
    ///
    /// # Panics
    /// Where there is none, or the session is open.
    pub fn open_from_checkpoint(&mut self) -> Result<(), Error> {
        let checkpoints = self.checkpoints.take().expect("there is a checkpoint to go on from");
        self.iteration = checkpoints.iteration_first();
        let restored = self.open().and_then(|()| checkpoints.restore(self.runner_mut()));
        self.checkpoints = Some(checkpoints);
        restored?;
        self.iteration = self.iteration();
        Ok(())
    }

    /// One step over rows of a source whose fields are [`Session::fields`].
    pub fn step(&mut self, source: &mut dyn Source, step: StepOf) -> Result<StepRecord, Error> {
        self.begin(source, step)?;
        self.end(source, step.start)
    }

    /// How many steps may be in flight when another begins.
    pub fn steps_ahead(&self) -> usize {
        self.validating().map_or_else(|| self.runner().steps_ahead(), SessionValidation::steps_ahead)
    }

    /// Begins a step: a device that works on its own goes on with it while the caller does something else.
    pub fn begin(&mut self, source: &mut dyn Source, step: StepOf) -> Result<(), Error> {
        let iteration = self.iteration();
        let Memory::Open { runner, first_step } = &mut self.memory else {
            panic!("a session is opened before its first step");
        };
        if let Some(validation) = self.validation.as_mut().filter(|one| one.is_running()) {
            return validation.begin(runner, source, step);
        }
        let most = match self.purpose {
            Purpose::Training | Purpose::Evaluation => self.job.train.batch,
            Purpose::Prediction => runner.plan().plan().micro_batch,
        };
        assert!(step.rows <= most, "a step of {} rows, planned for at most {most}", step.rows);
        let scheduled = || self.schedule.as_ref().map_or(0.0, |schedule| schedule.at(iteration));
        let learning_rate = step.learning_rate.unwrap_or_else(scheduled);
        let number = *first_step + runner.trace().steps + runner.steps_in_flight() as u64;
        let seed = self.job.train.seed;
        let input = StepInput { step: number, rows: step.rows, learning_rate, seed };
        self.rows.begin(runner, source, step, input)?;
        self.iteration = *first_step + runner.updates();
        Ok(())
    }

    /// Ends the oldest step in flight, whose rows begin there in this source.
    pub fn end(&mut self, source: &mut dyn Source, start: u64) -> Result<StepRecord, Error> {
        let Memory::Open { runner, first_step } = &mut self.memory else {
            panic!("a session is opened before its first step");
        };
        if let Some(validation) = self.validation.as_mut().filter(|one| one.is_running()) {
            return validation.end(source, start);
        }
        let ended = self.rows.end(runner, source, start);
        self.iteration = *first_step + runner.updates();
        Ok(ended?)
    }

    /// Resets the sums of loss and metrics.
    pub fn begin_epoch(&mut self) {
        let Memory::Open { runner, .. } = &mut self.memory else {
            panic!("a session is opened before its first epoch");
        };
        self.rows.forget_next(runner);
        runner.begin_epoch();
    }

    /// Loss and metrics over all steps since the epoch began.
    pub fn epoch(&self) -> Means {
        self.validating().map_or_else(|| self.runner().epoch(), SessionValidation::epoch)
    }

    /// The predictions of the last step, which had this many rows, by output.
    pub fn prediction(&self, output: usize, rows: usize) -> &[u8] {
        let (tensor, dims) = &self.outputs[output];
        let row = dims.iter().product::<usize>() * size_of::<f32>();
        &self.runner().bytes(*tensor)[..row * rows]
    }

    /// What a variable holds.
    pub(crate) fn holds(&self, variable: usize) -> Holds {
        self.variables[variable].holds
    }

    /// How many variables there are.
    pub(crate) fn variable_count(&self) -> usize {
        self.variables.len()
    }

    fn graph(&self) -> &Graph {
        match &self.memory {
            Memory::Closed { plan, .. } => &plan.problem().graph,
            Memory::Open { runner, .. } => &runner.plan().problem().graph,
            Memory::Gone => panic!("a session that could not be opened has no plan"),
        }
    }

    /// The validation, while it runs.
    fn validating(&self) -> Option<&SessionValidation> {
        self.validation.as_ref().filter(|validation| validation.is_running())
    }

    /// The validation of a job that has one, and the training's runner.
    pub(crate) fn validation_and_runner(&mut self) -> (&mut SessionValidation, &mut Runner) {
        let validation = self.validation.as_mut().expect("the job asks for a validation");
        match &mut self.memory {
            Memory::Open { runner, .. } => (validation, runner),
            Memory::Closed { .. } | Memory::Gone => panic!("a session validates while it is open"),
        }
    }

    fn runner(&self) -> &Runner {
        match &self.memory {
            Memory::Open { runner, .. } => runner,
            Memory::Closed { .. } | Memory::Gone => panic!("a session has values while it is open"),
        }
    }

    pub(crate) fn runner_mut(&mut self) -> &mut Runner {
        match &mut self.memory {
            Memory::Open { runner, .. } => runner,
            Memory::Closed { .. } | Memory::Gone => panic!("a session has values while it is open"),
        }
    }
}
