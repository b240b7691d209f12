//! Losses that are the mean of a function of each element.

use memfit_ir::{Distance, LossKind};

use super::EPSILON;
use super::dual::Dual;

/// The mean over the elements of a sample, and its gradient.
pub(super) fn mean(kind: &LossKind, p: &[f64], t: &[f64]) -> (f64, Vec<f64>) {
    let count = p.len() as f64;
    let each: Vec<Dual> =
        p.iter().zip(t).map(|(p, t)| element(kind, Dual::variable(*p), *t, count)).collect();
    let total: f64 = each.iter().map(|of| of.value).sum();
    (total / count, each.iter().map(|of| of.derivative / count).collect())
}

/// What one element of `count` adds to the mean.
fn element(kind: &LossKind, p: Dual, t: f64, count: f64) -> Dual {
    let gap = p - t;
    match *kind {
        LossKind::MeanSquaredError => gap * gap,
        LossKind::MeanAbsoluteError => gap.abs(),
        LossKind::Huber { delta } => {
            let delta = f64::from(delta);
            if delta < gap.value.abs() { gap.abs() * delta - 0.5 * delta * delta } else { gap * gap * 0.5 }
        }
        LossKind::BinaryCrossentropy { from_logits, label_smoothing } => {
            let t = smoothed(t, label_smoothing);
            if from_logits { p.softplus() - p * t } else { binary(p, t) }
        }
        LossKind::Distance(distance) => distance_of(distance, p, t, count),
        LossKind::CategoricalCrossentropy { .. }
        | LossKind::UnitCategoricalCrossentropy { .. }
        | LossKind::SparseCategoricalCrossentropy { .. }
        | LossKind::Reduced { .. } => panic!("{kind:?} is no mean over elements"),
    }
}

fn distance_of(distance: Distance, p: Dual, t: f64, count: f64) -> Dual {
    let gap = p - t;
    match distance {
        Distance::Poisson => p - (p + EPSILON).ln() * t,
        // ln cosh d = d + ln (1 + e⁻²ᵈ) − ln 2
        Distance::LogCosh => gap + (gap * -2.0).softplus() - std::f64::consts::LN_2,
        Distance::Hinge => hinge(p, t),
        Distance::SquaredHinge => hinge(p, t) * hinge(p, t),
        Distance::MeanAbsolutePercentageError => gap.abs() * (100.0 / t.abs().max(EPSILON)),
        Distance::MeanSquaredLogarithmicError => {
            let gap = (p.clip(EPSILON, f64::INFINITY) + 1.0).ln() - (t.max(EPSILON) + 1.0).ln();
            gap * gap
        }
        // A sum, where the others are means.
        Distance::KlDivergence => {
            let t = t.clamp(EPSILON, 1.0);
            -(p.clip(EPSILON, 1.0).ln() - t.ln()) * (t * count)
        }
        Distance::BinaryFocalCrossentropy { from_logits, label_smoothing, alpha, gamma } => {
            let p = if from_logits { p.sigmoid() } else { p };
            let t = smoothed(t, label_smoothing);
            let doubt = -(p * t + (-p + 1.0) * (1.0 - t)) + 1.0;
            let weight = alpha.map_or(1.0, |alpha| {
                let alpha = f64::from(alpha);
                t * alpha + (1.0 - t) * (1.0 - alpha)
            });
            doubt.powf(f64::from(gamma)) * binary(p, t) * weight
        }
        Distance::CategoricalHinge
        | Distance::CategoricalFocalCrossentropy { .. }
        | Distance::Dice { .. }
        | Distance::Tversky { .. }
        | Distance::CosineSimilarity => panic!("{distance:?} is no mean over elements"),
    }
}

/// `−t ln p − (1 − t) ln (1 − p)` of a probability that is kept from 0 and 1.
fn binary(p: Dual, t: f64) -> Dual {
    let p = p.clip(EPSILON, 1.0 - EPSILON);
    -(p.ln() * t + (-p + 1.0).ln() * (1.0 - t))
}

/// `max(1 − t p, 0)`, where a target of 0 counts as −1.
fn hinge(p: Dual, t: f64) -> Dual {
    let t = if t == 0.0 { -1.0 } else { t };
    (-(p * t) + 1.0).clip(0.0, f64::INFINITY)
}

/// A target with a share of it moved to one half.
fn smoothed(t: f64, smoothing: f32) -> f64 {
    let smoothing = f64::from(smoothing);
    t * (1.0 - smoothing) + 0.5 * smoothing
}
