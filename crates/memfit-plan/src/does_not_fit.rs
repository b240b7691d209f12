//! The answer when nothing fits: how much is missing, which tensors hold the peak and why, and what would
//! fit.

use std::fmt;

use memfit_ir::{Bytes, Plan, Problem};

use crate::hints::{Change, Hint, Syntax, mebibytes};
use crate::reason::{Dominant, Reason, dominant, reason};
use crate::timeline::{Group, Held, timeline};
use crate::{choose, seconds, solved};

/// How many reasons a person is shown one by one.
const REASONS: usize = 8;

/// Why there is no plan, with the numbers a person needs to act.
#[derive(Clone, Debug, PartialEq)]
pub struct DoesNotFit {
    /// The budget.
    pub budget: Bytes,
    /// What the program holds besides the arena.
    pub runtime: Bytes,
    /// The smallest budget that has a plan.
    pub smallest: Bytes,
    /// Expected time of a training step by that plan.
    pub seconds_smallest: f64,
    /// The step of that plan at which the peak stands, counted from 0.
    pub peak_step: usize,
    /// What happens there.
    pub peak_label: String,
    /// The layer it belongs to.
    pub peak_layer: String,
    /// The holders of the bytes there.
    pub held: Held,
    /// What must be alive together there, and why.
    pub reason: Reason,
    /// The layer that holds the most there.
    pub dominant: Option<Dominant>,
    /// The plan all this is said of: the smallest.
    pub plan: Plan,
    /// Changes that make it fit, each tried by planning it.
    pub hints: Vec<Hint>,
    /// What was not tried, and why.
    pub untried: Option<String>,
}

impl DoesNotFit {
    /// Explains why a problem has no plan; [`DoesNotFit::find_hints`] looks for what would help.
    pub fn explain(problem: &Problem) -> DoesNotFit {
        DoesNotFit::of_smallest(problem, choose::smallest(problem))
    }

    /// The same where the smallest plan is known.
    pub fn of_smallest(problem: &Problem, smallest: Plan) -> DoesNotFit {
        let problem = &*solved(problem, &smallest);
        let timeline = timeline(problem, &smallest);
        let moment = timeline.moments.get(timeline.peak);
        let layers = &problem.graph.layers;
        DoesNotFit {
            budget: problem.budget.total,
            runtime: problem.budget.runtime,
            smallest: problem.budget.smallest(smallest.bytes_peak),
            seconds_smallest: seconds(problem, &smallest),
            peak_step: timeline.peak,
            peak_label: moment.map(|moment| moment.label.clone()).unwrap_or_default(),
            peak_layer: moment.map(|moment| layers[moment.layer.0].clone()).unwrap_or_default(),
            held: moment.map(|moment| moment.held).unwrap_or_default(),
            reason: reason(problem, &smallest, &timeline),
            dominant: dominant(problem, &timeline),
            plan: smallest,
            hints: Vec::new(),
            untried: None,
        }
    }

    /// The first few reasons as lines of bytes and words.
    fn reasons(&self) -> Vec<(Bytes, String)> {
        let needed = &self.reason.needed;
        let shown = if REASONS < needed.len() { REASONS - 1 } else { needed.len() };
        let mut lines: Vec<(Bytes, String)> =
            needed[..shown].iter().map(|one| (one.bytes, format!("{}: {}", one.name, one.why))).collect();
        let rest = needed.len() - shown + self.reason.others;
        if 0 < rest {
            let bytes: Bytes = needed[shown..].iter().map(|one| one.bytes).sum();
            lines.push((bytes + self.reason.bytes_others, format!("{rest} smaller ones")));
        }
        lines
    }
}

impl DoesNotFit {
    /// The whole answer, with changes in some syntax.
    pub fn text(&self, syntax: Syntax<'_>) -> String {
        let (needs, has) = (self.smallest.to_string(), self.budget.to_string());
        let mut lines = vec![if needs == has {
            format!("this step needs {} bytes and the budget is {} bytes", self.smallest.0, self.budget.0)
        } else {
            format!("this step needs {needs} and the budget is {has}")
        }];
        lines.push(format!("  peak   step {}, {} of {}", self.peak_step, self.peak_label, self.peak_layer));
        let held = |group: Group| format!("  {} {}", group.name(), self.held.get(group));
        let held: String = Group::ALL.into_iter().map(held).collect();
        lines.push(format!("  held   program {}{held}", self.runtime));
        lines.push("  reason at this step these are alive together in the smallest plan found:".to_owned());
        for (bytes, words) in self.reasons() {
            lines.push(format!("         {bytes:>12}  {words}"));
        }
        if let Some(Dominant { layer, bytes, share }) = &self.dominant {
            lines.push(format!("  most   {layer} holds {:.0} % of it, {bytes}", share * 100.0));
        }
        let budget = syntax(Change::Budget { mebibytes: mebibytes(self.smallest) });
        lines.push(format!("  fits   at {} and above: {budget}", self.smallest));
        lines.extend(self.hints.iter().map(|hint| format!("  hint   {}", hint.text(syntax))));
        lines.extend(self.untried.iter().map(|untried| format!("  note   {untried}")));
        lines.join("\n")
    }
}

impl fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&|change| change.to_string()))
    }
}

impl std::error::Error for DoesNotFit {}
