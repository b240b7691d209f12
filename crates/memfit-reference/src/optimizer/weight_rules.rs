//! Penalties on weights and values, and putting weights back where they must stay.

use memfit_ir::{Constraint, Orthogonal, Regularizer};

use super::super::call::{Call, Computed};
use super::super::elementwise::{positive, sign};

/// What Keras adds to a norm before it divides by it.
const EPSILON: f64 = 1e-7;

/// What a regularizer says of values, for each row of the batch the same share, with its gradient.
pub(crate) fn activity(call: &Call, regularizer: &Regularizer) -> Computed {
    let share = 1.0 / call.context.rows_total as f64;
    let (total, gradient) = elementwise(regularizer, call.input(0));
    let scale = share * f64::from(call.context.loss_scale);
    let dx = gradient.iter().map(|gradient| gradient * scale).collect();
    Computed { outputs: vec![dx], ..call.sums(&[vec![total * share]]) }
}

/// What a regularizer adds to the loss, and to the gradient of a weight.
pub(crate) fn penalty(call: &Call, regularizer: &Regularizer) -> Computed {
    let weight = call.input(0);
    let (mut total, mut gradient) = elementwise(regularizer, weight);
    if let Some(rule) = regularizer.orthogonal {
        let (more, its_gradient) = orthogonal(rule, weight, call.dims(0));
        total += more;
        gradient.iter_mut().zip(its_gradient).for_each(|(gradient, more)| *gradient += more);
    }
    let scale = f64::from(call.context.loss_scale);
    gradient.iter_mut().for_each(|gradient| *gradient *= scale);
    let mut terms = vec![vec![total], gradient];
    terms.truncate(call.updates.len());
    call.sums(&terms)
}

/// `Σ l1 |w| + l2 w²`, and its gradient.
fn elementwise(regularizer: &Regularizer, values: &[f64]) -> (f64, Vec<f64>) {
    let [l1, l2] = [regularizer.l1, regularizer.l2].map(f64::from);
    let total = values.iter().map(|w| l1 * w.abs() + l2 * w * w).sum();
    (total, values.iter().map(|w| l1 * sign(*w) + 2.0 * l2 * w).collect())
}

/// `factor · Σ |cos|` over all pairs of rows or columns, over the number of pairs; and its gradient.
fn orthogonal(rule: Orthogonal, weight: &[f64], dims: &[usize]) -> (f64, Vec<f64>) {
    let [rows, columns] = *dims else { panic!("an orthogonal penalty is on matrices alone") };
    let (count, length) = if rule.by_rows { (rows, columns) } else { (columns, rows) };
    let at = |line: usize, i: usize| if rule.by_rows { line * columns + i } else { i * columns + line };
    let dot = |a: usize, b: usize| -> f64 { (0..length).map(|i| weight[at(a, i)] * weight[at(b, i)]).sum() };
    let norms: Vec<f64> = (0..count).map(|line| dot(line, line).sqrt().max(EPSILON)).collect();
    let share = f64::from(rule.factor) / (count as f64 * (count as f64 - 1.0) / 2.0);
    let (mut total, mut gradient) = (0.0, vec![0.0; weight.len()]);
    for a in 0..count {
        for b in (0..count).filter(|b| *b != a) {
            let cosine = dot(a, b) / (norms[a] * norms[b]);
            // Every pair is met twice.
            total += 0.5 * share * cosine.abs();
            for i in 0..length {
                let towards = weight[at(b, i)] / (norms[a] * norms[b]);
                let along = cosine * weight[at(a, i)] / (norms[a] * norms[a]);
                gradient[at(a, i)] += share * sign(cosine) * (towards - along);
            }
        }
    }
    (total, gradient)
}

/// A weight where its constraint allows it, unless `found_inf` forbids any change.
pub(crate) fn constrain(call: &Call, constraint: &Constraint) -> Vec<f64> {
    let mut weight = call.updates[0].to_vec();
    if call.inputs.first().is_some_and(|found_inf| found_inf[0] != 0.0) {
        return weight;
    }
    let axes = match *constraint {
        Constraint::NonNeg => return weight.iter().map(|w| positive(*w)).collect(),
        Constraint::MaxNorm { axes, .. }
        | Constraint::UnitNorm { axes }
        | Constraint::MinMaxNorm { axes, .. } => axes,
    };
    let dims = call.update_dims(0);
    let inner: usize = dims[axes[1]..].iter().product();
    let length: usize = dims[axes[0]..axes[1]].iter().product();
    for start in (0..weight.len()).filter(|index| (index / inner).is_multiple_of(length)) {
        let line = || (0..length).map(|i| start + i * inner);
        let norm = line().map(|at| weight[at] * weight[at]).sum::<f64>().sqrt();
        let factor = wanted(constraint, norm) / (EPSILON + norm);
        line().for_each(|at| weight[at] *= factor);
    }
    weight
}

/// The norm that a line of this norm is brought to.
fn wanted(constraint: &Constraint, norm: f64) -> f64 {
    match *constraint {
        Constraint::NonNeg => norm,
        Constraint::MaxNorm { max_value, .. } => norm.min(f64::from(max_value)),
        Constraint::UnitNorm { .. } => 1.0,
        Constraint::MinMaxNorm { min_value, max_value, rate, .. } => {
            let rate = f64::from(rate);
            rate * norm.max(f64::from(min_value)).min(f64::from(max_value)) + (1.0 - rate) * norm
        }
    }
}
