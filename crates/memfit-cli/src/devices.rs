//! `memfit devices`: what there is to run on.

use std::process::ExitCode;

use clap::Args;
use memfit::{Devices, Error};

use crate::out;

/// How to print it.
#[derive(Args)]
pub struct DevicesArguments {
    /// Print JSON for programs.
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &DevicesArguments) -> Result<ExitCode, Error> {
    let devices = Devices::find();
    out(&if arguments.json { devices.to_json().to_string() } else { devices.text() });
    Ok(ExitCode::SUCCESS)
}
