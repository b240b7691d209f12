//! One loop over the steps of a checked plan, and what was measured on the way.
//!
//! The runner launches and copies. It never chooses: sizes, order and offsets are the plan's.
//!
//! # Decisions
//!
//! - **Only a `CheckedPlan` runs,** and the peak that was predicted is compared with the one that is measured
//!   on every step.
//! - **A step is a `begin` and an `end`** (`step`, `ahead`): a device that works on its own may be one step
//!   ahead of what the host has read. What needs a value first waits for it: the loss scale of f16, the end
//!   of an epoch and of training, predictions, and in Python callbacks of single batches. A step's seconds
//!   are those from the end of the one before it.
//! - **A section of a plan that ran twice is captured,** and replayed from then on (`ahead`).
//! - **Sums of steps are added up in f64** to those of the epoch (`totals`); a metric's number is computed
//!   from them in the end, so that it is the same however the batch is split.
//! - **The loss scale** (`loss_scale`) follows Keras: a step whose gradients overflow is skipped, counted,
//!   and names its layer; a scale below 1 stops the run.
//! - **A value that is not finite stops the run** (`finite`) with an error that names the cause and what was
//!   changed.

mod ahead;
mod curve;
mod finite;
mod loss_scale;
mod readback;
mod runner;
mod step;
mod totals;
mod trace;

pub use curve::LossCurve;
pub use finite::{Changed, Culprit, Found, NotFinite};
pub use loss_scale::LossScale;
pub use runner::{Feed, FeedError, Progress, RunError, Runner, StepInput};
pub use totals::{EpochSums, Means};
pub use trace::{StepRecord, Trace};
