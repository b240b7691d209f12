//! Optimizers: one fused pass over gradient, weight and state, by Keras's formulas.

mod accumulate;
mod adafactor;
mod application;
mod average;
mod blocks;
mod check;
mod correct;
mod lamb;
mod look;
mod more_rules;
mod orthogonal;
mod rules;
pub(crate) mod weight_rules;

use std::ops::Range;

use memfit_ir::Operand::{Average, FoundInf, Gradient, State, Sum, Weight};
use memfit_ir::{Update, UpdateRule};

pub(crate) use accumulate::{accumulate, add_accumulated, keep_accumulated};
pub(crate) use application::Application;
pub(crate) use check::{check_update, check_workspace};
pub(crate) use correct::correct_squares;

use super::lanes::Lanes;
use super::operands::Operands;
use super::sums::{self, Part, add_or_overwrite, sum, sum_parts};
use super::tasks::{self, Cut, Tasks};
use super::threads::Shared;
use application::{Chosen, before, iteration};
use average::Follow;

/// Doubles of workspace that `sum_squares` needs.
pub(crate) const SUM_SQUARES_WORKSPACE: usize = sums::PARTS_WORKSPACE;

/// Adds the sum of a gradient's squares.
pub(crate) fn sum_squares(operands: &Operands) {
    let gradient: &[f32] = operands.input(Gradient);
    let workspace = operands.workspace().take_doubles(SUM_SQUARES_WORKSPACE);
    let total = sum_parts(operands.threads, gradient.len(), 1, &Squares(gradient), workspace);
    add_or_overwrite(&mut operands.update(Sum)[0], total, operands.fresh);
}

struct Squares<'a>(&'a [f32]);

impl Part for Squares<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        sum(&self.0[range], |g| g * g)
    }
}

/// Doubles of workspace that `check_finite` needs.
pub(crate) const CHECK_FINITE_WORKSPACE: usize = sums::PARTS_WORKSPACE;

/// Writes the number of a gradient that is not finite to `found_inf`, unless a smaller number stands there.
pub(crate) fn check_finite(operands: &Operands, number: usize) {
    let gradient: &[f32] = operands.input(Gradient);
    let workspace = operands.workspace().take_doubles(CHECK_FINITE_WORKSPACE);
    let strange = sum_parts(operands.threads, gradient.len(), 1, &NotFinite(gradient), workspace);
    write_found_inf(operands, number, strange > 0.0);
}

/// Takes the answer of a check to the number that all checks speak to.
fn write_found_inf(operands: &Operands, number: usize, found: bool) {
    let found_inf = &mut operands.update(FoundInf)[0];
    let before = if operands.fresh { 0.0 } else { *found_inf };
    let number = number as f32;
    *found_inf = if found && (before == 0.0 || number < before) { number } else { before };
}

struct NotFinite<'a>(&'a [f32]);

impl Part for NotFinite<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        sum(&self.0[range], |g| if g.is_finite() { 0.0 } else { 1.0 })
    }
}

/// Doubles of workspace that `update` needs for a weight of these dimensions.
pub(crate) fn update_workspace(rule: &UpdateRule, dims: &[usize]) -> usize {
    match rule {
        UpdateRule::Lamb { .. } => lamb::WORKSPACE,
        UpdateRule::Adafactor { .. } => adafactor::workspace(dims),
        UpdateRule::Sgd { .. }
        | UpdateRule::Adam { .. }
        | UpdateRule::Rmsprop { .. }
        | UpdateRule::Adagrad { .. }
        | UpdateRule::Adadelta { .. }
        | UpdateRule::Adamax { .. }
        | UpdateRule::Nadam { .. }
        | UpdateRule::Ftrl { .. }
        | UpdateRule::Lion { .. } => 0,
    }
}

/// Changes one weight, its state and its average, unless `found_inf` forbids it.
pub(crate) fn update(operands: &Operands, update: &Update) {
    if is_forbidden(operands) {
        return;
    }
    let iteration = iteration(operands, update);
    let is_due = (operands.context.iteration + 1).is_multiple_of(update.steps);
    let weight = match Chosen::new(&update.rule, iteration, operands.context.learning_rate) {
        Chosen::Elementwise(_) if is_due => {
            let gradient: &[f32] = operands.input(Gradient);
            let (cut, application) = (Cut::items(gradient.len(), 1), Application::new(operands, update));
            return tasks::run(operands.threads, cut.count(), &Step { cut, gradient, application });
        }
        Chosen::Lamb(rule) if is_due => {
            let (weight, states) =
                (operands.update(Weight), [0, 1].map(|index| Shared::new(operands.update((State, index)))));
            if !lamb::update(
                operands,
                &rule,
                &before(operands, update),
                operands.input(Gradient),
                weight,
                states,
            ) {
                return operands.found_inf().raise(weight.len());
            }
            weight
        }
        Chosen::Adafactor if is_due => {
            let weight = operands.update(Weight);
            let before = before(operands, update);
            if !adafactor::update(
                operands,
                &update.rule,
                iteration,
                &before,
                operands.input(Gradient),
                weight,
            ) {
                return operands.found_inf().raise(weight.len());
            }
            weight
        }
        Chosen::Elementwise(_) | Chosen::Lamb(_) | Chosen::Adafactor => operands.update(Weight),
    };
    if let Some(average) = &update.average {
        let averages = operands.update(Average);
        Follow::new(average, iteration).all(operands.threads, weight, averages, operands.found_inf());
    }
}

/// Whether `found_inf`, which what is guarded reads, forbids any change.
pub(crate) fn is_forbidden(operands: &Operands) -> bool {
    operands.input_if_given(FoundInf).is_some_and(|found_inf: &[f32]| found_inf[0] != 0.0)
}

/// An update over a gradient that is there.
struct Step<'a> {
    cut: Cut,
    gradient: &'a [f32],
    application: Application<'a>,
}

impl Tasks for Step<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        // SAFETY: ranges do not overlap, and every range belongs to one task.
        unsafe { self.application.apply::<L>(range.clone(), &self.gradient[range], false) };
    }
}
