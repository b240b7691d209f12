//! The gradient of a convolution by its filter, from images that are not stored but recomputed while they are
//! read.
//!
//! Work is cut, and sums are taken, as if the images were stored, so that the bits are the same.

use std::ops::Range;

use super::super::gemm::driver::{self, LINE, Left, Product, Strided, block_end};
use super::super::gemm::operand::{Matrix, MatrixRight};
use super::super::lanes::Level;
use super::super::microkernel::View;
use super::super::producer::{Made, MakeRuns};
use super::super::threads::Threads;
use super::gather::Gather;
use super::pack::{PackFloats, Transposed};
use super::{Convolution, depthwise, grad_kernel, winograd};

/// The most register tiles of a panel: few panels, none of which leaves the second-level cache.
const TILES_PANEL: usize = 4;

/// How many floats of workspace `grad_kernel_of` needs, besides what recomputing the images does: never more
/// for fewer images.
pub(crate) fn grad_kernel_of_workspace(shape: &Convolution, threads: usize) -> usize {
    let window = if shape.is_depthwise() {
        depthwise::window(shape)
    } else if winograd::applies(shape) {
        winograd::window(shape)
    } else {
        0
    };
    grad_kernel::grad_kernel_workspace(shape, threads) + threads * window
}

/// About how often each element of an image is recomputed.
pub(crate) fn times_made(shape: &Convolution) -> usize {
    if shape.is_depthwise() {
        1
    } else if winograd::applies(shape) {
        shape.output[2].div_ceil(winograd::CHANNELS_OUT)
    } else {
        shape.taps().div_ceil(shape.strides.iter().product()) * driver::columns_tasks(shape.channels_out())
    }
}

/// Computes the gradient by the filter, `dkernel`, from images that are `made` and the gradient by the
/// output, `dy`. Where `accumulate`, adds it to what is there.
pub(crate) fn grad_kernel_of(
    threads: &Threads,
    shape: &Convolution,
    made: &Made,
    dy: &[f32],
    dkernel: &mut [f32],
    accumulate: bool,
    workspace: &mut [f32],
) {
    let x = made.values();
    shape.check(x.len(), dkernel.len(), dy.len());
    if shape.is_depthwise() {
        return depthwise::grad_kernel(threads, shape, x, Some(made), dy, dkernel, accumulate, workspace);
    }
    if winograd::applies(shape) {
        let dy = winograd::Dy::Stored(dy);
        return winograd::grad_kernel(threads, shape, x, Some(made), dy, dkernel, accumulate, workspace);
    }
    let (m, n, k) = grad_kernel::product(shape);
    let (splits, stride) = (driver::splits(m, n, k), shape.output[2]);
    for group in 0..shape.groups {
        let start = group * n;
        let right = MatrixRight(Matrix { values: &dy[start.min(dy.len())..], stride, transposed: false });
        let (target, bias) = (Strided { start, stride }, None);
        let gather = Gather::of_input(shape, x, group);
        let left = MadeLeft { gather, made, is_matrix: shape.is_matrix_product() };
        Product { m, n, k, left, right, target, bias, accumulate, splits }.run(threads, dkernel, workspace);
    }
}

/// Some lines of images: a task makes each when it comes to it, in the place of one that it is done with.
pub(super) struct Window<'a> {
    made: &'a Made<'a>,
    /// Which channels of how many.
    channels: Range<usize>,
    pixel: usize,
    width: usize,
    lines: &'a mut [f32],
    count: usize,
    /// Lines of all images before this one have been made, as far as they were wanted.
    next: usize,
}

impl<'a> Window<'a> {
    /// Floats of `count` lines.
    pub(super) fn floats(count: usize, width: usize, channels: usize) -> usize {
        (count * width * channels).next_multiple_of(LINE)
    }

    /// A window of `count` lines of some channels of what `gather` sees.
    pub(super) fn new(
        made: &'a Made<'a>,
        gather: &Gather,
        channels: Range<usize>,
        count: usize,
        room: &'a mut [f32],
    ) -> Window<'a> {
        let (pixel, width) = (gather.pixel, gather.across.size);
        let lines = &mut room[..count * width * channels.len()];
        Window { made, channels, pixel, width, lines, count, next: 0 }
    }

    /// Makes sure that some neighbouring lines, counted over all images, are there, and shows them. Neither
    /// the first nor the last line lies before that of the call before.
    pub(super) fn show<'b>(
        &'b mut self,
        level: Level,
        lines: Range<usize>,
        gather: &Gather<'b>,
    ) -> Gather<'b> {
        assert!(lines.len() <= self.count, "a window has room for the lines that are seen together");
        let channels = self.channels.len();
        let floats = self.width * channels;
        for line in lines.start.max(self.next)..lines.end {
            let to = &mut self.lines[line % self.count * floats..][..floats];
            let start = line * self.width * self.pixel + self.channels.start;
            let (column, to_step) = (self.channels.start, channels);
            let (step, runs, length) = match channels == self.pixel {
                true => (0, 1, floats),
                false => (self.pixel, self.width, channels),
            };
            let to = to.as_mut_ptr();
            level.call(MakeRuns { made: self.made, start, column, step, runs, length, to, to_step });
        }
        self.next = self.next.max(lines.end);
        Gather { images: self.lines, pixel: channels, channel: 0, channels, lines: self.count, ..*gather }
    }
}

/// What positions see are the rows of the operand, and the positions are the depth, as in [`Transposed`] or,
/// where pixels do not mix, in a [`Matrix`].
struct MadeLeft<'a> {
    gather: Gather<'a>,
    made: &'a Made<'a>,
    is_matrix: bool,
}

impl Left for MadeLeft<'_> {
    fn block_end(&self, start: usize, end: usize) -> usize {
        if self.is_matrix { block_end(start, end) } else { Transposed(self.gather).block_end(start, end) }
    }

    fn panel(
        &self,
        level: Level,
        rows: Range<usize>,
        depth: Range<usize>,
        _: usize,
        buffer: &mut [f32],
    ) -> (View, usize) {
        self.gather.check(&depth, &rows);
        let tiles = (buffer.len() / depth.len().max(1) / level.rows()).clamp(1, TILES_PANEL);
        let most = tiles * level.rows();
        let rows = rows.start..rows.end.min(rows.start + most);
        let (width, to) = (rows.len(), buffer.as_mut_ptr());
        assert!(depth.len() * width <= buffer.len(), "the panel fits its buffer");
        let made = self.made;
        if self.is_matrix {
            let (column, step) = (rows.start, self.gather.pixel);
            let (start, runs) = (depth.start * step + column, depth.len());
            level.call(MakeRuns { made, start, column, step, runs, length: width, to, to_step: width });
        } else {
            level.call(PackFloats {
                gather: &self.gather,
                pixels: made,
                positions: depth,
                floats: rows,
                to,
                width,
            });
        }
        (View::new(to, width, true), width)
    }

    fn prefetch(&self, rows: Range<usize>, depth: Range<usize>) {
        if self.is_matrix {
            let matrix = Matrix { values: self.made.values(), stride: self.gather.pixel, transposed: true };
            Left::prefetch(&matrix, rows, depth);
        }
    }
}
