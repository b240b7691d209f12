//! Sequences as images one pixel high, so that layers of one axis are those of two.

use memfit_ir::{Interpolation, Op, Pads, TensorId};

use crate::error::FormatError;
use crate::site::Site;

/// Calls a layer of images on a sequence.
pub(super) fn as_image(
    site: &mut Site<'_>,
    x: TensorId,
    layer: impl FnOnce(&mut Site<'_>, TensorId) -> Result<TensorId, FormatError>,
) -> Result<TensorId, FormatError> {
    let [steps, features] = site.sequence(x)?;
    let image = site.push(Op::Reshape(vec![1, steps, features]), &[x])?;
    let y = layer(site, image)?;
    let [_, steps, features] = site.image(y)?;
    site.push(Op::Reshape(vec![steps, features]), &[y])
}

pub(super) fn cropping(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let pads = ends(site, "cropping");
    as_image(site, x, |site, image| site.push(Op::Crop2D(pads), &[image]))
}

pub(super) fn zero_padding(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let pads = ends(site, "padding");
    as_image(site, x, |site, image| site.push(Op::Pad2D(pads), &[image]))
}

pub(super) fn up_sampling(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let size = [1, site.settings.size("size")];
    as_image(site, x, |site, image| site.push(Op::UpSample2D(size, Interpolation::Nearest), &[image]))
}

pub(super) fn repeat_vector(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let [features] = site.dims(x) else {
        return Err(site.mismatch("a vector [batch,features]", x));
    };
    let (features, steps) = (*features, site.settings.size("n"));
    let one = site.push(Op::Reshape(vec![1, features]), &[x])?;
    site.push(Op::Broadcast(vec![steps, features]), &[one])
}

fn ends(site: &Site<'_>, argument: &str) -> Pads {
    let [left, right] = site.settings.pair(argument);
    Pads { top: 0, bottom: 0, left, right }
}
