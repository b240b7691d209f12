//! Layers of volumes `[depth, height, width, channels]`. A convolution is an op of its own; what works along one axis at a
//! time is done by ops of images on the same bytes under other dimensions.

use memfit_ir::{Conv3D, Op, Pads, Pool2D, TensorId};

use super::convolution::same;
use super::{activations, weighted};
use crate::error::FormatError;
use crate::site::Site;

const AXES: [usize; 3] = [0, 1, 2];

pub(super) fn conv(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let ([depth, height, width], channels) = volume(site, x)?;
    let (filters, groups) = (site.settings.size("filters"), site.settings.size("groups"));
    let [kernel, strides, dilation] = sizes(site);
    let dims = [kernel[0], kernel[1], kernel[2], channels / groups, filters];
    let weight = site.weight("kernel", &dims, site.settings.initializer("kernel_initializer"))?;
    let mut conv = Conv3D { kernel, strides, dilation, groups, pads: [[0; 2]; 3] };
    conv.pads = margins(site, [depth, height, width], conv.span(), strides);
    let mut operands = vec![x, weight];
    operands.extend(weighted::bias(site, filters)?);
    let y = site.push(Op::Conv3D(conv), &operands)?;
    activations::argument(site, y)
}

/// A transposed convolution, as for images.
pub(super) fn conv_transpose(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let (size, channels) = volume(site, x)?;
    let filters = site.settings.size("filters");
    let [kernel, strides, dilation] = sizes(site);
    let dims = [kernel[0], kernel[1], kernel[2], filters, channels];
    let weight = site.weight("kernel", &dims, site.settings.initializer("kernel_initializer"))?;
    let mut conv = Conv3D { kernel, strides, dilation, groups: 1, pads: [[0; 2]; 3] };
    let (span, is_valid) = (conv.span(), site.settings.choice("padding") == "valid");
    let to = AXES.map(|axis| {
        let rest = if is_valid { span[axis].saturating_sub(strides[axis]) } else { 0 };
        size[axis] * strides[axis] + rest
    });
    conv.pads = margins(site, to, span, strides);
    let spread = site.push(Op::Conv3DGradInput(conv, to), &[x, weight])?;
    let y = match weighted::bias(site, filters)? {
        None => spread,
        Some(bias) => site.push(Op::Affine { scale: false, center: true }, &[spread, bias])?,
    };
    activations::argument(site, y)
}

pub(super) fn max_pool(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    pool(site, x, Op::MaxPool2D)
}

pub(super) fn average_pool(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    pool(site, x, Op::AveragePool2D)
}

/// A pool of volumes, one axis after the other: a maximum of maxima is the maximum, and so with means, since as many places
/// count along one axis wherever the window stands along the others.
fn pool(site: &mut Site<'_>, x: TensorId, op: fn(Pool2D) -> Op) -> Result<TensorId, FormatError> {
    let (mut size, channels) = volume(site, x)?;
    let window = site.settings.triple("pool_size");
    let strides = site.settings.maybe_triple("strides").unwrap_or(window);
    let pads = margins(site, size, window, strides);
    let mut y = x;
    for axis in AXES {
        if [window[axis], strides[axis]] == [1, 1] {
            continue;
        }
        let before = size[..axis].iter().product();
        let after = size[axis + 1..].iter().product::<usize>() * channels;
        let image = site.push(Op::Reshape(vec![before, size[axis], after]), &[y])?;
        let [left, right] = pads[axis];
        y = site.push(
            op(Pool2D {
                window: [1, window[axis]],
                strides: [1, strides[axis]],
                pads: Pads { left, right, ..Pads::default() },
            }),
            &[image],
        )?;
        size[axis] = site.dims(y)[1];
    }
    site.push(Op::Reshape(vec![size[0], size[1], size[2], channels]), &[y])
}

/// A volume is an image as high as all its slices together.
pub(super) fn global_pool(site: &mut Site<'_>, x: TensorId, op: Op) -> Result<TensorId, FormatError> {
    let ([depth, height, width], channels) = volume(site, x)?;
    let image = site.push(Op::Reshape(vec![depth * height, width, channels]), &[x])?;
    let y = site.push(op, &[image])?;
    if !site.settings.flag("keepdims") {
        return Ok(y);
    }
    site.push(Op::Reshape(vec![1, 1, 1, channels]), &[y])
}

pub(super) fn up_sampling(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let ([depth, height, width], channels) = volume(site, x)?;
    let [deep, high, wide] = site.settings.triple("size");
    let apart = site.push(Op::Reshape(vec![depth, 1, height, 1, width, 1, channels]), &[x])?;
    let y = site.push(Op::Broadcast(vec![depth, deep, height, high, width, wide, channels]), &[apart])?;
    site.push(Op::Reshape(vec![depth * deep, height * high, width * wide, channels]), &[y])
}

pub(super) fn zero_padding(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    volume(site, x)?;
    let mut y = x;
    for (axis, [before, after]) in site.settings.sides("padding").into_iter().enumerate() {
        if [before, after] != [0, 0] {
            y = site.push(Op::PadAxis { axis, before, after }, &[y])?;
        }
    }
    Ok(y)
}

pub(super) fn cropping(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let (size, _) = volume(site, x)?;
    let mut y = x;
    for (axis, [before, after]) in site.settings.sides("cropping").into_iter().enumerate() {
        let Some(length) = size[axis].checked_sub(before + after).filter(|length| 0 < *length) else {
            let supported = format!("less than {} along axis {}", size[axis], axis + 1);
            return Err(site.unsupported("cropping", before + after, &supported));
        };
        if length < size[axis] {
            y = site.push(Op::Slice { axis, start: before, length }, &[y])?;
        }
    }
    Ok(y)
}

/// Depth, height and width, and channels.
fn volume(site: &Site<'_>, x: TensorId) -> Result<([usize; 3], usize), FormatError> {
    match site.dims(x) {
        [depth, height, width, channels] => Ok(([*depth, *height, *width], *channels)),
        _ => Err(site.mismatch("a volume [batch,depth,height,width,channels]", x)),
    }
}

fn sizes(site: &Site<'_>) -> [[usize; 3]; 3] {
    ["kernel_size", "strides", "dilation_rate"].map(|argument| site.settings.triple(argument))
}

/// The margins that the layer's padding means.
fn margins(site: &Site<'_>, size: [usize; 3], span: [usize; 3], strides: [usize; 3]) -> [[usize; 2]; 3] {
    if site.settings.choice("padding") == "valid" {
        return [[0; 2]; 3];
    }
    AXES.map(|axis| same(size[axis], span[axis], strides[axis]))
}
