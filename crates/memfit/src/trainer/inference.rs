//! Evaluation and predictions over a caller's arrays.

use memfit_data::Source;
use memfit_formats::Mode;
use memfit_ir::TensorId;
use memfit_run::Runner;

use super::data::Dataset;
use super::settings::Trainer;
use crate::pass::{Look, Pass};
use crate::{Error, Job, ModelFile, Purpose, Quiet, Session, initialize, state};

/// How a model does on some rows.
///
/// ```
/// use memfit::prelude::*;
/// let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
/// let (x, y) = (vec![0.5f32; 20 * 4], vec![1.0f32; 20]);
/// let data = (Array::new(&x, [20, 4])?, Array::new(&y, [20])?);
/// let evaluated = Trainer::new(&model).loss("mse").device("cpu").evaluate(&data)?;
/// assert!(evaluated.loss().is_finite());
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluated {
    values: Vec<(String, f64)>,
}

impl Evaluated {
    /// The mean loss.
    ///
    /// ```
    /// # use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// # let (x, y) = (vec![0.5f32; 20 * 4], vec![1.0f32; 20]);
    /// # let data = (Array::new(&x, [20, 4])?, Array::new(&y, [20])?);
    /// let loss: f64 = Trainer::new(&model).loss("mae").device("cpu").evaluate(&data)?.loss();
    /// # Ok::<(), Error>(())
    /// ```
    pub fn loss(&self) -> f64 {
        self.values[0].1
    }

    /// The loss or a metric by its name.
    ///
    /// ```
    /// # use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// # let (x, y) = (vec![0.5f32; 20 * 4], vec![1.0f32; 20]);
    /// # let data = (Array::new(&x, [20, 4])?, Array::new(&y, [20])?);
    /// let evaluated = Trainer::new(&model).loss("mse").metrics(["mae"]).device("cpu").evaluate(&data)?;
    /// assert!(evaluated.get("mae").is_some() && evaluated.get("accuracy").is_none());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

/// What a model predicts for all rows: one of its outputs.
///
/// ```
/// use memfit::prelude::*;
/// let model = Sequential::new(Input::shape([4])).add(Dense::new(3).activation(Softmax));
/// let predictions = Trainer::new(&model).device("cpu").predict(&(&vec![0.5f32; 8], [2, 4]))?;
/// let first: f32 = predictions[0].values()[..3].iter().sum();
/// assert!((first - 1.0).abs() < 1e-5);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    values: Vec<f32>,
    dims: Vec<usize>,
}

impl Prediction {
    /// The values, row by row.
    ///
    /// ```
    /// # use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(3));
    /// let predictions = Trainer::new(&model).device("cpu").predict(&(&vec![0.5f32; 8], [2, 4]))?;
    /// assert_eq!(predictions[0].values().len(), 6);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Their dimensions, rows first.
    ///
    /// ```
    /// # use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(3));
    /// let predictions = Trainer::new(&model).device("cpu").predict(&(&vec![0.5f32; 8], [2, 4]))?;
    /// assert_eq!(predictions[0].dims(), [2, 3]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }
}

/// Loss and metrics over all rows.
pub(super) fn evaluate(trainer: &Trainer<'_>, data: &Dataset<'_>) -> Result<Evaluated, Error> {
    let (job, mut session) = open(trainer, Purpose::Evaluation)?;
    let fields = session.fields().to_vec();
    let mut source = data.open(&fields)?;
    run(&mut session, &mut source, job.train.batch, job.train.seed, None)?;
    let means = session.epoch();
    let names = std::iter::once("loss".to_owned()).chain(session.metrics().iter().cloned());
    let values = std::iter::once(means.loss).chain(means.values);
    Ok(Evaluated { values: names.zip(values).collect() })
}

/// What the model gives for all rows.
pub(super) fn predict(trainer: &Trainer<'_>, data: Dataset<'_>) -> Result<Vec<Prediction>, Error> {
    let (job, mut session) = open(trainer, Purpose::Prediction)?;
    let (fields, data) = (session.fields().to_vec(), data.only_inputs());
    let mut source = data.open(&fields)?;
    let rows = usize::try_from(source.rows().unwrap_or(0)).expect("arrays lie in memory");
    let all_dims = session.output_dims().map(|dims| [&[rows], dims].concat());
    let empty = |dims: Vec<usize>| Prediction { values: Vec::with_capacity(dims.iter().product()), dims };
    let mut predictions: Vec<Prediction> = all_dims.map(empty).collect();
    let outputs: Vec<TensorId> = session.runner_mut().plan().problem().graph.outputs.clone();
    let mut look = |runner: &Runner, rows: usize, _: u64| {
        for (prediction, output) in predictions.iter_mut().zip(&outputs) {
            let row: usize = prediction.dims[1..].iter().product();
            let floats = runner.bytes(*output)[..row * rows * size_of::<f32>()].as_chunks().0;
            prediction.values.extend(floats.iter().map(|four| f32::from_ne_bytes(*four)));
        }
        Ok(())
    };
    let rows_at_once = session.micro_batch();
    run(&mut session, &mut source, rows_at_once, job.train.seed, Some(&mut look))?;
    Ok(predictions)
}

/// A planned session with the values of the model in its slots.
fn open(trainer: &Trainer<'_>, purpose: Purpose) -> Result<(Job, Session), Error> {
    let mut job = trainer.job()?;
    job.checkpoint = None;
    let mut session = Session::plan(&job, purpose, trainer.keys.threads)?;
    session.open()?;
    if let Some(values) = trainer.model.values() {
        for variable in 0..session.variables().count() {
            if let Some(slot) = session.bytes_mut(variable) {
                slot.copy_from_slice(values.of(variable));
            }
        }
        return Ok((job, session));
    }
    let model = ModelFile::open(&job, Mode::Inference)?;
    match &model.stored {
        Some(file) => state::load_weights(session.runner_mut(), &model, file)?,
        None => initialize(session.runner_mut()),
    }
    Ok((job, session))
}

fn run(
    session: &mut Session,
    source: &mut dyn Source,
    rows_at_once: usize,
    seed: u64,
    look: Option<&mut Look<'_>>,
) -> Result<(), Error> {
    let runner = session.runner_mut();
    let inputs = runner.plan().problem().graph.inputs.clone();
    let pass = Pass { source, inputs: &inputs, rows_at_once, seed };
    pass.run(runner, look, &mut Quiet).map(drop)
}
