//! Activations, dropout and rescaling: layers that work element by element, or along the last axis.

use memfit_ir::{Chain, Op, TensorId, random};

use super::axis_behind_batch;
use crate::activation::Activation;
use crate::error::FormatError;
use crate::site::Site;
use crate::table::Class;

/// A layer that is an activation.
pub(crate) fn layer(site: &mut Site<'_>, class: Class, x: TensorId) -> Result<TensorId, FormatError> {
    let activation = Activation::of_class(class, site.settings);
    apply(site, activation.expect("the match on classes sends activations here"), x)
}

/// The `activation` argument of a layer, behind what the layer computes.
pub(super) fn argument(site: &mut Site<'_>, y: TensorId) -> Result<TensorId, FormatError> {
    apply(site, site.settings.activation("activation"), y)
}

fn apply(site: &mut Site<'_>, activation: Activation, x: TensorId) -> Result<TensorId, FormatError> {
    match activation {
        Activation::Linear => Ok(x),
        Activation::Unary(function) => site.push(Op::Elementwise(Chain::unary(function)), &[x]),
        Activation::Softmax { axis } => {
            let axes = site.dims(x).len();
            match axis_behind_batch(axis, axes) {
                Some(behind) if behind + 1 == axes => site.push(Op::Softmax, &[x]),
                // The axis is the last one while it runs.
                Some(behind) => {
                    let mut order: Vec<usize> = (0..axes).collect();
                    order.swap(behind, axes - 1);
                    let turned = site.push(Op::Transpose(order.clone()), &[x])?;
                    let soft = site.push(Op::Softmax, &[turned])?;
                    site.push(Op::Transpose(order), &[soft])
                }
                None => Err(site.unsupported("axis", axis, "an axis behind the batch")),
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
    let own = site.settings.seed("seed").unwrap_or_else(|| random::purpose(site.path));
    let seed = if site.call == 0 { own } else { random::derive(own, site.call) };
    site.push(Op::Dropout { rate, seed }, &[x])
}

pub(crate) fn rescaling(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let (scale, offset) = (site.settings.number("scale") as f32, site.settings.number("offset") as f32);
    site.push(Op::Elementwise(Chain::affine(scale, offset)), &[x])
}
