//! Pools, with windows and over the whole image.

use memfit_ir::{Binary, Chain, Op, Pool2D, TensorId};

use super::convolution::{margins, window};
use crate::error::FormatError;
use crate::site::Site;

pub(crate) fn max(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let pool = geometry(site, x)?;
    site.push(Op::MaxPool2D(pool), &[x])
}

pub(crate) fn average(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let pool = geometry(site, x)?;
    site.push(Op::AveragePool2D(pool), &[x])
}

pub(crate) fn global_average(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let y = site.push(Op::GlobalAveragePool2D, &[x])?;
    keep_dims(site, y)
}

pub(crate) fn global_max(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let y = site.push(Op::GlobalMaxPool2D, &[x])?;
    keep_dims(site, y)
}

/// The mean over steps, or over those that count.
pub(crate) fn global_average_1d(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    if let Some(mask) = site.mask(0) {
        let [_, channels] = site.sequence(x)?;
        let spread = site.spread_mask(mask, x)?;
        let values = site.push(Op::Elementwise(Chain::binary(Binary::Multiply)), &[x, spread])?;
        let sums = site.push(Op::SumTo(vec![1, channels]), &[values])?;
        let counts = site.push(Op::SumTo(vec![1, channels]), &[spread])?;
        let y = site.push(Op::Elementwise(Chain::binary(Binary::Divide)), &[sums, counts])?;
        let dims = if site.settings.flag("keepdims") { vec![1, channels] } else { vec![channels] };
        return site.push(Op::Reshape(dims), &[y]);
    }
    global_1d(site, Op::GlobalAveragePool2D, x)
}

pub(crate) fn global_max_1d(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    global_1d(site, Op::GlobalMaxPool2D, x)
}

/// A sequence is an image one pixel wide.
fn global_1d(site: &mut Site<'_>, op: Op, x: TensorId) -> Result<TensorId, FormatError> {
    let [steps, channels] = site.sequence(x)?;
    let image = site.push(Op::Reshape(vec![steps, 1, channels]), &[x])?;
    let y = site.push(op, &[image])?;
    if site.settings.flag("keepdims") { site.push(Op::Reshape(vec![1, channels]), &[y]) } else { Ok(y) }
}

fn geometry(site: &Site<'_>, x: TensorId) -> Result<Pool2D, FormatError> {
    let [height, width, _] = site.image(x)?;
    let size = window(site, "pool_size");
    let own = site.settings.maybe_size("strides").map(|step| [1, step]);
    let strides = own.or_else(|| site.settings.maybe_pair("strides")).unwrap_or(size);
    Ok(Pool2D { window: size, strides, pads: margins(site, [height, width], size, strides) })
}

fn keep_dims(site: &mut Site<'_>, y: TensorId) -> Result<TensorId, FormatError> {
    if !site.settings.flag("keepdims") {
        return Ok(y);
    }
    let channels = site.dims(y)[0];
    site.push(Op::Reshape(vec![1, 1, channels]), &[y])
}
