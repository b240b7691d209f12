//! The answer when nothing fits: how much is missing, where, who holds it and why, and what would fit.

use std::fmt;

use memfit_ir::{Bytes, Plan, Problem};

use crate::hints::Hint;
use crate::reason::{Dominant, Reason, dominant, reason};
use crate::timeline::{Group, Held, timeline};
use crate::{choose, seconds, solved};

/// How many reasons a person is shown one by one.
const REASONS: usize = 8;

/// Why there is no plan, with the numbers a person needs to act.
#[derive(Clone, Debug, PartialEq)]
pub struct DoesNotFit {
    /// The line the user drew.
    pub budget: Bytes,
    /// What the program holds besides the arena.
    pub runtime: Bytes,
    /// The smallest line that has a plan.
    pub smallest: Bytes,
    /// Expected time of a training step by that plan.
    pub seconds_smallest: f64,
    /// The step of that plan at which the peak stands, counted from 0.
    pub peak_step: usize,
    /// What happens there.
    pub peak_label: String,
    /// The layer it belongs to.
    pub peak_layer: String,
    /// Who holds what there.
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
        let told = if REASONS < needed.len() { REASONS - 1 } else { needed.len() };
        let mut lines: Vec<(Bytes, String)> =
            needed[..told].iter().map(|one| (one.bytes, format!("{}: {}", one.name, one.why))).collect();
        let rest = needed.len() - told + self.reason.others;
        if 0 < rest {
            let bytes: Bytes = needed[told..].iter().map(|one| one.bytes).sum();
            lines.push((bytes + self.reason.bytes_others, format!("{rest} smaller ones")));
        }
        lines
    }
}

impl fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (needs, has) = (self.smallest.to_string(), self.budget.to_string());
        if needs == has {
            writeln!(
                f,
                "this step needs {} bytes and the budget is {} bytes",
                self.smallest.0, self.budget.0
            )?;
        } else {
            writeln!(f, "this step needs {needs} and the budget is {has}")?;
        }
        writeln!(f, "  peak   step {}, {} of {}", self.peak_step, self.peak_label, self.peak_layer)?;
        write!(f, "  held   program {}", self.runtime)?;
        for group in Group::ALL {
            write!(f, "  {} {}", group.name(), self.held.get(group))?;
        }
        writeln!(f, "\n  reason at this step these are alive together in the smallest plan found:")?;
        for (bytes, words) in self.reasons() {
            writeln!(f, "         {bytes:>12}  {words}")?;
        }
        if let Some(Dominant { layer, bytes, share }) = &self.dominant {
            writeln!(f, "  most   {layer} holds {:.0} % of it, {bytes}", share * 100.0)?;
        }
        let mebibytes = self.smallest.align_up(1 << 20).0 >> 20;
        write!(f, "  fits   at {} and above: `--budget {mebibytes}MiB`", self.smallest)?;
        for hint in &self.hints {
            write!(f, "\n  hint   {hint}")?;
        }
        if let Some(untried) = &self.untried {
            write!(f, "\n  note   {untried}")?;
        }
        Ok(())
    }
}

impl std::error::Error for DoesNotFit {}
