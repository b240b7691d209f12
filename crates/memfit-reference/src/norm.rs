//! Normalisations, by the statistics of a batch and by those of each position.

use memfit_device::Kept;
use memfit_ir::Norm;

use super::call::{Call, Computed};
use super::dense::column_sums;
use super::number::is_finite;

/// Mean and variance of each channel.
pub(crate) fn statistics(call: &Call) -> Vec<Vec<f64>> {
    let (x, channels) = (call.input(0), call.last(0));
    let count = (x.len() / channels) as f64;
    let mean: Vec<f64> = column_sums(x, channels).iter().map(|sum| sum / count).collect();
    let squares: Vec<f64> =
        x.iter().enumerate().map(|(index, x)| (x - mean[index % channels]).powi(2)).collect();
    let variance = column_sums(&squares, channels).iter().map(|sum| sum / count).collect();
    vec![mean, variance]
}

/// `y = (x − mean) / √(variance + epsilon) · gamma + beta`.
pub(crate) fn batch(call: &Call, norm: &Norm) -> Vec<f64> {
    let count = call.inputs.len();
    let (mean, variance) = (call.input(count - 2), call.input(count - 1));
    let normal = |(index, x): (usize, &f64)| {
        let channel = index % mean.len();
        scaled(call, norm, (x - mean[channel]) * rstd(variance[channel], norm), channel)
    };
    call.input(0).iter().enumerate().map(normal).collect()
}

/// With `x̂` the normalised values and `g = dy gamma`: `dx = rstd (g − mean(g) − x̂ mean(g x̂))`, `dgamma = Σ dy x̂` and `dbeta = Σ dy`,
/// all over a channel.
pub(crate) fn batch_grad(call: &Call, norm: &Norm) -> Computed {
    let (dy, x, mean, variance) = (call.input(0), call.input(1), call.input(2), call.input(3));
    let (gamma, channels) = (call.input_if(norm.scale, 4), mean.len());
    let count = (x.len() / channels) as f64;
    let normal: Vec<f64> =
        (0..x.len()).map(|i| (x[i] - mean[i % channels]) * rstd(variance[i % channels], norm)).collect();
    let products: Vec<f64> = dy.iter().zip(&normal).map(|(dy, normal)| dy * normal).collect();
    let (dgamma, dbeta) = (column_sums(&products, channels), column_sums(dy, channels));
    let dx = |index: usize| {
        let channel = index % channels;
        let factor = rstd(variance[channel], norm) * gamma.map_or(1.0, |gamma| gamma[channel]);
        factor * (dy[index] - dbeta[channel] / count - normal[index] * dgamma[channel] / count)
    };
    let dx = (0..x.len()).map(dx).collect();
    with_gradients(call, norm, dx, dgamma, dbeta)
}

/// `dx = dy gamma / √(variance + epsilon)`.
pub(crate) fn inference_grad(call: &Call, norm: &Norm) -> Vec<f64> {
    let gamma = call.input_if(norm.scale, 1);
    let variance = call.input(1 + usize::from(norm.scale));
    let dx = |(index, dy): (usize, &f64)| {
        let channel = index % variance.len();
        dy * gamma.map_or(1.0, |gamma| gamma[channel]) * rstd(variance[channel], norm)
    };
    call.input(0).iter().enumerate().map(dx).collect()
}

/// `moving = moving · momentum + value · (1 − momentum)`, unless a result is not finite or `found_inf` forbids it.
pub(crate) fn moving(call: &Call, momentum: f32) -> Computed {
    let momentum = f64::from(momentum);
    let old: Vec<Vec<f64>> = call.updates.iter().map(|moving| moving.to_vec()).collect();
    if call.inputs.get(2).is_some_and(|found_inf| found_inf[0] != 0.0) {
        return Computed::updates(old);
    }
    let next = |index: usize| -> Vec<f64> {
        let pairs = old[index].iter().zip(call.input(index));
        pairs.map(|(moving, value)| moving * momentum + value * (1.0 - momentum)).collect()
    };
    let new = vec![next(0), next(1)];
    if new.iter().flatten().all(|value| is_finite(*value)) {
        return Computed::updates(new);
    }
    let kept = Kept { elements: old[0].len() as u64, state_written: false };
    Computed { updates: old, kept, ..Computed::default() }
}

/// The normalised values, and mean and rstd of each position.
pub(crate) fn layer(call: &Call, norm: &Norm, axes: usize) -> Vec<Vec<f64>> {
    let (mut y, mut means, mut rstds) = (Vec::new(), Vec::new(), Vec::new());
    let width = width(call.dims(0), axes);
    for x in call.input(0).chunks(width) {
        let mean = x.iter().sum::<f64>() / width as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
        let rstd = rstd(variance, norm);
        y.extend(x.iter().enumerate().map(|(at, x)| scaled(call, norm, (x - mean) * rstd, at)));
        means.push(mean);
        rstds.push(rstd);
    }
    vec![y, means, rstds]
}

/// As [`batch_grad`], with sums over each position in `dx`.
pub(crate) fn layer_grad(call: &Call, norm: &Norm, axes: usize) -> Computed {
    let (dy, x, mean, rstd) = (call.input(0), call.input(1), call.input(2), call.input(3));
    let gamma = call.input_if(norm.scale, 4);
    let width = width(call.dims(0), axes);
    let (mut dx, mut products) = (Vec::new(), Vec::new());
    for (position, (dy, x)) in dy.chunks(width).zip(x.chunks(width)).enumerate() {
        let (mean, rstd) = (mean[position], rstd[position]);
        let normal: Vec<f64> = x.iter().map(|x| (x - mean) * rstd).collect();
        let g: Vec<f64> =
            dy.iter().enumerate().map(|(at, dy)| dy * gamma.map_or(1.0, |gamma| gamma[at])).collect();
        let of_g = g.iter().sum::<f64>() / width as f64;
        let of_product = g.iter().zip(&normal).map(|(g, normal)| g * normal).sum::<f64>() / width as f64;
        dx.extend(g.iter().zip(&normal).map(|(g, normal)| rstd * (g - of_g - normal * of_product)));
        products.extend(dy.iter().zip(&normal).map(|(dy, normal)| dy * normal));
    }
    with_gradients(call, norm, dx, column_sums(&products, width), column_sums(dy, width))
}

/// The gradients of the weights that a normalisation has, added to their sums.
fn with_gradients(call: &Call, norm: &Norm, dx: Vec<f64>, dgamma: Vec<f64>, dbeta: Vec<f64>) -> Computed {
    let given = [(norm.scale, dgamma), (norm.center, dbeta)].into_iter().filter(|(given, _)| *given);
    let terms: Vec<Vec<f64>> = given.map(|(_, terms)| terms).take(call.updates.len()).collect();
    Computed { outputs: vec![dx], ..call.sums(&terms) }
}

fn width(dims: &[usize], axes: usize) -> usize {
    dims[dims.len() - axes..].iter().product::<usize>().max(1)
}

fn rstd(variance: f64, norm: &Norm) -> f64 {
    1.0 / (variance + f64::from(norm.epsilon)).sqrt()
}

/// A normalised value with the gamma and the beta of its place; they follow `x` among the inputs.
fn scaled(call: &Call, norm: &Norm, normal: f64, place: usize) -> f64 {
    let gamma = call.input_if(norm.scale, 1).map_or(1.0, |gamma| gamma[place]);
    let beta = call.input_if(norm.center, 1 + usize::from(norm.scale)).map_or(0.0, |beta| beta[place]);
    gamma * normal + beta
}
