//! Winograd convolutions with a 2×2 max pool: a tile is a window, so its maximum is known when the tile is
//! transformed back, and `dy` is scattered to the argmax when a tile is transformed.

use memfit_ir::PooledConv2D;

use super::super as convolution;
use super::super::super::max_pool;
use super::super::super::threads::Threads;
use super::super::gather::Gather;
use super::super::grad_input::Phase;
use super::super::winograd::{self, Dy, Filter, Images, Pool, Unpooled};
use super::Pooled;

/// Whether it is.
pub(super) fn applies(pooled: &Pooled) -> bool {
    winograd::applies(&pooled.conv)
}

/// Writes the maximum of every window and its argmax, with the sums of an unpooled convolution.
pub(super) fn forward(
    threads: &Threads,
    pooled: &Pooled,
    x: &[f32],
    kernel: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    argmax: &mut [u8],
    workspace: &mut [f32],
) {
    let Pooled { conv, relu } = *pooled;
    let images = Images { gather: &Gather::of_input(&conv, x, 0), rows: conv.rows, unpooled: None };
    let filter = Filter::of(&conv, kernel, false);
    winograd::convolve(threads, &images, filter, bias, y, Some(Pool { relu, argmax }), workspace);
}

/// Computes the gradient by the filter, with the sums of a convolution by itself. Where `accumulate`, adds it
/// to what is there.
pub(super) fn grad_kernel(
    threads: &Threads,
    pooled: &Pooled,
    [x, dy]: [&[f32]; 2],
    argmax: &[u8],
    dkernel: &mut [f32],
    accumulate: bool,
    workspace: &mut [f32],
) {
    let conv = &pooled.conv;
    let dy = Dy::Unpooled(Unpooled::new(dy, argmax, conv.output, conv.rows));
    winograd::grad_kernel(threads, conv, x, None, dy, dkernel, accumulate, workspace);
}

/// How many floats of workspace `grad_input` needs: whatever the number of images with Winograd, and the image between convolution and
/// pool without.
pub fn grad_input_workspace(pooled: &Pooled, threads: usize) -> usize {
    let conv = &pooled.conv;
    if !applies(pooled) {
        return convolution::grad_input_workspace(conv, threads) + conv.output_floats();
    }
    let gather = Phase::new(conv, 0, 0).gather(conv, &[], 0);
    convolution::grad_input_workspace(conv, threads)
        + winograd::unpooled_workspace(&gather, conv.input[2], threads)
}

/// Computes the gradient by the input from the gradient of the pool's output and the argmax.
///
/// It is one kernel for Winograd convolutions, which is when `Capabilities` offers the op. For all others, which no training graph of a
/// CPU has, it is the gradient of the pool and then that of the convolution.
pub fn grad_input(
    threads: &Threads,
    pooled: &Pooled,
    dy: &[f32],
    argmax: &[u8],
    kernel: &[f32],
    dx: &mut [f32],
    workspace: &mut [f32],
) {
    let conv = &pooled.conv;
    pooled.check();
    conv.check(dx.len(), kernel.len(), conv.output_floats());
    if !applies(pooled) {
        let (workspace, between) =
            workspace.split_at_mut(convolution::grad_input_workspace(conv, threads.count()));
        let between = &mut between[..conv.output_floats()];
        let sizes = [conv.output, pooled.output()];
        max_pool::grad_of(threads, &PooledConv2D::POOL, sizes, conv.rows, dy, argmax, between);
        return convolution::grad_input(threads, conv, between, kernel, dx, workspace);
    }
    let unpooled = Some(Unpooled::new(dy, argmax, conv.output, conv.rows));
    let images = Images { gather: &Phase::new(conv, 0, 0).gather(conv, &[], 0), rows: conv.rows, unpooled };
    let filter = Filter::of(conv, kernel, true);
    winograd::convolve(threads, &images, filter, None, dx, None, workspace);
}
