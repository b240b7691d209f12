//! The gradient of a convolution by its filter.

use super::super::gemm::driver::{self, Product, Strided};
use super::super::gemm::operand::{Matrix, MatrixRight};
use super::super::threads::Threads;
use super::gather::Gather;
use super::pack::Transposed;
use super::{Convolution, depthwise, winograd};

/// How many floats of workspace `grad_kernel` needs: never more for fewer images.
pub fn grad_kernel_workspace(shape: &Convolution, threads: usize) -> usize {
    if shape.is_depthwise() {
        return depthwise::grad_kernel_workspace(shape);
    }
    if winograd::applies(shape) {
        return winograd::grad_kernel_workspace(shape, threads);
    }
    let (m, n, k) = product(shape);
    driver::workspace(n, k, threads) + driver::partials_max(m, n, k)
}

/// Computes the gradient by the filter, `dkernel`, from images `x` and the gradient by the output, `dy`.
/// Where `accumulate`, adds it to what is there.
pub fn grad_kernel(
    threads: &Threads,
    shape: &Convolution,
    x: &[f32],
    dy: &[f32],
    dkernel: &mut [f32],
    accumulate: bool,
    workspace: &mut [f32],
) {
    shape.check(x.len(), dkernel.len(), dy.len());
    if shape.is_depthwise() {
        return depthwise::grad_kernel(threads, shape, x, None, dy, dkernel, accumulate, workspace);
    }
    if winograd::applies(shape) {
        let dy = winograd::Dy::Stored(dy);
        return winograd::grad_kernel(threads, shape, x, None, dy, dkernel, accumulate, workspace);
    }
    let (m, n, k) = product(shape);
    let splits = driver::splits(m, n, k);
    let stride = shape.output[2];
    for group in 0..shape.groups {
        let start = group * n;
        let right = MatrixRight(Matrix { values: &dy[start.min(dy.len())..], stride, transposed: false });
        let (target, bias) = (Strided { start, stride }, None);
        if shape.is_matrix_product() {
            let left = Matrix { values: x, stride: m, transposed: true };
            Product { m, n, k, left, right, target, bias, accumulate, splits }
                .run(threads, dkernel, workspace);
        } else {
            let left = Transposed(Gather::of_input(shape, x, group));
            Product { m, n, k, left, right, target, bias, accumulate, splits }
                .run(threads, dkernel, workspace);
        }
    }
}

/// Rows, columns and depth of the product of one group.
pub(super) fn product(shape: &Convolution) -> (usize, usize, usize) {
    let pixels = shape.rows * shape.output[0] * shape.output[1];
    (shape.taps() * shape.channels_in(), shape.channels_out(), pixels)
}
