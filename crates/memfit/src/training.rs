//! The training loop after the one-way door: steps, ends of epochs, checkpoints, and stopping.

use memfit_data::Source;
use memfit_grad::Schedule;
use memfit_ir::{Bytes, TensorId};
use memfit_run::{Means, Progress, RunError, Runner, StepInput, StepRecord};

use crate::checkpoint::{self, Checkpoint, Due, Every};
use crate::checkpoint_writer::{CheckpointWriter, Request, Stalls};
use crate::data::{Feeder, explain};
use crate::driver::{Driver, Steps};
use crate::length::{Length, StepRows};
use crate::monitor::{Monitor, Watchable};
use crate::run_state::{Best, Counters, RunState};
use crate::saving::Saving;
use crate::state::{self, Variable};
use crate::validation::Validation;
use crate::{EarlyStopping, Error, Event, Job, ModelFile, Observer, initialize, initialize_state};

/// A training with its memory.
pub(crate) struct Training<'a> {
    pub(crate) runner: Runner,
    pub(crate) source: Box<dyn Source + 'a>,
    pub(crate) inputs: Vec<TensorId>,
    pub(crate) schedule: Schedule,
    pub(crate) seed: u64,
    pub(crate) length: Length,
    /// Names of the metrics.
    pub(crate) metrics: Vec<String>,
    pub(crate) validation: Option<Validation<'a>>,
    pub(crate) checkpoints: Option<Checkpoints>,
    pub(crate) early_stopping: Option<EarlyStopping>,
    /// Where the run stands, as of the last step that ended with nothing in flight.
    pub(crate) state: RunState,
    /// Loss and metrics of the last validation.
    pub(crate) validated: Option<Means>,
    pub(crate) observer: &'a mut dyn Observer,
}

/// Where checkpoints go.
pub(crate) struct Checkpoints {
    pub(crate) due: Due,
    pub(crate) keep_best: Option<Monitor>,
    pub(crate) writer: CheckpointWriter,
}

/// How a training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All steps were taken.
    Finished,
    /// The value that early stopping watches did not improve.
    Early,
    /// The observer asked for it.
    Stopped,
}

impl Ended {
    /// One word for programs.
    pub fn name(self) -> &'static str {
        match self {
            Ended::Finished => "finished",
            Ended::Early => "early",
            Ended::Stopped => "stopped",
        }
    }
}

impl Checkpoints {
    /// Where a job's checkpoints go, in a folder that is made where it is not there; the space of the first one is there. `room` is what
    /// the budget leaves.
    pub(crate) fn of(
        job: &Job,
        length: &Length,
        saving: Option<Saving>,
        watchables: &[Watchable],
        state: &RunState,
        room: Bytes,
    ) -> Result<Option<Checkpoints>, Error> {
        let (Some(section), Some(saving)) = (&job.checkpoint, saving) else { return Ok(None) };
        let folder = job.path(&section.folder);
        checkpoint::make_folder(&folder)?;
        let keep_best = section.keep_best.as_deref();
        let keep_best = keep_best
            .map(|name| Monitor::find("checkpoint.keep_best", name, None, watchables))
            .transpose()?;
        let every = section.every.unwrap_or(match length.rows {
            Some(_) => Every::Epochs(1),
            None => Every::Steps(500),
        });
        let saving = saving.with_state(state.bytes_most());
        drop(saving.create(&folder.join(checkpoint::file_name(0)))?);
        let writer = CheckpointWriter::new(folder, section.keep, saving, room);
        Ok(Some(Checkpoints { due: Due::new(every), keep_best, writer }))
    }
}

impl Training<'_> {
    /// The first values: those of a checkpoint, of the model's file, or as layers say. With a file's optimizer state, training goes on
    /// where that stopped.
    pub(crate) fn begin_from(
        &mut self,
        checkpoint: Option<Checkpoint>,
        model: &ModelFile,
        resumes: Option<&[Variable]>,
    ) -> Result<(), Error> {
        if let Some(Checkpoint { file, .. }) = checkpoint {
            initialize_state(&mut self.runner);
            let Checkpoints { keep_best, writer, .. } =
                self.checkpoints.as_ref().expect("it goes on in their folder");
            writer.saving().read(&file, &mut self.runner)?;
            if let Some(best) = self.state.best.filter(|_| keep_best.is_some()) {
                writer.name_best(best.step)?;
            }
            if let (Some(stopping), Some(state)) = (&mut self.early_stopping, self.state.early_stopping) {
                stopping.resume(state);
            }
            let progress = Progress::from(&self.state.progress);
            checkpoint::restore(&mut self.runner, &progress, file.path())?;
            return Ok(());
        }
        let Some(file) = &model.stored else {
            initialize(&mut self.runner);
            return Ok(());
        };
        initialize_state(&mut self.runner);
        state::load_weights(&mut self.runner, model, file)?;
        if let Some(variables) = resumes {
            self.state.iteration_first = state::load(&mut self.runner, file, variables)?;
        }
        if 0 < self.state.iteration_first {
            self.observer.event(Event::Resumed { iteration: self.state.iteration_first });
        }
        Ok(())
    }

    /// Runs all steps that are left; when it returns, every checkpoint is written.
    pub(crate) fn run(&mut self) -> Result<Ended, Error> {
        let ended = self.run_steps();
        // A checkpoint that is being written is finished also after a step that failed.
        let written = self.checkpoints.as_mut().map_or(Ok(()), |to| to.writer.finish(self.observer));
        let flushed = self.observer.flush();
        ended.and_then(|ended| written.and(flushed).map(|()| ended))
    }

    /// What writing checkpoints took.
    pub(crate) fn stalls(&self) -> Stalls {
        self.checkpoints.as_ref().map(|to| to.writer.stalls).unwrap_or_default()
    }

    fn run_steps(&mut self) -> Result<Ended, Error> {
        let mut driver = Driver::default();
        let mut written = None;
        if self.state.epoch_open {
            let last = self.length.rows_of(self.state.step.saturating_sub(1));
            let best_before = self.state.best;
            if !self.end_epoch(last.epoch)? {
                return Ok(Ended::Stopped);
            }
            self.state.epoch_open = false;
            // The checkpoint of this step was written before its validation, which makes it the best.
            if self.state.best != best_before {
                self.write_checkpoint()?;
                written = Some(self.state.step);
            }
        }
        while self.state.step < self.length.steps && !self.state.stopped_early {
            let step = self.state.step;
            let rows = self.length.rows_of(step);
            let epoch_ended = rows.ends_epoch.then_some(rows.epoch);
            let due = self.checkpoints.as_ref().is_some_and(|to| to.due.is_due(step + 1, epoch_ended));
            let ahead = if rows.ends_epoch || due { 0 } else { self.runner.steps_ahead() };
            driver.step(self, step, ahead)?;
            self.state.step = step + 1;
            self.observer.check()?;
            let mut stop = self.observer.stop_requested();
            if stop {
                driver.finish(self)?;
            }
            let has_epochs = self.length.rows.is_some() || self.validation.is_some();
            let best_before = self.state.best;
            if has_epochs && rows.ends_epoch {
                stop = stop || !self.end_epoch(rows.epoch)?;
            }
            self.state.epoch_open = has_epochs && rows.ends_epoch && stop;
            if stop || due || self.state.best != best_before {
                self.write_checkpoint()?;
                written = Some(self.state.step);
            }
            if stop {
                return Ok(Ended::Stopped);
            }
        }
        if written != Some(self.state.step) {
            self.write_checkpoint()?;
        }
        Ok(if self.state.stopped_early { Ended::Early } else { Ended::Finished })
    }

    /// What stopped a step of these rows, with the label of the data that did where there is one.
    fn explain(&mut self, error: RunError, rows: StepRows) -> Error {
        let graph = &self.runner.plan().problem().graph;
        // A step that was fed ahead may already belong to the next epoch.
        self.source.set_epoch(rows.epoch);
        explain(error, graph, &mut *self.source, rows.start, rows.rows)
    }

    /// Weights were updated this often, with what a model was trained before.
    pub(crate) fn updates(&self) -> u64 {
        self.state.iteration_first + self.runner.updates()
    }

    /// Validates, reports the epoch and begins the next; false where the observer asked to stop within the validation, which then has
    /// to run again.
    fn end_epoch(&mut self, epoch: u64) -> Result<bool, Error> {
        let means = self.runner.epoch();
        if let Some(validation) = &mut self.validation {
            let Some(validated) = validation.run(&mut self.runner, self.observer)? else { return Ok(false) };
            self.validated = Some(validated);
        }
        let validation = self.validated.as_ref().filter(|_| self.validation.is_some());
        let learning_rate = self.schedule.at(self.state.iteration_first + self.runner.updates());
        let metrics = &self.metrics;
        let monitor = self.checkpoints.as_ref().and_then(|to| to.keep_best.as_ref());
        let value = |monitor: &Monitor| monitor.value(&means, validation, metrics);
        if let Some((monitor, value)) = monitor.and_then(|monitor| Some((monitor, value(monitor)?)))
            && monitor.improves(value, self.state.best.map(Best::value), 0.0)
        {
            self.state.best = Some(Best::new(value, self.state.step));
        }
        if let Some(stopping) = &mut self.early_stopping
            && let Some(value) = value(stopping.monitor())
        {
            self.state.stopped_early = stopping.stops(epoch, value);
            self.state.early_stopping = Some(stopping.state());
        }
        self.observer.event(Event::Epoch { epoch, means: &means, validation, metrics, learning_rate });
        self.runner.begin_epoch();
        Ok(true)
    }

    /// Writes a checkpoint of what there is now, where checkpoints are asked for.
    fn write_checkpoint(&mut self) -> Result<(), Error> {
        self.state.progress = Counters::from(&self.runner.progress());
        let iteration = self.updates();
        let Some(to) = &mut self.checkpoints else { return Ok(()) };
        self.observer.flush()?;
        let request = Request {
            step: self.state.step,
            best: self.state.best.map(|best| best.step),
            iteration,
            learning_rate: self.schedule.at(iteration),
            state: &self.state.to_text(),
        };
        to.due.written();
        to.writer.write(&self.runner, &request, self.observer)
    }
}

/// A batch is the number of its step.
impl Steps for Training<'_> {
    type Batch = u64;
    type Error = Error;

    fn begin(&mut self, step: &u64) -> Result<(), Error> {
        let rows = self.length.rows_of(*step);
        let next = (step + 1 < self.length.steps).then(|| self.length.rows_of(step + 1));
        let epochs = [rows.epoch, next.map_or(rows.epoch, |next| next.epoch)];
        let next = next.map(|next| (next.start, next.rows));
        let iteration = self.state.iteration_first;
        let learning_rate = self.schedule.at(iteration + self.runner.updates());
        let input = StepInput { step: iteration + step, rows: rows.rows, learning_rate, seed: self.seed };
        let (source, inputs, observer) = (&mut *self.source, &self.inputs, &mut *self.observer);
        let mut feeder = Feeder { source, inputs, start: rows.start, next, epochs, observer };
        let result = self.runner.begin(input, &mut feeder);
        result.map_err(|error| self.explain(error, rows))
    }

    fn end(&mut self, step: u64) -> Result<(), Error> {
        let rows = self.length.rows_of(step);
        let (source, inputs, observer) = (&mut *self.source, &self.inputs, &mut *self.observer);
        let epochs = [rows.epoch; 2];
        let mut feeder = Feeder { source, inputs, start: rows.start, next: None, epochs, observer };
        let ended = self.runner.end(&mut feeder);
        let record = StepRecord { step, ..ended.map_err(|error| self.explain(error, rows))? };
        let (epoch, steps, metrics) = (rows.epoch, self.length.steps, &self.metrics);
        let learning_rate = self.schedule.at(self.state.iteration_first + self.runner.trace().updates());
        self.observer.event(Event::Step { record: &record, epoch, steps, metrics, learning_rate });
        Ok(())
    }
}
