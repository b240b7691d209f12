//! `memfit predict`: what a model says of some data, into `.npy` files.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use memfit::{Error, predict};

use crate::arguments::JobArguments;
use crate::evaluate::{ran_json, ran_text};
use crate::model_arguments::ModelArguments;
use crate::out;

/// What to predict, and where to.
#[derive(Args)]
pub struct PredictArguments {
    #[command(flatten)]
    pub job: JobArguments,
    #[command(flatten)]
    pub model: ModelArguments,
    /// Files of the predictions (.npy), one for each output of the model.
    #[arg(long, value_name = "FILES", value_delimiter = ',', required = true)]
    pub output: Vec<PathBuf>,
}

/// Predicts, and says what it took.
pub fn run(arguments: &PredictArguments) -> Result<ExitCode, Error> {
    let job = arguments.job.read(arguments.model.settings()?)?;
    let ran = predict(&job, &arguments.output, arguments.job.threads)?;
    out(&if arguments.job.json { ran_json(&ran).to_string() } else { ran_text(&ran) });
    Ok(ExitCode::SUCCESS)
}
