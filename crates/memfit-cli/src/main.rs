//! The `memfit` command: arguments in, tables and progress out.
//!
//! # Decisions
//!
//! - **Only this crate prints.** Everything it says comes from `memfit` as data; `--json` prints the same for
//!   programs.
//! - **Options are settings of a job's keys** (`settings`), so that a file, the shell and Python take one
//!   path; messages name what would help in the caller's syntax (`remedy`).
//! - **Only the command knows signals** (`signals`): the first ends training after its step, a second ends
//!   the process.
//! - **The heap is counted** by the global allocator, so that a byte that grows from step to step is seen.
//! - **A file that an option names is found writable before the work starts** (`new_file`).

mod arguments;
mod bar;
mod curve;
mod demo;
mod devices;
mod difference;
mod dump;
mod evaluate;
mod layers;
mod model_arguments;
mod new_file;
mod output;
mod plan;
mod predict;
mod remedy;
mod replay;
mod settings;
mod signals;
mod summary;
mod tables;

use std::process::ExitCode;

use clap::Parser;
use memfit::{
    Bytes, Costs, Ended, Error, Event, Observer, PackRequest, batch_curve, fit, heap, pack_file,
    prepare_without_hints, process,
};
use serde_json::json;

use crate::arguments::{Arguments, Command, JobArguments, PackArguments, TrainArguments};
use crate::bar::Bar;
use crate::new_file::NewFile;
use crate::output::{err, out};
use crate::signals::Stoppable;

/// Counts live heap, so that a byte that grows from step to step is seen.
#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// A stack on which every command is known to run.
const STACK: Bytes = Bytes::mib(8);

fn main() -> ExitCode {
    process::let_writes_fail();
    if process::stack_limit().is_none_or(|limit| STACK <= limit) {
        return run();
    }
    // The first thread's stack is too small (`ulimit -s`). Another thread's is as large as it is asked to be.
    let thread = std::thread::Builder::new().stack_size(STACK.0 as usize).spawn(run);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // The panic has been printed.
        Ok(Err(_)) => ExitCode::from(101),
        Err(error) => {
            err(&format!("error: cannot start a thread with a stack of {STACK}: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs the command that was typed.
fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return output::usage(&error),
    };
    let result = match &arguments.command {
        None => demo::run(),
        Some(Command::Train(train)) => run_train(train),
        Some(Command::Plan(plan)) => plan::run(plan),
        Some(Command::Replay(arguments)) => replay::run(arguments),
        Some(Command::Batch(job)) => run_batch(job),
        Some(Command::Pack(pack)) => run_pack(pack),
        Some(Command::Evaluate(arguments)) => evaluate::run(arguments),
        Some(Command::Predict(arguments)) => predict::run(arguments),
        Some(Command::Summary(arguments)) => summary::run(arguments),
        Some(Command::Layers(arguments)) => layers::run(arguments),
        Some(Command::Devices(arguments)) => devices::run(arguments),
    };
    let code = result.unwrap_or_else(|error| {
        // A plan that does not fit is an answer, which `plan --json` and `replay --json` have printed.
        let plans = matches!(&arguments.command, Some(Command::Plan(_) | Command::Replay(_)));
        let is_printed = plans && matches!(error, Error::DoesNotFit(_));
        output::failed(&error, is_printed)
    });
    output::finish(code)
}

fn run_train(arguments: &TrainArguments) -> Result<ExitCode, Error> {
    let job = arguments.read()?;
    let report_file =
        arguments.report.as_deref().map(|path| NewFile::reserve("--report", path)).transpose()?;
    let (mut lines, mut bar) = (Lines, Bar::default());
    let inner: &mut dyn Observer = if arguments.job.json { &mut lines } else { &mut bar };
    let mut observer = Stoppable::new(inner);
    let mut report = fit(&job, arguments.job.threads, &mut observer)?;
    let signal = observer.received().filter(|_| report.ended == Ended::Stopped);
    bar.clear();
    if arguments.job.json {
        out(&report.to_json().to_string());
    } else {
        out(&tables::report(&report));
    }
    if let Some((_, name)) = signal {
        let go_on = if job.checkpoint.is_some() { "; go on with --resume" } else { "" };
        err(&format!("stopped by {name} after step {}{go_on}", report.step));
    }
    if let Some(file) = report_file {
        output::typed(&mut report.about, Some(&arguments.job.file));
        let path = file.write(&memfit::html(&report))?;
        if !arguments.job.json {
            out(&format!("report   {}", path.display()));
        }
    }
    Ok(signal.map_or(ExitCode::SUCCESS, |(number, _)| ExitCode::from(128 + number)))
}

fn run_batch(arguments: &JobArguments) -> Result<ExitCode, Error> {
    let mut job = arguments.read(Vec::new())?;
    // No batch depends on time.
    job.memory.costs = Costs::Analytic;
    let prepared = prepare_without_hints(&job, arguments.threads)?;
    let curve = batch_curve(&prepared);
    if arguments.json {
        let points: Vec<_> =
            curve.points.iter().map(|(batch, bytes)| json!({"batch": batch, "bytes": bytes.0})).collect();
        out(&json!({"budget": curve.budget.0, "largest_batch": curve.largest, "points": points}).to_string());
    } else {
        out(&tables::batch(&curve));
    }
    Ok(if curve.largest.is_some() { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

fn run_pack(arguments: &PackArguments) -> Result<ExitCode, Error> {
    let output = arguments.output.as_deref().map(|path| NewFile::reserve("--output", path)).transpose()?;
    let PackArguments { capacity, minimize, seconds, .. } = *arguments;
    let answer = pack_file(&arguments.file, PackRequest { capacity, minimize, seconds })?;
    if let Some(file) = output {
        file.write(&answer.to_csv())?;
    }
    out(&if arguments.json { answer.to_json().to_string() } else { tables::packing(&answer) });
    if answer.fits {
        return Ok(ExitCode::SUCCESS);
    }
    err(&format!("error: {}", tables::packing_refusal(&answer, capacity.unwrap_or(0))));
    Ok(ExitCode::from(3))
}

/// One JSON object a line.
struct Lines;

impl Observer for Lines {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Planned(_)
            | Event::Begun { .. }
            | Event::Piece { .. }
            | Event::Epoch { validation: None, .. } => {}
            Event::Lowered { asked, allowed } => {
                let (available, by) = (allowed.available.0, allowed.by.to_string());
                out(&json!({"event": "lowered", "asked": asked.0, "budget": available, "by": by}).to_string());
            }
            Event::Resumed { iteration } => {
                out(&json!({"event": "resumed", "iteration": iteration}).to_string());
            }
            Event::Saved { path } => out(&json!({"event": "saved", "path": path}).to_string()),
            Event::GoesOn { from, step, broken } => {
                out(&json!({"event": "goes_on", "from": from, "step": step, "broken": broken}).to_string());
            }
            Event::Checkpoint { path, step, seconds_stalled } => {
                let stalled = seconds_stalled;
                out(&json!({"event": "checkpoint", "path": path, "step": step, "seconds_stalled": stalled})
                    .to_string());
            }
            Event::Epoch { epoch, means, validation: Some(validation), metrics, .. } => {
                let mut line = json!({"event": "epoch", "epoch": epoch + 1});
                for (prefix, means) in [("", means), ("val_", validation)] {
                    line[format!("{prefix}loss")] = json!(means.loss);
                    for (name, value) in metrics.iter().zip(&means.values) {
                        line[format!("{prefix}{name}")] = json!(value);
                    }
                }
                out(&line.to_string());
            }
            Event::Step { record, metrics, .. } => {
                let mut line = json!({
                    "event": "step",
                    "step": record.step + 1,
                    "loss": record.loss,
                    "seconds": record.seconds,
                    "bytes_used": record.bytes_used.0,
                    "bytes_held": record.bytes_held.0,
                });
                if let Some(scale) = record.loss_scale {
                    line["loss_scale"] = json!(scale);
                    line["skipped_by"] = json!(record.skipped_by);
                }
                for (name, value) in metrics.iter().zip(&record.metrics) {
                    line[name] = json!(value);
                }
                out(&line.to_string());
            }
        }
    }
}
