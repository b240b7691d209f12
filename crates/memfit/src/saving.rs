//! Model files of a training, the trained one and checkpoints: laid out before it starts, streamed from the slots and back.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use memfit_files::{Array, FileKind, Layout, NewFile, WeightsFile};
use memfit_ir::{Bytes, Graph};
use memfit_run::Runner;
use serde_json::{Value, json};

use crate::checkpoint;
use crate::compile_config::compile_config;
use crate::compiled::Compiled;
use crate::model_file::ModelFile;
use crate::state::{self, Variable};
use crate::{Error, Job};

/// The version of Keras whose files these are.
const KERAS_VERSION: &str = "3.15.1";

/// The files that a training writes.
pub(crate) struct Files {
    /// The trained model, when training ends.
    pub(crate) output: Option<(PathBuf, Saving)>,
    /// Checkpoints during training, all of one layout.
    pub(crate) checkpoint: Option<Saving>,
}

impl Files {
    pub(crate) fn plan(
        job: &Job,
        opened: &ModelFile,
        graph: &Graph,
        compiled: &Compiled,
    ) -> Result<Files, Error> {
        let output = job.train.output.as_ref().map(|path| {
            let path = job.path(path);
            Saving::plan(&path, opened, graph, compiled).map(|saving| (path, saving))
        });
        let checkpoint = job.checkpoint.as_ref().map(|_| {
            let name = checkpoint::file_name(0);
            Saving::plan(Path::new(&name), opened, graph, compiled)
        });
        Ok(Files { output: output.transpose()?, checkpoint: checkpoint.transpose()? })
    }

    /// Memory that writing takes, one file at a time; none where there is no file.
    pub(crate) fn bytes_writing(&self) -> Option<Bytes> {
        let output = self.output.iter().map(|(_, saving)| saving);
        output.chain(&self.checkpoint).map(Saving::bytes_writing).max()
    }
}

/// A copy of all variables of a model file.
pub(crate) struct Snapshot(Vec<u8>);

/// A model file laid out: what it holds, and how large it is.
pub struct Saving {
    layout: Layout,
    variables: Vec<Variable>,
}

impl Saving {
    /// Lays out the file that a path names.
    pub(crate) fn plan(
        path: &Path,
        opened: &ModelFile,
        graph: &Graph,
        compiled: &Compiled,
    ) -> Result<Saving, Error> {
        let mut variables = state::weights(opened);
        let weights = variables.len();
        variables.extend(state::optimizer_variables(opened, graph, &compiled.optimizer));
        Saving::of(path, (variables, weights), &opened.model.config, compiled)
    }

    /// The same of these variables, of which the first are weights.
    pub(crate) fn of(
        path: &Path,
        (mut variables, weights): (Vec<Variable>, usize),
        config: &Value,
        compiled: &Compiled,
    ) -> Result<Saving, Error> {
        let kind = FileKind::of(path).ok_or_else(|| {
            let problem = format!("`{}` must end in .keras, .weights.h5 or .safetensors", path.display());
            Error::job("output", problem)
        })?;
        if kind == FileKind::Safetensors {
            variables.truncate(weights);
        }
        let arrays = variables.iter().map(|variable| variable.array(kind)).collect();
        let texts = if kind == FileKind::Keras { texts(config, compiled) } else { vec![] };
        let layout = Layout::new(kind, arrays, &texts);
        Ok(Saving { layout, variables })
    }

    /// Takes the space of a file on its disk, so that a full one is an answer now and not after training.
    pub(crate) fn create(&self, path: &Path) -> Result<NewFile, Error> {
        memfit_files::remove_leftovers(path.parent().unwrap_or(Path::new("")));
        let file = NewFile::create(path)?;
        let taken = memfit_device::reserve(file.file(), Bytes(self.layout.bytes()));
        taken.map_err(|source| file.refused(source))?;
        Ok(file)
    }

    /// Memory that writing takes.
    pub(crate) fn bytes_writing(&self) -> Bytes {
        Bytes(self.layout.bytes_writing())
    }

    /// The same with room for the state of a run.
    pub(crate) fn with_state(self, bytes_most: usize) -> Saving {
        Saving { layout: self.layout.with_state(bytes_most as u64), ..self }
    }

    /// Writes a file from the slots, after this many updates, with the state of the run where there is room for it.
    pub(crate) fn write(
        &self,
        file: NewFile,
        runner: &Runner,
        iteration: u64,
        learning_rate: f32,
        state: Option<&str>,
    ) -> Result<PathBuf, Error> {
        let bytes = |index: usize| self.variables[index].bytes(runner, iteration, learning_rate);
        Ok(file.write_with_state(&self.layout, &bytes, state)?)
    }

    /// Writes a file of values that stand elsewhere.
    pub(crate) fn write_values<'a>(
        &self,
        file: NewFile,
        values: &dyn Fn(usize) -> memfit_files::Bytes<'a>,
    ) -> Result<PathBuf, Error> {
        Ok(file.write(&self.layout, values)?)
    }

    /// Memory for a copy of all variables.
    pub(crate) fn bytes_snapshot(&self) -> Bytes {
        Bytes(self.layout.arrays().iter().map(Array::bytes).sum())
    }

    /// An empty copy, whose memory is taken now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot(vec![0; self.bytes_snapshot().to_usize()])
    }

    /// Copies all variables from the slots.
    pub(crate) fn take(&self, to: &mut Snapshot, runner: &Runner, iteration: u64, learning_rate: f32) {
        let mut rest = &mut to.0[..];
        for (variable, array) in self.variables.iter().zip(self.layout.arrays()) {
            let length = usize::try_from(array.bytes()).expect("an array lies in memory");
            let (place, after) = rest.split_at_mut(length);
            match variable.bytes(runner, iteration, learning_rate) {
                memfit_files::Bytes::Borrowed(bytes) => place.copy_from_slice(bytes),
                memfit_files::Bytes::Number(bytes) => place.copy_from_slice(&bytes[..length]),
                memfit_files::Bytes::Zeros => place.fill(0),
            }
            rest = after;
        }
    }

    /// Writes a file from a copy, with the state of the run.
    pub(crate) fn write_snapshot(
        &self,
        file: NewFile,
        snapshot: &Snapshot,
        state: &str,
    ) -> Result<PathBuf, Error> {
        let starts: Vec<usize> = self
            .layout
            .arrays()
            .iter()
            .scan(0, |end, array| {
                let start = *end;
                *end += usize::try_from(array.bytes()).expect("an array lies in memory");
                Some(start)
            })
            .collect();
        let bytes = |index: usize| {
            let end = starts.get(index + 1).copied().unwrap_or(snapshot.0.len());
            memfit_files::Bytes::Borrowed(&snapshot.0[starts[index]..end])
        };
        Ok(file.write_with_state(&self.layout, &bytes, Some(state))?)
    }

    /// Reads all variables of a file of this layout into their slots, and returns the number of updates.
    pub(crate) fn read(&self, file: &WeightsFile, runner: &mut Runner) -> Result<u64, Error> {
        state::load(runner, file, &self.variables)
    }
}

fn texts(config: &Value, compiled: &Compiled) -> Vec<(&'static str, Cow<'static, str>)> {
    let mut config = config.clone();
    if !compiled.is_the_files {
        config["compile_config"] = compile_config(compiled);
    }
    let metadata = json!({"keras_version": KERAS_VERSION, "date_saved": date(seconds_now())});
    vec![("metadata.json", metadata.to_string().into()), ("config.json", config.to_string().into())]
}

/// The time in seconds since 1970. `SOURCE_DATE_EPOCH` (reproducible-builds.org) fixes it, so that two runs can write equal files.
pub(crate) fn seconds_now() -> u64 {
    let fixed = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    fixed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// A time as Keras writes it, in UTC.
pub(crate) fn date(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of the year 0, so that the day that comes and goes is a year's last.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + later;
    format!("{year:04}-{month:02}-{day:02}@{:02}:{:02}:{:02}", time / 3600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01@00:00:00"),
            (951_782_399, "2000-02-28@23:59:59"),
            (951_782_400, "2000-02-29@00:00:00"),
            (1_709_251_199, "2024-02-29@23:59:59"),
            (4_107_542_400, "2100-03-01@00:00:00"),
        ];
        for (seconds, wanted) in cases {
            assert_eq!(date(seconds), wanted);
        }
    }
}
