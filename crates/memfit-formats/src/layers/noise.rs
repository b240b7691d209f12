//! Layers that draw random numbers in training and do nothing outside it.

use memfit_ir::{Noise, NoiseKind, Op, TensorId, random};

use crate::error::FormatError;
use crate::site::Site;

/// The draws of a call: the layer's own seed, or one by its name. Every call of a shared layer has draws of its own.
pub(super) fn seed(site: &Site<'_>, own: Option<u64>) -> u64 {
    let own = own.unwrap_or_else(|| random::purpose(site.path));
    if site.call == 0 { own } else { random::derive(own, site.call) }
}

/// Noise of the layer's `noise_shape`.
pub(super) fn shaped(site: &mut Site<'_>, kind: NoiseKind, x: TensorId) -> Result<TensorId, FormatError> {
    let own = site.dims(x).to_vec();
    let dims = match site.settings.integers("noise_shape") {
        None => own,
        Some([-1, listed @ ..]) if listed.len() == own.len() => {
            listed.iter().zip(own).map(|(size, own)| usize::try_from(*size).unwrap_or(own)).collect()
        }
        Some(listed) => {
            let supported = "null for the batch, then a size or null for each axis";
            return Err(site.unsupported("noise_shape", format!("{listed:?}"), supported));
        }
    };
    let own = site.settings.seed("seed");
    draw(site, kind, own, dims, x)
}

pub(super) fn spatial_dropout(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let mut dims = vec![1; site.dims(x).len()];
    if let (Some(last), Some(channels)) = (dims.last_mut(), site.dims(x).last()) {
        *last = *channels;
    }
    let rate = site.settings.number("rate") as f32;
    let own = site.settings.seed("seed");
    draw(site, NoiseKind::Dropout { rate }, own, dims, x)
}

pub(super) fn gaussian_dropout(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let rate = site.settings.number("rate");
    let (dims, own) = (site.dims(x).to_vec(), site.settings.seed("seed"));
    draw(site, NoiseKind::Multiply { stddev: (rate / (1.0 - rate)).sqrt() as f32 }, own, dims, x)
}

pub(super) fn gaussian_noise(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let stddev = site.settings.number("stddev") as f32;
    let (dims, own) = (site.dims(x).to_vec(), site.settings.seed("seed"));
    draw(site, NoiseKind::Add { stddev }, own, dims, x)
}

pub(super) fn alpha_dropout(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    shaped(site, NoiseKind::Alpha { rate: site.settings.number("rate") as f32 }, x)
}

/// The dropout of a recurrent layer's input: one draw of each feature for all steps.
pub(super) fn input_dropout(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let [_, features] = site.sequence(x)?;
    let rate = site.settings.number("dropout") as f32;
    // The two directions of a Bidirectional layer have draws of their own.
    let own = site.settings.seed("seed").unwrap_or_else(|| random::purpose(site.path));
    let own = random::derive(own, random::purpose(&site.within));
    draw(site, NoiseKind::Dropout { rate }, Some(own), vec![1, features], x)
}

/// One draw for a row.
pub(super) fn stochastic_depth(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let rate = site.settings.number("drop_path_rate") as f32;
    let dims = vec![1; site.dims(x).len()];
    draw(site, NoiseKind::Dropout { rate }, None, dims, x)
}

fn draw(
    site: &mut Site<'_>,
    kind: NoiseKind,
    own: Option<u64>,
    dims: Vec<usize>,
    x: TensorId,
) -> Result<TensorId, FormatError> {
    let strength = match kind {
        NoiseKind::Dropout { rate } | NoiseKind::Alpha { rate } | NoiseKind::AlphaGrad { rate } => rate,
        NoiseKind::Add { stddev } | NoiseKind::Multiply { stddev } => stddev,
    };
    if !site.training || strength == 0.0 {
        return Ok(x);
    }
    let seed = seed(site, own);
    site.push(Op::Noise(Noise { kind, seed, dims }), &[x])
}
