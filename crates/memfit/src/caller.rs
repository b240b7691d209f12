//! What a caller adds to a job that is not in a job file: the folder, data of the caller's, and decisions of
//! the run that is resumed.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use memfit_data::{Field, Source};
use memfit_device::Allocator;
use memfit_ir::{Bytes, Pinned};
use serde_json::Value;

use crate::Resume;

/// Rows of the caller's own that a training is validated with.
#[derive(Clone, Debug)]
pub struct ValidationRows {
    /// Rows of a step at most.
    pub batch: usize,
    /// The arrays of weights that come with them: which of them weigh every sample of a row.
    pub weights_of_samples: Vec<bool>,
    /// The model's configuration where it leaves dimensions open that differ from those of the training's rows.
    pub config: Option<Value>,
}

/// Rows in the caller's memory, which come when the plan is made.
pub trait CallerRows: Debug + Send + Sync {
    /// What stands for rows of these fields while a job is planned.
    fn planned(&self, fields: Vec<Field>) -> Box<dyn Source>;

    /// Whether rows to validate on come too.
    fn validates(&self) -> bool;
}

/// Beside a [`crate::Job`].
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The folder that relative paths of the job start from.
    pub folder: PathBuf,
    /// Whether training goes on from the newest checkpoint.
    pub resume: Resume,
    /// A Keras configuration that the caller holds, in place of a file's.
    pub config: Option<Value>,
    /// Rows in the caller's memory, in place of files.
    pub rows: Option<Arc<dyn CallerRows>>,
    /// The share of the rows, the last ones, that a validation uses. It uses no others.
    pub held_out: Option<f64>,
    /// How many arrays of weights come with the caller's own rows: none, one, or one for each output.
    pub sample_weights: usize,
    /// Which of them weigh every sample of a row.
    pub weights_of_samples: Vec<bool>,
    /// What the caller validates with between epochs, if it does.
    pub validation: Option<ValidationRows>,
    /// Everything of the training's plan that is decided beforehand, as a run that goes on had it.
    pub pinned: Pinned,
    /// The same of the plan of its validation.
    pub pinned_validation: Pinned,
    /// The vector instructions that kernels use, where a run that goes on had them; else the environment's, or the widest.
    pub vectors: Option<String>,
    /// Who provides the arenas, on the CPU: memory of the caller's own in place of mapped pages.
    pub allocator: Option<Arc<dyn Allocator>>,
    /// What the process held before, of a program that trains within itself: the budget does not count it.
    pub baseline: Bytes,
    /// The most bytes of variables that such a program transfers at once; twice the largest where it is not
    /// given.
    pub handover: Option<Bytes>,
    /// How long costs may be measured; a few seconds where it is not given.
    pub seconds_measuring: Option<f64>,
}
