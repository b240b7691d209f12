//! A trained model: its history, its values, and the files that they are saved to.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::data::Data;
use super::inference::{Evaluated, Prediction};
use super::settings::Trainer;
use crate::model::Model;
use crate::saving::Saving;
use crate::{Compiled, Ended, Error, Event, Observer, Report};

/// A model after its training. The arena is given back; the values of weights and of the optimizer's state are kept.
///
/// ```
/// use memfit::prelude::*;
/// let model = Sequential::new(Input::shape([2])).add(Dense::new(1));
/// let (x, y) = (vec![0.5f32; 64], vec![1.0f32; 32]);
/// let data = (Array::new(&x, [32, 2])?, Array::new(&y, [32])?);
/// let trained = Trainer::new(&model).loss("mse").device("cpu").plan()?.fit(&data, Epochs(3))?;
/// assert_eq!(trained.report().bytes_peak_predicted, trained.report().bytes_peak_measured);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Trained {
    trainer: Trainer<'static>,
    config: Value,
    compiled: Compiled,
    history: History,
    report: Report,
}

impl Trained {
    pub(super) fn new(
        trainer: Trainer<'static>,
        config: Value,
        compiled: Compiled,
        history: History,
        report: Report,
    ) -> Trained {
        Trained { trainer, config, compiled, history, report }
    }

    /// Loss and metrics, epoch by epoch.
    ///
    /// ```
    /// # use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([2])).add(Dense::new(1));
    /// # let (x, y) = (vec![0.5f32; 64], vec![1.0f32; 32]);
    /// # let data = (Array::new(&x, [32, 2])?, Array::new(&y, [32])?);
    /// let plan = Trainer::new(&model).loss("mse").metrics(["mae"]).validation_split(0.25).device("cpu").plan()?;
    /// let trained = plan.fit(&data, Epochs(2))?;
    /// let names: Vec<&str> = trained.history().names().collect();
    /// assert_eq!(names, ["loss", "mae", "val_loss", "val_mae"]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn history(&self) -> &History {
        &self.history
    }

    /// What was promised beside what was measured.
    ///
    /// ```
    /// # use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([2])).add(Dense::new(1));
    /// # let (x, y) = (vec![0.5f32; 64], vec![1.0f32; 32]);
    /// # let data = (Array::new(&x, [32, 2])?, Array::new(&y, [32])?);
    /// # let trained = Trainer::new(&model).loss("mse").device("cpu").plan()?.fit(&data, Epochs(1))?;
    /// assert_eq!(trained.report().trace.steps, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// How training ended: after its last epoch, early, or at the wish of its observer.
    ///
    /// ```
    /// # use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([2])).add(Dense::new(1));
    /// # let (x, y) = (vec![0.5f32; 64], vec![1.0f32; 32]);
    /// # let data = (Array::new(&x, [32, 2])?, Array::new(&y, [32])?);
    /// # let trained = Trainer::new(&model).loss("mse").device("cpu").plan()?.fit(&data, Epochs(1))?;
    /// assert_eq!(trained.ended(), memfit::Ended::Finished);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn ended(&self) -> Ended {
        self.report.ended
    }

    /// The model with its trained values, and with the optimizer's state: a trainer of it goes on.
    ///
    /// ```
    /// # use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([2])).add(Dense::new(1));
    /// # let (x, y) = (vec![0.5f32; 64], vec![1.0f32; 32]);
    /// # let data = (Array::new(&x, [32, 2])?, Array::new(&y, [32])?);
    /// # let trained = Trainer::new(&model).loss("mse").device("cpu").plan()?.fit(&data, Epochs(1))?;
    /// let more = Trainer::new(trained.model()).loss("mse").device("cpu").plan()?.fit(&data, Epochs(1))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn model(&self) -> Model {
        self.trainer.model.clone()
    }

    /// Loss and metrics over all rows.
    ///
    /// ```
    /// # use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([2])).add(Dense::new(1));
    /// # let (x, y) = (vec![0.5f32; 64], vec![1.0f32; 32]);
    /// # let data = (Array::new(&x, [32, 2])?, Array::new(&y, [32])?);
    /// # let trained = Trainer::new(&model).loss("mse").device("cpu").plan()?.fit(&data, Epochs(1))?;
    /// let loss = trained.evaluate(&data)?.loss();
    /// # Ok::<(), Error>(())
    /// ```
    pub fn evaluate(&self, data: &impl Data) -> Result<Evaluated, Error> {
        self.trainer.evaluate(data)
    }

    /// What the model predicts for all rows, one array for each output.
    ///
    /// ```
    /// # use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([2])).add(Dense::new(1));
    /// # let (x, y) = (vec![0.5f32; 64], vec![1.0f32; 32]);
    /// # let data = (Array::new(&x, [32, 2])?, Array::new(&y, [32])?);
    /// # let trained = Trainer::new(&model).loss("mse").device("cpu").plan()?.fit(&data, Epochs(1))?;
    /// let predictions = trained.predict(&Array::new(&x, [32, 2])?)?;
    /// assert_eq!(predictions[0].dims(), [32, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn predict(&self, data: &impl Data) -> Result<Vec<Prediction>, Error> {
        self.trainer.predict(data)
    }

    /// Writes a file that Keras opens: `.keras` with model, weights and optimizer, `.weights.h5` with weights and optimizer, or
    /// `.safetensors` with weights. An old file stays whole until the new one is. Returns its path.
    ///
    /// ```
    /// # use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([2])).add(Dense::new(1));
    /// # let (x, y) = (vec![0.5f32; 64], vec![1.0f32; 32]);
    /// # let data = (Array::new(&x, [32, 2])?, Array::new(&y, [32])?);
    /// # let trained = Trainer::new(&model).loss("mse").device("cpu").plan()?.fit(&data, Epochs(1))?;
    /// # let folder = std::env::temp_dir();
    /// let path = trained.save(folder.join("memfit-save-example.keras"))?;
    /// let opened = Model::load(&path)?;
    /// # std::fs::remove_file(&path).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn save(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let path = path.as_ref();
        let values = self.trainer.model.values().expect("a trained model has values");
        let saving = Saving::of(path, values.variables(), &self.config, &self.compiled)?;
        let file = saving.create(path)?;
        saving.write_values(file, &|variable| memfit_files::Bytes::Borrowed(values.of(variable)))
    }
}

impl From<&Trained> for Model {
    fn from(trained: &Trained) -> Model {
        trained.model()
    }
}

/// Loss and metrics of a training, epoch by epoch, as Keras's `History` has them.
///
/// ```
/// use memfit::prelude::*;
/// let model = Sequential::new(Input::shape([2])).add(Dense::new(1));
/// let (x, y) = (vec![0.5f32; 64], vec![1.0f32; 32]);
/// let data = (Array::new(&x, [32, 2])?, Array::new(&y, [32])?);
/// let trained = Trainer::new(&model).loss("mse").device("cpu").plan()?.fit(&data, Epochs(3))?;
/// assert_eq!(trained.history().get("loss").map(<[f64]>::len), Some(3));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    values: Vec<(String, Vec<f64>)>,
}

impl History {
    /// The values of every epoch, by name: `loss`, a metric, or `val_` and one of these.
    ///
    /// ```
    /// # use memfit::prelude::*;
    /// assert!(History::default().get("loss").is_none());
    /// ```
    pub fn get(&self, name: &str) -> Option<&[f64]> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, values)| values.as_slice())
    }

    /// The names.
    ///
    /// ```
    /// # use memfit::prelude::*;
    /// assert_eq!(History::default().names().count(), 0);
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|(name, _)| name.as_str())
    }

    fn push(&mut self, name: String, value: f64) {
        match self.values.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => self.values.push((name, vec![value])),
        }
    }
}

/// An observer that notes the values of every epoch for the history.
pub(super) struct Recording<'a> {
    pub(super) observer: &'a mut dyn Observer,
    pub(super) history: History,
}

impl Observer for Recording<'_> {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Epoch { means, validation, metrics, .. } = &event {
            for (prefix, means) in [("", Some(*means)), ("val_", *validation)] {
                let Some(means) = means else { continue };
                self.history.push(format!("{prefix}loss"), means.loss);
                for (name, value) in metrics.iter().zip(&means.values) {
                    self.history.push(format!("{prefix}{name}"), *value);
                }
            }
        }
        self.observer.event(event);
    }

    fn check(&mut self) -> Result<(), Error> {
        self.observer.check()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.observer.flush()
    }

    fn stop_requested(&mut self) -> bool {
        self.observer.stop_requested()
    }
}
