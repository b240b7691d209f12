//! Layers that scale and shift: by weights, by constants, or by statistics of groups of channels.

use memfit_ir::{Binary, Chain, Link, Norm, Op, TensorId, Unary};

use super::normalization::{affine, norm};
use super::{activations, axis_after_batch, merging};
use crate::error::FormatError;
use crate::initializer::Start;
use crate::site::Site;

/// Below this, Keras divides by it instead of a deviation.
const LEAST_DEVIATION: f64 = 1e-7;

/// By the mean and variance of the configuration, or by weights that `adapt` has set.
pub(super) fn normalization(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let dims = site.dims(x).to_vec();
    let listed = site.settings.integers("axis").unwrap_or_default();
    let last = dims.len().checked_sub(1);
    if last.is_none() || !matches!(listed, [axis] if axis_after_batch(*axis, dims.len()) == last) {
        return Err(site.unsupported("axis", format!("{listed:?}"), "-1, the last axis"));
    }
    let channels = dims[dims.len() - 1];
    let invert = site.settings.flag("invert");
    match (site.settings.numbers("mean"), site.settings.numbers("variance")) {
        (Some(mean), Some(variance)) => {
            let count = mean.len().max(variance.len());
            let at = |numbers: &[f64], index: usize| numbers[index.min(numbers.len() - 1)];
            let deviation = |index: usize| at(variance, index).max(0.0).sqrt().max(LEAST_DEVIATION);
            let scale = |index: usize| if invert { deviation(index) } else { 1.0 / deviation(index) };
            let offset = |index: usize| match invert {
                true => at(mean, index),
                false => -at(mean, index) / deviation(index),
            };
            let scales: Vec<f64> = (0..count).map(scale).collect();
            let offsets: Vec<f64> = (0..count).map(offset).collect();
            let scale = activations::spread(site, "variance", &scales, channels)?;
            let offset = activations::spread(site, "mean", &offsets, channels)?;
            site.push(Op::AffineConstant { scale, offset }, &[x])
        }
        _ if invert => Err(site.unsupported("invert", true, "false, or a mean and a variance with it")),
        _ => {
            let mean = site.weight_as("mean", &[channels], &[channels], &Start::constant(0.0), false)?;
            let variance =
                site.weight_as("variance", &[channels], &[channels], &Start::constant(1.0), false)?;
            // Keras stores how many rows were seen; nothing reads it.
            site.count("count");
            let epsilon = (LEAST_DEVIATION * LEAST_DEVIATION) as f32;
            let norm = Norm { epsilon, scale: false, center: false };
            site.push(Op::BatchNormInference(norm), &[x, mean, variance])
        }
    }
}

/// Statistics over all positions of a row and the channels of a group: a layer normalisation of groups by themselves.
pub(super) fn group_normalization(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let dims = site.dims(x).to_vec();
    let axis = site.settings.axis("axis");
    if dims.is_empty() || axis_after_batch(axis, dims.len()) != Some(dims.len() - 1) {
        return Err(site.unsupported("axis", axis, "-1, the last axis"));
    }
    let channels = dims[dims.len() - 1];
    let wanted = site.settings.number("groups");
    let groups = if wanted == -1.0 { channels } else { wanted as usize };
    if groups == 0 || !channels.is_multiple_of(groups) || (wanted != -1.0 && wanted.fract() != 0.0) {
        return Err(site.unsupported("groups", wanted, &format!("a divisor of {channels} channels, or -1")));
    }
    let (positions, width) = (dims[..dims.len() - 1].iter().product(), channels / groups);
    let plain = Norm { scale: false, center: false, ..norm(site) };
    let grouped = site.push(Op::Reshape(vec![positions, groups, width]), &[x])?;
    let apart = site.push(Op::Transpose(vec![1, 0, 2]), &[grouped])?;
    let normal = site.push(Op::LayerNorm(plain, 2), &[apart])?;
    let together = site.push(Op::Transpose(vec![1, 0, 2]), &[normal])?;
    let y = site.push(Op::Reshape(dims), &[together])?;
    let norm = norm(site);
    let mut operands = vec![y];
    operands.extend(affine(site, &norm, &[channels])?);
    if operands.len() == 1 {
        return Ok(y);
    }
    site.push(Op::Affine { scale: norm.scale, center: norm.center }, &operands)
}

/// The layer scale of ConvNeXt: a factor for each channel that learns.
pub(super) fn layer_scale(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let channels = site.settings.size("projection_dim");
    let start = Start::constant(site.settings.number("init_values"));
    let gamma = site.weight("gamma", &[channels], &start)?;
    site.push(Op::Affine { scale: true, center: false }, &[x, gamma])
}

/// The scaled residual of InceptionResNet: `a + scale · b`.
pub(super) fn custom_scale(site: &mut Site<'_>, operands: &[TensorId]) -> Result<TensorId, FormatError> {
    let scale = site.settings.number("scale") as f32;
    let links = vec![Link::Unary(Unary::Scale(scale), 1), Link::Binary(Binary::Add, 0, 2)];
    merging::merge(site, Chain { inputs: 2, links }, operands)
}

/// `max(x, 0) + alpha · min(x, 0)`, with a weight for each element but along shared axes.
pub(super) fn prelu(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let dims = site.dims(x).to_vec();
    let listed = site.settings.integers("shared_axes").unwrap_or_default();
    let shared: Vec<Option<usize>> = listed.iter().map(|axis| axis_after_batch(*axis, dims.len())).collect();
    let leading = (0..shared.len()).all(|axis| shared.contains(&Some(axis)));
    if !leading || dims.len() <= shared.len() {
        let supported = "the first axes after the batch, as [1, 2] of an image";
        return Err(site.unsupported("shared_axes", format!("{listed:?}"), supported));
    }
    let own = &dims[shared.len()..];
    let keras_dims: Vec<usize> = std::iter::repeat_n(1, shared.len()).chain(own.iter().copied()).collect();
    let start = site.settings.initializer("alpha_initializer");
    let alpha = site.weight_as("alpha", own, &keras_dims, start, site.trainable)?;
    let positive = site.push(Op::Elementwise(Chain::unary(Unary::Relu)), &[x])?;
    let links = vec![
        Link::Unary(Unary::Scale(-1.0), 0),
        Link::Unary(Unary::Relu, 1),
        Link::Unary(Unary::Scale(-1.0), 2),
    ];
    let negative = site.push(Op::Elementwise(Chain { inputs: 1, links }), &[x])?;
    let scaled = site.push(Op::Affine { scale: true, center: false }, &[negative, alpha])?;
    site.push(Op::Elementwise(Chain::binary(Binary::Add)), &[positive, scaled])
}
