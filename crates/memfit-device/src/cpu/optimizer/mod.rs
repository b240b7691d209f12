//! Optimizers: one fused pass over gradient, weight and state, by Keras's formulas.

mod rules;

use std::ops::Range;

use memfit_ir::{Clip, Update, UpdateRule};

use super::operands::Operands;
use super::sums::{self, Part, settle, sum, sum_parts};
use super::tasks::{self, Cut, Tasks};
use super::threads::Shared;
use rules::{Adam, Before, Momentum, Rmsprop, sgd};

/// Doubles of workspace that `sum_squares` wants.
pub(crate) const SUM_SQUARES_WORKSPACE: usize = sums::PARTS_WORKSPACE;

/// Adds the sum of a gradient's squares.
pub(crate) fn sum_squares(operands: &Operands) {
    let gradient: &[f32] = operands.input(0);
    let workspace = operands.workspace().take_doubles(SUM_SQUARES_WORKSPACE);
    let total = sum_parts(operands.threads, gradient.len(), 1, &Squares(gradient), workspace);
    settle(&mut operands.update(0)[0], total, operands.fresh);
}

struct Squares<'a>(&'a [f32]);

impl Part for Squares<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        sum(&self.0[range], |g| g * g)
    }
}

/// Doubles of workspace that `check_finite` wants.
pub(crate) const CHECK_FINITE_WORKSPACE: usize = sums::PARTS_WORKSPACE;

/// Writes the number of a gradient that is not finite as the verdict, unless a smaller one stands there.
pub(crate) fn check_finite(operands: &Operands, number: usize) {
    let gradient: &[f32] = operands.input(0);
    let workspace = operands.workspace().take_doubles(CHECK_FINITE_WORKSPACE);
    let strange = sum_parts(operands.threads, gradient.len(), 1, &NotFinite(gradient), workspace);
    let verdict = &mut operands.update(0)[0];
    let before = if operands.fresh { 0.0 } else { *verdict };
    let number = number as f32;
    *verdict = if strange > 0.0 && (before == 0.0 || number < before) { number } else { before };
}

struct NotFinite<'a>(&'a [f32]);

impl Part for NotFinite<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        sum(&self.0[range], |g| if g.is_finite() { 0.0 } else { 1.0 })
    }
}

/// Changes one weight and its state, unless the verdict on all gradients forbids it.
pub(crate) fn update(operands: &Operands, update: &Update) {
    if update.guarded && operands.input::<f32>(operands.node.inputs.len() - 1)[0] != 0.0 {
        return;
    }
    let gradient: &[f32] = operands.input(0);
    let (learning_rate, scale) = (operands.context.learning_rate, operands.context.loss_scale);
    let (limit, factor) = match update.clip {
        Clip::None => (f32::INFINITY, 1.0),
        Clip::Value(limit) => (limit, 1.0),
        Clip::Norm(limit) => {
            let norm = operands.input::<f32>(1)[0].sqrt() / scale;
            (f32::INFINITY, if norm <= limit { 1.0 } else { limit / norm })
        }
    };
    let states = operands.node.updates.len() - 1;
    let state = |index: usize| Shared::new(if index <= states { operands.update(index) } else { &mut [] });
    let cut = Cut::items(gradient.len(), 1);
    let step = Step {
        cut,
        gradient,
        weight: Shared::new(operands.update(0)),
        states: [state(1), state(2), state(3)],
        rule: Rule::new(&update.rule, operands.context.iteration, learning_rate),
        before: Before {
            limit: limit * scale,
            factor: factor / scale,
            decay: learning_rate * update.weight_decay,
        },
    };
    tasks::run(operands.threads, cut.count(), &step);
}

/// A rule with its coefficients of this step.
enum Rule {
    Sgd(f32),
    Momentum(Momentum),
    Adam(Adam),
    Rmsprop(Rmsprop),
}

impl Rule {
    fn new(rule: &UpdateRule, step: u64, learning_rate: f32) -> Rule {
        match *rule {
            UpdateRule::Sgd { momentum: 0.0, .. } => Rule::Sgd(learning_rate),
            UpdateRule::Sgd { momentum, nesterov } => {
                Rule::Momentum(Momentum { learning_rate, momentum, nesterov })
            }
            UpdateRule::Adam { beta_1, beta_2, epsilon, amsgrad } => {
                let rest = |beta: f32| 1.0 - f64::from(beta).powf(step as f64 + 1.0);
                let alpha = (f64::from(learning_rate) * rest(beta_2).sqrt() / rest(beta_1)) as f32;
                Rule::Adam(Adam { alpha, rest_1: 1.0 - beta_1, rest_2: 1.0 - beta_2, epsilon, amsgrad })
            }
            UpdateRule::Rmsprop { rho, momentum, epsilon, centered } => {
                Rule::Rmsprop(Rmsprop { learning_rate, rho, momentum, epsilon, centered })
            }
        }
    }
}

struct Step<'a> {
    cut: Cut,
    gradient: &'a [f32],
    weight: Shared<'a, f32>,
    /// As many as the rule has; the others are empty.
    states: [Shared<'a, f32>; 3],
    rule: Rule,
    before: Before,
}

impl Tasks for Step<'_> {
    #[inline(always)]
    fn task(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        let (gradient, before) = (&self.gradient[range.clone()], &self.before);
        // SAFETY: ranges do not overlap, and every range belongs to one task.
        let weight = unsafe { self.weight.slice(range.clone()) };
        let states = self.states.each_ref().map(|state| {
            let part = if state.len() == 0 { 0..0 } else { range.clone() };
            // SAFETY: as above.
            unsafe { state.slice(part) }
        });
        match &self.rule {
            Rule::Sgd(learning_rate) => sgd(*learning_rate, before, gradient, weight),
            Rule::Momentum(rule) => rule.apply(before, gradient, weight, states),
            Rule::Adam(rule) => rule.apply(before, gradient, weight, states),
            Rule::Rmsprop(rule) => rule.apply(before, gradient, weight, states),
        }
    }
}
