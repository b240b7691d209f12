//! Convolution over depth, height and width and its gradients: strips of windows are gathered, then
//! multiplied.

use std::ops::Range;

use memfit_ir::Operand::{Bias, DKernel, Dx, Dy, Kernel, X, Y};
use memfit_ir::{Conv3D, Shape};

use super::gemm::driver::{self, Product, Strided};
use super::gemm::operand::{Matrix, MatrixRight};
use super::operands::Operands;
use super::threads::{Shared, Threads};

/// About the floats of a strip of windows: few enough to stay in the second-level cache.
const STRIP_FLOATS: usize = 1 << 16;
/// The fewest and the most windows of a strip.
const STRIP: [usize; 2] = [8, 512];

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes<'a> {
    conv: &'a Conv3D,
    rows: usize,
    /// Depth, height, width and channels.
    input: [usize; 4],
    output: [usize; 4],
}

impl<'a> Sizes<'a> {
    pub(crate) fn new(conv: &'a Conv3D, input: &Shape, output: &Shape, rows: usize) -> Sizes<'a> {
        let volume =
            |shape: &Shape| shape.dims[..].try_into().expect("the shape rules ask for volumes of four axes");
        Sizes { conv, rows, input: volume(input), output: volume(output) }
    }

    /// Multiplications and additions of all rows.
    pub(crate) fn flops(&self) -> f64 {
        2.0 * (self.rows * self.windows()) as f64 * (self.depth() * self.output[3]) as f64
    }

    /// Floats of workspace that any of the three kernels needs, for any number of rows.
    pub(crate) fn workspace(&self, threads: usize) -> usize {
        threads * self.worker_floats()
    }

    fn worker_floats(&self) -> usize {
        let widest = self.depth().max(self.filters());
        self.strip() * self.depth() + driver::workspace(widest, widest.max(self.strip()), 1)
    }

    /// Windows of a row.
    fn windows(&self) -> usize {
        self.output[..3].iter().product()
    }

    /// Values that a group sees of a window.
    fn depth(&self) -> usize {
        self.conv.kernel.iter().product::<usize>() * self.channels()
    }

    /// Input channels of a group.
    fn channels(&self) -> usize {
        self.input[3] / self.conv.groups
    }

    /// Output channels of a group.
    fn filters(&self) -> usize {
        self.output[3] / self.conv.groups
    }

    fn input_floats(&self) -> usize {
        self.input.iter().product()
    }

    fn output_floats(&self) -> usize {
        self.output.iter().product()
    }

    /// Windows of a strip.
    fn strip(&self) -> usize {
        (STRIP_FLOATS / self.depth().max(1)).clamp(STRIP[0], STRIP[1])
    }

    /// The strips of a row.
    fn strips(&self) -> usize {
        self.windows().div_ceil(self.strip())
    }

    fn strip_range(&self, strip: usize) -> Range<usize> {
        strip * self.strip()..self.windows().min((strip + 1) * self.strip())
    }

    /// Taps along depth and height: each has its own lines of the kernel.
    fn lines(&self) -> usize {
        self.conv.kernel[0] * self.conv.kernel[1]
    }

    /// Where a tap of a window stands along an axis, unless in the margin.
    fn place(&self, axis: usize, window: usize, tap: usize) -> Option<usize> {
        let place = window * self.conv.strides[axis] + tap * self.conv.dilation[axis];
        place.checked_sub(self.conv.pads[axis][0]).filter(|place| *place < self.input[axis])
    }

    /// Calls back for every tap of some lines of some windows of a group: where it stands in the patches, and
    /// where its channels begin in a row of the input, unless in the margin.
    fn for_each_tap(
        &self,
        windows: Range<usize>,
        lines: Range<usize>,
        group: usize,
        mut tap: impl FnMut(usize, Option<usize>),
    ) {
        let ([_, height, width], [_, rows, columns]) =
            ([self.input[0], self.input[1], self.input[2]], [self.output[0], self.output[1], self.output[2]]);
        let mut at = 0;
        for window in windows {
            let place = [window / (rows * columns), window / columns % rows, window % columns];
            for line in lines.clone() {
                let z = self.place(0, place[0], line / self.conv.kernel[1]);
                let y = self.place(1, place[1], line % self.conv.kernel[1]);
                for across in 0..self.conv.kernel[2] {
                    let from = z.zip(y).zip(self.place(2, place[2], across)).map(|((z, y), x)| {
                        ((z * height + y) * width + x) * self.input[3] + group * self.channels()
                    });
                    tap(at, from);
                    at += self.channels();
                }
            }
        }
    }

    /// Writes what a group sees of some windows, for some lines of the kernel.
    fn gather(
        &self,
        x: &[f32],
        windows: Range<usize>,
        lines: Range<usize>,
        group: usize,
        patches: &mut [f32],
    ) {
        let channels = self.channels();
        self.for_each_tap(windows, lines, group, |at, from| {
            let to = &mut patches[at..at + channels];
            match from {
                Some(from) => to.copy_from_slice(&x[from..from + channels]),
                None => to.fill(0.0),
            }
        });
    }
}

/// `y = x ∗ kernel + bias`.
pub(crate) fn forward(operands: &Operands, conv: &Conv3D) {
    let sizes = Sizes::new(conv, operands.shape(X), operands.shape(Y), operands.context.rows);
    let bias = operands.input_if_given(Bias);
    let (x, kernel): (&[f32], &[f32]) = (operands.input(X), operands.input(Kernel));
    let (depth, filters, width) = (sizes.depth(), sizes.filters(), sizes.output[3]);
    let alone = Threads::alone(operands.threads.level());
    let y = Shared::new(operands.output(Y));
    let workspace = Shared::new(operands.workspace().floats());
    operands.threads.for_each(sizes.rows * sizes.strips(), |task, worker| {
        let (row, windows) = (task / sizes.strips(), sizes.strip_range(task % sizes.strips()));
        let start = row * sizes.output_floats();
        // SAFETY: every strip has its own part of the output, and every worker its own part of the workspace.
        let (y, workspace) = unsafe {
            (
                y.slice(start + windows.start * width..start + windows.end * width),
                workspace.slice(own(&sizes, worker)),
            )
        };
        let (patches, workspace) = workspace.split_at_mut(sizes.strip() * depth);
        let x = &x[row * sizes.input_floats()..][..sizes.input_floats()];
        for group in 0..conv.groups {
            sizes.gather(x, windows.clone(), 0..sizes.lines(), group, patches);
            let start = group * filters;
            Product {
                m: windows.len(),
                n: filters,
                k: depth,
                left: Matrix { values: patches, stride: depth, transposed: false },
                right: MatrixRight(Matrix {
                    values: &kernel[start.min(kernel.len())..],
                    stride: width,
                    transposed: false,
                }),
                target: Strided { start, stride: width },
                bias: bias.map(|bias| &bias[start..start + filters]),
                accumulate: false,
                splits: 1,
            }
            .run(&alone, y, workspace);
        }
    });
}

/// The gradient of the input: what each window hands back, added in the order of windows.
pub(crate) fn grad_input(operands: &Operands, conv: &Conv3D) {
    let sizes = Sizes::new(conv, operands.shape(Dx), operands.shape(Dy), operands.context.rows);
    let (dy, kernel): (&[f32], &[f32]) = (operands.input(Dy), operands.input(Kernel));
    let (depth, filters, width, channels) =
        (sizes.depth(), sizes.filters(), sizes.output[3], sizes.channels());
    let alone = Threads::alone(operands.threads.level());
    let workspace = Shared::new(operands.workspace().floats());
    operands.threads.for_each_chunk_with(operands.output(Dx), sizes.input_floats(), |row, worker, dx| {
        dx.fill(0.0);
        // SAFETY: every worker has its own part of the workspace.
        let workspace = unsafe { workspace.slice(own(&sizes, worker)) };
        let (patches, workspace) = workspace.split_at_mut(sizes.strip() * depth);
        let dy = &dy[row * sizes.output_floats()..][..sizes.output_floats()];
        for windows in (0..sizes.strips()).map(|strip| sizes.strip_range(strip)) {
            for group in 0..conv.groups {
                let start = group * filters;
                Product {
                    m: windows.len(),
                    n: depth,
                    k: filters,
                    left: Matrix {
                        values: &dy[windows.start * width + start..],
                        stride: width,
                        transposed: false,
                    },
                    right: MatrixRight(Matrix {
                        values: &kernel[start.min(kernel.len())..],
                        stride: width,
                        transposed: true,
                    }),
                    target: Strided { start: 0, stride: depth },
                    bias: None,
                    accumulate: false,
                    splits: 1,
                }
                .run(&alone, patches, workspace);
                sizes.for_each_tap(windows.clone(), 0..sizes.lines(), group, |at, to| {
                    let Some(to) = to else { return };
                    let dpatch = &patches[at..at + channels];
                    dx[to..to + channels].iter_mut().zip(dpatch).for_each(|(to, dpatch)| *to += dpatch);
                });
            }
        }
    });
}

/// The gradient of the kernel, added to what is there: a task has some lines of the kernel and all windows.
pub(crate) fn grad_kernel(operands: &Operands, conv: &Conv3D) {
    let sizes = Sizes::new(conv, operands.shape(X), operands.shape(Dy), operands.context.rows);
    let (x, dy): (&[f32], &[f32]) = (operands.input(X), operands.input(Dy));
    let (filters, width) = (sizes.filters(), sizes.output[3]);
    let line = conv.kernel[2] * sizes.channels();
    let alone = Threads::alone(operands.threads.level());
    let workspace = Shared::new(operands.workspace().floats());
    let overwrite = operands.fresh;
    operands.threads.for_each_chunk_with(operands.update(DKernel), line * width, |index, worker, dkernel| {
        if overwrite {
            dkernel.fill(0.0);
        }
        // SAFETY: every worker has its own part of the workspace.
        let workspace = unsafe { workspace.slice(own(&sizes, worker)) };
        let (patches, workspace) = workspace.split_at_mut(sizes.strip() * sizes.depth());
        for task in 0..sizes.rows * sizes.strips() {
            let (row, windows) = (task / sizes.strips(), sizes.strip_range(task % sizes.strips()));
            let x = &x[row * sizes.input_floats()..][..sizes.input_floats()];
            let dy = &dy[row * sizes.output_floats()..][..sizes.output_floats()];
            for group in 0..conv.groups {
                sizes.gather(x, windows.clone(), index..index + 1, group, patches);
                let start = group * filters;
                Product {
                    m: line,
                    n: filters,
                    k: windows.len(),
                    left: Matrix { values: patches, stride: line, transposed: true },
                    right: MatrixRight(Matrix {
                        values: &dy[windows.start * width + start..],
                        stride: width,
                        transposed: false,
                    }),
                    target: Strided { start, stride: width },
                    bias: None,
                    accumulate: true,
                    splits: 1,
                }
                .run(&alone, dkernel, workspace);
            }
        }
    });
}

/// A worker's part of the workspace.
fn own(sizes: &Sizes<'_>, worker: usize) -> Range<usize> {
    worker * sizes.worker_floats()..(worker + 1) * sizes.worker_floats()
}
