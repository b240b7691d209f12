//! Dropout and noise: draws are a function of seed, step and place in the batch.

use memfit_ir::{Noise, NoiseKind, random};

use super::call::Call;

/// The seed of an op's draws in this step.
pub(crate) fn seed(call: &Call, own: u64) -> u64 {
    random::derive(random::derive(call.context.seed, own), call.context.step)
}

/// A share of elements set to 0, the others scaled.
pub(crate) fn dropout(call: &Call, rate: f32, own: u64) -> Vec<f64> {
    let first = call.context.row_start * call.shape(0).elements_per_row();
    let seed = seed(call, own);
    let each = |(index, x): (usize, &f64)| {
        let unit = random::unit(seed, (first + index) as u64);
        if rate <= unit { x / (1.0 - f64::from(rate)) } else { 0.0 }
    };
    call.input(0).iter().enumerate().map(each).collect()
}

/// What noise makes of every value.
pub(crate) fn noise(call: &Call, noise: &Noise) -> Vec<f64> {
    let dims = call.dims(0);
    let seed = seed(call, noise.seed);
    let per_row: usize = dims.iter().product();
    let drawn_per_row: usize = noise.dims.iter().product();
    // Where a value's draw stands in the sequence: neighbours along an axis of one draw share it.
    let place = |index: usize| {
        let (row, mut rest) = (index / per_row, index % per_row);
        let (mut at, mut stride) = (0, 1);
        for (size, drawn) in dims.iter().zip(&noise.dims).rev() {
            at += (rest % size).min(drawn - 1) * stride;
            stride *= drawn;
            rest /= size;
        }
        ((call.context.row_start + row) * drawn_per_row + at) as u64
    };
    let each = |(index, x): (usize, &f64)| changed(noise.kind, seed, place(index), *x);
    call.input(0).iter().enumerate().map(each).collect()
}

fn changed(kind: NoiseKind, seed: u64, place: u64, x: f64) -> f64 {
    let stays = |rate: f32| rate <= random::unit(seed, place);
    let normal = |stddev: f32| f64::from(stddev) * f64::from(random::normal(seed, place));
    match kind {
        NoiseKind::Dropout { rate } => {
            if stays(rate) {
                x / (1.0 - f64::from(rate))
            } else {
                0.0
            }
        }
        NoiseKind::Add { stddev } => x + normal(stddev),
        NoiseKind::Multiply { stddev } => x * (1.0 + normal(stddev)),
        NoiseKind::Alpha { rate } => {
            let (lowest, scale, shift) = NoiseKind::alpha_constants(rate);
            scale * if stays(rate) { x } else { lowest } + shift
        }
        NoiseKind::AlphaGrad { rate } => {
            if stays(rate) {
                NoiseKind::alpha_constants(rate).1 * x
            } else {
                0.0
            }
        }
    }
}
