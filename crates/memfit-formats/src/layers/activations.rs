//! Activations, dropout and rescaling: layers that work element by element, or along the last axis.

use memfit_ir::{Chain, NoiseKind, Op, TensorId};

use super::{axis_after_batch, noise};
use crate::activation::Activation;
use crate::error::FormatError;
use crate::site::Site;
use crate::table::Class;

/// A layer that is an activation.
pub(crate) fn layer(site: &mut Site<'_>, class: Class, x: TensorId) -> Result<TensorId, FormatError> {
    let activation = Activation::of_class(class, site.settings);
    apply(site, activation.expect("the match on classes sends activations here"), x)
}

/// Applies the `activation` argument of a layer to what the layer computes.
pub(super) fn argument(site: &mut Site<'_>, y: TensorId) -> Result<TensorId, FormatError> {
    apply(site, site.settings.activation("activation"), y)
}

fn apply(site: &mut Site<'_>, activation: Activation, x: TensorId) -> Result<TensorId, FormatError> {
    match activation {
        Activation::Linear => Ok(x),
        Activation::Unary(_)
        | Activation::HardSigmoid
        | Activation::HardSilu
        | Activation::Selu
        | Activation::Mish => {
            let chain = activation.chain().expect("all but linear and softmax are elementwise");
            site.push(Op::Elementwise(chain), &[x])
        }
        Activation::Softmax { axis } => {
            let axes = site.dims(x).len();
            match axis_after_batch(axis, axes) {
                Some(index) if index + 1 == axes => site.push(Op::Softmax, &[x]),
                // Softmax works on the last axis, so this axis becomes the last one for it.
                Some(index) => {
                    let mut order: Vec<usize> = (0..axes).collect();
                    order.swap(index, axes - 1);
                    let turned = site.push(Op::Transpose(order.clone()), &[x])?;
                    let soft = site.push(Op::Softmax, &[turned])?;
                    site.push(Op::Transpose(order), &[soft])
                }
                None => Err(site.unsupported("axis", axis, "an axis after the batch")),
            }
        }
    }
}

/// Nothing outside training. Every call of a shared layer draws a mask of its own.
pub(crate) fn dropout(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let rate = site.settings.number("rate") as f32;
    if !site.training || rate == 0.0 {
        return Ok(x);
    }
    if site.settings.integers("noise_shape").is_some() {
        return noise::shaped(site, NoiseKind::Dropout { rate }, x);
    }
    let seed = noise::seed(site, site.settings.seed("seed"));
    site.push(Op::Dropout { rate, seed }, &[x])
}

pub(crate) fn rescaling(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let numbers = |name: &str| site.settings.numbers(name).unwrap_or_default();
    match (numbers("scale"), numbers("offset")) {
        ([scale], [offset]) => site.push(Op::Elementwise(Chain::affine(*scale as f32, *offset as f32)), &[x]),
        (scale, offset) => {
            let channels = site.dims(x).last().copied().unwrap_or(0);
            let scale = spread(site, "scale", scale, channels)?;
            let offset = spread(site, "offset", offset, channels)?;
            site.push(Op::AffineConstant { scale, offset }, &[x])
        }
    }
}

/// Numbers for each channel: one for all, or as many as there are.
pub(super) fn spread(
    site: &Site<'_>,
    argument: &str,
    numbers: &[f64],
    channels: usize,
) -> Result<Vec<f32>, FormatError> {
    match numbers {
        [number] => Ok(vec![*number as f32; channels]),
        numbers if numbers.len() == channels => Ok(numbers.iter().map(|number| *number as f32).collect()),
        numbers => {
            let supported = format!("one number or {channels}, one for each index of the last axis");
            Err(site.unsupported(argument, format!("{numbers:?}"), &supported))
        }
    }
}
