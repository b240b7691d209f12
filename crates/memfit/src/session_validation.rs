//! The validation of a session: planned with its training, and run over rows of the caller's in the bytes that hold other values
//! than weights in training.

use memfit_data::{Field, Source};
use memfit_run::{Means, Runner, StepInput, StepRecord};

use crate::session::StepOf;
use crate::session_rows::SessionRows;
use crate::validation::Validation;
use crate::{Error, Session};

/// A validation whose rows the caller brings.
pub(crate) struct SessionValidation {
    validation: Validation<'static>,
    rows: SessionRows,
    /// While it runs.
    runner: Option<Box<Runner>>,
    /// Whether the training's weights may differ from those that it has.
    is_stale: bool,
}

impl SessionValidation {
    pub(crate) fn new(validation: Validation<'static>) -> SessionValidation {
        let plan = validation.plan_of().expect("it does not run yet");
        let rows = SessionRows::of(&plan.problem().graph);
        SessionValidation { validation, rows, runner: None, is_stale: true }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.runner.is_some()
    }

    pub(crate) fn fields(&self) -> &[Field] {
        &self.rows.fields
    }

    /// The caller has written weights of the training.
    pub(crate) fn weights_written(&mut self) {
        self.is_stale = true;
    }

    pub(crate) fn steps_ahead(&self) -> usize {
        self.running().steps_ahead()
    }

    pub(crate) fn epoch(&self) -> Means {
        self.running().epoch()
    }

    /// Begins a step with the weights that the training has now.
    pub(crate) fn begin(
        &mut self,
        training: &Runner,
        source: &mut dyn Source,
        step: StepOf,
    ) -> Result<(), Error> {
        let runner = self.runner.as_mut().expect("a validation runs");
        if std::mem::take(&mut self.is_stale) {
            self.validation.copy_weights(training, runner);
        }
        let most = self.validation.rows_at_once();
        assert!(step.rows <= most, "a step of {} rows, planned for at most {most}", step.rows);
        let number = runner.trace().steps + runner.steps_in_flight() as u64;
        let seed = self.validation.seed();
        let input = StepInput { step: number, rows: step.rows, learning_rate: 0.0, seed };
        self.rows.begin(runner, source, step, input)
    }

    pub(crate) fn end(&mut self, source: &mut dyn Source, start: u64) -> Result<StepRecord, Error> {
        let runner = self.runner.as_mut().expect("a validation runs");
        Ok(self.rows.end(runner, source, start)?)
    }

    /// Takes its arena.
    fn open(&mut self, training: &mut Runner) -> Result<(), Error> {
        let mut runner = Box::new(self.validation.begin(training)?);
        self.rows.forget_next(&mut runner);
        (self.runner, self.is_stale) = (Some(runner), true);
        Ok(())
    }

    /// Gives its arena back, and the training its bytes.
    pub(crate) fn close(&mut self, training: &mut Runner) -> Result<(), Error> {
        match self.runner.take() {
            Some(runner) => self.validation.end(*runner, training),
            None => Ok(()),
        }
    }

    /// Gives its arena back where the training does not go on.
    pub(crate) fn stop(&mut self) {
        if let Some(runner) = self.runner.take() {
            self.validation.stop(*runner);
        }
    }

    fn running(&self) -> &Runner {
        self.runner.as_ref().expect("a validation runs")
    }
}

impl Session {
    /// Begins the validation that the job asks for (`Caller::validation`). Until it ends, fields, steps and means are its own, and
    /// variables are those of the training: what is written to a weight, its next step sees.
    ///
    /// # Panics
    /// Where there is none, the session is closed, or steps are in flight.
    pub fn begin_validation(&mut self) -> Result<(), Error> {
        let (validation, training) = self.validation_and_runner();
        assert!(!validation.is_running(), "a validation ends before the next begins");
        validation.open(training)
    }

    /// Ends it, where it runs: training can go on.
    ///
    /// # Panics
    /// Where there is none, or the session is closed.
    pub fn end_validation(&mut self) -> Result<(), Error> {
        let (validation, training) = self.validation_and_runner();
        validation.close(training)
    }
}
