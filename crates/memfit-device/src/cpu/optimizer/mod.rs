//! Optimizers: one fused pass over gradient, weight and state, by Keras's formulas.

mod accumulate;
mod adafactor;
mod average;
mod lamb;
mod more_rules;
mod orthogonal;
mod rules;
pub(crate) mod weight_rules;

use std::ops::Range;

use memfit_ir::{Clip, Update, UpdateRule};

pub(crate) use accumulate::accumulate;

use super::lanes::Lanes;
use super::operands::Operands;
use super::sums::{self, Part, settle, sum, sum_parts};
use super::tasks::{self, Cut, Tasks};
use super::threads::Shared;
use lamb::Lamb;
use more_rules::{Adadelta, Adamax, Ftrl, Lion, Nadam, adagrad};
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

/// Doubles of workspace that `update` wants for a weight of these dimensions.
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

/// Changes one weight, its state and its average, unless the verdict on all gradients forbids it.
pub(crate) fn update(operands: &Operands, update: &Update) {
    if is_forbidden(operands, update.guarded) {
        return;
    }
    let weight = operands.update(0);
    // Where several steps make one update, updates are what formulas count.
    let iteration = operands.context.iteration / update.steps;
    if (operands.context.iteration + 1).is_multiple_of(update.steps) {
        apply(operands, update, iteration, weight);
    }
    if let Some(average) = &update.average {
        let averages = operands.update(operands.node.updates.len() - 1);
        average::follow(operands.threads, average, iteration, weight, averages);
    }
}

/// Whether the verdict on all gradients, the last input of what is guarded, forbids any change.
fn is_forbidden(operands: &Operands, guarded: bool) -> bool {
    guarded && operands.input::<f32>(operands.node.inputs.len() - 1)[0] != 0.0
}

fn apply(operands: &Operands, update: &Update, iteration: u64, weight: &mut [f32]) {
    let gradient: &[f32] = operands.input(0);
    let learning_rate = operands.context.learning_rate;
    // What was summed over several steps had its scale taken off before.
    let scale = if update.steps == 1 { operands.context.loss_scale } else { update.steps as f32 };
    let (limit, factor) = match update.clip {
        Clip::None => (f32::INFINITY, 1.0),
        Clip::Value(limit) => (limit, 1.0),
        Clip::Norm(limit) => {
            let norm = operands.input::<f32>(1)[0].sqrt() / scale;
            (f32::INFINITY, if norm <= limit { 1.0 } else { limit / norm })
        }
    };
    let states = operands.node.updates.len() - 1 - usize::from(update.average.is_some());
    let state = |index: usize| Shared::new(if index <= states { operands.update(index) } else { &mut [] });
    let cut = Cut::items(gradient.len(), 1);
    let before =
        Before { limit: limit * scale, factor: factor / scale, decay: learning_rate * update.weight_decay };
    let rule = &update.rule;
    let rule = match Chosen::new(rule, iteration, learning_rate) {
        Chosen::Elementwise(rule) => rule,
        Chosen::Lamb(rule) => {
            return lamb::update(operands, &rule, &before, gradient, weight, [state(1), state(2)]);
        }
        Chosen::Adafactor => {
            return adafactor::update(operands, rule, iteration, &before, gradient, weight);
        }
    };
    let states = [state(1), state(2), state(3)];
    let step = Step { cut, gradient, weight: Shared::new(weight), states, rule, before };
    tasks::run(operands.threads, cut.count(), &step);
}

/// A rule with its coefficients of this step.
enum Rule {
    Sgd(f32),
    Momentum(Momentum),
    Adam(Adam),
    Rmsprop(Rmsprop),
    Adagrad { learning_rate: f32, epsilon: f32 },
    Adadelta(Adadelta),
    Adamax(Adamax),
    Nadam(Nadam),
    Ftrl(Ftrl),
    Lion(Lion),
}

/// How a rule goes over a weight.
enum Chosen {
    /// Element by element.
    Elementwise(Rule),
    /// With norms of the whole weight.
    Lamb(Lamb),
    /// With means over rows and columns.
    Adafactor,
}

impl Chosen {
    fn new(rule: &UpdateRule, step: u64, learning_rate: f32) -> Chosen {
        let rest = |beta: f32| 1.0 - f64::from(beta).powf(step as f64 + 1.0);
        Chosen::Elementwise(match *rule {
            UpdateRule::Sgd { momentum: 0.0, .. } => Rule::Sgd(learning_rate),
            UpdateRule::Sgd { momentum, nesterov } => {
                Rule::Momentum(Momentum { learning_rate, momentum, nesterov })
            }
            UpdateRule::Adam { beta_1, beta_2, epsilon, amsgrad } => {
                let alpha = (f64::from(learning_rate) * rest(beta_2).sqrt() / rest(beta_1)) as f32;
                Rule::Adam(Adam { alpha, rest_1: 1.0 - beta_1, rest_2: 1.0 - beta_2, epsilon, amsgrad })
            }
            UpdateRule::Rmsprop { rho, momentum, epsilon, centered } => {
                Rule::Rmsprop(Rmsprop { learning_rate, rho, momentum, epsilon, centered })
            }
            UpdateRule::Adagrad { epsilon, .. } => Rule::Adagrad { learning_rate, epsilon },
            UpdateRule::Adadelta { rho, epsilon } => Rule::Adadelta(Adadelta { learning_rate, rho, epsilon }),
            UpdateRule::Adamax { beta_1, beta_2, epsilon } => {
                let alpha = (f64::from(learning_rate) / rest(beta_1)) as f32;
                Rule::Adamax(Adamax { alpha, rest_1: 1.0 - beta_1, beta_2, epsilon })
            }
            UpdateRule::Nadam { beta_1, beta_2, epsilon } => {
                let share = |step: f64| f64::from(beta_1) * (1.0 - 0.5 * 0.96f64.powf(step));
                let (now, next) = (share(step as f64 + 1.0), share(step as f64 + 2.0));
                let product = UpdateRule::nadam_product(beta_1, step + 1);
                Rule::Nadam(Nadam {
                    of_mean: (f64::from(learning_rate) * next / (1.0 - product * next)) as f32,
                    of_gradient: (f64::from(learning_rate) * (1.0 - now) / (1.0 - product)) as f32,
                    of_squares: (1.0 / rest(beta_2)) as f32,
                    rest_1: 1.0 - beta_1,
                    rest_2: 1.0 - beta_2,
                    epsilon,
                })
            }
            UpdateRule::Ftrl { learning_rate_power, l1, l2, l2_shrinkage, beta, .. } => Rule::Ftrl(Ftrl {
                learning_rate,
                power: -learning_rate_power,
                l1,
                l2: l2 + beta / (2.0 * learning_rate),
                l2_shrinkage,
            }),
            UpdateRule::Lion { beta_1, beta_2 } => Rule::Lion(Lion { learning_rate, beta_1, beta_2 }),
            UpdateRule::Lamb { beta_1, beta_2, epsilon } => {
                return Chosen::Lamb(Lamb {
                    learning_rate,
                    rest_1: 1.0 - beta_1,
                    rest_2: 1.0 - beta_2,
                    of_mean: (1.0 / rest(beta_1)) as f32,
                    of_squares: (1.0 / rest(beta_2)) as f32,
                    epsilon,
                });
            }
            UpdateRule::Adafactor { .. } => return Chosen::Adafactor,
        })
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
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
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
            Rule::Adam(rule) => rule.apply::<L>(before, gradient, weight, states, self.gradient.len()),
            Rule::Rmsprop(rule) => rule.apply(before, gradient, weight, states),
            Rule::Adagrad { learning_rate, epsilon } => {
                adagrad(*learning_rate, *epsilon, before, gradient, weight, states);
            }
            Rule::Adadelta(rule) => rule.apply(before, gradient, weight, states),
            Rule::Adamax(rule) => rule.apply(before, gradient, weight, states),
            Rule::Nadam(rule) => rule.apply(before, gradient, weight, states),
            Rule::Ftrl(rule) => rule.apply(before, gradient, weight, states),
            Rule::Lion(rule) => rule.apply(before, gradient, weight, states),
        }
    }
}
