//! One loop over the steps of a checked plan, and what was measured on the way.
//!
//! The runner launches and copies. It never chooses: sizes, order and offsets are the plan's.

mod ahead;
mod curve;
mod finite;
mod loss_scale;
mod runner;
mod step;
mod told;
mod totals;
mod trace;

pub use curve::LossCurve;
pub use finite::{Changed, Culprit, Found, NotFinite};
pub use loss_scale::LossScale;
pub use runner::{Feed, FeedError, Progress, RunError, Runner, StepInput};
pub use totals::{EpochSums, Means};
pub use trace::{StepRecord, Trace};
