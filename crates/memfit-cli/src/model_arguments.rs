//! What stands beside a model file in place of a job file: data, loss, optimizer and metrics.

use clap::Args;
use memfit::{Error, Setting};

use crate::settings::{files, from_here, given};

/// What a model is run on, and what it is compiled with.
#[derive(Args)]
pub struct ModelArguments {
    /// Files of the inputs, then of the targets, as in x.npy,y.npy.
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    pub data: Vec<String>,
    /// Weights to begin with: .keras, .weights.h5 or .safetensors.
    #[arg(long, value_name = "FILE")]
    pub weights: Option<String>,
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
    /// These as keys of a job.
    pub fn settings(&self) -> Result<Vec<Setting>, Error> {
        let mut settings = Vec::new();
        if !self.data.is_empty() {
            settings.push(files("data.x", &self.data)?);
            settings.extend(["data.rows", "data.y"].map(Setting::without));
        }
        settings.extend(self.weights.as_deref().map(|file| from_here("model.weights", file)).transpose()?);
        let named =
            [given("train.loss", self.loss.as_deref()), given("train.optimizer", self.optimizer.as_deref())];
        settings.extend(named.into_iter().flatten());
        if !self.metrics.is_empty() {
            settings.push(Setting::new("train.metrics", self.metrics.clone()));
        }
        Ok(settings)
    }
}
