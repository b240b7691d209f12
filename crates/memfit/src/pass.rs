//! One pass over all rows of a source, a stretch at a time, where nothing learns.

use memfit_data::Source;
use memfit_ir::TensorId;
use memfit_run::{Runner, StepInput};

use crate::data::Feeder;
use crate::{Error, Quiet};

/// The rows of a pass.
pub(crate) struct Pass<'a> {
    pub(crate) source: &'a mut dyn Source,
    pub(crate) inputs: &'a [TensorId],
    /// Rows of a step at most.
    pub(crate) stretch: usize,
    pub(crate) seed: u64,
}

/// Who looks at what a step of so many rows, of so many in all, left behind.
pub(crate) type Look<'a> = dyn FnMut(&Runner, usize, u64) -> Result<(), Error> + 'a;

impl Pass<'_> {
    /// Runs all steps. Where somebody looks at what each left, the next begins behind that; sums are looked at when all are over.
    pub(crate) fn run(mut self, runner: &mut Runner, mut look: Option<&mut Look<'_>>) -> Result<u64, Error> {
        let rows = self.source.rows().unwrap_or(0);
        let ahead = if look.is_some() { 0 } else { runner.steps_ahead() };
        let steps = rows.div_ceil(self.stretch.max(1) as u64);
        let (mut ended, quiet) = (0, &mut Quiet);
        for step in 0..steps {
            let next = (step + 1 < steps).then(|| self.rows_of(step + 1, rows));
            let (start, now) = self.rows_of(step, rows);
            let input = StepInput { step, rows: now, learning_rate: 0.0, seed: self.seed };
            let begun = runner.begin(input, &mut self.feeder(start, next, quiet));
            let left = if begun.is_err() || step + 1 == steps { 0 } else { ahead };
            while left < runner.steps_begun() {
                let (start, now) = self.rows_of(ended, rows);
                runner.end(&mut self.feeder(start, None, quiet))?;
                ended += 1;
                look.as_mut().map_or(Ok(()), |look| look(runner, now, rows))?;
            }
            begun?;
        }
        Ok(rows)
    }

    /// The first row of a step and how many it has.
    fn rows_of(&self, step: u64, rows: u64) -> (u64, usize) {
        let start = step * self.stretch as u64;
        (start, usize::try_from(rows - start).unwrap_or(usize::MAX).min(self.stretch))
    }

    fn feeder<'a>(
        &'a mut self,
        start: u64,
        next: Option<(u64, usize)>,
        observer: &'a mut Quiet,
    ) -> Feeder<'a> {
        Feeder { source: self.source, inputs: self.inputs, start, next, observer }
    }
}
