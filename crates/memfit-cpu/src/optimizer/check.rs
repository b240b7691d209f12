//! What an update would write, computed and looked at, and not written.

use std::sync::atomic::{AtomicBool, Ordering};

use memfit_ir::Operand::{Average, Gradient, State, Weight};
use memfit_ir::{CheckUpdate, UpdateRule};

use super::super::lanes::Lanes;
use super::application::{Chosen, Rule, before, iteration};
use super::average::Follow;
use super::blocks::Old;
use super::rules::Before;
use super::{adafactor, lamb, update_workspace, write_found_inf};
use crate::operands::Operands;
use crate::tasks::{self, Cut, Tasks};

/// Doubles of workspace that `check_update` needs for a weight of these dimensions: those of the update, and
/// room for means that it would write before the weight.
pub(crate) fn check_workspace(rule: &UpdateRule, dims: &[usize]) -> usize {
    let own = if rule.is_elementwise() { 0 } else { adafactor::check_floats(rule, dims).div_ceil(2) };
    update_workspace(rule, dims) + own
}

/// Says whether an update would write what is not finite.
pub(crate) fn check_update(operands: &Operands, check: &CheckUpdate) {
    let update = &check.update;
    let is_due = (operands.context.iteration + 1).is_multiple_of(update.steps);
    let iteration = iteration(operands, update);
    let (gradient, weight) = (operands.input(Gradient), operands.input(Weight));
    let chosen = Chosen::new(&update.rule, iteration, operands.context.learning_rate);
    // Where the update is not due, an average between finite values is all that is written.
    let found = is_due
        && match chosen {
            Chosen::Elementwise(rule) => {
                let old = Old {
                    gradient,
                    weight,
                    states: [0, 1, 2]
                        .map(|index| operands.input_if_given((State, index)).unwrap_or_default()),
                    average: operands.input_if_given(Average).unwrap_or_default(),
                };
                let look = Look {
                    cut: Cut::items(weight.len(), 1),
                    rule,
                    before: before(operands, update),
                    follow: update.average.as_ref().map(|average| Follow::new(average, iteration)),
                    old,
                    found: AtomicBool::new(false),
                };
                tasks::run(operands.threads, look.cut.count(), &look);
                look.found.into_inner()
            }
            Chosen::Lamb(rule) => {
                let means = [0, 1].map(|index| operands.input((State, index)));
                !lamb::would_update(operands, &rule, &before(operands, update), gradient, weight, means)
            }
            Chosen::Adafactor => {
                let dims = &operands.shape(Weight).dims;
                let second = operands.input_if_given((State, 1)).unwrap_or_default();
                let states = [operands.input(State), second];
                let before = before(operands, update);
                !adafactor::would_update(
                    operands,
                    &update.rule,
                    iteration,
                    &before,
                    dims,
                    gradient,
                    weight,
                    states,
                )
            }
        };
    write_found_inf(operands, check.number, found);
}

struct Look<'a> {
    cut: Cut,
    rule: Rule,
    before: Before,
    follow: Option<Follow>,
    old: Old<'a>,
    found: AtomicBool,
}

impl Tasks for Look<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        let part = |of: &'_ [f32]| if of.is_empty() { 0..0 } else { range.clone() };
        let Old { gradient, weight, states, average } = self.old;
        let old = Old {
            gradient: &gradient[range.clone()],
            weight: &weight[range.clone()],
            states: states.map(|state| &state[part(state)]),
            average: &average[part(average)],
        };
        if !self.rule.would_apply(&self.before, self.follow.as_ref(), old) {
            self.found.store(true, Ordering::Relaxed);
        }
    }
}
