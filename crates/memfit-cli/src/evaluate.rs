//! `memfit evaluate`: loss and metrics of a model over some data.

use std::process::ExitCode;

use clap::Args;
use memfit::{Error, Ran, evaluate};
use serde_json::{Value, json};

use crate::arguments::JobArguments;
use crate::model_arguments::ModelArguments;
use crate::out;

/// What to evaluate.
#[derive(Args)]
pub struct EvaluateArguments {
    #[command(flatten)]
    pub job: JobArguments,
    #[command(flatten)]
    pub model: ModelArguments,
}

/// Evaluates, and prints what came out.
pub fn run(arguments: &EvaluateArguments) -> Result<ExitCode, Error> {
    let job = arguments.job.read(arguments.model.settings()?)?;
    let evaluation = evaluate(&job, arguments.job.threads)?;
    if arguments.job.json {
        let mut line = ran_json(&evaluation.ran);
        line["loss"] = json!(evaluation.loss);
        for (name, value) in &evaluation.metrics {
            line[name] = json!(value);
        }
        out(&line.to_string());
    } else {
        let metrics: String =
            evaluation.metrics.iter().map(|(name, value)| format!("  {name} {value:.6}")).collect();
        out(&format!("loss {:.6}{metrics}\n{}", evaluation.loss, ran_text(&evaluation.ran)));
    }
    Ok(ExitCode::SUCCESS)
}

/// What a run took, for people.
pub fn ran_text(ran: &Ran) -> String {
    let rate = ran.rows as f64 / ran.seconds.max(f64::MIN_POSITIVE);
    format!(
        "{} rows in {:.2} s, {rate:.1} rows/s, micro-batches of {}\nprocess  {} at its peak (VmHWM), budget {}",
        ran.rows, ran.seconds, ran.micro_batch, ran.vm_hwm, ran.budget
    )
}

/// What a run took, for programs.
pub fn ran_json(ran: &Ran) -> Value {
    json!({
        "rows": ran.rows,
        "seconds": ran.seconds,
        "micro_batch": ran.micro_batch,
        "bytes_peak": ran.bytes_peak.0,
        "vm_hwm": ran.vm_hwm.0,
        "budget": ran.budget.0,
    })
}
