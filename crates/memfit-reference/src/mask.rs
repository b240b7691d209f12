//! Masks, and weights of samples that are balanced.

use memfit_ir::Mask;

use super::call::Call;
use super::elementwise::step;

/// 1 at places that count, else 0.
pub(crate) fn forward(call: &Call, mask: Mask) -> Vec<f64> {
    let x = call.input(0);
    match mask {
        // Floats are cut to whole numbers, as where they name entries.
        Mask::NotZero => x.iter().map(|id| step(id.trunc() != 0.0)).collect(),
        Mask::OtherClass(class) => x.iter().map(|other| step(*other != f64::from(class))).collect(),
        Mask::AnyOther(value) => {
            let counts = |place: &[f64]| step(place.iter().any(|x| *x != f64::from(value)));
            x.chunks(call.last(0)).map(counts).collect()
        }
    }
}

/// Weights times their count over their sum; all 0 where the sum is.
pub(crate) fn balance(call: &Call) -> Vec<f64> {
    let weights = call.input(0);
    let total: f64 = weights.iter().sum();
    let factor = if total == 0.0 { 0.0 } else { weights.len() as f64 / total };
    weights.iter().map(|weight| factor * weight).collect()
}
