//! `fit`: everything from a job to its report.

use std::path::Path;

use memfit_device::process::{self, Limits};
use memfit_ir::{ArenaMemory, Bytes};
use memfit_run::{Means, Runner, StepRecord};

use crate::checkpoint::Checkpoint;
use crate::lease::Lease;
use crate::length::Length;
use crate::log::{Done, Logged, Logs};
use crate::monitor::watchables;
use crate::prepare::Prepared;
use crate::run_state::RunState;
use crate::training::{Checkpoints, Ended, Training};
use crate::{
    About, EarlyStopping, Error, Job, Report, Resume, Summary, Threads, budget, prepare, resume, state,
};

/// What happens while a job runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// The machine allows less than the job does, so its limit is the budget.
    Lowered {
        /// The job's budget.
        asked: Bytes,
        /// The machine's limit.
        allowed: Limits,
    },
    /// The optimizer's state was read from a file: training goes on.
    Resumed {
        /// Steps that were taken before.
        iteration: u64,
    },
    /// The trained model is written.
    Saved {
        /// Where.
        path: &'a Path,
    },
    /// There was a checkpoint to go on from, or none.
    GoesOn {
        /// The checkpoint; none where training starts from the beginning.
        from: Option<&'a Path>,
        /// Steps that have ended before.
        step: u64,
        /// What is wrong with newer checkpoints, which were passed over.
        broken: &'a [String],
    },
    /// A checkpoint is written.
    Checkpoint {
        /// Where.
        path: &'a Path,
        /// Steps that have ended.
        step: u64,
        /// How long training waited for it.
        seconds_stalled: f64,
    },
    /// Planning is done; training is about to start.
    Planned(&'a Summary),
    /// Training begins.
    Begun {
        /// Steps in all.
        steps: u64,
        /// Steps of an epoch; all of them where the data has no end.
        steps_epoch: u64,
    },
    /// A micro-batch is done.
    Piece {
        /// Rows of the batch that are done.
        rows_done: usize,
        /// Rows of the batch.
        rows_total: usize,
    },
    /// A step is done.
    Step {
        /// What it gave.
        record: &'a StepRecord,
        /// Counted from 0.
        epoch: u64,
        /// Steps in all.
        steps: u64,
        /// Names of the metrics.
        metrics: &'a [String],
        /// The learning rate of the next step.
        learning_rate: f32,
    },
    /// An epoch is done, and its validation where there is one.
    Epoch {
        /// Counted from 0.
        epoch: u64,
        /// Loss and metrics over its rows.
        means: &'a Means,
        /// Loss and metrics of the validation.
        validation: Option<&'a Means>,
        /// Names of the metrics.
        metrics: &'a [String],
        /// The learning rate of the next step.
        learning_rate: f32,
    },
}

/// Observes a run.
pub trait Observer: Send {
    /// Called with each event as it happens.
    fn event(&mut self, event: Event<'_>);

    /// The answer that ends training where something the observer does has failed: asked after every step.
    fn check(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Writes everything to the system: before a checkpoint says that it was done, and at the end.
    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Whether training is to stop after the step that runs: asked after every step.
    fn stop_requested(&mut self) -> bool {
        false
    }
}

/// Discards every event.
pub struct Quiet;

impl Observer for Quiet {
    fn event(&mut self, _event: Event<'_>) {}
}

/// Trains a job inside its budget.
///
/// It measures the whole process, so a second one in the same process waits for it.
pub fn fit(job: &Job, threads: Threads, observer: &mut dyn Observer) -> Result<Report, Error> {
    let _lease = Lease::take();
    let job = within_machine(job, observer);
    let (job, checkpoint) = resume::find(job, observer)?;
    let prepared = prepare(&job, threads)?;
    fit_prepared(&job, prepared, checkpoint, observer, &mut NoValues)
}

/// What a caller does with the values of a training that runs in its process.
pub(crate) trait Ends {
    /// Gives the first values of weights, where the caller has them.
    fn begin(&mut self, training: &mut Training<'_>) -> Result<(), Error>;

    /// Takes the last values.
    fn end(&mut self, training: &mut Training<'_>) -> Result<(), Error>;
}

/// A training whose values come from files and go to files.
struct NoValues;

impl Ends for NoValues {
    fn begin(&mut self, _training: &mut Training<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn end(&mut self, _training: &mut Training<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// Trains what is planned; the caller holds a lease.
pub(crate) fn fit_prepared(
    job: &Job,
    mut prepared: Prepared<'_>,
    checkpoint: Option<Checkpoint>,
    observer: &mut dyn Observer,
    ends: &mut impl Ends,
) -> Result<Report, Error> {
    let validation = prepared.validation.take();
    let length = Length::of(job, &prepared)?;
    let summary = Summary::new(&prepared).0;
    let state = match &prepared.outcome {
        Ok(plan) => Some(resume::begin(job, &prepared, plan, validation.as_ref(), checkpoint.as_ref())?),
        Err(_) => None,
    };
    let about = About::of(&prepared);
    let Prepared { setup, source, problem, outcome, model, compiled, resumes, saving, metrics, .. } =
        prepared;
    let plan = outcome?;
    let state = state.expect("there is a plan");
    observer.event(Event::Planned(&summary));

    let budget = &problem.budget;
    let room = budget.arena().saturating_sub(budget.arena_for(plan.plan().bytes_peak));
    let room = validation.as_ref().map_or(room, |validation| room.min(validation.room(budget)));
    let watchables = watchables(&problem.graph, &metrics, validation.is_some());
    let early_stopping = job.train.early_stopping.as_ref();
    let early_stopping = early_stopping.map(|rule| EarlyStopping::new(rule, &watchables)).transpose()?;
    let checkpoints = Checkpoints::of(job, &length, saving.checkpoint, &watchables, &state, room)?;
    let output = saving.output.map(|(path, saving)| saving.create(&path).map(|file| (saving, file)));
    let output = output.transpose()?;
    let done = done(&length, &state);
    let resumed = (job.caller.resume != Resume::No).then_some(done);
    let logs = Logs::open(job, &metrics, validation.is_some(), resumed)?;
    let observer = &mut Logged::new(observer, logs);
    budget::planning_ended(job);
    let folder = job.memory.disk.as_ref().map(|disk| job.path(&disk.folder)).unwrap_or_default();
    let runner = Runner::new(plan, setup, &folder)?;
    let mut training = Training {
        runner,
        source,
        inputs: problem.graph.inputs.clone(),
        schedule: compiled.optimizer.schedule.clone(),
        seed: job.train.seed,
        length,
        metrics,
        validation,
        checkpoints,
        early_stopping,
        state,
        validated: None,
        observer,
    };
    training.begin_from(checkpoint, &model, resumes.as_deref())?;
    ends.begin(&mut training)?;
    training.observer.event(Event::Begun { steps: length.steps, steps_epoch: length.steps_epoch() });
    let ended = training.run()?;
    state::finish_averages(&mut training.runner, &problem.graph);
    if let Some((saving, file)) = output {
        let taken = training.updates();
        let path = saving.write(file, &training.runner, taken, training.schedule.at(taken), None)?;
        training.observer.event(Event::Saved { path: &path });
    }
    ends.end(&mut training)?;
    report(job, about, summary, training, ended)
}

/// How far a run has come, as its logs count it.
fn done(length: &Length, state: &RunState) -> Done {
    let Some(last) = state.step.checked_sub(1) else { return Done::default() };
    let last = length.rows_of(last);
    Done { steps: state.step, epochs: last.epoch + u64::from(last.ends_epoch && !state.epoch_open) }
}

/// What the training gave, and whether it stayed inside the budget.
fn report(
    job: &Job,
    about: About,
    summary: Summary,
    training: Training<'_>,
    ended: Ended,
) -> Result<Report, Error> {
    let stalls = training.stalls();
    let Training { runner, metrics, validated, state, .. } = training;
    let (plan, trace) = runner.finish();
    let validated = validated.map(|means: Means| {
        let names = std::iter::once("loss").chain(metrics.iter().map(String::as_str));
        let values = std::iter::once(means.loss).chain(means.values);
        names.zip(values).map(|(name, value)| (format!("val_{name}"), value)).collect()
    });
    let resident = process::resident_peak();
    let (held, bytes_host) = match job.capabilities().arena {
        ArenaMemory::Process => (resident, None),
        ArenaMemory::Device => (trace.bytes_used_most, Some(resident)),
    };
    let report = Report {
        about,
        validated,
        bytes_host,
        stalls,
        ended,
        step: state.step,
        ..Report::new(summary, &plan, trace, held)
    };
    // What a program holds beside its trainings is its own.
    if job.caller.baseline == Bytes::ZERO && report.summary.budget < report.vm_hwm {
        return Err(Error::OverBudget { used: report.vm_hwm, budget: report.summary.budget });
    }
    Ok(report)
}

/// The job with the machine's limit as its budget, where that is lower than its own: planning can assume
/// another machine, training cannot.
pub fn within_machine(job: &Job, observer: &mut dyn Observer) -> Job {
    let mut job = job.clone();
    // What a device's own memory has left is seen when it is opened.
    if job.capabilities().arena == ArenaMemory::Device {
        return job;
    }
    let mut allowed = process::limits().beside_threads();
    allowed.available = allowed.available.saturating_sub(job.caller.baseline);
    let asked = job.memory.budget.map(|budget| budget.of(allowed.available));
    if let Some(asked) = asked.filter(|asked| allowed.available < *asked) {
        observer.event(Event::Lowered { asked, allowed });
    }
    job.memory.budget = asked.map(|asked| asked.min(allowed.available).into());
    job
}
