//! Losses by distance in double precision.

use memfit_ir::Distance;

/// The distance of one sample.
pub(crate) fn sample_distance(distance: Distance, p: &[f64], t: &[f64]) -> f64 {
    const EPSILON: f64 = 1e-7;
    let pairs = || p.iter().copied().zip(t.iter().copied());
    let mean =
        |each: &dyn Fn(f64, f64) -> f64| pairs().map(|(p, t)| each(p, t)).sum::<f64>() / p.len() as f64;
    let hinge = |p: f64, t: f64| (1.0 - if t == 0.0 { -1.0 } else { t } * p).max(0.0);
    let length = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
    let dot = || pairs().map(|(p, t)| p * t).sum::<f64>();
    match distance {
        Distance::Poisson => mean(&|p, t| p - t * (p + EPSILON).ln()),
        Distance::LogCosh => mean(&|p, t| (p - t).cosh().ln()),
        Distance::Hinge => mean(&hinge),
        Distance::SquaredHinge => mean(&|p, t| hinge(p, t).powi(2)),
        Distance::MeanAbsolutePercentageError => mean(&|p, t| 100.0 * (p - t).abs() / t.abs().max(EPSILON)),
        Distance::MeanSquaredLogarithmicError => {
            mean(&|p, t| ((p.max(EPSILON) + 1.0).ln() - (t.max(EPSILON) + 1.0).ln()).powi(2))
        }
        Distance::KlDivergence => pairs()
            .map(|(p, t)| (p.clamp(EPSILON, 1.0), t.clamp(EPSILON, 1.0)))
            .map(|(p, t)| t * (t / p).ln())
            .sum(),
        Distance::BinaryFocalCrossentropy { from_logits, label_smoothing, alpha, gamma } => mean(&|x, t| {
            let p = if from_logits { 1.0 / (1.0 + (-x).exp()) } else { x };
            let smoothing = f64::from(label_smoothing);
            let t = t * (1.0 - smoothing) + 0.5 * smoothing;
            let entropy = -(t * p.ln() + (1.0 - t) * (1.0 - p).ln());
            let doubt = 1.0 - (t * p + (1.0 - t) * (1.0 - p));
            let weight = alpha.map_or(1.0, |alpha| {
                let alpha = f64::from(alpha);
                t * alpha + (1.0 - t) * (1.0 - alpha)
            });
            weight * doubt.powf(f64::from(gamma)) * entropy
        }),
        Distance::CategoricalHinge => {
            let wrong = pairs().map(|(p, t)| (1.0 - t) * p).fold(f64::NEG_INFINITY, f64::max);
            (wrong - dot() + 1.0).max(0.0)
        }
        Distance::CategoricalFocalCrossentropy { from_logits, label_smoothing, alpha, gamma } => {
            let raw: Vec<f64> = p.iter().map(|x| if from_logits { x.exp() } else { *x }).collect();
            let (total, smooth) = (raw.iter().sum::<f64>(), f64::from(label_smoothing));
            let terms = raw.iter().zip(t).map(|(raw, t)| {
                let (q, t) = (raw / total, t * (1.0 - smooth) + smooth / p.len() as f64);
                -t * f64::from(alpha) * (1.0 - q).powf(f64::from(gamma)) * q.ln()
            });
            terms.sum()
        }
        Distance::Dice { .. } => {
            1.0 - 2.0 * dot() / (p.iter().sum::<f64>() + t.iter().sum::<f64>() + EPSILON)
        }
        Distance::Tversky { alpha, beta, .. } => {
            let missed: f64 = pairs().map(|(p, t)| t * (1.0 - p)).sum();
            let invented: f64 = pairs().map(|(p, t)| p * (1.0 - t)).sum();
            let below = dot() + f64::from(alpha) * missed + f64::from(beta) * invented + EPSILON;
            1.0 - dot() / below
        }
        Distance::CosineSimilarity => -dot() / (length(p) * length(t)),
    }
}
