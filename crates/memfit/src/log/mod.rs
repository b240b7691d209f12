//! Metrics of a training in files: rows of CSV or JSON, and TensorBoard's event files.
//!
//! A log is written as training goes on, through a buffer of fixed size, and flushed at each epoch and checkpoint. A run that is
//! resumed cuts off what was written after its checkpoint and goes on from there, so that no row stands twice.

mod events;
mod text;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use memfit_ir::Bytes;
use memfit_run::{Means, StepRecord};

use self::events::EventFile;
use self::text::TextLog;
use crate::train::{Event, Observer};
use crate::{Error, Job};

/// Bytes that are gathered before they are written.
const BUFFER: usize = 8 << 10;

/// Memory that a job's logs take: their buffers, and the events that are put together.
pub(crate) fn bytes(job: &Job) -> Bytes {
    let files = usize::from(job.train.log.is_some()) + 2 * usize::from(job.train.tensorboard.is_some());
    Bytes(files as u64 * 2 * BUFFER as u64)
}

/// Refuses a log of an unknown form.
pub(crate) fn check(job: &Job) -> Result<(), Error> {
    job.train.log.as_deref().map_or(Ok(()), |path| text::Format::of(path).map(|_| ()))
}

/// How far a run had come when its checkpoint was written: what a log keeps of an earlier run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Steps.
    pub(crate) steps: u64,
    /// Epochs that had ended, with their validation.
    pub(crate) epochs: u64,
}

impl Done {
    /// Whether a row belongs to what was done.
    fn has(self, kind: Kind, epoch: u64, step: u64) -> bool {
        match kind {
            Kind::Step => step <= self.steps,
            Kind::Epoch => epoch <= self.epochs,
        }
    }
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Step,
    Epoch,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Step => "step",
            Kind::Epoch => "epoch",
        }
    }
}

/// What is written of a step or an epoch.
struct Row<'a> {
    kind: Kind,
    /// Counted from 1.
    epoch: u64,
    /// Counted from 1; the last one of an epoch.
    step: u64,
    /// The loss, then the metrics.
    values: Values<'a>,
    validation: Option<Values<'a>>,
    learning_rate: f32,
    rows_per_second: f64,
    bytes_used: u64,
}

/// A loss and metrics.
#[derive(Clone, Copy)]
struct Values<'a> {
    loss: f64,
    metrics: &'a [f64],
}

impl<'a> Values<'a> {
    fn of(means: &'a Means) -> Values<'a> {
        Values { loss: means.loss, metrics: &means.values }
    }

    fn all(self) -> impl Iterator<Item = f64> + 'a {
        std::iter::once(self.loss).chain(self.metrics.iter().copied())
    }
}

/// The logs of a job.
pub(crate) struct Logs {
    text: Option<TextLog>,
    events: Option<EventFile>,
    /// Rows and seconds of the epoch so far; the last step and the bytes that were used in it.
    rows: u64,
    seconds: f64,
    last: (u64, u64),
}

impl Logs {
    /// Opens what a job asks for: for a new run, or after what was done where one is resumed. `metrics` are the names of the values.
    pub(crate) fn open(
        job: &Job,
        metrics: &[String],
        validates: bool,
        done: Option<Done>,
    ) -> Result<Logs, Error> {
        let steps = done.unwrap_or_default().steps;
        let names: Vec<String> = std::iter::once("loss".to_owned()).chain(metrics.iter().cloned()).collect();
        let text = job.train.log.as_ref().map(|path| TextLog::open(&job.path(path), &names, validates, done));
        let folder = job.train.tensorboard.as_ref();
        let events = folder.map(|folder| EventFile::open(&job.path(folder), &names, validates, done));
        let (text, events) = (text.transpose()?, events.transpose()?);
        Ok(Logs { text, events, rows: 0, seconds: 0.0, last: (steps, 0) })
    }

    /// Writes what an event says.
    fn event(&mut self, event: &Event<'_>) -> Result<(), Error> {
        match event {
            Event::Step { record, epoch, learning_rate, .. } => self.step(record, *epoch, *learning_rate),
            Event::Epoch { epoch, means, validation, learning_rate, .. } => {
                self.epoch(*epoch, means, *validation, *learning_rate)
            }
            Event::Lowered { .. }
            | Event::Resumed { .. }
            | Event::Saved { .. }
            | Event::GoesOn { .. }
            | Event::Checkpoint { .. }
            | Event::Planned(_)
            | Event::Begun { .. }
            | Event::Piece { .. } => Ok(()),
        }
    }

    fn step(&mut self, record: &StepRecord, epoch: u64, learning_rate: f32) -> Result<(), Error> {
        self.rows += record.rows as u64;
        self.seconds += record.seconds;
        self.write(&Row {
            kind: Kind::Step,
            epoch: epoch + 1,
            step: record.step + 1,
            values: Values { loss: record.loss, metrics: &record.metrics },
            validation: None,
            learning_rate,
            rows_per_second: record.rows as f64 / record.seconds,
            bytes_used: record.bytes_used.0,
        })?;
        self.last = (record.step + 1, record.bytes_used.0);
        Ok(())
    }

    fn epoch(
        &mut self,
        epoch: u64,
        means: &Means,
        validation: Option<&Means>,
        learning_rate: f32,
    ) -> Result<(), Error> {
        let (step, bytes_used) = self.last;
        let row = Row {
            kind: Kind::Epoch,
            epoch: epoch + 1,
            step,
            values: Values::of(means),
            validation: validation.map(Values::of),
            learning_rate,
            rows_per_second: self.rows as f64 / self.seconds,
            bytes_used,
        };
        (self.rows, self.seconds) = (0, 0.0);
        self.write(&row)?;
        self.flush()
    }

    fn write(&mut self, row: &Row<'_>) -> Result<(), Error> {
        if let Some(text) = &mut self.text {
            text.write(row)?;
        }
        if let Some(events) = &mut self.events {
            events.write(row)?;
        }
        Ok(())
    }

    /// Writes everything to the system before a checkpoint, so that what the checkpoint counts as done is in
    /// the log.
    fn flush(&mut self) -> Result<(), Error> {
        self.text.as_mut().map_or(Ok(()), TextLog::flush)?;
        self.events.as_mut().map_or(Ok(()), EventFile::flush)
    }
}

/// An observer whose events are logged too. The first log that could not be written is kept for the caller.
pub(crate) struct Logged<'a> {
    inner: &'a mut dyn Observer,
    logs: Logs,
    failed: Option<Error>,
}

impl<'a> Logged<'a> {
    /// Logs what an observer sees.
    pub(crate) fn new(inner: &'a mut dyn Observer, logs: Logs) -> Logged<'a> {
        Logged { inner, logs, failed: None }
    }
}

impl Observer for Logged<'_> {
    fn event(&mut self, event: Event<'_>) {
        if self.failed.is_none() {
            self.failed = self.logs.event(&event).err();
        }
        self.inner.event(event);
    }

    fn stop_requested(&mut self) -> bool {
        self.inner.stop_requested()
    }

    fn check(&mut self) -> Result<(), Error> {
        self.failed.take().map_or(Ok(()), Err)?;
        self.inner.check()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.check()?;
        self.logs.flush()?;
        self.inner.flush()
    }
}

/// A file that is read and written on, created where it does not exist.
fn open_file(path: &Path, place: &str) -> Result<File, Error> {
    let opened = File::options().read(true).write(true).create(true).truncate(false).open(path);
    opened.map_err(|source| {
        Error::job(place, format!("cannot write `{}`: {source}; choose another place", path.display()))
    })
}

fn cannot_write(path: &Path, source: io::Error) -> Error {
    Error::File { verb: "write", path: PathBuf::from(path), source }
}

#[cfg(test)]
mod tests;
