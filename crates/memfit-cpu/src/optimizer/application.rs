//! An update as this step applies it: to any range of a weight, by whichever task has the gradient of that
//! range.

use std::ops::Range;

use memfit_ir::Operand::{SquaredNorm, State, Weight};
use memfit_ir::{Clip, Operand, Update, UpdateRule};

use super::super::lanes::Lanes;
use super::average::Follow;
use super::blocks::{self, Old, Values};
use super::lamb::Lamb;
use super::more_rules::{Adadelta, Adagrad, Adamax, Ftrl, Lion, Nadam};
use super::rules::{Adam, Before, Momentum, Rmsprop, Sgd};
use crate::operands::Operands;
use crate::threads::Shared;
use memfit_device::found_inf::FoundInf;

/// An elementwise update with its coefficients of this step, and all that it changes.
pub(crate) struct Application<'a> {
    rule: Rule,
    before: Before,
    follow: Option<Follow>,
    weight: Shared<'a, f32>,
    /// As many as the rule has; the others are empty.
    states: [Shared<'a, f32>; 3],
    average: Shared<'a, f32>,
    found_inf: &'a FoundInf,
}

impl<'a> Application<'a> {
    /// The update of the weight that the node changes. It must be due in this step, and its rule elementwise.
    pub(crate) fn new(operands: &Operands<'a>, update: &Update) -> Application<'a> {
        let (iteration, learning_rate) = (iteration(operands, update), operands.context.learning_rate);
        let Chosen::Elementwise(rule) = Chosen::new(&update.rule, iteration, learning_rate) else {
            unreachable!("a rule over a range sees no more than the range");
        };
        let if_given = |changed: Option<&'a mut [f32]>| Shared::new(changed.unwrap_or_default());
        Application {
            rule,
            before: before(operands, update),
            follow: update.average.as_ref().map(|average| Follow::new(average, iteration)),
            weight: Shared::new(operands.update(Weight)),
            states: [0, 1, 2].map(|index| if_given(operands.update_if_given((State, index)))),
            average: if_given(operands.update_if_given(Operand::Average)),
            found_inf: operands.found_inf(),
        }
    }

    /// A range of the weight as it is.
    ///
    /// # Safety
    /// No other task changes the range meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn weight(&self, range: Range<usize>) -> &[f32] {
        // SAFETY: the caller's promise.
        unsafe { self.weight.slice(range) }
    }

    /// Where the weight and its states begin.
    #[inline(always)]
    pub(crate) fn starts(&self) -> [Option<*const f32>; 4] {
        let start = |of: &Shared<'_, f32>| (of.len() > 0).then(|| of.pointer().cast_const());
        let [a, b, c] = &self.states;
        [start(&self.weight), start(a), start(b), start(c)]
    }

    /// Changes a range of the weight, its states and its average, by the gradient of that range. What
    /// `is_near` was read just now. Blocks whose new values are not all finite keep their old ones.
    ///
    /// # Safety
    /// No other task reads or changes the range meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn apply<L: Lanes>(&self, range: Range<usize>, gradient: &[f32], is_near: bool) {
        let part = |of: &Shared<'_, f32>| if of.len() == 0 { 0..0 } else { range.clone() };
        // SAFETY: the caller's promise.
        let (weight, states, average) = unsafe {
            (
                self.weight.slice(range.clone()),
                self.states.each_ref().map(|state| state.slice(part(state))),
                self.average.slice(part(&self.average)),
            )
        };
        assert_eq!(weight.len(), gradient.len(), "a gradient for every weight");
        let kept = if let Rule::Adam(rule) = &self.rule
            && !rule.amsgrad
            && self.follow.is_none()
        {
            let elements = if is_near { 0 } else { self.weight.len() };
            rule.apply::<L>(&self.before, gradient, weight, states, elements)
        } else {
            let values = Values { weight, states, average };
            self.rule.apply(&self.before, self.follow.as_ref(), gradient, values)
        };
        if 0 < kept {
            self.found_inf.raise(kept);
        }
    }
}

/// What formulas count: where several steps make one update, the updates.
pub(super) fn iteration(operands: &Operands, update: &Update) -> u64 {
    operands.context.iteration / update.steps
}

/// What happens to gradient and weight before a rule sees them.
pub(super) fn before(operands: &Operands, update: &Update) -> Before {
    // What was summed over several steps had its scale taken off before.
    let scale = if update.steps == 1 { operands.context.loss_scale } else { update.steps as f32 };
    let (limit, factor) = match update.clip {
        Clip::None => (f32::INFINITY, 1.0),
        Clip::Value(limit) => (limit, 1.0),
        Clip::Norm(limit) => {
            let norm = operands.input::<f32>(SquaredNorm)[0].sqrt() / scale;
            (f32::INFINITY, if norm <= limit { 1.0 } else { limit / norm })
        }
    };
    let decay = operands.context.learning_rate * update.weight_decay;
    Before { limit: limit * scale, factor: factor / scale, decay }
}

/// A rule with its coefficients of this step.
pub(super) enum Rule {
    Sgd(Sgd),
    Momentum(Momentum),
    Adam(Adam),
    Rmsprop(Rmsprop<false, false>),
    RmspropCentered(Rmsprop<false, true>),
    RmspropMomentum(Rmsprop<true, false>),
    RmspropMomentumCentered(Rmsprop<true, true>),
    Adagrad(Adagrad),
    Adadelta(Adadelta),
    Adamax(Adamax),
    Nadam(Nadam),
    Ftrl(Ftrl),
    Lion(Lion),
}

/// Runs a function of [`blocks`] with a rule and the number of its states.
macro_rules! with_formula {
    ($rule:expr, $function:ident, $($argument:expr),*) => {
        match $rule {
            Rule::Sgd(rule) => blocks::$function::<0>(rule, $($argument),*),
            Rule::Momentum(rule) => blocks::$function::<1>(rule, $($argument),*),
            Rule::Adam(rule) if rule.amsgrad => blocks::$function::<3>(rule, $($argument),*),
            Rule::Adam(rule) => blocks::$function::<2>(rule, $($argument),*),
            Rule::Rmsprop(rule) => blocks::$function::<1>(rule, $($argument),*),
            Rule::RmspropCentered(rule) => blocks::$function::<2>(rule, $($argument),*),
            Rule::RmspropMomentum(rule) => blocks::$function::<2>(rule, $($argument),*),
            Rule::RmspropMomentumCentered(rule) => blocks::$function::<3>(rule, $($argument),*),
            Rule::Adagrad(rule) => blocks::$function::<1>(rule, $($argument),*),
            Rule::Adadelta(rule) => blocks::$function::<2>(rule, $($argument),*),
            Rule::Adamax(rule) => blocks::$function::<2>(rule, $($argument),*),
            Rule::Nadam(rule) => blocks::$function::<2>(rule, $($argument),*),
            Rule::Ftrl(rule) => blocks::$function::<2>(rule, $($argument),*),
            Rule::Lion(rule) => blocks::$function::<1>(rule, $($argument),*),
        }
    };
}

impl Rule {
    /// Changes a part of a weight; returns how many elements kept their values.
    #[inline(always)]
    fn apply(&self, before: &Before, follow: Option<&Follow>, gradient: &[f32], values: Values<'_>) -> usize {
        with_formula!(self, apply, before, follow, gradient, values)
    }

    /// Whether all of a part of a weight would be written.
    #[inline(always)]
    pub(super) fn would_apply(&self, before: &Before, follow: Option<&Follow>, old: Old<'_>) -> bool {
        with_formula!(self, would_apply, before, follow, old)
    }
}

/// How a rule goes over a weight.
pub(super) enum Chosen {
    /// Element by element.
    Elementwise(Rule),
    /// With norms of the whole weight.
    Lamb(Lamb),
    /// With means over rows and columns.
    Adafactor,
}

impl Chosen {
    pub(super) fn new(rule: &UpdateRule, step: u64, learning_rate: f32) -> Chosen {
        let rest = |beta: f32| 1.0 - f64::from(beta).powf(step as f64 + 1.0);
        Chosen::Elementwise(match *rule {
            UpdateRule::Sgd { momentum: 0.0, .. } => Rule::Sgd(Sgd { learning_rate }),
            UpdateRule::Sgd { momentum, nesterov } => {
                Rule::Momentum(Momentum { learning_rate, momentum, nesterov })
            }
            UpdateRule::Adam { beta_1, beta_2, epsilon, amsgrad } => {
                let alpha = (f64::from(learning_rate) * rest(beta_2).sqrt() / rest(beta_1)) as f32;
                Rule::Adam(Adam { alpha, rest_1: 1.0 - beta_1, rest_2: 1.0 - beta_2, epsilon, amsgrad })
            }
            UpdateRule::Rmsprop { rho, momentum, epsilon, centered } => match (momentum != 0.0, centered) {
                (false, false) => Rule::Rmsprop(Rmsprop { learning_rate, rho, momentum, epsilon }),
                (false, true) => Rule::RmspropCentered(Rmsprop { learning_rate, rho, momentum, epsilon }),
                (true, false) => Rule::RmspropMomentum(Rmsprop { learning_rate, rho, momentum, epsilon }),
                (true, true) => {
                    Rule::RmspropMomentumCentered(Rmsprop { learning_rate, rho, momentum, epsilon })
                }
            },
            UpdateRule::Adagrad { epsilon, .. } => Rule::Adagrad(Adagrad { learning_rate, epsilon }),
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
