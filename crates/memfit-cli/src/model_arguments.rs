//! What stands beside a model file in place of a job file: data, loss, optimizer and metrics.

use std::path::PathBuf;

use clap::Args;
use memfit::{Job, OneOrMany};
use serde_json::Value;

/// What a model is run on, and what it is compiled with.
#[derive(Args)]
pub struct ModelArguments {
    /// Files of the inputs, then of the targets, as in x.npy,y.npy.
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    pub data: Vec<PathBuf>,
    /// Weights to begin with: .keras, .weights.h5 or .safetensors.
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// The loss, instead of the model's own.
    #[arg(long, value_name = "NAME")]
    pub loss: Option<String>,
    /// The optimizer, instead of the model's own; its state begins again where it is another.
    #[arg(long, value_name = "NAME")]
    pub optimizer: Option<String>,
    /// The metrics, instead of the model's own; `none` for none.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub metrics: Vec<String>,
}

impl ModelArguments {
    /// The job with these in place of what it says.
    pub fn apply(&self, mut job: Job) -> Job {
        // What is typed is relative to where it is typed, and not to the job file.
        let here = |path: &PathBuf| std::path::absolute(path).unwrap_or(path.clone());
        if !self.data.is_empty() {
            job.data.rows = None;
            job.data.x = OneOrMany::Many(self.data.iter().map(here).collect());
            job.data.y = OneOrMany::None;
        }
        if let Some(weights) = &self.weights {
            job.model.weights = Some(here(weights));
        }
        if let Some(loss) = &self.loss {
            job.train.loss = Value::from(loss.as_str());
        }
        if let Some(optimizer) = &self.optimizer {
            job.train.optimizer = Value::from(optimizer.as_str());
        }
        if !self.metrics.is_empty() {
            job.train.metrics = self.metrics.iter().map(|name| Value::from(name.as_str())).collect();
        }
        job
    }
}
