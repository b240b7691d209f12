//! Losses by how much of predictions and targets overlaps.

use super::EPSILON;

/// `1 − above · I / (b I + c T + d P)` with `I = Σ t p`, `T = Σ t` and `P = Σ p`.
pub(super) fn of(p: &[f64], t: &[f64], above: f64, [b, c, d]: [f64; 3]) -> (f64, Vec<f64>) {
    let both: f64 = p.iter().zip(t).map(|(p, t)| p * t).sum();
    let (targets, predictions): (f64, f64) = (t.iter().sum(), p.iter().sum());
    let below = b * both + c * targets + d * predictions + EPSILON;
    // The quotient's rule: I grows by t with a prediction, and P by 1.
    let gradient = |t: &f64| (above * both * (b * t + d) - above * t * below) / (below * below);
    (1.0 - above * both / below, t.iter().map(gradient).collect())
}
