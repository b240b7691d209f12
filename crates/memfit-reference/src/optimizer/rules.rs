//! Rules that change an element by its own gradient and state.

use memfit_ir::UpdateRule;

use super::super::elementwise::sign;
use super::Step;

/// The new weight, of one that has decayed, and the new state. `learning_rate` is `rate`, and `t` counts updates from 1.
pub(super) fn next(step: &Step, rule: &UpdateRule, g: f64, w: f64, state: &mut [f64]) -> f64 {
    let (rate, t) = (step.learning_rate, step.iteration as f64 + 1.0);
    let f = f64::from;
    match *rule {
        UpdateRule::Sgd { momentum: 0.0, .. } => w - rate * g,
        UpdateRule::Sgd { momentum, nesterov } => {
            state[0] = f(momentum) * state[0] - rate * g;
            if nesterov { w + f(momentum) * state[0] - rate * g } else { w + state[0] }
        }
        UpdateRule::Adam { beta_1, beta_2, epsilon, amsgrad } => {
            let alpha = rate * (1.0 - f(beta_2).powf(t)).sqrt() / (1.0 - f(beta_1).powf(t));
            means(state, g, f(beta_1), f(beta_2));
            if amsgrad {
                state[2] = larger(state[2], state[1]);
            }
            w - alpha * state[0] / (state[if amsgrad { 2 } else { 1 }].sqrt() + f(epsilon))
        }
        UpdateRule::Rmsprop { rho, momentum, epsilon, centered } => {
            w - rmsprop(rate, g, state, [rho, momentum, epsilon].map(f64::from), centered)
        }
        UpdateRule::Adagrad { epsilon, .. } => {
            state[0] += g * g;
            w - rate * g / (state[0] + f(epsilon)).sqrt()
        }
        UpdateRule::Adadelta { rho, epsilon } => {
            let (rho, epsilon) = (f(rho), f(epsilon));
            state[0] = rho * state[0] + (1.0 - rho) * g * g;
            let change = g * (state[1] + epsilon).sqrt() / (state[0] + epsilon).sqrt();
            state[1] = rho * state[1] + (1.0 - rho) * change * change;
            w - rate * change
        }
        UpdateRule::Adamax { beta_1, beta_2, epsilon } => {
            state[0] += (g - state[0]) * (1.0 - f(beta_1));
            state[1] = larger(f(beta_2) * state[1], g.abs());
            w - rate / (1.0 - f(beta_1).powf(t)) * state[0] / (state[1] + f(epsilon))
        }
        UpdateRule::Nadam { beta_1, beta_2, epsilon } => {
            let share = |t: f64| f(beta_1) * (1.0 - 0.5 * 0.96f64.powf(t));
            let (now, next) = (share(t), share(t + 1.0));
            let product = UpdateRule::nadam_product(beta_1, step.iteration + 1);
            means(state, g, f(beta_1), f(beta_2));
            let mean = next * state[0] / (1.0 - product * next) + (1.0 - now) * g / (1.0 - product);
            let squares = state[1] / (1.0 - f(beta_2).powf(t));
            w - rate * mean / (squares.sqrt() + f(epsilon))
        }
        UpdateRule::Ftrl { learning_rate_power, l1, l2, l2_shrinkage, beta, .. } => {
            let l2 = f(l2) + f(beta) / (2.0 * rate);
            let raised = |sum: f64| sum.powf(-f(learning_rate_power));
            let sum = state[0] + g * g;
            state[1] += g + 2.0 * f(l2_shrinkage) * w - (raised(sum) - raised(state[0])) / rate * w;
            state[0] = sum;
            (state[1].clamp(-f(l1), f(l1)) - state[1]) / (raised(sum) / rate + 2.0 * l2)
        }
        UpdateRule::Lion { beta_1, beta_2 } => {
            let along = state[0] * f(beta_1) + g * (1.0 - f(beta_1));
            state[0] = state[0] * f(beta_2) + g * (1.0 - f(beta_2));
            w - rate * sign(along)
        }
        UpdateRule::Adafactor { .. } | UpdateRule::Lamb { .. } => panic!("{rule:?} sees a whole weight"),
    }
}

/// A step over the root of the mean of squares, about the mean of gradients where `centered`, along a velocity where there is a momentum.
fn rmsprop(rate: f64, g: f64, state: &mut [f64], [rho, momentum, epsilon]: [f64; 3], centered: bool) -> f64 {
    let has_momentum = momentum != 0.0;
    state[0] = rho * state[0] + (1.0 - rho) * g * g;
    let mut below = state[0] + epsilon;
    if centered {
        let mean = &mut state[1 + usize::from(has_momentum)];
        *mean = rho * *mean + (1.0 - rho) * g;
        below -= *mean * *mean;
    }
    let step = rate * g / below.sqrt();
    if has_momentum {
        state[1] = momentum * state[1] + step;
    }
    if has_momentum { state[1] } else { step }
}

/// Moves the means of gradients and of their squares.
pub(super) fn means(state: &mut [f64], g: f64, beta_1: f64, beta_2: f64) {
    state[0] = beta_1 * state[0] + (1.0 - beta_1) * g;
    state[1] = beta_2 * state[1] + (1.0 - beta_2) * g * g;
}

/// The larger; NaN where one is.
fn larger(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}
