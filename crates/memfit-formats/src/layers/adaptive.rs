//! Pools whose windows follow from the size of what they give.

use memfit_ir::{Op, Pads, Pool2D, TensorId};

use crate::error::FormatError;
use crate::site::Site;

/// The layer of this number of axes.
pub(crate) fn layer(
    site: &mut Site<'_>,
    x: TensorId,
    axes: usize,
    op: fn(Pool2D) -> Op,
) -> Result<TensorId, FormatError> {
    let name = "output_size";
    match axes {
        1 => pool(site, x, &[site.settings.size(name)], op),
        2 => pool(site, x, &site.settings.pair(name), op),
        _ => pool(site, x, &site.settings.triple(name), op),
    }
}

/// A pool of the axes after the batch, one axis after the other: extremes and means of windows are those of their lines.
fn pool(
    site: &mut Site<'_>,
    x: TensorId,
    sizes: &[usize],
    op: fn(Pool2D) -> Op,
) -> Result<TensorId, FormatError> {
    let mut dims = site.dims(x).to_vec();
    if dims.len() != sizes.len() + 1 {
        let expected = format!("{} axes and channels after the batch", sizes.len());
        return Err(site.mismatch(&expected, x));
    }
    let mut y = x;
    for (axis, size) in sizes.iter().enumerate() {
        let (before, after) = (dims[..axis].iter().product(), dims[axis + 1..].iter().product());
        let lines = site.push(Op::Reshape(vec![before, dims[axis], after]), &[y])?;
        y = along(site, lines, dims[axis], *size, op)?;
        dims[axis] = *size;
    }
    site.push(Op::Reshape(dims), &[y])
}

/// Pools the second axis of three: by one pool where all windows are alike, else by one pool for each window,
/// which may overlap by one place.
fn along(
    site: &mut Site<'_>,
    lines: TensorId,
    length: usize,
    size: usize,
    op: fn(Pool2D) -> Op,
) -> Result<TensorId, FormatError> {
    let pool = |window: usize| {
        op(Pool2D {
            window: [1, window],
            strides: [1, window],
            pads: Pads { top: 0, bottom: 0, left: 0, right: 0 },
        })
    };
    if length.is_multiple_of(size) {
        return site.push(pool(length / size), &[lines]);
    }
    let mut made = Vec::with_capacity(size);
    for place in 0..size {
        let (start, end) = (place * length / size, ((place + 1) * length).div_ceil(size));
        let window = site.push(Op::Slice { axis: 1, start, length: end - start }, &[lines])?;
        made.push(site.push(pool(end - start), &[window])?);
    }
    if made.len() == 1 { Ok(made[0]) } else { site.push(Op::Concat(1), &made) }
}
