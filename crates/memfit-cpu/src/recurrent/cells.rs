//! What a step does to one row, forward and back.

use memfit_ir::Gate;

use super::super::maths::{sigmoid, tanh};

/// The function of every element, in place.
#[inline(always)]
pub(super) fn apply(gate: Gate, values: &mut [f32]) {
    match gate {
        Gate::Linear => {}
        Gate::Relu => values.iter_mut().for_each(|value| *value = if *value <= 0.0 { 0.0 } else { *value }),
        Gate::Sigmoid => values.iter_mut().for_each(|value| *value = sigmoid(*value)),
        Gate::Tanh => values.iter_mut().for_each(|value| *value = tanh(*value)),
    }
}

/// `dy f′` in place, from the function's values.
#[inline(always)]
pub(super) fn gate_grad(gate: Gate, dy: &mut [f32], y: &[f32]) {
    let pairs = dy.iter_mut().zip(y);
    match gate {
        Gate::Linear => {}
        Gate::Relu => pairs.for_each(|(dy, y)| *dy = if *y > 0.0 { *dy } else { 0.0 }),
        Gate::Sigmoid => pairs.for_each(|(dy, y)| *dy *= *y * (1.0 - *y)),
        Gate::Tanh => pairs.for_each(|(dy, y)| *dy *= 1.0 - *y * *y),
    }
}

/// `to += from`.
#[inline(always)]
pub(super) fn add(to: &mut [f32], from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
}

/// `to = a · b`.
#[inline(always)]
pub(super) fn multiply(to: &mut [f32], a: &[f32], b: &[f32]) {
    to.iter_mut().zip(a).zip(b).for_each(|((to, a), b)| *to = *a * *b);
}
