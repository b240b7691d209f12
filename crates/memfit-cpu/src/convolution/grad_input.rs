//! The gradient of a convolution by its input.
//!
//! With a stride, input pixels fall in phases: those of one phase are reached by the same taps, and each sees
//! output pixels as an output pixel of a convolution with stride 1 sees input pixels. So every phase is a
//! product.

use std::ops::Range;

use super::super::gemm::driver::{self, Product, Right, Run, Target};
use super::super::gemm::operand::{Matrix, MatrixRight, PackPanels};
use super::super::lanes::Level;
use super::super::microkernel::Panels;
use super::super::threads::Threads;
use super::gather::{Axis, Gather};
use super::{Convolution, depthwise, winograd};

/// How many floats of workspace `grad_input` needs, whatever the number of images.
pub fn grad_input_workspace(shape: &Convolution, threads: usize) -> usize {
    if shape.is_depthwise() {
        return 0;
    }
    if winograd::applies(shape) {
        return winograd::workspace(shape.kernel[0], shape.output[2], shape.input[2], threads);
    }
    driver::workspace(shape.channels_in(), shape.taps() * shape.channels_out(), threads)
}

/// Computes the gradient by the input, `dx`, from that by the output, `dy`.
///
/// The bits of an image's gradient do not depend on how many others there are.
pub fn grad_input(
    threads: &Threads,
    shape: &Convolution,
    dy: &[f32],
    kernel: &[f32],
    dx: &mut [f32],
    workspace: &mut [f32],
) {
    shape.check(dx.len(), kernel.len(), dy.len());
    if shape.is_depthwise() {
        return depthwise::grad_input(threads, shape, dy, kernel, dx);
    }
    if winograd::applies(shape) {
        let filter = winograd::Filter::of(shape, kernel, true);
        let gather = &Phase::new(shape, 0, 0).gather(shape, dy, 0);
        let images = winograd::Images { gather, rows: shape.rows, unpooled: None };
        return winograd::convolve(threads, &images, filter, None, dx, None, workspace);
    }
    let n = shape.channels_in();
    let (bias, accumulate, splits) = (None, false, 1);
    if shape.is_matrix_product() {
        let (m, k) = (shape.rows * shape.input[0] * shape.input[1], shape.output[2]);
        let left = Matrix { values: dy, stride: k, transposed: false };
        let right = MatrixRight(Matrix { values: kernel, stride: k, transposed: true });
        let target = driver::Strided { start: 0, stride: n };
        return Product { m, n, k, left, right, target, bias, accumulate, splits }
            .run(threads, dx, workspace);
    }
    for group in 0..shape.groups {
        // All phases together have every input pixel once.
        for phase in 0..shape.strides[0] * shape.strides[1] {
            let phase = Phase::new(shape, phase / shape.strides[1], phase % shape.strides[1]);
            let left = phase.gather(shape, dy, group);
            let (m, k) = (shape.rows * left.positions(), left.floats());
            let right = Taps { shape, kernel, phase, group };
            let target = PhaseTarget { shape, phase, channel: group * n };
            Product { m, n, k, left, right, target, bias, accumulate, splits }.run(threads, dx, workspace);
        }
    }
}

/// The input pixels that are `down` and `across` past a multiple of the strides.
#[derive(Clone, Copy)]
pub(super) struct Phase {
    pub(super) down: PhaseAxis,
    pub(super) across: PhaseAxis,
}

/// One axis of a phase.
#[derive(Clone, Copy)]
pub(super) struct PhaseAxis {
    /// The first input pixel of the phase, and how far apart its pixels are.
    pub(super) first: usize,
    pub(super) step: usize,
    /// The taps that reach its pixels, the last first: so they see output pixels in ascending order.
    pub(super) tap_last: usize,
    pub(super) tap_step: usize,
    /// How these pixels see the output.
    pub(super) axis: Axis,
}

impl Phase {
    /// The pixels that are so far past a multiple of the strides.
    pub(super) fn new(shape: &Convolution, down: usize, across: usize) -> Phase {
        Phase {
            down: PhaseAxis::new(shape, 0, shape.pad_top, down),
            across: PhaseAxis::new(shape, 1, shape.pad_left, across),
        }
    }

    /// What the pixels of this phase see of the output, in one group.
    pub(super) fn gather<'a>(&self, shape: &Convolution, dy: &'a [f32], group: usize) -> Gather<'a> {
        let channels = shape.channels_out();
        let (down, across) = (self.down.axis, self.across.axis);
        let (pixel, channel, lines) = (shape.output[2], group * channels, usize::MAX);
        Gather { images: dy, pixel, channel, channels, lines, down, across }
    }
}

impl PhaseAxis {
    /// Tap `t` takes output pixel `o` to input pixel `o * stride + t * dilation - pad`. For a given input
    /// pixel that is solved by every `tap_step`-th tap, if by any.
    fn new(shape: &Convolution, axis: usize, pad: usize, first: usize) -> Self {
        let (stride, dilation, taps) = (shape.strides[axis], shape.dilation[axis], shape.kernel[axis]);
        let distance = |tap: usize| (first + pad) as isize - (tap * dilation) as isize;
        let tap_step = stride / greatest_common_divisor(stride, dilation);
        let reaches = |tap: &usize| distance(*tap) % stride as isize == 0;
        let tap_last = (0..taps).rev().take(tap_step).find(reaches);
        let axis = Axis {
            positions: shape.input[axis].saturating_sub(first).div_ceil(stride),
            step: 1,
            start: tap_last.map_or(0, |tap| distance(tap) / stride as isize),
            taps: tap_last.map_or(0, |tap| tap / tap_step + 1),
            tap_step: (tap_step * dilation / stride) as isize,
            size: shape.output[axis],
        };
        PhaseAxis { first, step: stride, tap_last: tap_last.unwrap_or(0), tap_step, axis }
    }

    /// The tap of the filter that is tap `index` of this phase.
    pub(super) fn tap(&self, index: usize) -> usize {
        self.tap_last - index * self.tap_step
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The taps of a phase as the right operand: the depth is taps and output channels, the columns are input
/// channels.
struct Taps<'a> {
    shape: &'a Convolution,
    kernel: &'a [f32],
    phase: Phase,
    group: usize,
}

impl Right for Taps<'_> {
    fn panels(
        &self,
        level: Level,
        depth: Range<usize>,
        columns: Range<usize>,
        _: usize,
        buffer: &mut [f32],
    ) -> Panels {
        let Taps { shape, phase, .. } = self;
        let (channels, stride) = (shape.channels_out(), shape.output[2]);
        let width = 2 * level.lanes();
        let panels = Panels { start: buffer.as_ptr(), depth_step: width, panel_step: width * depth.len() };
        let mut at = depth.start;
        while at < depth.end {
            let (tap, channel) = (at / channels, at % channels);
            let count = (channels - channel).min(depth.end - at);
            let tap = [
                phase.down.tap(tap / phase.across.axis.taps),
                phase.across.tap(tap % phase.across.axis.taps),
            ];
            let tap = tap[0] * shape.kernel[1] + tap[1];
            let start =
                (tap * shape.channels_in() + columns.start) * stride + self.group * channels + channel;
            let from = &self.kernel[start..start + (columns.len() - 1) * stride + count];
            let part = PackPanels {
                from: from.as_ptr(),
                stride,
                transposed: true,
                depth: at - depth.start..at - depth.start + count,
                depth_panel: depth.len(),
                columns: columns.len(),
            };
            part.pack(level, buffer);
            at += count;
        }
        panels
    }
}

/// The pixels of a phase in the input.
struct PhaseTarget<'a> {
    shape: &'a Convolution,
    phase: Phase,
    channel: usize,
}

impl Target for PhaseTarget<'_> {
    fn run(&self, row: usize) -> Run {
        let Phase { down, across } = self.phase;
        let [height, width, channels] = self.shape.input;
        if self.shape.strides == [1, 1] {
            return Run { start: row * channels + self.channel, step: channels, rows: usize::MAX };
        }
        let (row, x) = (row / across.axis.positions, row % across.axis.positions);
        let (image, y) = (row / down.axis.positions, row % down.axis.positions);
        let pixel = (image * height + down.first + y * down.step) * width + across.first + x * across.step;
        Run {
            start: pixel * channels + self.channel,
            step: across.step * channels,
            rows: across.axis.positions - x,
        }
    }
}
