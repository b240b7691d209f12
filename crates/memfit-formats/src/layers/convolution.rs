//! Convolutions, and the margins that `padding="same"` means.

use memfit_ir::{Conv2D, Op, Pads, TensorId};

use super::{activations, weighted};
use crate::error::FormatError;
use crate::site::Site;

pub(crate) fn conv2d(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let [height, width, channels] = site.image(x)?;
    let (filters, groups) = (site.settings.size("filters"), site.settings.size("groups"));
    let [rows, columns] = site.settings.pair("kernel_size");
    let dims = [rows, columns, channels / groups, filters];
    let kernel = site.weight("kernel", &dims, site.settings.initializer("kernel_initializer"))?;
    let conv = geometry(site, [height, width], groups);
    convolve(site, conv, x, kernel, filters)
}

/// A convolution with a group for each channel. Keras's kernel `(h, w, channels, multiplier)` has the memory of
/// `(h, w, 1, channels · multiplier)`.
pub(crate) fn depthwise_conv2d(site: &mut Site<'_>, x: TensorId) -> Result<TensorId, FormatError> {
    let [height, width, channels] = site.image(x)?;
    let multiplier = site.settings.size("depth_multiplier");
    let [rows, columns] = site.settings.pair("kernel_size");
    let start = site.settings.initializer("depthwise_initializer");
    let filters = channels.saturating_mul(multiplier);
    let dims = [rows, columns, 1, filters];
    let keras_dims = [rows, columns, channels, multiplier];
    let kernel = site.weight_as("kernel", &dims, &keras_dims, start, site.trainable)?;
    let conv = geometry(site, [height, width], channels);
    convolve(site, conv, x, kernel, filters)
}

fn geometry(site: &Site<'_>, size: [usize; 2], groups: usize) -> Conv2D {
    let kernel = site.settings.pair("kernel_size");
    let dilation = site.settings.pair("dilation_rate");
    let strides = site.settings.pair("strides");
    let span = [(kernel[0] - 1) * dilation[0] + 1, (kernel[1] - 1) * dilation[1] + 1];
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
    if site.settings.choice("padding") == "valid" {
        return Pads::default();
    }
    let [top, bottom] = same(size[0], span[0], strides[0]);
    let [left, right] = same(size[1], span[1], strides[1]);
    Pads { top, bottom, left, right }
}

/// TensorFlow's rule: as many outputs as strides fit into the input, the odd margin behind it.
fn same(size: usize, span: usize, stride: usize) -> [usize; 2] {
    let covered = size.div_ceil(stride).saturating_sub(1) * stride + span;
    let total = covered.saturating_sub(size);
    [total / 2, total - total / 2]
}
