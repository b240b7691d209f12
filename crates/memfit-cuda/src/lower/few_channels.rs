//! Convolutions of images of few channels in single precision: what an image begins with, for which the
//! library's kernels are not made. Neither a copy of the filter nor margins around the image are needed.

use memfit_ir::Operand::{Bias, DKernel, Dy, X, Y};
use memfit_ir::{Bytes, Conv2D, DType};

use crate::call::{Call, Name, Operand, THREADS, blocks_for, int, long};
use crate::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/few_channels.cu");

/// Output pixels that a thread takes at once; as in the kernel.
const STRIP: usize = 8;

/// Blocks of the gradient, each with a part of it in the workspace.
const PARTS: usize = 528;

/// A convolution of few channels.
pub(super) struct Few<'a> {
    conv: &'a Conv2D,
    input: [usize; 3],
    output: [usize; 3],
    rows: usize,
}

impl<'a> Few<'a> {
    /// The convolution, where it is one of these.
    pub(super) fn of(
        conv: &'a Conv2D,
        input: [usize; 3],
        output: [usize; 3],
        rows: usize,
        dtype: DType,
    ) -> Option<Few<'a>> {
        let (channels, filters) = (input[2], output[2]);
        let [height, width] = conv.kernel;
        let plain = dtype == DType::F32 && conv.groups == 1 && conv.dilation == [1, 1] && channels <= 4;
        let suits = filters.is_multiple_of(4) && filters <= 4 * THREADS as usize;
        let small = height * width * channels * filters <= 10 << 10
            && ((STRIP - 1) * conv.strides[1] + width) * channels <= 72
            && width * channels <= 28;
        (plain && suits && small).then_some(Few { conv, input, output, rows })
    }

    fn source(&self) -> Source {
        let ([r, s], channels, [down, across]) = (self.conv.kernel, self.input[2], self.conv.strides);
        let shared = r * s * channels * self.output[2] / 4;
        let defines = format!(
            "#define R {r}\n#define S {s}\n#define C {channels}\n#define ROWS {}\n#define DOWN {down}\n#define ACROSS {across}\n\
             #define TAPS_SHARED {shared}\n",
            self.rows_at_once()
        );
        Source { text: TEXT, defines }
    }

    /// Filter rows that the gradient takes at once: as many as registers hold.
    fn rows_at_once(&self) -> usize {
        let [r, s] = self.conv.kernel;
        if r * s * self.input[2] <= 28 { r } else { 1 }
    }

    fn strips(&self) -> usize {
        self.rows * self.output[0] * self.output[1].div_ceil(STRIP)
    }

    fn sizes(&self) -> Vec<Argument> {
        let [height, width, _] = self.input;
        let [out_height, out_width, filters] = self.output;
        let pads = self.conv.pads;
        let mut arguments = vec![long(self.strips())];
        arguments.extend([height, width, out_height, out_width, filters, pads.top, pads.left].map(int));
        arguments
    }

    fn groups(&self) -> usize {
        THREADS as usize / (self.output[2] / 4)
    }

    /// `y = x ∗ kernel + bias`, with a ReLU where `relu`.
    pub(super) fn forward(&self, call: &Call<'_>, relu: bool) -> Lowered {
        let (x, kernel, y) = (call.input(X), call.input(Name::Kernel), call.output(Y));
        let bias = call.pointer_if_given(Bias);
        let mut arguments = vec![x.pointer(), kernel.pointer(), bias, y.pointer()];
        arguments.extend(self.sizes());
        let blocks = self.strips().div_ceil(self.groups()).clamp(1, 4096);
        let blocks = [u32::try_from(blocks).expect("there are few blocks"), 1, 1];
        let mut source = self.source();
        if relu {
            source.defines += "#define RELU\n";
        }
        Kernel { source, entry: "few_forward", blocks, threads: THREADS, arguments }.into()
    }

    /// The gradient of the kernel, added to what is there.
    pub(super) fn grad_kernel(&self, call: &Call<'_>) -> Lowered {
        let (x, dy, dkernel): (Operand<'_>, Operand<'_>, Operand<'_>) =
            (call.input(X), call.input(Dy), call.update(DKernel));
        let mut lowered = Lowered::default();
        let parts = Argument::At(lowered.scratch(Bytes::of::<f32>(PARTS * dkernel.elements)));
        let blocks = self.strips().div_ceil(self.groups()).clamp(1, PARTS);
        let count = |count: usize| u32::try_from(count).expect("there are few blocks");
        let mut arguments = vec![x.pointer(), dy.pointer(), parts];
        arguments.extend(self.sizes());
        let tap_rows = self.conv.kernel[0] / self.rows_at_once();
        lowered.kernel(Kernel {
            source: self.source(),
            entry: "few_filter",
            blocks: [count(blocks), count(tap_rows), 1],
            threads: THREADS,
            arguments,
        });
        lowered.kernel(Kernel {
            source: self.source(),
            entry: "few_filter_sum",
            blocks: blocks_for(dkernel.elements),
            threads: THREADS,
            arguments: vec![parts, dkernel.pointer(), int(blocks), long(dkernel.elements), call.overwrite()],
        });
        lowered
    }
}
