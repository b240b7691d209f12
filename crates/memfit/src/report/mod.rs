//! What was promised beside what was measured.

mod about;
mod curve;
mod page;

pub use about::About;
pub use curve::sweep_html;
pub use page::html;

use memfit_ir::{Bytes, CheckedPlan};
use memfit_plan::{Timeline, timeline};
use memfit_run::Trace;
use serde_json::{Value, json};

use crate::{Ended, PrecisionSummary, Prepared, RegionSummary, Stalls, Summary};

/// How a job went.
#[derive(Clone, Debug)]
pub struct Report {
    /// Which run it was.
    pub about: About,
    /// The plan in short.
    pub summary: Summary,
    /// Who held what, when.
    pub timeline: Timeline,
    /// Names of the layers, for the timeline.
    pub layers: Vec<String>,
    /// What was measured.
    pub trace: Trace,
    /// The arena's peak by the plan.
    pub bytes_peak_predicted: Bytes,
    /// The arena's peak as it was.
    pub bytes_peak_measured: Bytes,
    /// Most that the process held of what the budget is about: resident memory, or that of a GPU.
    pub vm_hwm: Bytes,
    /// Most resident memory of the process, where the budget is about a GPU's.
    pub bytes_host: Option<Bytes>,
    /// Names and values of the last validation, where there was one.
    pub validated: Option<Vec<(String, f64)>>,
    /// What writing checkpoints took.
    pub stalls: Stalls,
    /// How training ended.
    pub ended: Ended,
    /// Steps of the training that have ended, with those of the runs that it went on from.
    pub step: u64,
}

impl Report {
    pub(crate) fn new(summary: Summary, plan: &CheckedPlan, trace: Trace, vm_hwm: Bytes) -> Report {
        let timeline = timeline(plan.problem(), plan.plan());
        Report {
            about: About::default(),
            bytes_peak_predicted: summary.bytes_peak,
            bytes_peak_measured: trace.bytes_peak,
            layers: plan.problem().graph.layers.clone(),
            summary,
            timeline,
            trace,
            vm_hwm,
            bytes_host: None,
            validated: None,
            stalls: Stalls::default(),
            ended: Ended::Finished,
            step: 0,
        }
    }

    /// The report of a job that is planned and has not run: what it would hold.
    pub fn of_plan(prepared: &Prepared) -> Report {
        let (summary, timeline) = Summary::new(prepared);
        Report::planned(prepared, summary, timeline)
    }

    /// The same where the summary was computed before.
    pub fn planned(prepared: &Prepared, summary: Summary, timeline: Timeline) -> Report {
        let peak = summary.bytes_peak;
        Report {
            about: About::of(prepared),
            vm_hwm: summary.runtime.total() + summary.bytes_arena,
            layers: prepared.problem.graph.layers.clone(),
            summary,
            timeline,
            trace: Trace::default(),
            bytes_peak_predicted: peak,
            bytes_peak_measured: peak,
            bytes_host: None,
            validated: None,
            stalls: Stalls::default(),
            ended: Ended::Finished,
            step: 0,
        }
    }

    /// The last line of `--json`.
    pub fn to_json(&self) -> Value {
        let mut end = json!({
            "event": "end",
            "steps": self.trace.steps,
            "loss": self.trace.loss,
            "bytes_peak_predicted": self.bytes_peak_predicted.0,
            "bytes_peak_measured": self.bytes_peak_measured.0,
            "vm_hwm": self.vm_hwm.0,
            "bytes_host": self.bytes_host.map(|bytes| bytes.0),
            "budget": self.summary.budget.0,
            "costs": self.summary.costs.costs.name(),
            "seconds_measuring": self.summary.costs.seconds_measuring,
            "seconds_step": self.summary.seconds_step,
            "seconds": self.trace.seconds,
            "rows": self.trace.rows,
            "region": self.summary.region.as_ref().map(RegionSummary::to_json),
            "precision": self.summary.precision.as_ref().map(PrecisionSummary::to_json),
            "loss_scale": self.trace.loss_scale,
            "steps_skipped": self.trace.steps_skipped,
            "skipped_by": self.trace.skipped_by,
            "checkpoints": self.stalls.checkpoints,
            "seconds_checkpoints": self.stalls.seconds,
            "ended": self.ended.name(),
        });
        for (name, value) in self.validated.iter().flatten() {
            end[name] = json!(value);
        }
        end
    }
}
