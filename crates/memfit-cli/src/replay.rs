//! `memfit replay`: plans a problem from a file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use memfit::{Bytes, Error, replay};

use crate::new_file::NewFile;
use crate::out;

/// Which problem, and within what.
#[derive(Args)]
pub struct ReplayArguments {
    /// The problem, as `memfit plan --dump FOLDER` wrote it: FOLDER/problem.txt.
    pub file: PathBuf,
    /// The budget, instead of the problem's, as in 2GiB or 1536MiB.
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<Bytes>,
    /// Write the plan to this file as text; where the problem does not fit, the smallest plan.
    #[arg(long, value_name = "PLAN.txt")]
    pub output: Option<PathBuf>,
    /// Print JSON for programs.
    #[arg(long)]
    pub json: bool,
}

/// Plans the problem and says how.
pub fn run(arguments: &ReplayArguments) -> Result<ExitCode, Error> {
    let output = arguments.output.as_deref().map(|path| NewFile::reserve("--output", path)).transpose()?;
    let answer = replay(&arguments.file, arguments.budget)?;
    if let Some(file) = output {
        file.write(&answer.plan_text())?;
    }
    if arguments.json {
        out(&answer.to_json().to_string());
    } else if answer.outcome.is_ok() {
        out(&answer.lines());
    }
    match answer.outcome {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(answer) => Err(Error::DoesNotFit(answer)),
    }
}
