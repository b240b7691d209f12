//! The layers of the table's further part: which function builds each, and those that are a few ops.

use memfit_ir::{Binary, Chain, Link, MatMul, Op, TensorId, Unary};

use super::{adaptive, axis_after_batch, cells, masks, merging, noise, volume, weighted};
use crate::error::FormatError;
use crate::further_table::Further;
use crate::initializer::Start;
use crate::site::Site;

pub(super) fn call(
    site: &mut Site<'_>,
    class: Further,
    operands: &[TensorId],
) -> Result<TensorId, FormatError> {
    let x = operands[0];
    match class {
        Further::Conv3D => volume::conv(site, x),
        Further::Conv3DTranspose => volume::conv_transpose(site, x),
        Further::MaxPooling3D => volume::max_pool(site, x),
        Further::AveragePooling3D => volume::average_pool(site, x),
        Further::GlobalAveragePooling3D => volume::global_pool(site, x, Op::GlobalAveragePool2D),
        Further::GlobalMaxPooling3D => volume::global_pool(site, x, Op::GlobalMaxPool2D),
        Further::UpSampling3D => volume::up_sampling(site, x),
        Further::ZeroPadding3D => volume::zero_padding(site, x),
        Further::Cropping3D => volume::cropping(site, x),
        Further::ChannelDropout3D => noise::spatial_dropout(site, x),
        Further::UnitNormalization => {
            let listed = site.settings.integers("axis").unwrap_or_default().to_vec();
            unit(site, x, "axis", &listed, 1e-12)
        }
        Further::RmsNormalization => rms_normalization(site, x),
        Further::AdaptiveAveragePooling(axes) => adaptive::layer(site, x, axes, Op::AveragePool2D),
        Further::AdaptiveMaxPooling(axes) => adaptive::layer(site, x, axes, Op::MaxPool2D),
        Further::Rnn => cells::rnn(site, operands),
        Further::Minimum => merging::merge(site, Chain::fold(Binary::Minimum, operands.len()), operands),
        Further::Dot => dot(site, operands),
        Further::Masking => masking(site, x),
        Further::TiedDense => weighted::tied_dense(site, x),
        // What it adds to the loss is added where its output is known.
        Further::ActivityRegularization => Ok(x),
    }
}

/// Vectors along some axes, scaled to the length 1; none grows by more than `1 / epsilon`.
fn unit(
    site: &mut Site<'_>,
    x: TensorId,
    argument: &str,
    listed: &[i64],
    epsilon: f32,
) -> Result<TensorId, FormatError> {
    let dims = site.dims(x).to_vec();
    let sums = summed(site, argument, listed, &dims)?;
    let inverse = [Unary::Rsqrt, Unary::Clip { low: 0.0, high: 1.0 / epsilon }];
    scaled_by_squares(site, x, sums, &inverse)
}

/// Divided by the root of the mean square, times a weight.
fn rms_normalization(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let dims = site.dims(x).to_vec();
    let listed = site.settings.integers("axis").unwrap_or_default().to_vec();
    let sums = summed(site, "axis", &listed, &dims)?;
    let first = dims.len() - listed.len().min(dims.len());
    let trailing = sums[..first] == dims[..first] && sums[first..].iter().all(|size| *size == 1);
    if !trailing {
        return Err(site.unsupported("axis", format!("{listed:?}"), "-1 or all axes from one to the last"));
    }
    let count: usize = dims[first..].iter().product();
    let epsilon = site.settings.number("epsilon") as f32;
    let inverse = [Unary::Scale(1.0 / count as f32), Unary::Offset(epsilon), Unary::Rsqrt];
    let normal = scaled_by_squares(site, x, sums, &inverse)?;
    let scale = site.weight("scale", &dims[first..], &Start::constant(1.0))?;
    site.push(Op::Affine { scale: true, center: false }, &[normal, scale])
}

/// `x` times a chain of functions of its squares' sum to these dimensions.
fn scaled_by_squares(
    site: &mut Site<'_>,
    x: TensorId,
    sums: Vec<usize>,
    functions: &[Unary],
) -> Result<TensorId, FormatError> {
    let dims = site.dims(x).to_vec();
    let squares = site.push(Op::Elementwise(Chain::unary(Unary::Square)), &[x])?;
    let sums = site.push(Op::SumTo(sums), &[squares])?;
    let links = functions.iter().enumerate().map(|(at, function)| Link::Unary(*function, at)).collect();
    let factors = site.push(Op::Elementwise(Chain { inputs: 1, links }), &[sums])?;
    let factors = site.push(Op::Broadcast(dims), &[factors])?;
    site.push(Op::Elementwise(Chain::binary(Binary::Multiply)), &[x, factors])
}

/// Dimensions with 1 at the axes that are listed.
fn summed(
    site: &Site<'_>,
    argument: &str,
    listed: &[i64],
    dims: &[usize],
) -> Result<Vec<usize>, FormatError> {
    let mut sums = dims.to_vec();
    for axis in listed {
        match axis_after_batch(*axis, dims.len()) {
            Some(place) => sums[place] = 1,
            None => {
                return Err(site.unsupported(argument, format!("{listed:?}"), "axes after the batch"));
            }
        }
    }
    Ok(sums)
}

/// Products along one axis of each tensor.
fn dot(site: &mut Site<'_>, operands: &[TensorId]) -> Result<TensorId, FormatError> {
    let listed = site.settings.integers("axes").unwrap_or_default().to_vec();
    let (mut matrices, mut transposed, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for (index, tensor) in operands.iter().enumerate() {
        let listed_axis = listed[index.min(listed.len() - 1)];
        let dims = site.dims(*tensor).to_vec();
        let axis = axis_after_batch(listed_axis, dims.len()).filter(|_| listed.len() <= 2);
        let Some(axis) = axis.filter(|_| dims.len() <= 2) else {
            let supported = "an axis of vectors or matrices, after the batch";
            return Err(site.unsupported("axes", format!("{listed:?}"), supported));
        };
        let mut values = *tensor;
        if site.settings.flag("normalize") {
            values = unit(site, values, "axes", &[listed_axis], 1e-7)?;
        }
        left.extend(dims.iter().enumerate().filter(|(place, _)| *place != axis).map(|(_, size)| *size));
        let matrix = match (dims.len(), index) {
            (1, 0) => vec![1, dims[0]],
            (1, _) => vec![dims[0], 1],
            _ => dims.clone(),
        };
        // The axis that is summed over is the last of the left matrix and the first of the right.
        transposed.push(dims.len() == 2 && axis == index);
        matrices.push(site.push(Op::Reshape(matrix), &[values])?);
    }
    let product = MatMul { transpose_a: transposed[0], transpose_b: transposed[1] };
    let y = site.push(Op::MatMul(product), &matrices)?;
    if left.is_empty() {
        left.push(1);
    }
    site.push(Op::Reshape(left), &[y])
}

/// Values at places that do not count become 0. The mask itself is recomputed where it is passed on.
fn masking(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let mask = masks::of_values(site, x)?;
    site.masked(x, mask)
}
