//! The model of a job: from its listed layers, a `model.to_json()` file, or a `.keras` file with its weights.

use std::path::Path;

use memfit_files::{FileKind, WeightsFile};
use memfit_formats::{KerasModel, Mode, Options, model_from_keras, model_from_layers, parse_json};
use memfit_ir::Graph;
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
        let options = Options { mode, seed: job.train.seed };
        let mut stored = None;
        let model = match (&job.model.layers, &job.model.file) {
            (Some(layers), _) => model_from_layers(layers, job.model.outputs.as_deref(), &options)?,
            (None, file) => {
                let path = job.path(file.as_deref().expect("checked: a model has layers or a file"));
                if FileKind::of(&path) == Some(FileKind::Keras) {
                    let file = WeightsFile::open(&path)?;
                    let config = file.config().cloned().ok_or_else(|| not_a_model(&path))?;
                    stored = Some(file);
                    within(&path, model_from_keras(&config, &options))?
                } else {
                    within(&path, model_from_keras(&read_json(&path)?, &options))?
                }
            }
        };
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
            file.check(self.place_of(weight, graph), &graph.tensors[weight.tensor.0].name, &weight.dims)?;
        }
        Ok(())
    }
}

fn read_json(path: &Path) -> Result<Value, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::File {
        verb: "read",
        path: path.to_owned(),
        source,
    })?;
    within(path, parse_json(&text))
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
