//! Problems as files: what `memfit plan --dump` writes, and `memfit replay` plans again on any machine.

use std::path::Path;

use memfit_ir::{Bytes, Plan, Problem};
use memfit_plan::DoesNotFit;
use serde_json::{Value, json};

use crate::prepare::Prepared;
use crate::{Error, refusal_json};

/// What a planned job says of itself, as texts.
pub struct Dump {
    /// The training graph.
    pub graph: String,
    /// The problem: graph, costs and budget.
    pub problem: String,
    /// The plan; none where nothing fits.
    pub plan: Option<String>,
    /// Whether the plan is what planning the problem gives. A plan is not where it was the first that was found.
    pub replays: bool,
}

/// The texts of a planned job.
pub fn dump(prepared: &Prepared) -> Dump {
    let problem = &prepared.problem;
    let chosen = prepared.outcome.as_ref().ok().map(|checked| checked.plan());
    let (problem, replays) = replayed(problem, chosen);
    Dump {
        graph: problem.graph.to_text(),
        problem: problem.to_text(),
        plan: chosen.map(Plan::to_text),
        replays,
    }
}

/// The problem whose plan is the one that was chosen. A job counts the heap that a plan itself takes, which a problem does not know:
/// where that decided, the arena that was chosen is the problem's budget.
fn replayed(problem: &Problem, chosen: Option<&Plan>) -> (Problem, bool) {
    let is_same = |problem: &Problem| memfit_plan::plan(problem).ok().as_ref() == chosen;
    let mut narrow = problem.clone();
    if let Some(plan) = chosen {
        narrow.budget.total = problem.budget.smallest(plan.bytes_peak);
    }
    if is_same(problem) {
        (problem.clone(), true)
    } else if chosen.is_some() && is_same(&narrow) {
        (narrow, true)
    } else {
        (problem.clone(), false)
    }
}

/// The answer to a problem that was read from a file.
pub struct Replay {
    /// The problem.
    pub problem: Problem,
    /// The plan, checked, or why there is none.
    pub outcome: Result<Plan, Box<DoesNotFit>>,
}

/// Reads a problem and plans it; no device is opened. `budget` takes the place of the problem's.
pub fn replay(file: &Path, budget: Option<Bytes>) -> Result<Replay, Error> {
    let text = std::fs::read_to_string(file).map_err(|source| Error::File {
        verb: "read",
        path: file.to_owned(),
        source,
    })?;
    let wrong = |problem: String| Error::job(file.display().to_string(), problem);
    let mut problem = Problem::from_text(&text).map_err(|error| wrong(error.to_string()))?;
    if let Some(budget) = budget {
        problem.budget.total = budget;
    }
    memfit_plan::may_pin(&problem).map_err(|cannot| wrong(cannot.to_string()))?;
    let outcome = match memfit_plan::plan(&problem) {
        Ok(plan) => Ok(memfit_ir::check(&problem, plan)?.plan().clone()),
        Err(answer) => Err(answer),
    };
    Ok(Replay { problem, outcome })
}

impl Replay {
    /// The plan that is spoken of: the chosen one, or the smallest where nothing fits.
    fn plan(&self) -> &Plan {
        match &self.outcome {
            Ok(plan) => plan,
            Err(answer) => &answer.plan,
        }
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let (problem, plan) = (&self.problem, self.plan());
        let region = plan.region().map(|region| {
            let boundary = &problem.graph.tensors[region.boundary.0].name;
            json!({"boundary": boundary, "slices": region.slices, "keeps": region.keeps})
        });
        let mut figures = json!({
            "fits": self.outcome.is_ok(),
            "budget": problem.budget.total.0,
            "runtime": problem.budget.runtime.0,
            "takes": problem.budget.smallest(plan.bytes_peak).0,
            "batch": plan.batch,
            "micro_batch": plan.micro_batch,
            "micro_batches": plan.micro_batches(),
            "region": region,
            "values_folded": plan.producers_fused().count(),
            "gradients_applied": plan.updates_fused().count(),
            "nodes_recomputed": memfit_plan::nodes_recomputed(plan),
            "bytes_offloaded": memfit_plan::bytes_offloaded(plan).0,
            "launches_leaner": memfit_plan::launches_leaner(problem, plan),
            "bytes_peak": plan.bytes_peak.0,
            "bytes_bound": plan.bytes_bound.0,
            "bytes_host": plan.bytes_host.0,
            "seconds_step": memfit_plan::seconds(problem, plan),
            "digest": self.digest(),
        });
        if let (Err(answer), Value::Object(figures)) = (&self.outcome, &mut figures) {
            figures.insert("smallest".to_owned(), json!(answer.smallest.0));
            figures.extend(refusal_json(answer));
        }
        figures
    }

    /// For people: what was chosen, and how high it stands.
    pub fn lines(&self) -> String {
        let (problem, plan) = (&self.problem, self.plan());
        let budget = &problem.budget;
        [
            format!("choice   {}", self.choice()),
            format!("peak     {} bytes, bound {} bytes", plan.bytes_peak.0, plan.bytes_bound.0),
            format!(
                "budget   {}, of which this plan takes {} with {} of the program",
                budget.total,
                budget.smallest(plan.bytes_peak),
                budget.runtime
            ),
            format!("time     {:.3} s a step by the problem's costs", memfit_plan::seconds(problem, plan)),
            format!("digest   {}", self.digest()),
        ]
        .join("\n")
    }

    /// The plan as text.
    pub fn plan_text(&self) -> String {
        self.plan().to_text()
    }

    fn digest(&self) -> String {
        format!("{:016x}", self.plan().digest())
    }

    fn choice(&self) -> String {
        let (problem, plan) = (&self.problem, self.plan());
        let mut parts = vec![match plan.micro_batches() {
            1 => format!("the whole batch of {}", plan.batch),
            count => {
                format!("a batch of {} in {count} micro-batches of {}", plan.batch, plan.micro_batch)
            }
        }];
        parts.extend(plan.region().map(|region| format!("a region in {} slices", region.slices)));
        let offloaded = memfit_plan::bytes_offloaded(plan);
        let counts = [
            (memfit_plan::nodes_recomputed(plan), "nodes recomputed"),
            (plan.producers_fused().count(), "activations recomputed inside the ops that read them"),
            (plan.updates_fused().count(), "optimizer updates fused into their gradients"),
            (memfit_plan::launches_leaner(problem, plan), "launches by a low-workspace algorithm"),
        ];
        parts.extend(
            counts.into_iter().filter(|(count, _)| 0 < *count).map(|(count, what)| format!("{count} {what}")),
        );
        if offloaded != Bytes::ZERO {
            parts.push(format!("{offloaded} offloaded"));
        }
        parts.join(", ")
    }
}
