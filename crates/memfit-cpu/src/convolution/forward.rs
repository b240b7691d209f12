//! Convolution of images.

use super::super::gemm::driver::{self, Product, Strided};
use super::super::gemm::operand::{Matrix, MatrixRight};
use super::super::threads::Threads;
use super::gather::Gather;
use super::{Convolution, depthwise, winograd};

/// How many floats of workspace `forward` needs, whatever the number of images.
pub fn forward_workspace(shape: &Convolution, threads: usize) -> usize {
    if shape.is_depthwise() {
        return 0;
    }
    if winograd::applies(shape) {
        return winograd::workspace(shape.kernel[0], shape.input[2], shape.output[2], threads);
    }
    driver::workspace(shape.channels_out(), shape.taps() * shape.channels_in(), threads)
}

/// Convolves images `x` with a filter into `y`, and adds `bias` to every output pixel.
///
/// The bits of an output image do not depend on how many others there are.
pub fn forward(
    threads: &Threads,
    shape: &Convolution,
    x: &[f32],
    kernel: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    workspace: &mut [f32],
) {
    shape.check(x.len(), kernel.len(), y.len());
    assert!(bias.is_none_or(|bias| bias.len() == shape.output[2]), "the bias has a value for every channel");
    if shape.is_depthwise() {
        return depthwise::forward(threads, shape, x, kernel, bias, y);
    }
    if winograd::applies(shape) {
        let filter = winograd::Filter::of(shape, kernel, false);
        let images =
            winograd::Images { gather: &Gather::of_input(shape, x, 0), rows: shape.rows, unpooled: None };
        return winograd::convolve(threads, &images, filter, bias, y, None, workspace);
    }
    let (channels, k) = (shape.channels_out(), shape.taps() * shape.channels_in());
    for group in 0..shape.groups {
        let start = group * channels;
        let right =
            Matrix { values: &kernel[start.min(kernel.len())..], stride: shape.output[2], transposed: false };
        let (m, bias) =
            (shape.rows * shape.output[0] * shape.output[1], bias.map(|bias| &bias[start..start + channels]));
        let target = Strided { start, stride: shape.output[2] };
        let (right, n, accumulate, splits) = (MatrixRight(right), channels, false, 1);
        if shape.is_matrix_product() {
            let left = Matrix { values: x, stride: k, transposed: false };
            Product { m, n, k, left, right, target, bias, accumulate, splits }.run(threads, y, workspace);
        } else {
            let left = Gather::of_input(shape, x, group);
            Product { m, n, k, left, right, target, bias, accumulate, splits }.run(threads, y, workspace);
        }
    }
}
