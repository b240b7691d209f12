//! Sums of gradients over nodes and steps, and looks at them.

use memfit_device::Kept;
use memfit_ir::Accumulate;

use super::super::call::{Call, Computed};
use super::super::number::is_finite;

/// `Σ g²`.
pub(crate) fn sum_squares(call: &Call) -> f64 {
    call.input(0).iter().map(|g| g * g).sum()
}

/// Says whether a gradient is not finite.
pub(crate) fn check_finite(call: &Call, number: usize) -> Computed {
    found_inf(call, number, !call.input(0).iter().all(|g| g.is_finite()))
}

/// `found_inf` after a check with a number: the smallest number of all checks that found something, 0 for none.
pub(super) fn found_inf(call: &Call, number: usize, found: bool) -> Computed {
    let (before, number) = (call.before(0)[0], number as f64);
    let is_first = found && (before == 0.0 || number < before);
    Computed::updates(vec![vec![if is_first { number } else { before }]])
}

/// Adds a gradient, without its loss scale, to those of the steps before; the first of them resets the sum.
pub(crate) fn accumulate(call: &Call, accumulate: &Accumulate) -> Computed {
    let old = call.updates[0].to_vec();
    if accumulate.guarded && call.input(1)[0] != 0.0 {
        return Computed::updates(vec![old]);
    }
    let resets = call.overwrite || call.context.iteration.is_multiple_of(accumulate.steps);
    let (mut new, mut kept) = (old, Kept::default());
    for (sum, g) in new.iter_mut().zip(call.input(0)) {
        let next = if resets { 0.0 } else { *sum } + g / f64::from(call.context.loss_scale);
        if is_finite(next) {
            *sum = next;
        } else {
            kept.elements += 1;
        }
    }
    Computed { updates: vec![new], kept, ..Computed::default() }
}

/// Adds the gradients of the steps before to this step's, which loses its loss scale.
pub(crate) fn add_accumulated(call: &Call, steps: u64) -> Vec<f64> {
    let is_first = call.context.iteration.is_multiple_of(steps);
    let (now, scale) = (call.before(0), f64::from(call.context.loss_scale));
    let pairs = call.input(0).iter().zip(now);
    pairs.map(|(sum, g)| if is_first { 0.0 } else { *sum } + g / scale).collect()
}

/// The gradients so far, unless `found_inf` is not 0.
pub(crate) fn keep_accumulated(call: &Call) -> Vec<f64> {
    let from = if call.input(1)[0] == 0.0 { call.input(0) } else { call.updates[0] };
    from.to_vec()
}

/// Adds `factor · (squares − gradient²)` to state, where that is finite.
pub(crate) fn correct_squares(call: &Call, factor: f32) -> Vec<f64> {
    let (gradient, squares) = (call.input(0), call.input(1));
    let corrected = |(index, state): (usize, &f64)| {
        let next = state + f64::from(factor) * (squares[index] - gradient[index] * gradient[index]);
        if is_finite(next) { next } else { *state }
    };
    call.updates[0].iter().enumerate().map(corrected).collect()
}
