//! `memfit plan`: one answer, the curve of all answers, or the difference of two.

use std::path::Path;
use std::process::ExitCode;

use memfit::{
    Costs, Error, Report, SECONDS_GLANCE, SavedPlan, Summary, SweepPoint, html, prepare,
    prepare_without_hints, process, refusal_json, saved_text, sweep, sweep_html,
};
use serde_json::{Value, json};

use crate::arguments::{Machine, PlanArguments};
use crate::dump::Dump;
use crate::new_file::NewFile;
use crate::{curve, difference, out, output};

/// Says what was asked of a plan.
pub fn run(plan: &PlanArguments) -> Result<ExitCode, Error> {
    match &plan.diff {
        Some(other) => compare(plan, other),
        None if SavedPlan::is_one(&plan.job.file) => Err(Error::Job {
            place: plan.job.file.display().to_string(),
            problem:
                "a saved plan, or JSON at least: compare it with `--diff JOB.toml`, or give the job file"
                    .to_owned(),
        }),
        None if plan.sweep => show_curve(plan),
        None => answer(plan),
    }
}

fn answer(plan: &PlanArguments) -> Result<ExitCode, Error> {
    let arguments = &plan.job;
    let output = plan.saved_to().map(|path| NewFile::reserve("--output", path)).transpose()?;
    let dump = plan.dump.as_deref().map(Dump::reserve).transpose()?;
    let page = plan.report.as_deref().map(|path| NewFile::reserve("--report", path)).transpose()?;
    let job = plan.read_file(&arguments.file)?;
    let mut prepared = prepare(&job, arguments.threads)?;
    // Where no choice depended on time, nothing was measured; the time of a step is one of this machine nevertheless.
    if job.memory.costs == Costs::Measured && prepared.outcome.is_ok() {
        prepared.measure_costs(Some(SECONDS_GLANCE));
    }
    let (summary, timeline) = Summary::new(&prepared);
    if let Some(dump) = dump {
        dump.write(&prepared)?;
    }
    if let Some(file) = output {
        file.write(&saved_text(&arguments.file, &prepared, &summary, &timeline))?;
    }
    if arguments.json {
        let mut figures = summary.to_json();
        if let (Err(answer), Value::Object(figures)) = (&prepared.outcome, &mut figures) {
            figures.extend(refusal_json(answer));
        }
        out(&figures.to_string());
    } else if prepared.outcome.is_ok() {
        out(&memfit::plan_table(&summary));
        if plan.machine == Machine::None {
            out("for another machine: what this one allows was not looked at\n");
        }
    }
    if let Some(file) = page {
        let mut report = Report::planned(&prepared, summary, timeline);
        output::typed(&mut report.about, Some(&arguments.file));
        let path = file.write(&html(&report))?;
        if !arguments.json {
            out(&format!("report   {}", path.display()));
        }
    }
    match prepared.outcome {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(answer) => Err(Error::DoesNotFit(answer)),
    }
}

fn show_curve(plan: &PlanArguments) -> Result<ExitCode, Error> {
    let arguments = &plan.job;
    let page = plan.report.as_deref().map(|path| NewFile::reserve("--report", path)).transpose()?;
    let job = plan.read_file(&arguments.file)?;
    let mut prepared = prepare_without_hints(&job, arguments.threads)?;
    if job.memory.costs == Costs::Measured {
        prepared.measure_costs(None);
    }
    let costs = &prepared.costs;
    let (points, budget) = (sweep(&prepared), prepared.problem.budget.total);
    if arguments.json {
        let points: Vec<_> = points.iter().map(SweepPoint::to_json).collect();
        let figures = json!({
            "budget": budget.0,
            "points": points,
            "costs": costs.costs.name(),
            "seconds_measuring": costs.seconds_measuring,
        });
        out(&figures.to_string());
    } else {
        out(&curve::plot(&points, budget));
        out(&curve::table(&points, budget));
        out(&memfit::costs_line(costs));
    }
    if let Some(file) = page {
        let path = file.write(&sweep_html(&arguments.file.display().to_string(), budget, &points))?;
        if !arguments.json {
            out(&format!("report   {}", path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn compare(plan: &PlanArguments, other: &Path) -> Result<ExitCode, Error> {
    let output = plan.saved_to().map(|path| NewFile::reserve("--output", path)).transpose()?;
    let this = figures(plan, &plan.job.file, output)?;
    // What the first job held is no part of what the second needs.
    process::trim();
    let other = figures(plan, other, None)?;
    if plan.job.json {
        out(&this.difference_json(&other).to_string());
    } else {
        out(&difference::table(&this, &other));
    }
    Ok(ExitCode::SUCCESS)
}

/// The figures of a saved plan, or of a job that is planned for them, and saved where that is wanted.
fn figures(plan: &PlanArguments, file: &Path, output: Option<NewFile>) -> Result<SavedPlan, Error> {
    if SavedPlan::is_one(file) {
        return SavedPlan::read(file);
    }
    let (arguments, job) = (&plan.job, plan.read_file(file)?);
    let prepared = match &output {
        Some(_) => prepare(&job, arguments.threads)?,
        None => prepare_without_hints(&job, arguments.threads)?,
    };
    let (summary, timeline) = Summary::new(&prepared);
    if let Some(output) = output {
        output.write(&saved_text(file, &prepared, &summary, &timeline))?;
    }
    Ok(SavedPlan::of(file, &summary))
}
