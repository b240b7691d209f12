//! A planned training: what it will hold, known before anything is taken, and the training itself.

use std::fmt;
use std::sync::Arc;

use memfit_ir::Bytes;

use super::data::{Data, Held, Rows};
use super::settings::{Trainer, Validated, seed_of};
use super::trained::{History, Recording, Trained};
use super::values::Values;
use crate::checkpoint::Checkpoint;
use crate::lease::Lease;
use crate::prepare::Prepared;
use crate::state::{self, Variable};
use crate::train::{Ends, fit_prepared};
use crate::training::Training;
use crate::{
    Error, Job, Observer, Quiet, Summary, initialize_state, plan_table, prepare, resume, within_machine,
};

/// Passes over the data.
///
/// ```
/// use memfit::prelude::*;
/// let epochs = Epochs(3);
/// assert_eq!(epochs.0, 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epochs(pub u64);

/// A training that fits, before its memory is taken. It prints as the table that `memfit plan` shows.
///
/// ```
/// use memfit::prelude::*;
/// let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
/// let plan = Trainer::new(&model).loss("mse").batch(16).device("cpu").plan()?;
/// println!("{plan}");
/// assert!(plan.bytes_peak() < plan.budget());
/// # Ok::<(), Error>(())
/// ```
pub struct TrainingPlan<'a> {
    trainer: Trainer<'a>,
    job: Job,
    prepared: Prepared<'static>,
    checkpoint: Option<Checkpoint>,
    summary: Summary,
}

impl fmt::Display for TrainingPlan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plan_table(&self.summary))
    }
}

impl fmt::Debug for TrainingPlan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrainingPlan").field("summary", &self.summary).finish_non_exhaustive()
    }
}

impl<'a> TrainingPlan<'a> {
    pub(super) fn of(trainer: Trainer<'a>) -> Result<TrainingPlan<'a>, Error> {
        let _lease = Lease::take();
        let job = within_machine(&trainer.job()?, &mut Quiet);
        let (job, checkpoint) = resume::find(job, &mut Quiet)?;
        let prepared = prepare(&job, trainer.keys.threads)?;
        let summary = Summary::new(&prepared).0;
        match prepared.outcome {
            Ok(_) => Ok(TrainingPlan { trainer, job, prepared, checkpoint, summary }),
            Err(answer) => Err(Error::DoesNotFit(answer)),
        }
    }

    /// The highest byte of the arena, which training will reach and not pass.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let plan = Trainer::new(&model).loss("mse").device("cpu").plan()?;
    /// assert!(Bytes::ZERO < plan.bytes_peak());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn bytes_peak(&self) -> Bytes {
        self.summary.bytes_peak
    }

    /// The budget that holds.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let plan = Trainer::new(&model).loss("mse").device("cpu").budget("256 MiB").plan()?;
    /// assert_eq!(plan.budget(), Bytes::mib(256));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn budget(&self) -> Bytes {
        self.summary.budget
    }

    /// The smallest budget at which this training fits: it is accepted there and above, and refused below.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let plan = Trainer::new(&model).loss("mse").device("cpu").plan()?;
    /// assert!(plan.bytes_smallest_budget() <= plan.budget());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn bytes_smallest_budget(&self) -> Bytes {
        self.summary.bytes_smallest_budget
    }

    /// Into how many micro-batches the batch is split; 1 where it is whole.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let plan = Trainer::new(&model).loss("mse").device("cpu").batch(64).plan()?;
    /// assert_eq!(plan.micro_batches(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn micro_batches(&self) -> usize {
        self.summary.micro_batches
    }

    /// All figures of the plan.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// # let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// let plan = Trainer::new(&model).loss("mse").device("cpu").plan()?;
    /// println!("{} launches recompute", plan.summary().nodes_recomputed);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Trains for some epochs.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let model = Sequential::new(Input::shape([2])).add(Dense::new(1));
    /// let x: Vec<f32> = (0..64).map(|index| (index % 7) as f32 / 7.0).collect();
    /// let y: Vec<f32> = x.chunks(2).map(|row| row[0] - row[1]).collect();
    /// let data = (Array::new(&x, [32, 2])?, Array::new(&y, [32])?);
    /// let plan = Trainer::new(&model).loss("mse").optimizer(SGD::default()).batch(8).device("cpu").plan()?;
    /// let trained = plan.fit(&data, Epochs(5))?;
    /// let losses = trained.history().get("loss").expect("every epoch has a loss");
    /// assert!(losses[4] < losses[0]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn fit(self, data: &impl Data, epochs: Epochs) -> Result<Trained, Error> {
        self.fit_with(data, epochs, &mut Quiet)
    }

    /// The same beside an observer of every step, which may also end the training.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// use memfit::{Event, Observer};
    /// struct Steps(u64);
    /// impl Observer for Steps {
    ///     fn event(&mut self, event: Event<'_>) {
    ///         if let Event::Step { .. } = event {
    ///             self.0 += 1;
    ///         }
    ///     }
    /// }
    /// let model = Sequential::new(Input::shape([2])).add(Dense::new(1));
    /// let (x, y) = (vec![0.5f32; 64], vec![1.0f32; 32]);
    /// let data = (Array::new(&x, [32, 2])?, Array::new(&y, [32])?);
    /// let mut steps = Steps(0);
    /// let plan = Trainer::new(&model).loss("mse").batch(8).device("cpu").plan()?;
    /// plan.fit_with(&data, Epochs(2), &mut steps)?;
    /// assert_eq!(steps.0, 8);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn fit_with(
        self,
        data: &impl Data,
        epochs: Epochs,
        observer: &mut dyn Observer,
    ) -> Result<Trained, Error> {
        let TrainingPlan { trainer, mut job, prepared, checkpoint, .. } = self;
        job.train.epochs = Some(epochs.0);
        job.check()?;
        let dataset = data.dataset()?;
        let fields = prepared.source.fields().to_vec();
        let held = match &trainer.validation {
            None => Held::Nothing,
            Some(Validated::Share(share)) => Held::Share(*share),
            Some(Validated::Own(Ok(data))) => Held::Own(data),
            Some(Validated::Own(Err(error))) => return Err(Error::job("data", error.to_string())),
        };
        let rows = Rows::open(&dataset, held, &fields, seed_of(&job))?;
        let mut prepared: Prepared<'_> = prepared;
        prepared.source = rows.training;
        if let (Some(validation), Some(source)) = (&mut prepared.validation, rows.validation) {
            validation.source = source;
        }
        let _lease = Lease::take();
        let (config, compiled) = (prepared.model.model.config.clone(), prepared.compiled.clone());
        let mut moving = Moving::of(&prepared, trainer.model.values().cloned());
        let mut recording = Recording { observer, history: History::default() };
        let report = fit_prepared(&job, prepared, checkpoint, &mut recording, &mut moving)?;
        let values = moving.taken.expect("a training that ended has values");
        let model = trainer.model.with_values(Arc::new(values));
        let history = recording.history;
        let trainer = Trainer { model, keys: trainer.keys, validation: None };
        Ok(Trained::new(trainer, config, compiled, history, report))
    }
}

/// Moves values from an earlier training into this one, and out of it.
struct Moving {
    from: Option<Arc<Values>>,
    variables: Vec<Variable>,
    weights: usize,
    taken: Option<Values>,
}

impl Moving {
    fn of(prepared: &Prepared<'_>, from: Option<Arc<Values>>) -> Moving {
        let Prepared { model, problem, compiled, .. } = prepared;
        let mut variables = state::weights(model);
        let weights = variables.len();
        variables.extend(state::optimizer_variables(model, &problem.graph, &compiled.optimizer));
        Moving { from, variables, weights, taken: None }
    }
}

impl Ends for Moving {
    fn begin(&mut self, training: &mut Training<'_>) -> Result<(), Error> {
        // A checkpoint is later than the values that its run began with.
        let Some(values) = self.from.take().filter(|_| training.state.step == 0) else { return Ok(()) };
        initialize_state(&mut training.runner);
        training.state.iteration_first = values.write(&mut training.runner, &self.variables);
        Ok(())
    }

    fn end(&mut self, training: &mut Training<'_>) -> Result<(), Error> {
        let iteration = training.updates();
        let rate = training.schedule.at(iteration);
        let variables = std::mem::take(&mut self.variables);
        self.taken = Some(Values::take(&mut training.runner, variables, self.weights, iteration, rate));
        Ok(())
    }
}
