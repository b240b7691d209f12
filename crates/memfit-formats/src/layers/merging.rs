//! Layers that merge several tensors into one.

use memfit_ir::{Binary, Chain, Link, Op, TensorId, Unary};

use super::axis_after_batch;
use crate::error::FormatError;
use crate::site::Site;

pub(crate) fn add(site: &mut Site<'_>, operands: &[TensorId]) -> Result<TensorId, FormatError> {
    merge(site, Chain::fold(Binary::Add, operands.len()), operands)
}

pub(crate) fn subtract(site: &mut Site<'_>, operands: &[TensorId]) -> Result<TensorId, FormatError> {
    merge(site, Chain::fold(Binary::Subtract, operands.len()), operands)
}

pub(crate) fn multiply(site: &mut Site<'_>, operands: &[TensorId]) -> Result<TensorId, FormatError> {
    merge(site, Chain::fold(Binary::Multiply, operands.len()), operands)
}

pub(crate) fn maximum(site: &mut Site<'_>, operands: &[TensorId]) -> Result<TensorId, FormatError> {
    merge(site, Chain::fold(Binary::Maximum, operands.len()), operands)
}

pub(crate) fn average(site: &mut Site<'_>, operands: &[TensorId]) -> Result<TensorId, FormatError> {
    let mut chain = Chain::fold(Binary::Add, operands.len());
    let sum = chain.inputs + chain.links.len() - 1;
    chain.links.push(Link::Unary(Unary::Scale(1.0 / operands.len() as f32), sum));
    merge(site, chain, operands)
}

pub(crate) fn concatenate(site: &mut Site<'_>, operands: &[TensorId]) -> Result<TensorId, FormatError> {
    let axis = site.settings.axis("axis");
    match axis_after_batch(axis, site.dims(operands[0]).len()) {
        Some(index) => site.push(Op::Concat(index), operands),
        None => Err(site.unsupported("axis", axis, "an axis after the batch that the tensors have")),
    }
}

/// A chain over tensors that are broadcast to common dimensions.
pub(crate) fn merge(
    site: &mut Site<'_>,
    chain: Chain,
    operands: &[TensorId],
) -> Result<TensorId, FormatError> {
    let dims = common_dims(site, operands)?;
    let mut broadcast = Vec::with_capacity(operands.len());
    for operand in operands {
        // Keras puts the axes that a tensor lacks right after its batch.
        let own = site.dims(*operand);
        let padded: Vec<usize> =
            std::iter::repeat_n(1, dims.len() - own.len()).chain(own.iter().copied()).collect();
        let lacks_axes = padded.len() != own.len();
        let tensor = if lacks_axes { site.push(Op::Reshape(padded), &[*operand])? } else { *operand };
        let suits = site.dims(tensor) == dims;
        broadcast.push(if suits { tensor } else { site.push(Op::Broadcast(dims.clone()), &[tensor])? });
    }
    site.push(Op::Elementwise(chain), &broadcast)
}

/// The dimensions that all operands are broadcast to.
fn common_dims(site: &Site<'_>, operands: &[TensorId]) -> Result<Vec<usize>, FormatError> {
    let axes = operands.iter().map(|operand| site.dims(*operand).len()).max().unwrap_or(0);
    let mut common = vec![1; axes];
    for operand in operands {
        let own = site.dims(*operand);
        let start = axes - own.len();
        for (size, shared) in own.iter().zip(common[start..].iter_mut()) {
            if *shared == 1 {
                *shared = *size;
            } else if *size != 1 && *size != *shared {
                let expected = format!("dimensions that stretch to those before it, {common:?}");
                return Err(site.mismatch(&expected, *operand));
            }
        }
    }
    Ok(common)
}
