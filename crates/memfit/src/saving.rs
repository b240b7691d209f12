//! Saving a trained model: laid out and its space taken before training starts, streamed from the slots when it ends.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use memfit_files::{FileKind, Layout, NewFile};
use memfit_ir::{Bytes, Graph};
use memfit_run::Runner;
use serde_json::json;

use crate::Error;
use crate::compile_config::compile_config;
use crate::compiled::Compiled;
use crate::model_file::ModelFile;
use crate::state::{self, Variable};

/// The version of Keras whose files these are.
const KERAS_VERSION: &str = "3.15.1";

/// A model file to be written when training ends.
pub struct Saving {
    path: PathBuf,
    layout: Layout,
    variables: Vec<Variable>,
}

impl Saving {
    /// Lays the file out.
    pub(crate) fn plan(
        path: PathBuf,
        opened: &ModelFile,
        graph: &Graph,
        compiled: &Compiled,
    ) -> Result<Saving, Error> {
        let kind = FileKind::of(&path).ok_or_else(|| {
            let problem = format!("`{}` must end in .keras, .weights.h5 or .safetensors", path.display());
            Error::job("--output", problem)
        })?;
        let mut variables = state::weights(opened);
        if kind != FileKind::Safetensors {
            variables.extend(state::optimizer_variables(opened, graph, &compiled.optimizer));
        }
        let arrays = variables.iter().map(|variable| variable.array(kind)).collect();
        let texts = if kind == FileKind::Keras { texts(opened, compiled) } else { vec![] };
        let layout = Layout::new(kind, arrays, &texts);
        Ok(Saving { path, layout, variables })
    }

    /// Takes the file's space on its disk, so that a full one is an answer now and not after training.
    pub(crate) fn take_space(&self) -> Result<NewFile, Error> {
        memfit_files::remove_leftovers(self.path.parent().unwrap_or(Path::new("")));
        let file = NewFile::create(&self.path)?;
        let taken = memfit_device::reserve(file.file(), Bytes(self.layout.bytes()));
        taken.map_err(|source| file.refused(source))?;
        Ok(file)
    }

    /// Memory that writing takes.
    pub(crate) fn bytes_writing(&self) -> Bytes {
        Bytes(self.layout.bytes_writing())
    }

    /// Writes the file from the slots, after so many steps in all.
    pub(crate) fn write(
        &self,
        file: NewFile,
        runner: &Runner,
        iteration: u64,
        learning_rate: f32,
    ) -> Result<PathBuf, Error> {
        let bytes = |index: usize| self.variables[index].bytes(runner, iteration, learning_rate);
        Ok(file.write(&self.layout, &bytes)?)
    }
}

fn texts(opened: &ModelFile, compiled: &Compiled) -> Vec<(&'static str, Cow<'static, str>)> {
    let mut config = opened.model.config.clone();
    if !compiled.is_the_files {
        config["compile_config"] = compile_config(compiled);
    }
    let metadata = json!({"keras_version": KERAS_VERSION, "date_saved": date(seconds_now())});
    vec![("metadata.json", metadata.to_string().into()), ("config.json", config.to_string().into())]
}

/// The time in seconds since 1970. `SOURCE_DATE_EPOCH` (reproducible-builds.org) fixes it, so that two runs can write equal files.
fn seconds_now() -> u64 {
    let fixed = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    fixed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// A time as Keras writes it, in UTC.
fn date(seconds: u64) -> String {
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
