//! How long training goes on, and which rows each step has.

use crate::prepare::Prepared;
use crate::{Error, Job, Lack};

/// Steps of a training over epochs of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length {
    /// Steps in all.
    pub(crate) steps: u64,
    /// Rows of an epoch; none for data without end.
    pub(crate) rows: Option<u64>,
    /// Rows of a step.
    pub(crate) batch: usize,
}

/// The rows of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepRows {
    /// Counted from 0.
    pub(crate) epoch: u64,
    /// The first row, counted from the epoch's start.
    pub(crate) start: u64,
    pub(crate) rows: usize,
    /// Whether the epoch ends with it, or training does.
    pub(crate) ends_epoch: bool,
}

impl Length {
    pub(crate) fn of(job: &Job, prepared: &Prepared) -> Result<Length, Error> {
        let rows = prepared.source.rows();
        let batch = job.train.batch;
        let steps = match (job.train.steps, job.train.epochs, rows) {
            (Some(steps), _, _) => steps,
            (None, epochs, Some(rows)) => epochs.unwrap_or(1).saturating_mul(rows.div_ceil(batch as u64)),
            (None, Some(_), None) => {
                return Err(Error::job(
                    "train.epochs",
                    "synthetic data has no end; give `rows` under [data], or `steps`",
                ));
            }
            (None, None, None) => {
                return Err(Error::Lacks(Lack::TrainingData));
            }
        };
        Ok(Length { steps, rows, batch })
    }

    /// Steps of an epoch; all of them where the data has no end.
    pub(crate) fn steps_epoch(&self) -> u64 {
        self.rows.map_or(self.steps, |rows| rows.div_ceil(self.batch as u64))
    }

    /// The rows of a step. The last batch of an epoch may be short.
    pub(crate) fn rows_of(&self, step: u64) -> StepRows {
        let batch = self.batch as u64;
        let is_last = step + 1 == self.steps;
        match self.rows {
            None => {
                let start = step.wrapping_mul(batch);
                StepRows { epoch: 0, start, rows: self.batch, ends_epoch: is_last }
            }
            Some(rows) => {
                let per_epoch = rows.div_ceil(batch);
                let start = (step % per_epoch) * batch;
                let left = usize::try_from(rows - start).unwrap_or(usize::MAX);
                let count = self.batch.min(left);
                let ends_epoch = is_last || start + count as u64 == rows;
                StepRows { epoch: step / per_epoch, start, rows: count, ends_epoch }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_batch_of_an_epoch_is_short() {
        let length = Length { steps: 5, rows: Some(10), batch: 4 };
        let steps: Vec<_> = (0..5)
            .map(|step| length.rows_of(step))
            .map(|rows| (rows.epoch, rows.start, rows.rows, rows.ends_epoch))
            .collect();
        assert_eq!(
            steps,
            [(0, 0, 4, false), (0, 4, 4, false), (0, 8, 2, true), (1, 0, 4, false), (1, 4, 4, true)]
        );
    }
}
