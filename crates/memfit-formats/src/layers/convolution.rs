//! Convolutions, and the margins that `padding="same"` means.

use memfit_ir::{Conv2D, Op, Pads, TensorId};

use super::{activations, weighted};
use crate::error::FormatError;
use crate::site::Site;

pub(crate) fn conv2d(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let [height, width, channels] = site.image(x)?;
    let (filters, groups) = (site.settings.size("filters"), site.settings.size("groups"));
    let [rows, columns] = window(site, "kernel_size");
    let dims = [rows, columns, channels / groups, filters];
    let start = site.settings.initializer("kernel_initializer");
    let kernel = site.weight_as("kernel", &dims, keras_dims(site, &dims), start, site.trainable)?;
    let conv = geometry(site, [height, width], groups);
    convolve(site, conv, x, kernel, filters)
}

/// A convolution with a group for each channel. Keras's kernel `(h, w, channels, multiplier)` has the memory of
/// `(h, w, 1, channels · multiplier)`.
pub(crate) fn depthwise_conv2d(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let [height, width, channels] = site.image(x)?;
    let kernel = depthwise_kernel(site, "kernel", channels)?;
    let filters = site.dims(kernel)[3];
    let conv = geometry(site, [height, width], channels);
    convolve(site, conv, x, kernel, filters)
}

/// A depthwise convolution, and a 1×1 convolution after it.
pub(crate) fn separable_conv2d(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let [height, width, channels] = site.image(x)?;
    let depthwise = depthwise_kernel(site, "depthwise_kernel", channels)?;
    let (between, filters) = (site.dims(depthwise)[3], site.settings.size("filters"));
    let dims = [1, 1, between, filters];
    let start = site.settings.initializer("pointwise_initializer");
    let pointwise =
        site.weight_as("pointwise_kernel", &dims, keras_dims(site, &dims), start, site.trainable)?;
    let conv = geometry(site, [height, width], channels);
    let apart = site.push(Op::Conv2D(conv), &[x, depthwise])?;
    let single =
        Conv2D { kernel: [1, 1], strides: [1, 1], dilation: [1, 1], groups: 1, pads: Pads::default() };
    convolve(site, single, apart, pointwise, filters)
}

/// A transposed convolution: the kernel spreads every pixel, as in a convolution's gradient.
pub(crate) fn conv2d_transpose(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let [height, width, channels] = site.image(x)?;
    let filters = site.settings.size("filters");
    let [rows, columns] = window(site, "kernel_size");
    let dims = [rows, columns, filters, channels];
    let start = site.settings.initializer("kernel_initializer");
    let kernel = site.weight_as("kernel", &dims, keras_dims(site, &dims), start, site.trainable)?;
    let (strides, dilation) = (window(site, "strides"), window(site, "dilation_rate"));
    let span = span([rows, columns], dilation);
    let is_valid = site.settings.choice("padding") == "valid";
    let length = |size: usize, axis: usize| {
        let rest = if is_valid { span[axis].saturating_sub(strides[axis]) } else { 0 };
        size * strides[axis] + rest
    };
    let size = [length(height, 0), length(width, 1)];
    let pads = margins(site, size, span, strides);
    let conv = Conv2D { kernel: [rows, columns], strides, dilation, groups: 1, pads };
    let spread = site.push(Op::Conv2DGradInput(conv, size), &[x, kernel])?;
    let y = match weighted::bias(site, filters)? {
        None => spread,
        Some(bias) => site.push(Op::Affine { scale: false, center: true }, &[spread, bias])?,
    };
    activations::argument(site, y)
}

fn depthwise_kernel(
    site: &mut Site<'_>,
    name: &'static str,
    channels: usize,
) -> Result<TensorId, FormatError> {
    let multiplier = site.settings.size("depth_multiplier");
    let [rows, columns] = window(site, "kernel_size");
    let start = site.settings.initializer("depthwise_initializer");
    let dims = [rows, columns, 1, channels.saturating_mul(multiplier)];
    let own = [rows, columns, channels, multiplier];
    site.weight_as(name, &dims, keras_dims(site, &own), start, site.trainable)
}

/// Sizes along both axes; a layer of sequences has one.
pub(super) fn window(site: &Site<'_>, argument: &str) -> [usize; 2] {
    match site.settings.maybe_size(argument) {
        Some(size) => [1, size],
        None => site.settings.pair(argument),
    }
}

/// A kernel's dimensions in Keras: those of a layer of sequences have one axis less.
fn keras_dims<'a>(site: &Site<'_>, dims: &'a [usize; 4]) -> &'a [usize] {
    if site.settings.maybe_size("kernel_size").is_some() { &dims[1..] } else { dims }
}

/// How far a kernel reaches.
fn span(kernel: [usize; 2], dilation: [usize; 2]) -> [usize; 2] {
    [(kernel[0] - 1) * dilation[0] + 1, (kernel[1] - 1) * dilation[1] + 1]
}

fn geometry(site: &Site<'_>, size: [usize; 2], groups: usize) -> Conv2D {
    let [kernel, dilation, strides] =
        ["kernel_size", "dilation_rate", "strides"].map(|argument| window(site, argument));
    let span = span(kernel, dilation);
    Conv2D { kernel, strides, dilation, groups, pads: margins(site, size, span, strides) }
}

fn convolve(
    site: &mut Site<'_>,
    conv: Conv2D,
    x: TensorId,
    kernel: TensorId,
    filters: usize,
) -> Result<TensorId, FormatError> {
    let mut operands = vec![x, kernel];
    operands.extend(weighted::bias(site, filters)?);
    let y = site.push(Op::Conv2D(conv), &operands)?;
    activations::argument(site, y)
}

/// The margins that the layer's padding means for an image of a size.
pub(super) fn margins(site: &Site<'_>, size: [usize; 2], span: [usize; 2], strides: [usize; 2]) -> Pads {
    match site.settings.choice("padding") {
        "valid" => return Pads::default(),
        "causal" => return Pads { left: span[1] - 1, ..Pads::default() },
        _ => {}
    }
    let [top, bottom] = same(size[0], span[0], strides[0]);
    let [left, right] = same(size[1], span[1], strides[1]);
    Pads { top, bottom, left, right }
}

/// TensorFlow's rule: as many outputs as strides fit into the input, and an odd margin at the end.
pub(super) fn same(size: usize, span: usize, stride: usize) -> [usize; 2] {
    let covered = size.div_ceil(stride).saturating_sub(1) * stride + span;
    let total = covered.saturating_sub(size);
    [total / 2, total - total / 2]
}
