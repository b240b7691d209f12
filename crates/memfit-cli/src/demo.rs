//! The demonstration: the large-image network at batch 256, inside 2 GiB.

use std::path::Path;
use std::process::ExitCode;

use memfit::{Bytes, Error, Job, fit};

use crate::bar::Bar;
use crate::new_file::NewFile;
use crate::{out, output, tables};

const JOB: &str = include_str!("../../../examples/large-images.toml");
const BUDGET: Bytes = Bytes::mib(2048);
const STEPS: u64 = 2;
const REPORT: &str = "memfit-report.html";

/// Trains a few steps on synthetic data and writes the report.
pub fn run() -> Result<ExitCode, Error> {
    let mut job = Job::parse(JOB, "".into())?;
    job.memory.budget = Some(BUDGET.into());
    job.train.steps = Some(STEPS);
    out(INTRODUCTION);
    let file = NewFile::reserve("the report", Path::new(REPORT))?;
    let mut report = fit(&job, None, &mut Bar::default())?;
    out(&tables::report(&report));
    output::typed(&mut report.about, None);
    let path = file.write(&memfit::html(&report))?;
    out(&format!(
        "report   {}\n\nyour own: memfit train JOB.toml --budget 2GiB (memfit --help says more)",
        path.display()
    ));
    Ok(ExitCode::SUCCESS)
}

const INTRODUCTION: &str = "\
memfit: a budget in bytes, and training stays under it.
1024x1024x3 images, Conv2D(32, 3, relu) -> MaxPooling2D -> Flatten -> Dense(10, softmax), Adam, batch 256.
Whole, the first activation alone is 34 GB. Here it trains inside 2 GiB (examples/large-images.toml).
";
