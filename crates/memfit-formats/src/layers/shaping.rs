//! Layers that change the shape and nothing else, or make an image larger.
//!
//! A reshape to the dimensions that are there already stays a node: after one, Keras takes a loss from the
//! probabilities themselves and no longer from the logits they came from.

use memfit_ir::{Interpolation, Op, TensorId};

use crate::error::FormatError;
use crate::site::Site;

pub(crate) fn flatten(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let elements = site.dims(x).iter().product();
    site.push(Op::Reshape(vec![elements]), &[x])
}

pub(crate) fn reshape(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let target = site.settings.integers("target_shape").unwrap_or_default();
    let known: Vec<usize> = target.iter().filter_map(|size| usize::try_from(*size).ok()).collect();
    let elements: usize = site.dims(x).iter().product();
    let product = known.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
    let open = target.len() - known.len();
    let inferred = match (open, product) {
        (0, Some(product)) if product == elements => 1,
        (1, Some(product)) if elements.is_multiple_of(product) => elements / product,
        _ => {
            let expected = format!("elements that fill {target:?}, with at most one -1");
            return Err(site.mismatch(&expected, x));
        }
    };
    let dims = target.iter().map(|size| usize::try_from(*size).unwrap_or(inferred)).collect();
    site.push(Op::Reshape(dims), &[x])
}

pub(crate) fn zero_padding(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    site.push(Op::Pad2D(site.settings.margins("padding")), &[x])
}

pub(crate) fn up_sampling(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let interpolation = match site.settings.choice("interpolation") {
        "bilinear" => Interpolation::Bilinear,
        _ => Interpolation::Nearest,
    };
    site.push(Op::UpSample2D(site.settings.pair("size"), interpolation), &[x])
}
