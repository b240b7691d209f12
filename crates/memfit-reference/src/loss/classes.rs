//! Losses over the classes of a sample.

use super::super::softmax::{log_sum, softmax};
use super::EPSILON;
use super::dual::Dual;

/// `Σ t (ln Σ eˣ − x)`, with the gradient `softmax(x) · mass − t`, where `mass` is what the targets sum to.
pub(super) fn of_logits(x: &[f64], t: &[f64], mass: f64) -> (f64, Vec<f64>) {
    let sum = log_sum(x);
    // A class without a share may be infinitely unlikely.
    let term = |(x, t): (&f64, &f64)| if *t == 0.0 { 0.0 } else { t * (sum - x) };
    let value = x.iter().zip(t).map(term).sum();
    (value, softmax(x).iter().zip(t).map(|(y, t)| y * mass - t).collect())
}

/// `−Σ t ln clip(p / Σ p)`.
pub(super) fn of_shares(p: &[f64], t: &[f64]) -> (f64, Vec<f64>) {
    let total: f64 = p.iter().sum();
    let q: Vec<f64> = p.iter().map(|p| p / total).collect();
    let terms: Vec<Dual> =
        q.iter().zip(t).map(|(q, t)| -Dual::variable(*q).clip(EPSILON, 1.0 - EPSILON).ln() * *t).collect();
    (terms.iter().map(|term| term.value).sum(), through_shares(&q, total, &terms))
}

/// `−Σ t ln (clip(p) / Σ clip(p))` of targets that sum to 1.
pub(super) fn of_clipped(p: &[f64], t: &[f64]) -> (f64, Vec<f64>) {
    let clipped: Vec<Dual> = p.iter().map(|p| Dual::variable(*p).clip(EPSILON, 1.0 - EPSILON)).collect();
    let total: f64 = clipped.iter().map(|p| p.value).sum();
    let value = clipped.iter().zip(t).map(|(p, t)| -t * (p.value / total).ln()).sum();
    let gradient = |(p, t): (&Dual, &f64)| p.derivative * (1.0 / total - t / p.value);
    (value, clipped.iter().zip(t).map(gradient).collect())
}

/// `−Σ t alpha (1 − q)^gamma ln q`, where `q` is `p / Σ p`, or the softmax of logits.
pub(super) fn focal(x: &[f64], t: &[f64], from_logits: bool, [alpha, gamma]: [f64; 2]) -> (f64, Vec<f64>) {
    let total: f64 = x.iter().sum();
    let q: Vec<f64> = if from_logits { softmax(x) } else { x.iter().map(|x| x / total).collect() };
    let term = |(q, t): (&f64, &f64)| {
        let q = Dual::variable(*q).clip(EPSILON, 1.0 - EPSILON);
        -((-q + 1.0).powf(gamma) * q.ln()) * (alpha * t)
    };
    let terms: Vec<Dual> = q.iter().zip(t).map(term).collect();
    let value = terms.iter().map(|term| term.value).sum();
    if !from_logits {
        return (value, through_shares(&q, total, &terms));
    }
    let common: f64 = terms.iter().zip(&q).map(|(term, q)| term.derivative * q).sum();
    (value, terms.iter().zip(&q).map(|(term, q)| q * (term.derivative - common)).collect())
}

/// The gradient by `p` of what depends on `q = p / Σ p`.
fn through_shares(q: &[f64], total: f64, terms: &[Dual]) -> Vec<f64> {
    let common: f64 = terms.iter().zip(q).map(|(term, q)| term.derivative * q).sum();
    terms.iter().map(|term| (term.derivative - common) / total).collect()
}

/// `max(1 + max (1 − t) p − Σ t p, 0)`.
pub(super) fn hinge(p: &[f64], t: &[f64]) -> (f64, Vec<f64>) {
    let (mut place, mut wrong) = (0, f64::NEG_INFINITY);
    for (index, (p, t)) in p.iter().zip(t).enumerate() {
        if wrong < (1.0 - t) * p {
            (place, wrong) = (index, (1.0 - t) * p);
        }
    }
    let value = 1.0 + wrong - p.iter().zip(t).map(|(p, t)| p * t).sum::<f64>();
    if value < 0.0 {
        return (0.0, vec![0.0; p.len()]);
    }
    let gradient = |(index, t): (usize, &f64)| if index == place { 1.0 - 2.0 * t } else { -t };
    (value, t.iter().enumerate().map(gradient).collect())
}

/// `−Σ p t / (|p| |t|)`, where no length is below Keras's smallest.
pub(super) fn cosine(p: &[f64], t: &[f64]) -> (f64, Vec<f64>) {
    let length = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
    let (of_p, of_t) = (length(p).max(EPSILON), length(t).max(EPSILON));
    let cosine = p.iter().zip(t).map(|(p, t)| p * t).sum::<f64>() / (of_p * of_t);
    // A length that is raised to the smallest is constant.
    let by_length = if EPSILON < of_p { cosine / (of_p * of_p) } else { 0.0 };
    let gradient = |(p, t): (&f64, &f64)| by_length * p - t / (of_p * of_t);
    (-cosine, p.iter().zip(t).map(gradient).collect())
}
