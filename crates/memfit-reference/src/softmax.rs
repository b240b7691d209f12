//! Softmax over the last axis.

use super::call::Call;

/// `eˣ / Σ eˣ`.
pub(crate) fn forward(call: &Call) -> Vec<f64> {
    call.input(0).chunks(call.last(0)).flat_map(softmax).collect()
}

/// `dx = y (dy − Σ dy y)`.
pub(crate) fn grad(call: &Call) -> Vec<f64> {
    let mut dx = Vec::new();
    for (dy, y) in call.input(0).chunks(call.last(0)).zip(call.input(1).chunks(call.last(0))) {
        let sum: f64 = dy.iter().zip(y).map(|(dy, y)| dy * y).sum();
        dx.extend(dy.iter().zip(y).map(|(dy, y)| y * (dy - sum)));
    }
    dx
}

/// The softmax of one row.
pub(crate) fn softmax(row: &[f64]) -> Vec<f64> {
    let sum = log_sum(row);
    row.iter().map(|x| (x - sum).exp()).collect()
}

/// `ln Σ eˣ`.
pub(crate) fn log_sum(row: &[f64]) -> f64 {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most + row.iter().map(|x| (x - most).exp()).sum::<f64>().ln()
}
