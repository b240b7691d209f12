//! The same where the convolution is computed at points: a tile is a window, so that its largest is known when it comes out of its
//! points, and slopes are handed to their winners on the way in.

use super::super as convolution;
use super::super::super::threads::Threads;
use super::super::gather::Gather;
use super::super::grad_input::Phase;
use super::super::winograd::{self, Filter, Images, Pool, Slopes, Unpooled};
use super::Pooled;

/// Whether it is.
pub(super) fn applies(pooled: &Pooled) -> bool {
    winograd::applies(&pooled.conv)
}

/// Writes the largest of every window and its place, with the sums of a convolution by itself.
pub(super) fn forward(
    threads: &Threads,
    pooled: &Pooled,
    x: &[f32],
    kernel: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    winners: &mut [u8],
    workspace: &mut [f32],
) {
    let Pooled { conv, relu } = *pooled;
    let images = Images { gather: &Gather::of_input(&conv, x, 0), rows: conv.rows, slopes: None };
    let filter = Filter::of(&conv, kernel, false);
    winograd::convolve(threads, &images, filter, bias, y, Some(Pool { relu, winners }), workspace);
}

/// Computes the gradient by the filter, with the sums of a convolution by itself. Where `accumulate`, adds it to what is there.
pub(super) fn grad_kernel(
    threads: &Threads,
    pooled: &Pooled,
    [x, dy]: [&[f32]; 2],
    winners: &[u8],
    dkernel: &mut [f32],
    accumulate: bool,
    workspace: &mut [f32],
) {
    let conv = &pooled.conv;
    let dy = Slopes::Unpooled(Unpooled::new(dy, winners, conv.output, conv.rows));
    winograd::grad_kernel(threads, conv, x, None, dy, dkernel, accumulate, workspace);
}

/// How many floats of workspace `grad_input` wants, whatever the number of images.
pub fn grad_input_workspace(pooled: &Pooled, threads: usize) -> usize {
    let conv = &pooled.conv;
    let gather = Phase::new(conv, 0, 0).gather(conv, &[], 0);
    convolution::grad_input_workspace(conv, threads)
        + winograd::unpooled_workspace(&gather, conv.input[2], threads)
}

/// Computes the gradient by the input from the gradient behind the pool and the winners, for a convolution at points.
pub fn grad_input(
    threads: &Threads,
    pooled: &Pooled,
    dy: &[f32],
    winners: &[u8],
    kernel: &[f32],
    dx: &mut [f32],
    workspace: &mut [f32],
) {
    let conv = &pooled.conv;
    assert!(applies(pooled), "the shape rules ask for a convolution at points");
    conv.check(dx.len(), kernel.len(), conv.output_floats());
    let slopes = Some(Unpooled::new(dy, winners, conv.output, conv.rows));
    let images = Images { gather: &Phase::new(conv, 0, 0).gather(conv, &[], 0), rows: conv.rows, slopes };
    let filter = Filter::of(conv, kernel, true);
    winograd::convolve(threads, &images, filter, None, dx, None, workspace);
}
