//! `fit`: the whole way from a job to its report.

use std::path::Path;

use memfit_device::process::{self, Limits};
use memfit_ir::Bytes;
use memfit_run::{Means, Runner, StepInput, StepRecord};

use crate::budget;
use crate::data::Feeder;
use crate::prepare::Prepared;
use crate::state::{self, Variable};
use crate::validation::Validation;
use crate::{Error, Job, ModelFile, Report, Summary, Threads, initialize, initialize_state, prepare};

/// What happens while a job runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// The machine allows less than the job does, so its line is the one that holds.
    Lowered {
        /// The job's line.
        asked: Bytes,
        /// The machine's.
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
    /// The plan is made; training is about to start.
    Planned(&'a Summary),
    /// A piece of a batch is done.
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
    },
}

/// Somebody who wants to know.
pub trait Observer: Send {
    /// Told what happens, as it happens.
    fn event(&mut self, event: Event<'_>);
}

/// Nobody who wants to know.
pub struct Quiet;

impl Observer for Quiet {
    fn event(&mut self, _event: Event<'_>) {}
}

/// Trains a job inside its budget.
pub fn fit(job: &Job, threads: Threads, observer: &mut dyn Observer) -> Result<Report, Error> {
    let job = &within_machine(job, observer);
    let validation = Validation::plan(job, threads);
    let prepared = prepare(job, threads)?;
    // Where the training does not fit either, its answer is the one to go by.
    let mut validation = match validation {
        Err(error) if prepared.outcome.is_ok() => return Err(error),
        Err(_) | Ok(None) => None,
        Ok(Some(validation)) => Some(validation.beside(&prepared, threads)?),
    };
    let length = Length::of(job, &prepared)?;
    let summary = Summary::new(&prepared).0;
    let Prepared { setup, mut source, problem, outcome, model, compiled, resumes, saving, metrics, .. } =
        prepared;
    let plan = outcome?;
    observer.event(Event::Planned(&summary));

    let saving = saving.map(|saving| saving.take_space().map(|file| (saving, file))).transpose()?;
    budget::planning_ended(job);
    let folder = job.memory.disk.as_ref().map(|disk| job.path(&disk.folder)).unwrap_or_default();
    let mut runner = Runner::new(plan, setup, &folder)?;
    let iteration = begin(&mut runner, &model, resumes.as_deref())?;
    if 0 < iteration {
        observer.event(Event::Resumed { iteration });
    }
    let schedule = &compiled.optimizer.schedule;
    let inputs = &problem.graph.inputs;
    let mut validated = None;
    let mut ended = 0;
    for step in 0..length.steps {
        let (epoch, start, rows) = length.rows_of(step, job.train.batch);
        let next = (step + 1 < length.steps).then(|| length.rows_of(step + 1, job.train.batch));
        let next = next.map(|(_, start, rows)| (start, rows));
        let mut feeder = Feeder { source: &mut *source, inputs, start, next, observer };
        let learning_rate = schedule.at(iteration + runner.updates());
        let input = StepInput { step: iteration + step, rows, learning_rate, seed: job.train.seed };
        let begun = runner.begin(input, &mut feeder);
        // Behind an epoch, and where a step could not begin, those before it are wanted; else the device is kept busy.
        let ends = length.ends_epoch(step, start + rows as u64);
        let ahead = if ends || begun.is_err() { 0 } else { runner.steps_ahead() };
        while ahead < runner.steps_begun() {
            let (epoch, start, _) = length.rows_of(ended, job.train.batch);
            let mut feeder = Feeder { source: &mut *source, inputs, start, next: None, observer };
            let record = StepRecord { step: ended, ..runner.end(&mut feeder)? };
            observer.event(Event::Step { record: &record, epoch, steps: length.steps, metrics: &metrics });
            ended += 1;
        }
        begun?;
        let has_epochs = length.rows.is_some() || validation.is_some();
        if has_epochs && ends {
            let means = runner.epoch();
            validated = validation.as_mut().map(|validation| validation.run(&mut runner)).transpose()?;
            observer.event(Event::Epoch {
                epoch,
                means: &means,
                validation: validated.as_ref(),
                metrics: &metrics,
            });
            runner.begin_epoch();
        }
    }
    state::finish_averages(&mut runner, &problem.graph);
    if let Some((saving, file)) = saving {
        let taken = iteration + runner.trace().updates();
        let path = saving.write(file, &runner, taken, schedule.at(taken))?;
        observer.event(Event::Saved { path: &path });
    }
    let (plan, trace) = runner.finish();
    let validated = validated.map(|means: Means| {
        let names = std::iter::once("loss").chain(metrics.iter().map(String::as_str));
        let values = std::iter::once(means.loss).chain(means.values);
        names.zip(values).map(|(name, value)| (format!("val_{name}"), value)).collect()
    });
    let resident = process::resident_peak();
    let (held, bytes_host) =
        if job.is_on_gpu() { (trace.bytes_used_most, Some(resident)) } else { (resident, None) };
    let report = Report { validated, bytes_host, ..Report::new(summary, &plan, trace, held) };
    if report.summary.budget < report.vm_hwm {
        return Err(Error::OverBudget { used: report.vm_hwm, budget: report.summary.budget });
    }
    Ok(report)
}

/// Weights as their file has them, or as they begin; with the file's optimizer state, training goes on where it stopped. Returns the
/// steps that were taken before.
fn begin(runner: &mut Runner, model: &ModelFile, resumes: Option<&[Variable]>) -> Result<u64, Error> {
    let Some(file) = &model.stored else {
        initialize(runner);
        return Ok(0);
    };
    initialize_state(runner);
    state::load_weights(runner, model, file)?;
    resumes.map_or(Ok(0), |variables| state::load_optimizer(runner, file, variables))
}

/// The job below the line that the machine draws, where that is lower than its own: planning can look beyond this machine,
/// training cannot.
pub(crate) fn within_machine(job: &Job, observer: &mut dyn Observer) -> Job {
    let mut job = job.clone();
    // What a GPU has left is seen when it is opened.
    if job.is_on_gpu() {
        return job;
    }
    let mut allowed = process::limits();
    allowed.available = allowed.available.saturating_sub(job.memory.baseline);
    if let Some(asked) = job.memory.budget.filter(|asked| allowed.available < *asked) {
        observer.event(Event::Lowered { asked, allowed });
        job.memory.budget = Some(allowed.available);
    }
    job
}

/// How long training goes on.
struct Length {
    steps: u64,
    /// Rows of an epoch; none for data without end.
    rows: Option<u64>,
}

impl Length {
    fn of(job: &Job, prepared: &Prepared) -> Result<Length, Error> {
        let rows = prepared.source.rows();
        let batch = job.train.batch as u64;
        let steps = match (job.train.steps, job.train.epochs, rows) {
            (Some(steps), _, _) => steps,
            (None, epochs, Some(rows)) => epochs.unwrap_or(1) * rows.div_ceil(batch),
            (None, Some(_), None) => {
                return Err(Error::job(
                    "train.epochs",
                    "made-up data has no end; give `rows` under [data], or `steps`",
                ));
            }
            (None, None, None) => {
                return Err(Error::job("train.steps", "give `steps`, or `rows` under [data] and `epochs`"));
            }
        };
        Ok(Length { steps, rows })
    }

    /// Whether a step, whose rows end at this one of the source, is the last of an epoch or of all.
    fn ends_epoch(&self, step: u64, end: u64) -> bool {
        self.rows == Some(end) || step + 1 == self.steps
    }

    /// Epoch, first row in the source and number of rows of a step. The last batch of an epoch may be short.
    fn rows_of(&self, step: u64, batch: usize) -> (u64, u64, usize) {
        match self.rows {
            None => (0, step * batch as u64, batch),
            Some(rows) => {
                let per_epoch = rows.div_ceil(batch as u64);
                let start = (step % per_epoch) * batch as u64;
                let left = usize::try_from(rows - start).unwrap_or(usize::MAX);
                (step / per_epoch, start, batch.min(left))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Length;

    #[test]
    fn the_last_batch_of_an_epoch_is_short() {
        let length = Length { steps: 6, rows: Some(10) };
        let steps: Vec<_> = (0..6).map(|step| length.rows_of(step, 4)).collect();
        assert_eq!(steps, [(0, 0, 4), (0, 4, 4), (0, 8, 2), (1, 0, 4), (1, 4, 4), (1, 8, 2)]);
    }
}
