//! Checkpoints of a session: the caller runs the loop and says when, the variables are streamed from their slots.

use std::path::{Path, PathBuf};

use memfit_ir::Bytes;
use memfit_run::{Progress, Runner};

use crate::checkpoint::{self, Checkpoint};
use crate::checkpoint_writer::{CheckpointWriter, Request};
use crate::run_state::{CALLER_MOST, Counters, RunState};
use crate::saving::Saving;
use crate::{Error, Job, Quiet};

/// Where a session's checkpoints go, and the one that it goes on from.
pub(crate) struct SessionCheckpoints {
    folder: PathBuf,
    writer: CheckpointWriter,
    state: RunState,
    from: Option<Checkpoint>,
}

impl SessionCheckpoints {
    /// Makes the folder where it is not there, and sees that there is space for a checkpoint.
    pub(crate) fn new(
        job: &Job,
        saving: Saving,
        state: RunState,
        from: Option<Checkpoint>,
    ) -> Result<SessionCheckpoints, Error> {
        let section = job.checkpoint.as_ref().expect("the job names a folder for checkpoints");
        let folder = job.path(&section.folder);
        checkpoint::make_folder(&folder)?;
        let saving = saving.with_state(state.bytes_most() + 2 * CALLER_MOST);
        // The caller waits until it is written, so that no copy is kept beside the arena.
        let writer = CheckpointWriter::new(folder.clone(), section.keep, saving, Bytes::ZERO);
        Ok(SessionCheckpoints { folder, writer, state, from })
    }

    /// The checkpoint's path and what the caller kept in it.
    pub(crate) fn goes_on_from(&self) -> Option<(&Path, &str)> {
        self.from.as_ref().map(|from| (from.file.path(), from.state.caller.as_str()))
    }

    /// Updates before the first step of the runner that wrote the checkpoint.
    pub(crate) fn iteration_first(&self) -> u64 {
        self.from.as_ref().map_or(0, |from| from.state.iteration_first)
    }

    /// Reads the checkpoint's variables into their slots, and lets the runner go on from where it was.
    pub(crate) fn restore(&self, runner: &mut Runner) -> Result<(), Error> {
        let from = self.from.as_ref().expect("there is a checkpoint to go on from");
        self.writer.saving().read(&from.file, runner)?;
        checkpoint::restore(runner, &Progress::from(&from.state.progress), from.file.path())
    }

    /// Writes a checkpoint and returns its path.
    pub(crate) fn write(
        &mut self,
        runner: &Runner,
        iteration_first: u64,
        iteration: u64,
        step: u64,
        learning_rate: f32,
        caller: &str,
    ) -> Result<PathBuf, Error> {
        if CALLER_MOST < caller.len() {
            let problem =
                format!("the caller keeps {} bytes in a checkpoint, at most {CALLER_MOST} fit", caller.len());
            return Err(Error::job("checkpoint", problem));
        }
        self.state.step = step;
        self.state.iteration_first = iteration_first;
        self.state.progress = Counters::from(&runner.progress());
        caller.clone_into(&mut self.state.caller);
        let state = &self.state.to_text();
        let request = Request { step, best: None, iteration, learning_rate, state };
        self.writer.write(runner, &request, &mut Quiet)?;
        Ok(self.folder.join(checkpoint::file_name(step)))
    }
}
