//! One pass over all rows of a source, some at a time, in which no weight changes.

use memfit_data::Source;
use memfit_ir::TensorId;
use memfit_run::{Runner, StepInput};

use crate::data::Feeder;
use crate::driver::{Driver, Steps};
use crate::{Error, Observer, Quiet};

/// The rows of a pass.
pub(crate) struct Pass<'a> {
    pub(crate) source: &'a mut dyn Source,
    pub(crate) inputs: &'a [TensorId],
    /// Rows of a step at most.
    pub(crate) rows_at_once: usize,
    pub(crate) seed: u64,
}

/// Reads the results of a step in the runner. Its arguments are the rows of the step and of the whole pass.
pub(crate) type Look<'a> = dyn FnMut(&Runner, usize, u64) -> Result<(), Error> + 'a;

impl Pass<'_> {
    /// Runs all steps and returns the number of rows; none where the observer asked to stop before the last. With a `look`, each step
    /// is looked at before the next begins.
    pub(crate) fn run(
        self,
        runner: &mut Runner,
        look: Option<&mut Look<'_>>,
        stop: &mut dyn Observer,
    ) -> Result<Option<u64>, Error> {
        let rows = self.source.rows().unwrap_or(0);
        let ahead = if look.is_some() { 0 } else { runner.steps_ahead() };
        let steps = rows.div_ceil(self.rows_at_once.max(1) as u64);
        let mut running = Running { pass: self, rows, steps, runner, look };
        let mut driver = Driver::default();
        for step in 0..steps {
            if stop.stop_requested() {
                driver.finish(&mut running)?;
                return Ok(None);
            }
            driver.step(&mut running, step, ahead)?;
        }
        driver.finish(&mut running)?;
        Ok(Some(rows))
    }

    /// The first row of a step and how many it has.
    fn rows_of(&self, step: u64, rows: u64) -> (u64, usize) {
        let start = step * self.rows_at_once as u64;
        (start, usize::try_from(rows - start).unwrap_or(usize::MAX).min(self.rows_at_once))
    }
}

/// A pass that runs; a batch is the number of its step.
struct Running<'p, 'r, 'l, 'd> {
    pass: Pass<'p>,
    rows: u64,
    steps: u64,
    runner: &'r mut Runner,
    look: Option<&'l mut Look<'d>>,
}

impl Steps for Running<'_, '_, '_, '_> {
    type Batch = u64;
    type Error = Error;

    fn begin(&mut self, step: &u64) -> Result<(), Error> {
        let next = (step + 1 < self.steps).then(|| self.pass.rows_of(step + 1, self.rows));
        let (start, rows) = self.pass.rows_of(*step, self.rows);
        let input = StepInput { step: *step, rows, learning_rate: 0.0, seed: self.pass.seed };
        let Pass { source, inputs, .. } = &mut self.pass;
        let observer = &mut Quiet;
        Ok(self
            .runner
            .begin(input, &mut Feeder { source: *source, inputs, start, next, epochs: [0; 2], observer })?)
    }

    fn end(&mut self, step: u64) -> Result<(), Error> {
        let (start, rows) = self.pass.rows_of(step, self.rows);
        let Pass { source, inputs, .. } = &mut self.pass;
        let observer = &mut Quiet;
        self.runner.end(&mut Feeder {
            source: *source,
            inputs,
            start,
            next: None,
            epochs: [0; 2],
            observer,
        })?;
        match &mut self.look {
            Some(look) => look(self.runner, rows, self.rows),
            None => Ok(()),
        }
    }
}
