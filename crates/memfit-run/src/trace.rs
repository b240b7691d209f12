//! What was measured: a record for each step, and sums over all of them. Holds the same bytes however long training runs.

use memfit_ir::Bytes;

use crate::curve::LossCurve;

/// What one training step gave.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRecord {
    /// Counted from 0.
    pub step: u64,
    /// Rows trained on.
    pub rows: usize,
    /// The mean loss over the rows, all outputs together.
    pub loss: f64,
    /// The losses of the outputs where there are several, then the metrics, over the rows of this step alone.
    pub metrics: Vec<f64>,
    /// What gradients were multiplied by, where they were.
    pub loss_scale: Option<f32>,
    /// The layer whose gradient was not finite, so that no weight changed.
    pub skipped_by: Option<String>,
    /// Wall time.
    pub seconds: f64,
    /// The most memory that the process held so far (`VmHWM`), or what it holds of a GPU: the figure that the budget limits.
    pub bytes_used: Bytes,
    /// Memory that the process held when the step ended, its program's files in full: a step that leaves more than the one before leaks.
    pub bytes_held: Bytes,
}

/// Sums over all steps so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Steps done.
    pub steps: u64,
    /// Of these, steps at which a gradient overflowed and no weight changed.
    pub steps_skipped: u64,
    /// The layer of the first gradient that overflowed at the last of them.
    pub skipped_by: Option<String>,
    /// The loss scale of the last step, where there is one.
    pub loss_scale: Option<f32>,
    /// Rows trained on.
    pub rows: u64,
    /// Wall time of all steps.
    pub seconds: f64,
    /// The loss of the last step.
    pub loss: f64,
    /// The loss over the steps.
    pub losses: LossCurve,
    /// Highest byte of the arena that was allocated.
    pub bytes_peak: Bytes,
    /// Most of it at the end of a step.
    pub bytes_used_most: Bytes,
    /// Least of it at the end of a step, the first step aside.
    pub bytes_used_least: Option<Bytes>,
}

impl Trace {
    /// How often weights were updated: what schedules and optimizers count.
    pub fn updates(&self) -> u64 {
        self.steps - self.steps_skipped
    }

    pub(crate) fn add(&mut self, record: &StepRecord, bytes_peak: Bytes) {
        if self.steps > 0 {
            let least = self.bytes_used_least.map_or(record.bytes_held, |least| least.min(record.bytes_held));
            self.bytes_used_least = Some(least);
        }
        self.steps += 1;
        self.loss_scale = record.loss_scale;
        if record.skipped_by.is_some() {
            self.steps_skipped += 1;
            self.skipped_by.clone_from(&record.skipped_by);
        }
        self.rows += record.rows as u64;
        self.seconds += record.seconds;
        self.loss = record.loss;
        self.losses.add(record.loss);
        self.bytes_peak = bytes_peak;
        self.bytes_used_most = self.bytes_used_most.max(record.bytes_used);
    }
}
