//! What a caller adds to a job that no job file says: where he stands, what he brings, and what a run that goes on had decided.

use std::path::PathBuf;

use memfit_ir::{Bytes, Pinned};
use serde_json::Value;

use crate::Resume;

/// Beside a [`crate::Job`].
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The folder that relative paths of the job start from.
    pub folder: PathBuf,
    /// Whether training goes on from the newest checkpoint.
    pub resume: Resume,
    /// A Keras configuration that the caller holds, in place of a file's.
    pub config: Option<Value>,
    /// The share of the rows, the last ones, that are all there is to a validation.
    pub held_out: Option<f64>,
    /// How many arrays of weights a caller brings who brings rows of his own: none, one, or one for each output.
    pub sample_weights: usize,
    /// Which of them weigh every sample of a row.
    pub weights_of_samples: Vec<bool>,
    /// Everything of the training's plan that is decided beforehand, as a run that goes on had it.
    pub pinned: Pinned,
    /// The same of the plan of its validation.
    pub pinned_validation: Pinned,
    /// The vector instructions that kernels use, where a run that goes on had them; else the environment's, or the widest.
    pub vectors: Option<String>,
    /// What the process held before, of a program that trains within itself: the budget does not count it.
    pub baseline: Bytes,
    /// The most bytes of variables that such a program has on their way at once; twice the largest where it does not say.
    pub handover: Option<Bytes>,
    /// How long costs may be measured; a few seconds where it is not said.
    pub seconds_measuring: Option<f64>,
}
