//! Moving averages of weights.

use memfit_ir::Average;

/// An average as this step moves it.
#[derive(Clone, Copy)]
pub(super) struct Follow {
    momentum: f64,
    /// Whether the weight becomes the average.
    overwrites: bool,
}

impl Follow {
    pub(super) fn new(average: &Average, iteration: u64) -> Follow {
        // The first step has nothing to keep.
        let momentum = if iteration == 0 { 0.0 } else { f64::from(average.momentum) };
        let is_due = |every: u64| (iteration + 1).is_multiple_of(every);
        Follow { momentum, overwrites: average.overwrite_every.is_some_and(is_due) }
    }

    /// The new average and the weight.
    pub(super) fn next(self, average: f64, weight: f64) -> (f64, f64) {
        let average = self.momentum * average + (1.0 - self.momentum) * weight;
        (average, if self.overwrites { average } else { weight })
    }
}
