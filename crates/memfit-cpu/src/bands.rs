//! f16 and bf16 images that are too large to be widened whole: convolutions and pools go over them in bands
//! of lines.
//!
//! ```text
//! lines of the result      |  band  |  band  |  band  |
//! lines they are made of   [-----------]
//!                               [-----------]
//!                                        [-----------]
//! ```
//!
//! A band is an image of its own with another upper margin, so that the kernels know nothing of bands.

use std::ops::Range;

use memfit_ir::Operand::{Argmax, Bias, DKernel, Dx, Dy, Kernel, X, Y};
use memfit_ir::{Bytes, Conv2D, Graph, Node, Op, Operand, Pool2D, Shape};

use super::conv2d::{geometry, image};
use super::convolution::{self, Convolution};
use super::floats::Floats;
use super::half::Half;
use super::operands::Operands;
use super::relu::relu_in_place;
use super::widen::AT_ONCE;
use super::{average_pool, fused, max_pool};

/// How a node goes over its images.
pub(crate) struct Bands<'a> {
    work: Work<'a>,
    axis: Axis,
    /// The image that windows or filters lie over, and that of one pixel for each place.
    under: &'a Shape,
    over: &'a Shape,
}

/// Who goes over images.
#[derive(Clone, Copy)]
enum Work<'a> {
    Conv2D(&'a Conv2D),
    Conv2DRelu(&'a Conv2D),
    Conv2DGradInput(&'a Conv2D),
    Conv2DGradKernel(&'a Conv2D),
    MaxPool2D(&'a Pool2D),
    MaxPool2DGrad(&'a Pool2D),
    AveragePool2D(&'a Pool2D),
    AveragePool2DGrad(&'a Pool2D),
}

/// Lines of both images, and which of the one see which of the other.
#[derive(Clone, Copy, Debug)]
struct Axis {
    /// Lines from the first to the last that a window covers.
    span: usize,
    stride: usize,
    pad: usize,
    /// Lines of the image under the windows, and of the one with a line for each row of windows.
    under: usize,
    over: usize,
}

impl Axis {
    /// The lines that rows of windows see, and the margin above them.
    fn seen_by(&self, over: &Range<usize>) -> (Range<usize>, usize) {
        let (first, last) = (over.start * self.stride, (over.end - 1) * self.stride + self.span);
        let under = first.saturating_sub(self.pad)..last.saturating_sub(self.pad).min(self.under);
        let margin = self.pad.saturating_sub(first);
        (under, margin)
    }

    /// The rows of windows that see any of these lines, and the margin above the lines for the first of the
    /// rows.
    fn seeing(&self, under: &Range<usize>) -> (Range<usize>, usize) {
        let first = (under.start + self.pad + 1).saturating_sub(self.span).div_ceil(self.stride);
        let last = (under.end - 1 + self.pad) / self.stride + 1;
        let over = first..last.min(self.over);
        (over.clone(), under.start + self.pad - over.start * self.stride)
    }
}

impl<'a> Bands<'a> {
    /// The bands of a node whose images are f16 or bf16 and too large to be widened whole.
    pub(crate) fn of(graph: &'a Graph, node: &'a Node) -> Option<Bands<'a>> {
        let shape = |operand: Operand| &graph.tensors[node.tensor(operand).0].shape;
        let (work, under, over) = if let Op::Conv2D(conv) = &node.op {
            (Work::Conv2D(conv), shape(X), shape(Y))
        } else if let Some(conv) = fused::conv2d_relu(&node.op) {
            (Work::Conv2DRelu(conv), shape(X), shape(Y))
        } else if let Op::Conv2DGradInput(conv, _) = &node.op {
            (Work::Conv2DGradInput(conv), shape(Dx), shape(Dy))
        } else if let Op::Conv2DGradKernel(conv) = &node.op {
            (Work::Conv2DGradKernel(conv), shape(X), shape(Dy))
        } else if let Op::MaxPool2D(pool) | Op::MaxPool2DRelu(pool) = &node.op {
            (Work::MaxPool2D(pool), shape(X), shape(Y))
        } else if let Op::MaxPool2DGrad(pool, _) = &node.op {
            (Work::MaxPool2DGrad(pool), shape(Dx), shape(Dy))
        } else if let Op::AveragePool2D(pool) = &node.op {
            (Work::AveragePool2D(pool), shape(X), shape(Y))
        } else if let Op::AveragePool2DGrad(pool, _) = &node.op {
            (Work::AveragePool2DGrad(pool), shape(Dx), shape(Dy))
        } else {
            return None;
        };
        let bands = Bands { work, axis: axis(work, under, over), under, over };
        let half = node.inputs.iter().any(|id| Half::of(graph.tensors[id.0].dtype).is_some());
        let large = AT_ONCE < under.elements_per_row() + over.elements_per_row();
        (half && large && bands.suits()).then_some(bands)
    }

    /// Whether lines between windows, windows outside the image, or shares of windows that are cut would have
    /// to be seen to.
    fn suits(&self) -> bool {
        let Axis { span, stride, pad, under, over } = self.axis;
        let inside = (over - 1) * stride < under + pad;
        let whole = match self.work {
            Work::AveragePool2DGrad(_) => span == stride,
            Work::Conv2D(_)
            | Work::Conv2DRelu(_)
            | Work::Conv2DGradInput(_)
            | Work::Conv2DGradKernel(_)
            | Work::MaxPool2D(_)
            | Work::MaxPool2DGrad(_)
            | Work::AveragePool2D(_) => true,
        };
        stride <= span && pad < span && inside && whole
    }

    /// Workspace for a band of both images.
    pub(crate) fn bytes(&self) -> Bytes {
        let [under, over] = self.floats();
        Bytes::of::<f32>(under + over)
    }

    /// Runs the node.
    pub(crate) fn launch(&self, operands: &Operands) {
        let [under, over] = self.floats();
        let mut workspace = operands.workspace();
        let scratch = Scratch {
            under: workspace.take_floats(under),
            over: workspace.take_floats(over),
            own: workspace.floats(),
        };
        match self.work {
            Work::Conv2D(conv) => self.conv2d(operands, conv, false, scratch),
            Work::Conv2DRelu(conv) => self.conv2d(operands, conv, true, scratch),
            Work::Conv2DGradInput(conv) => self.conv2d_grad_input(operands, conv, scratch),
            Work::Conv2DGradKernel(conv) => self.conv2d_grad_kernel(operands, conv, scratch),
            Work::MaxPool2D(pool) | Work::AveragePool2D(pool) => self.pool(operands, pool, scratch),
            Work::MaxPool2DGrad(pool) | Work::AveragePool2DGrad(pool) => {
                self.pool_grad(operands, pool, scratch)
            }
        }
    }

    fn conv2d(&self, operands: &Operands, conv: &Conv2D, relu: bool, scratch: Scratch) {
        let (x, y) = (operands.input_floats(X), operands.output_floats(Y));
        let (kernel, bias) = (operands.input(Kernel), operands.input_if_given(Bias));
        for Band { under, over, margin, row } in self.over_bands(operands.context.rows) {
            let part = self.part(conv, &under, &over, margin);
            let x = widen(operands, x, self.lines(self.under, row, &under), &mut *scratch.under);
            let lines = self.lines(self.over, row, &over);
            let to = &mut scratch.over[..lines.len()];
            convolution::forward(operands.threads, &part, x, kernel, bias, to, &mut *scratch.own);
            if relu {
                relu_in_place(operands.threads, to);
            }
            narrow(operands, to, y, lines);
        }
    }

    fn conv2d_grad_input(&self, operands: &Operands, conv: &Conv2D, scratch: Scratch) {
        let (dy, dx) = (operands.input_floats(Dy), operands.output_floats(Dx));
        let kernel = operands.input(Kernel);
        for Band { under, over, margin, row } in self.under_bands(operands.context.rows) {
            let part = self.part(conv, &under, &over, margin);
            let dy = widen(operands, dy, self.lines(self.over, row, &over), &mut *scratch.over);
            let lines = self.lines(self.under, row, &under);
            let to = &mut scratch.under[..lines.len()];
            if over.is_empty() {
                to.fill(0.0);
            } else {
                convolution::grad_input(operands.threads, &part, dy, kernel, to, &mut *scratch.own);
            }
            narrow(operands, to, dx, lines);
        }
    }

    fn conv2d_grad_kernel(&self, operands: &Operands, conv: &Conv2D, scratch: Scratch) {
        let (x, dy) = (operands.input_floats(X), operands.input_floats(Dy));
        let (dkernel, mut accumulate) = (operands.update(DKernel), !operands.fresh);
        for Band { under, over, margin, row } in self.over_bands(operands.context.rows) {
            let part = self.part(conv, &under, &over, margin);
            let x = widen(operands, x, self.lines(self.under, row, &under), &mut *scratch.under);
            let dy = widen(operands, dy, self.lines(self.over, row, &over), &mut *scratch.over);
            let own = &mut *scratch.own;
            convolution::grad_kernel(operands.threads, &part, x, dy, dkernel, accumulate, own);
            accumulate = true;
        }
    }

    fn pool(&self, operands: &Operands, pool: &Pool2D, scratch: Scratch) {
        let (x, y) = (operands.input_floats(X), operands.output_floats(Y));
        let is_max = matches!(self.work, Work::MaxPool2D(_));
        let mut argmax: Option<&mut [u8]> = is_max.then(|| operands.output(Argmax));
        let relu = matches!(operands.node.op, Op::MaxPool2DRelu(_));
        for Band { under, over, margin, row } in self.over_bands(operands.context.rows) {
            let part = pool_part(pool, margin);
            let sizes = [sized(self.under, &under), sized(self.over, &over)];
            let x = widen(operands, x, self.lines(self.under, row, &under), &mut *scratch.under);
            let lines = self.lines(self.over, row, &over);
            let to = &mut scratch.over[..lines.len()];
            if let Some(argmax) = &mut argmax {
                let argmax = &mut argmax[lines.clone()];
                max_pool::forward_of(operands.threads, &part, sizes, 1, x, to, argmax, relu);
            } else {
                average_pool::forward_of(operands.threads, &part, sizes, 1, x, to);
            }
            narrow(operands, to, y, lines);
        }
    }

    fn pool_grad(&self, operands: &Operands, pool: &Pool2D, scratch: Scratch) {
        let (dy, dx) = (operands.input_floats(Dy), operands.output_floats(Dx));
        let is_max = matches!(self.work, Work::MaxPool2DGrad(_));
        let argmax: Option<&[u8]> = is_max.then(|| operands.input(Argmax));
        for Band { under, over, margin, row } in self.under_bands(operands.context.rows) {
            let part = pool_part(pool, margin);
            let sizes = [sized(self.under, &under), sized(self.over, &over)];
            let from = self.lines(self.over, row, &over);
            let dy = widen(operands, dy, from.clone(), &mut *scratch.over);
            let lines = self.lines(self.under, row, &under);
            let to = &mut scratch.under[..lines.len()];
            if over.is_empty() {
                to.fill(0.0);
            } else if let Some(argmax) = argmax {
                max_pool::grad_of(operands.threads, &part, sizes, 1, dy, &argmax[from], to);
            } else {
                average_pool::grad_of(operands.threads, &part, sizes, 1, dy, to);
            }
            narrow(operands, to, dx, lines);
        }
    }

    /// The geometry of a band.
    fn part(&self, conv: &Conv2D, under: &Range<usize>, over: &Range<usize>, margin: usize) -> Convolution {
        let whole = geometry(conv, self.under, self.over, 1);
        let (input, output) = (sized(self.under, under), sized(self.over, over));
        Convolution { input, output, pad_top: margin, ..whole }
    }

    /// Bands of rows of windows, with all that they see.
    fn over_bands(&self, rows: usize) -> impl Iterator<Item = Band> + use<> {
        let (axis, step) = (self.axis, self.step());
        (0..rows).flat_map(move |row| {
            (0..axis.over).step_by(step).map(move |start| {
                let over = start..axis.over.min(start + step);
                let (under, margin) = axis.seen_by(&over);
                Band { under, over, margin, row }
            })
        })
    }

    /// Bands of lines under windows, whole strides of them counted from the margin, with all that sees them.
    fn under_bands(&self, rows: usize) -> impl Iterator<Item = Band> + use<> {
        let (axis, step) = (self.axis, self.step() * self.axis.stride);
        // Whole strides of the margin make no difference.
        let margin = axis.pad % axis.stride;
        (0..rows).flat_map(move |row| {
            (0..axis.under + margin).step_by(step).filter_map(move |start| {
                let end = (start + step).saturating_sub(margin).min(axis.under);
                let under = start.saturating_sub(margin)..end;
                (!under.is_empty()).then(|| {
                    let (over, margin) = axis.seeing(&under);
                    Band { under, over, margin, row }
                })
            })
        })
    }

    /// Rows of windows of a band: an even number, since convolutions may go by two lines and give the same
    /// bits then.
    fn step(&self) -> usize {
        let Axis { span, stride, over, .. } = self.axis;
        let [under_line, over_line] =
            [self.under, self.over].map(|shape| shape.elements_per_row() / image(shape)[0]);
        // What a band needs beside what grows with its rows of windows.
        let overlap = (span + stride) * under_line + (span / stride + 2) * over_line;
        let room = AT_ONCE.saturating_sub(overlap);
        (room / (stride * under_line + over_line).max(1) / 2 * 2).max(2).min(over)
    }

    /// The most floats of a band of either image.
    fn floats(&self) -> [usize; 2] {
        let Axis { span, stride, under, over, .. } = self.axis;
        let lines = [(self.step() * stride + span).min(under), (self.step() + span / stride + 2).min(over)];
        let line = |shape: &Shape| shape.elements_per_row() / image(shape)[0];
        // A whole number of cache lines, so that what follows is aligned.
        [lines[0] * line(self.under), lines[1] * line(self.over)].map(|floats| floats.next_multiple_of(16))
    }

    /// The elements of lines of an image.
    fn lines(&self, shape: &Shape, row: usize, lines: &Range<usize>) -> Range<usize> {
        let line = shape.elements_per_row() / image(shape)[0];
        let start = row * shape.elements_per_row();
        start + lines.start * line..start + lines.end * line
    }
}

/// Lines of both images that are handled together, of one row of the batch.
struct Band {
    under: Range<usize>,
    over: Range<usize>,
    /// Margin above the lines under the windows.
    margin: usize,
    row: usize,
}

/// The workspace: a band of both images, and what the kernel itself needs.
struct Scratch<'a> {
    under: &'a mut [f32],
    over: &'a mut [f32],
    own: &'a mut [f32],
}

fn axis(work: Work, under: &Shape, over: &Shape) -> Axis {
    let (span, stride, pad) = match work {
        Work::Conv2D(conv)
        | Work::Conv2DRelu(conv)
        | Work::Conv2DGradInput(conv)
        | Work::Conv2DGradKernel(conv) => {
            ((conv.kernel[0] - 1) * conv.dilation[0] + 1, conv.strides[0], conv.pads.top)
        }
        Work::MaxPool2D(pool)
        | Work::MaxPool2DGrad(pool)
        | Work::AveragePool2D(pool)
        | Work::AveragePool2DGrad(pool) => (pool.window[0], pool.strides[0], pool.pads.top),
    };
    Axis { span, stride, pad, under: image(under)[0], over: image(over)[0] }
}

fn pool_part(pool: &Pool2D, margin: usize) -> Pool2D {
    let mut part = pool.clone();
    part.pads.top = margin;
    part
}

/// Some lines of an image, as an image.
fn sized(shape: &Shape, lines: &Range<usize>) -> [usize; 3] {
    let [_, width, channels] = image(shape);
    [lines.len(), width, channels]
}

/// Elements that one task converts.
const TASK: usize = 1 << 14;

/// Some elements in single precision.
fn widen<'b>(operands: &Operands, from: Floats, part: Range<usize>, buffer: &'b mut [f32]) -> &'b [f32] {
    let buffer = &mut buffer[..part.len()];
    operands.threads.for_each_chunk(buffer, TASK, |chunk, to| {
        let start = part.start + chunk * TASK;
        // SAFETY: an input that shares no byte with an output is not written.
        unsafe { from.load(start..start + to.len(), to) };
    });
    buffer
}

/// Writes some elements, rounded.
fn narrow(operands: &Operands, from: &[f32], to: Floats, part: Range<usize>) {
    operands.threads.for_each(from.len().div_ceil(TASK), |chunk, _| {
        let values = &from[chunk * TASK..from.len().min((chunk + 1) * TASK)];
        let start = part.start + chunk * TASK;
        // SAFETY: chunks do not overlap, and every chunk is one task.
        unsafe { to.store(start..start + values.len(), values) };
    });
}
