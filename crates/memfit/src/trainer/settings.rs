//! What a training is asked for, key by key: each method sets a key of a job.

use std::sync::Arc;

use memfit_device::process;
use memfit_ir::Bytes;
use serde_json::Value;

use super::compile::{Loss, Metric, Optimizer};
use super::data::{Data, Dataset, Expected};
use super::inference::{self, Evaluated, Prediction};
use super::plan::TrainingPlan;
use crate::model::{ArgumentValue, Model};
use crate::{Error, Job, Setting, Shuffle, Threads};

/// How a model is trained, evaluated, or asked for predictions.
///
/// What is wrong with a value is an answer of [`Trainer::plan`]. The budget counts what memfit adds to the process: the arena, the
/// planner and the program's own pages, and not what the program held when the training is planned, nor its arrays.
///
/// ```
/// use memfit::prelude::*;
/// let model = Sequential::new(Input::shape([4])).add(Dense::new(3).activation(Softmax));
/// let plan = Trainer::new(&model)
///     .loss(SparseCategoricalCrossentropy::default())
///     .optimizer(Adam::default())
///     .batch(32)
///     .budget("512 MiB")
///     .plan()?;
/// assert!(plan.bytes_smallest_budget() < "512 MiB".parse().expect("a size"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trainer<'a> {
    pub(super) model: Model,
    pub(super) keys: Keys,
    /// What is validated on.
    pub(super) validation: Option<Validated<'a>>,
}

/// Keys of a job and their values.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    settings: Vec<(String, Value)>,
    pub(super) threads: Threads,
    sample_weights: bool,
}

/// Rows to validate on.
#[derive(Clone, Debug)]
pub(super) enum Validated<'a> {
    /// The last of the training's rows.
    Share(f64),
    /// Arrays of their own, or why there are none.
    Own(Result<Dataset<'a>, Arc<Error>>),
}

impl<'a> Trainer<'a> {
    /// Trains a model: `&Sequential`, `&Model`, or `&Trained` to go on.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).loss("mse");
    /// ```
    pub fn new(model: impl Into<Model>) -> Trainer<'a> {
        Trainer { model: model.into(), keys: Keys::default(), validation: None }
    }

    /// The loss, the same for every output. A model from a file may bring its own.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).loss(Huber::default().delta(0.5));
    /// ```
    pub fn loss(self, loss: impl Into<Loss>) -> Trainer<'a> {
        self.set_json("train.loss", loss.into().into_json())
    }

    /// A loss for each output, in their order.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let losses: [Loss; 2] = [MeanSquaredError::default().into(), "mae".into()];
    /// let trainer = Trainer::new(&model).losses(losses);
    /// ```
    pub fn losses(self, losses: impl IntoIterator<Item = impl Into<Loss>>) -> Trainer<'a> {
        let losses = losses.into_iter().map(|loss| loss.into().into_json()).collect();
        self.set_json("train.loss", losses)
    }

    /// The factor of each output's loss in the total.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).losses(["mse", "mae"]).loss_weights([1.0, 0.2]);
    /// ```
    pub fn loss_weights(self, weights: impl IntoIterator<Item = f64>) -> Trainer<'a> {
        self.set_json("train.loss_weights", weights.into_iter().map(Value::from).collect())
    }

    /// The optimizer; where it is not given, that of the model's file, or RMSprop, as in Keras.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).optimizer(SGD::default().learning_rate(0.1).momentum(0.9));
    /// ```
    pub fn optimizer(self, optimizer: impl Into<Optimizer>) -> Trainer<'a> {
        self.set_json("train.optimizer", optimizer.into().into_json())
    }

    /// Metrics of every output.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).metrics(["accuracy"]);
    /// ```
    pub fn metrics(self, metrics: impl IntoIterator<Item = impl Into<Metric>>) -> Trainer<'a> {
        let metrics = metrics.into_iter().map(|metric| metric.into().into_json()).collect();
        self.set_json("train.metrics", metrics)
    }

    /// Metrics in which rows count by their weights.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).sample_weights().weighted_metrics(["mae"]);
    /// ```
    pub fn weighted_metrics(self, metrics: impl IntoIterator<Item = impl Into<Metric>>) -> Trainer<'a> {
        let metrics = metrics.into_iter().map(|metric| metric.into().into_json()).collect();
        self.set_json("train.weighted_metrics", metrics)
    }

    /// The data has a weight for each row: see [`Dataset::sample_weight`].
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).loss("mse").sample_weights();
    /// ```
    pub fn sample_weights(mut self) -> Trainer<'a> {
        self.keys.sample_weights = true;
        self
    }

    /// Rows of a step; 32 where it is not given, as in Keras.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).batch(256);
    /// ```
    pub fn batch(self, rows: usize) -> Trainer<'a> {
        self.set_json("train.batch", Value::from(rows))
    }

    /// What memfit may add to the process: a size as in `512 MiB`, or a share of what the machine allows, as in `50%`. Nearly all of
    /// that where it is not given.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).budget("2 GiB");
    /// ```
    pub fn budget(self, budget: &str) -> Trainer<'a> {
        self.set_json("memory.budget", Value::from(budget))
    }

    /// A learning rate in place of the optimizer's own.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).learning_rate(1e-4);
    /// ```
    pub fn learning_rate(self, rate: f64) -> Trainer<'a> {
        self.set_json("train.learning_rate", Value::from(rate))
    }

    /// Seed of weights, of random layers and of the order of rows.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).seed(7);
    /// ```
    pub fn seed(self, seed: u64) -> Trainer<'a> {
        self.set_json("train.seed", Value::from(seed))
    }

    /// Whether rows come in another order in every epoch, as they do where it is not given.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).shuffle(false);
    /// ```
    pub fn shuffle(self, shuffle: bool) -> Trainer<'a> {
        self.set_json("data.shuffle", Value::from(shuffle))
    }

    /// A dtype policy by Keras's name: `float32`, `mixed_float16` or `mixed_bfloat16`.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).precision("mixed_bfloat16");
    /// ```
    pub fn precision(self, policy: &str) -> Trainer<'a> {
        self.set_json("train.precision", Value::from(policy))
    }

    /// Where it runs: `cpu`, `cuda` or `cuda:N`; the first GPU where there is one, else the CPU, where it is not given.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).device("cpu");
    /// ```
    pub fn device(self, device: &str) -> Trainer<'a> {
        self.set_json("train.device", Value::from(device))
    }

    /// How many threads of the CPU; as many as the process may use where it is not given. They do not change a bit of the results.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).threads(2);
    /// ```
    pub fn threads(mut self, threads: usize) -> Trainer<'a> {
        self.keys.threads = Some(threads);
        self
    }

    /// Validates on these rows after every epoch.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let (x, y) = (vec![0.5f32; 20 * 4], vec![1.0f32; 20]);
    /// let held = (Array::new(&x, [20, 4])?, Array::new(&y, [20])?);
    /// let trainer = Trainer::new(&model).loss("mse").validation(&held);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn validation(mut self, data: &'a impl Data) -> Trainer<'a> {
        self.validation = Some(Validated::Own(data.dataset().map_err(Arc::new)));
        self
    }

    /// Validates on this share of the rows, the last ones, and does not train on them.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).validation_split(0.1);
    /// ```
    pub fn validation_split(mut self, share: f64) -> Trainer<'a> {
        self.validation = Some(Validated::Share(share));
        self
    }

    /// Ends training when a value, as in `val_loss`, has not improved for some epochs.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).validation_split(0.2).early_stopping("val_loss", 3);
    /// ```
    pub fn early_stopping(self, monitor: &str, patience: u64) -> Trainer<'a> {
        self.set_json("train.early_stopping.monitor", Value::from(monitor))
            .set_json("train.early_stopping.patience", Value::from(patience))
    }

    /// Writes checkpoints into this folder, every `500steps`, `10min` or `1epoch`.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).checkpoints("runs/a", "1epoch");
    /// ```
    pub fn checkpoints(self, folder: &str, every: &str) -> Trainer<'a> {
        self.set_json("checkpoint.folder", Value::from(folder))
            .set_json("checkpoint.every", Value::from(every))
    }

    /// Any key of a job file, as in `memory.disk`: `docs/command.md` lists them.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).set("memory.micro_batches", 4).set("memory.costs", "analytic");
    /// ```
    pub fn set(self, key: &str, value: impl Into<ArgumentValue>) -> Trainer<'a> {
        self.set_json(key, value.into().into_json())
    }

    fn set_json(mut self, key: &str, value: Value) -> Trainer<'a> {
        self.keys.settings.retain(|(known, _)| known != key);
        self.keys.settings.push((key.to_owned(), value));
        self
    }

    /// Plans the training: every byte has its place, and nothing has been taken. What cannot fit is
    /// [`Error::DoesNotFit`], with the smallest budget and with changes that would fit.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let model = Sequential::new(Input::shape([64])).add(Dense::new(4096)).add(Dense::new(1));
    /// let trainer = Trainer::new(&model).loss("mse").optimizer(Adam::default()).device("cpu");
    /// match trainer.budget("4 MiB").plan() {
    ///     Ok(plan) => println!("{plan}"),
    ///     Err(Error::DoesNotFit(answer)) => assert!(answer.budget < answer.smallest),
    ///     Err(other) => return Err(other),
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn plan(self) -> Result<TrainingPlan<'a>, Error> {
        TrainingPlan::of(self)
    }

    /// Loss and metrics of the model over all rows, as its weights are now.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let (x, y) = (vec![0.5f32; 20 * 4], vec![1.0f32; 20]);
    /// let data = (Array::new(&x, [20, 4])?, Array::new(&y, [20])?);
    /// let evaluated = Trainer::new(&model).loss("mse").metrics(["mae"]).evaluate(&data)?;
    /// assert!(evaluated.get("mae").is_some());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn evaluate(&self, data: &impl Data) -> Result<Evaluated, Error> {
        inference::evaluate(self, &data.dataset()?)
    }

    /// What the model predicts for all rows, one array for each output.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let model = Sequential::new(Input::shape([4])).add(Dense::new(3));
    /// let predictions = Trainer::new(&model).batch(8).predict(&(&vec![0.5f32; 20 * 4], [20, 4]))?;
    /// assert_eq!(predictions[0].dims(), [20, 3]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn predict(&self, data: &impl Data) -> Result<Vec<Prediction>, Error> {
        inference::predict(self, data.dataset()?)
    }

    /// The job that this is; `held` is what the model's own values take of the process already.
    pub(super) fn job(&self) -> Result<Job, Error> {
        let settings = self.keys.settings.iter().map(|(key, value)| Setting::from_json(key, value));
        let settings = settings.collect::<Result<Vec<Setting>, Error>>()?;
        let mut job = Job::for_config(Value::Null, &settings)?;
        self.model.put(&mut job)?;
        let held = self.model.values().map_or(Bytes::ZERO, |values| values.bytes());
        job.caller.baseline = process::resident().saturating_sub(held).max(Bytes(1));
        job.caller.sample_weights = usize::from(self.keys.sample_weights);
        job.caller.rows =
            Some(Arc::new(Expected { validates: self.validation.is_some(), shuffle_seed: seed_of(&job) }));
        Ok(job)
    }
}

/// The seed of the order of the rows, where they are shuffled.
pub(super) fn seed_of(job: &Job) -> Option<u64> {
    match job.data.shuffle {
        Some(Shuffle::Off) => None,
        None | Some(Shuffle::On) => Some(job.train.seed),
        Some(Shuffle::Seed(seed)) => Some(seed),
    }
}
