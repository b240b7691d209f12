//! Writes checkpoints: streamed from the slots, or, where the budget has room for a second copy of the variables, from that copy while
//! the next steps compute.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use memfit_ir::Bytes;
use memfit_run::Runner;

use crate::checkpoint;
use crate::saving::{Saving, Snapshot};
use crate::{Error, Event, Observer};

/// Stack of the thread that writes.
const STACK: usize = 256 << 10;

/// What writing checkpoints took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stalls {
    /// Checkpoints written.
    pub checkpoints: u64,
    /// How long training waited for them.
    pub seconds: f64,
    /// The longest of these waits.
    pub seconds_longest: f64,
}

impl Stalls {
    fn add(&mut self, seconds: f64) {
        self.checkpoints += 1;
        self.seconds += seconds;
        self.seconds_longest = self.seconds_longest.max(seconds);
    }
}

/// Writes checkpoints of one folder, one at a time.
pub(crate) struct CheckpointWriter {
    folder: PathBuf,
    keep: usize,
    saving: Arc<Saving>,
    mode: Mode,
    pub(crate) stalls: Stalls,
}

/// How the next checkpoint is written.
enum Mode {
    /// From the slots, while training waits.
    Waiting,
    /// From a copy, while training goes on: the copy's memory waits for the next one.
    Ready(Snapshot),
    /// A copy is being written.
    Writing(Writing),
}

struct Writing {
    thread: JoinHandle<(Snapshot, Result<(), Error>)>,
    path: PathBuf,
    step: u64,
    /// How long training waited so far.
    seconds: f64,
}

/// One checkpoint to be written.
pub(crate) struct Request<'a> {
    pub(crate) step: u64,
    /// The step of the best checkpoint, which is kept.
    pub(crate) best: Option<u64>,
    pub(crate) iteration: u64,
    pub(crate) learning_rate: f32,
    /// The state of the run.
    pub(crate) state: &'a str,
}

impl CheckpointWriter {
    /// A writer that has this much memory for a copy.
    pub(crate) fn new(folder: PathBuf, keep: usize, saving: Saving, room: Bytes) -> CheckpointWriter {
        let wanted = saving.bytes_snapshot() + Bytes((STACK + (64 << 10)) as u64);
        let mode = if wanted <= room { Mode::Ready(saving.snapshot()) } else { Mode::Waiting };
        CheckpointWriter { folder, keep, saving: Arc::new(saving), mode, stalls: Stalls::default() }
    }

    pub(crate) fn saving(&self) -> &Saving {
        &self.saving
    }

    /// Names the best checkpoint where it is there: a run may have been killed after it was written, and before it was named.
    pub(crate) fn name_best(&self, step: u64) -> Result<(), Error> {
        match self.folder.join(checkpoint::file_name(step)).exists() {
            true => checkpoint::name_best(&self.folder, step),
            false => Ok(()),
        }
    }

    /// Writes a checkpoint, or copies what it takes and begins to.
    pub(crate) fn write(
        &mut self,
        runner: &Runner,
        request: &Request<'_>,
        observer: &mut dyn Observer,
    ) -> Result<(), Error> {
        self.finish(observer)?;
        let start = Instant::now();
        let path = self.folder.join(checkpoint::file_name(request.step));
        let Request { step, best, iteration, learning_rate, state } = *request;
        match std::mem::replace(&mut self.mode, Mode::Waiting) {
            Mode::Ready(mut snapshot) => {
                self.saving.take(&mut snapshot, runner, iteration, learning_rate);
                let (saving, folder, keep) = (Arc::clone(&self.saving), self.folder.clone(), self.keep);
                let (to, state) = (path.clone(), state.to_owned());
                let write = move || {
                    let written = saving
                        .create(&to)
                        .and_then(|file| saving.write_snapshot(file, &snapshot, &state))
                        .and_then(|_| settle(&folder, step, keep, best));
                    (snapshot, written)
                };
                let thread =
                    std::thread::Builder::new().stack_size(STACK).spawn(write).map_err(|source| {
                        Error::File { verb: "start a thread that writes", path: path.clone(), source }
                    })?;
                let seconds = start.elapsed().as_secs_f64();
                self.mode = Mode::Writing(Writing { thread, path, step, seconds });
                Ok(())
            }
            Mode::Waiting | Mode::Writing(_) => {
                let file = self.saving.create(&path)?;
                self.saving.write(file, runner, iteration, learning_rate, Some(state))?;
                settle(&self.folder, step, self.keep, best)?;
                self.ended(&path, step, start.elapsed().as_secs_f64(), observer);
                Ok(())
            }
        }
    }

    /// Waits for a checkpoint that is being written.
    pub(crate) fn finish(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        match std::mem::replace(&mut self.mode, Mode::Waiting) {
            Mode::Writing(Writing { thread, path, step, seconds }) => {
                let start = Instant::now();
                let (snapshot, written) = match thread.join() {
                    Ok(ended) => ended,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                self.mode = Mode::Ready(snapshot);
                written?;
                self.ended(&path, step, seconds + start.elapsed().as_secs_f64(), observer);
            }
            other @ (Mode::Waiting | Mode::Ready(_)) => self.mode = other,
        }
        Ok(())
    }

    fn ended(&mut self, path: &Path, step: u64, seconds_stalled: f64, observer: &mut dyn Observer) {
        self.stalls.add(seconds_stalled);
        observer.event(Event::Checkpoint { path, step, seconds_stalled });
    }
}

/// After a checkpoint is written: names it the best where it is, and removes those that are not kept.
fn settle(folder: &Path, step: u64, keep: usize, best: Option<u64>) -> Result<(), Error> {
    if best == Some(step) {
        checkpoint::name_best(folder, step)?;
    }
    checkpoint::prune(folder, keep, best)
}
