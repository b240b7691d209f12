//! Models that a Rust program writes down or opens from a file: what Keras's reader takes, from builders.

mod builder_macro;
pub(crate) mod builders;
mod functional;
mod layer;
mod sequential;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use memfit_formats::{Mode, parse_json};
use serde_json::Value;

pub use functional::{CallInputs, Input, KerasTensor};
pub use layer::{ArgumentValue, Layer};
pub use sequential::Sequential;

use crate::trainer::Values;
use crate::{Error, Job, LayerTable, ModelFile, layer_table};

/// A model: written down in this program, or opened from a file. It has the values of its weights where it was trained or comes with
/// a file that holds them.
///
/// ```
/// use memfit::prelude::*;
/// let x = Input::shape([8]);
/// let y = Dense::new(4).activation(Softmax).call(&x);
/// let model = Model::new(&[x], &[y]);
/// assert_eq!(model.layers()?.parameters(), (36, 36));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Model {
    source: Source,
    values: Option<Arc<Values>>,
}

/// Where a model comes from.
#[derive(Clone, Debug)]
enum Source {
    Sequential(Sequential),
    Tensors { inputs: Vec<KerasTensor>, outputs: Vec<KerasTensor> },
    Config(Value),
    File(PathBuf),
}

/// A model as a job has it.
#[derive(Debug)]
enum Definition {
    /// Layers in place.
    Layers { layers: Vec<Value>, outputs: Option<Vec<String>> },
    /// A Keras configuration.
    Config(Value),
    /// A model file.
    File(PathBuf),
}

impl Model {
    fn of(source: Source) -> Model {
        Model { source, values: None }
    }

    /// Opens a model file: `.keras` with its weights, or `.json` as `model.to_json()` writes it.
    ///
    /// ```no_run
    /// use memfit::prelude::*;
    /// let model = Model::load("mnist.keras")?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn load(path: impl AsRef<Path>) -> Result<Model, Error> {
        let path = path.as_ref().to_owned();
        ModelFile::open(&Job::for_model(&path), Mode::Inference)?;
        Ok(Model::of(Source::File(path)))
    }

    /// Reads the text that Keras's `model.to_json()` gives.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let text = r#"{"class_name": "Sequential", "config": {"layers": [
    ///     {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 4]}},
    ///     {"class_name": "Dense", "config": {"name": "dense", "units": 3}}]}}"#;
    /// assert_eq!(Model::from_json(text)?.layers()?.parameters(), (15, 15));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Model, Error> {
        Ok(Model::of(Source::Config(parse_json(text)?)))
    }

    /// The table of its layers: names, shapes, parameters, and what each holds in training.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let model = Sequential::new(Input::shape([4])).add(Dense::new(3)).model();
    /// assert_eq!(model.layers()?.rows[0].layer.name, "dense");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn layers(&self) -> Result<LayerTable, Error> {
        layer_table(&self.job()?)
    }

    /// A job on this model alone.
    fn job(&self) -> Result<Job, Error> {
        let mut job = Job::for_config(Value::Null, &[])?;
        self.put(&mut job)?;
        Ok(job)
    }

    /// Has a job train this model.
    pub(crate) fn put(&self, job: &mut Job) -> Result<(), Error> {
        job.caller.config = None;
        let definition = match &self.source {
            Source::Sequential(model) => sequential::definition(model)?,
            Source::Tensors { inputs, outputs } => functional::definition(inputs, outputs)?,
            Source::Config(config) => Definition::Config(config.clone()),
            Source::File(path) => Definition::File(path.clone()),
        };
        match definition {
            Definition::Layers { layers, outputs } => {
                (job.model.layers, job.model.outputs) = (Some(layers), outputs);
            }
            Definition::Config(config) => job.caller.config = Some(config),
            Definition::File(path) => job.model.file = Some(path),
        }
        Ok(())
    }

    /// The values that training left, where it was trained in this program.
    pub(crate) fn values(&self) -> Option<&Arc<Values>> {
        self.values.as_ref()
    }

    /// The same model with values.
    pub(crate) fn with_values(self, values: Arc<Values>) -> Model {
        Model { values: Some(values), ..self }
    }
}

impl From<&Model> for Model {
    fn from(model: &Model) -> Model {
        model.clone()
    }
}
