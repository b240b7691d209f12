//! Batch and layer normalisation.

use memfit_ir::{Kind, Norm, Op, TensorId};

use super::axis_after_batch;
use crate::error::FormatError;
use crate::site::Site;

/// In training the batch's own statistics, which also move the averages; else, and where frozen, the averages.
pub(crate) fn batch(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let axes = site.dims(x).len();
    let axis = site.settings.axis("axis");
    if axes == 0 || axis_after_batch(axis, axes) != Some(axes - 1) {
        return Err(site.unsupported("axis", axis, "-1, the last axis"));
    }
    let channels = [site.dims(x)[axes - 1]];
    let norm = norm(site);
    let affine = affine(site, &norm, &channels)?;
    let settings = site.settings;
    let mean_start = settings.initializer("moving_mean_initializer");
    let mean = site.weight_as("moving_mean", &channels, &channels, mean_start, false)?;
    let variance_start = settings.initializer("moving_variance_initializer");
    let variance = site.weight_as("moving_variance", &channels, &channels, variance_start, false)?;

    let mut operands = vec![x];
    operands.extend(affine);
    if !(site.training && site.trainable) {
        operands.extend([mean, variance]);
        return site.push(Op::BatchNormInference(norm), &operands);
    }
    let statistics = site.push_all(Op::BatchNormStatistics, &[x])?;
    operands.extend(&statistics);
    let y = site.push(Op::BatchNorm(norm), &operands)?;
    let momentum = settings.number("momentum") as f32;
    site.graph
        .push_updating(
            Op::BatchNormMoving { momentum },
            &statistics,
            &[mean, variance],
            Kind::Activation,
            site.layer,
        )
        .expect("a batch's statistics have the shape of their averages");
    Ok(y)
}

pub(crate) fn layer(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let dims = site.dims(x).to_vec();
    let listed = site.settings.integers("axis").unwrap_or_default();
    let axes: Vec<Option<usize>> = listed.iter().map(|axis| axis_after_batch(*axis, dims.len())).collect();
    let first = dims.len().saturating_sub(axes.len());
    if !(first..dims.len()).map(Some).eq(axes.iter().copied()) {
        return Err(site.unsupported("axis", format!("{listed:?}"), "-1 or all axes from one to the last"));
    }
    let norm = norm(site);
    let mut operands = vec![x];
    operands.extend(affine(site, &norm, &dims[first..])?);
    site.push(Op::LayerNorm(norm, axes.len()), &operands)
}

pub(super) fn norm(site: &Site<'_>) -> Norm {
    Norm {
        epsilon: site.settings.number("epsilon") as f32,
        scale: site.settings.flag("scale"),
        center: site.settings.flag("center"),
    }
}

/// Gamma and beta, as far as the layer has them.
pub(super) fn affine(site: &mut Site<'_>, norm: &Norm, dims: &[usize]) -> Result<Vec<TensorId>, FormatError> {
    let mut weights = Vec::new();
    if norm.scale {
        weights.push(site.weight("gamma", dims, site.settings.initializer("gamma_initializer"))?);
    }
    if norm.center {
        weights.push(site.weight("beta", dims, site.settings.initializer("beta_initializer"))?);
    }
    Ok(weights)
}
