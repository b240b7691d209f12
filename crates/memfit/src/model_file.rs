//! The model of a job: from its listed layers, a `model.to_json()` file, or a `.keras` file with its weights.

use std::path::{Path, PathBuf};

use memfit_files::{FileKind, WeightsFile, json_text};
use memfit_formats::{KerasModel, Mode, Options, Precision, model_from_keras, model_from_layers, parse_json};
use memfit_ir::{DType, Graph};
use serde_json::Value;

use crate::{Error, Job};

/// A model, and the file that holds its weights where there is one.
pub struct ModelFile {
    /// The model.
    pub model: KerasModel,
    /// Its weights, and perhaps its optimizer's state.
    pub stored: Option<WeightsFile>,
}

impl ModelFile {
    /// Opens what the job says.
    pub fn open(job: &Job, mode: Mode) -> Result<ModelFile, Error> {
        let (model, mut stored) = read(job, mode, job.train.precision)?;
        if let Some(path) = &job.model.weights {
            stored = Some(WeightsFile::open(&job.path(path))?);
        }
        let opened = ModelFile { model, stored };
        opened.check()?;
        Ok(opened)
    }

    /// The compile configuration that the model's file brings, where it has one.
    pub fn compile_config(&self) -> Option<&Value> {
        let config = self.model.config.get("compile_config")?;
        config.as_object().filter(|object| !object.is_empty()).map(|_| config)
    }

    /// What the file calls a weight: its place in Keras's files, or its own name.
    pub(crate) fn place_of<'a>(
        &'a self,
        weight: &'a memfit_formats::StoredWeight,
        graph: &'a Graph,
    ) -> &'a str {
        let by_name = self.stored.as_ref().is_some_and(|file| file.kind() == FileKind::Safetensors);
        if by_name { &graph.tensors[weight.tensor.0].name } else { &weight.place }
    }

    /// Every weight is there and of its shape: said before anything is planned.
    fn check(&self) -> Result<(), Error> {
        let Some(file) = &self.stored else { return Ok(()) };
        let graph = &self.model.graph;
        for weight in &self.model.weights {
            let (place, tensor) = (self.place_of(weight, graph), &graph.tensors[weight.tensor.0]);
            if tensor.dtype == DType::I64 {
                file.integer(place)?;
                continue;
            }
            file.check(place, &tensor.name, &weight.dims)?;
        }
        Ok(())
    }
}

/// The graph of a job's model in training under a policy, whatever its weights.
pub(crate) fn forward(job: &Job, precision: Option<Precision>) -> Result<Graph, Error> {
    read(job, Mode::Training, precision).map(|(model, _)| model.graph)
}

/// The Keras configuration that a job names.
pub(crate) fn read_config(job: &Job) -> Result<Value, Error> {
    open_config(&path_of(job)).map(|(config, _)| config)
}

fn read(
    job: &Job,
    mode: Mode,
    precision: Option<Precision>,
) -> Result<(KerasModel, Option<WeightsFile>), Error> {
    let options = Options { mode, seed: job.train.seed, precision };
    if let Some(layers) = &job.model.layers {
        return Ok((model_from_layers(layers, job.model.outputs.as_deref(), &options)?, None));
    }
    if let Some(config) = &job.caller.config {
        return Ok((model_from_keras(config, &options)?, None));
    }
    let path = path_of(job);
    let (config, stored) = open_config(&path)?;
    Ok((within(&path, model_from_keras(&config, &options))?, stored))
}

fn path_of(job: &Job) -> PathBuf {
    job.path(job.model.file.as_deref().expect("checked: a model has layers or a file"))
}

fn open_config(path: &Path) -> Result<(Value, Option<WeightsFile>), Error> {
    if FileKind::of(path) == Some(FileKind::Keras) {
        let file = WeightsFile::open(path)?;
        let config = file.config().cloned().ok_or_else(|| not_a_model(path))?;
        return Ok((config, Some(file)));
    }
    let text = json_text(path)?;
    Ok((within(path, parse_json(&text))?, None))
}

/// An error about a model's file names the file.
fn within<T>(path: &Path, result: Result<T, memfit_formats::FormatError>) -> Result<T, Error> {
    result.map_err(|error| Error::ModelIn { path: path.to_owned(), error: Box::new(error) })
}

fn not_a_model(path: &Path) -> Error {
    Error::job(
        path.display().to_string(),
        "has weights and no model; give the model with `file`, and this one with `weights`",
    )
}
