//! The answer when nothing fits: how much is missing, where, who holds it, and what would fit.

use std::fmt;

use memfit_ir::{Bytes, Problem};

use crate::choose;
use crate::moves::split;
use crate::seconds;
use crate::timeline::{Group, Held, timeline};

/// Why there is no plan, with the numbers a person needs to act.
#[derive(Clone, Debug, PartialEq)]
pub struct DoesNotFit {
    /// The line the user drew.
    pub budget: Bytes,
    /// What the program holds besides the arena.
    pub runtime: Bytes,
    /// The smallest line that has a plan.
    pub smallest: Bytes,
    /// The step of that plan at which the peak stands, counted from 0.
    pub peak_step: usize,
    /// What happens there.
    pub peak_label: String,
    /// The layer it belongs to.
    pub peak_layer: String,
    /// Who holds what there.
    pub held: Held,
    /// Changes that make it fit, each tried by planning it.
    pub hints: Vec<Hint>,
}

/// A change that makes it fit.
#[derive(Clone, Debug, PartialEq)]
pub enum Hint {
    /// Let pieces of the batch be normalised by themselves.
    AllowBatchnormSplit {
        /// The smallest line that has a plan then.
        smallest: Bytes,
    },
    /// Room on a disk.
    Disk {
        /// How much of it the plan uses.
        size: Bytes,
        /// Expected time of a step over that of the smallest plan without.
        time_relative: f64,
    },
    /// A smaller batch.
    SmallerBatch {
        /// The largest that fits.
        batch: usize,
    },
    /// The line stands below what the program itself takes.
    BelowRuntime,
    /// Another change, tried by the caller.
    Other(String),
}

impl DoesNotFit {
    /// Explains why a problem has no plan.
    pub fn explain(problem: &Problem) -> DoesNotFit {
        let smallest = choose::smallest(problem);
        let timeline = timeline(problem, &smallest);
        let moment = timeline.moments.get(timeline.peak);
        let layers = &problem.graph.layers;
        DoesNotFit {
            budget: problem.budget.total,
            runtime: problem.budget.runtime,
            smallest: problem.budget.smallest(smallest.bytes_peak),
            peak_step: timeline.peak,
            peak_label: moment.map(|moment| moment.label.clone()).unwrap_or_default(),
            peak_layer: moment.map(|moment| layers[moment.layer.0].clone()).unwrap_or_default(),
            held: moment.map(|moment| moment.held).unwrap_or_default(),
            hints: hints(problem),
        }
    }
}

fn hints(problem: &Problem) -> Vec<Hint> {
    let mut hints = Vec::new();
    if problem.budget.total < problem.budget.runtime {
        hints.push(Hint::BelowRuntime);
        return hints;
    }
    if !split::may_split(problem) {
        let allowed = Problem { allow_batchnorm_split: true, ..problem.clone() };
        if choose::fastest(&allowed).is_some() {
            let smallest = allowed.budget.smallest(choose::smallest(&allowed).bytes_peak);
            hints.push(Hint::AllowBatchnormSplit { smallest });
        }
        if let (Some(batch), _) = split::largest_batch(problem) {
            hints.push(Hint::SmallerBatch { batch });
        }
    }
    // Planned again for each hint, which a person would wait for with a graph of thousands of layers.
    if problem.budget.host == Bytes::ZERO && !choose::is_large(problem) {
        let mut roomy = problem.clone();
        roomy.budget.host = Bytes(1 << 50);
        if let Some(plan) = choose::fastest(&roomy) {
            let before = seconds(problem, &choose::smallest(problem));
            hints.push(Hint::Disk { size: plan.bytes_host, time_relative: seconds(&roomy, &plan) / before });
        }
    }
    hints
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
        writeln!(f)?;
        let mebibytes = self.smallest.align_up(1 << 20).0 >> 20;
        write!(f, "  fits   at {} and above: `--budget {mebibytes}MiB`", self.smallest)?;
        for hint in &self.hints {
            write!(f, "\n  hint   {hint}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hint::AllowBatchnormSplit { smallest } => write!(
                f,
                "a layer mixes the rows of the batch (BatchNormalization in training), which forbids a split; \
                 `allow_batchnorm_split = true` under [memory] fits from {smallest}, normalising each piece by itself"
            ),
            Hint::Disk { size, time_relative } => {
                let mebibytes = size.align_up(1 << 20).0 >> 20;
                let time = (time_relative - 1.0).max(0.0) * 100.0;
                write!(f, "`--disk FOLDER:{mebibytes}MiB` makes it fit, about {time:.0} % slower")
            }
            Hint::SmallerBatch { batch } => {
                write!(f, "`--batch {batch}` is the largest batch that fits without a split")
            }
            Hint::BelowRuntime => {
                write!(f, "the program itself takes more than the budget; draw the line higher")
            }
            Hint::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for DoesNotFit {}
