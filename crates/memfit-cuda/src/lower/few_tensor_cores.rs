//! Convolutions of images of few channels on tensor cores, their factors rounded to TF32, which is exact for
//! f16 and bf16. The library's kernels are not made for them, and plain sums take many times as long as the
//! memory traffic.

use memfit_ir::Operand::{Bias, DKernel, Dy, X, Y};
use memfit_ir::{Bytes, Conv2D, DType};

use crate::call::{Call, Name, THREADS, int, long};
use crate::work::{Argument, Kernel, Lowered, Source, c_type};

const TEXT: &str = concat!(
    include_str!("../kernels/tensor_cores.cu"),
    include_str!("../kernels/tf32.cu"),
    include_str!("../kernels/tiles.cu"),
    include_str!("../kernels/staged.cu"),
    include_str!("../kernels/few_tensor_cores.cu")
);

/// Filters of a block, and output pixels of its tile; as in the kernel.
const FILTERS: usize = 64;
const PIXELS: usize = 256;

/// Taps of a filter, at most, and eights of them: a thread of the convolution has its filters in registers.
const TAPS_MOST: usize = 160;
const STEPS_MOST: usize = 21;

/// Taps that a warp of many packs of filters can have in registers; of more it has two packs.
const TAPS_FEW: usize = 32;

/// Floats of a tile, of which a block has two in 48 KiB.
const TILE_FLOATS: usize = 6 << 10;

/// Blocks of a convolution, and floats of all parts of a gradient, at most.
const BLOCKS: usize = 1056;
const PARTS_FLOATS: usize = 4 << 20;

/// A convolution of few channels.
pub(super) struct FewOnTensorCores<'a> {
    conv: &'a Conv2D,
    input: [usize; 3],
    output: [usize; 3],
    rows: usize,
    dtype: DType,
}

impl<'a> FewOnTensorCores<'a> {
    /// The convolution, where it is one of these and may be rounded.
    pub(super) fn of(
        call: &Call<'_>,
        conv: &'a Conv2D,
        [input, output]: [[usize; 3]; 2],
        dtype: DType,
    ) -> Option<FewOnTensorCores<'a>> {
        let few = FewOnTensorCores { conv, input, output, rows: call.rows, dtype };
        let plain = conv.groups == 1 && conv.dilation == [1, 1] && conv.kernel != [1, 1];
        // f16 and bf16 pass through registers, and there are too few of these where there are many taps.
        let exact = dtype.size() == 2 && few.taps() <= TAPS_FEW;
        let suits = input[2] <= 4 && output[2].is_multiple_of(FILTERS) && few.taps() <= TAPS_MOST;
        let small = few.lines() * few.stride() <= TILE_FLOATS && few.steps() <= STEPS_MOST;
        ((exact || call.tf32 && dtype == DType::F32) && plain && suits && small).then_some(few)
    }

    fn taps(&self) -> usize {
        self.conv.kernel.iter().product::<usize>() * self.input[2]
    }

    /// Eights of taps, a row of the filter after the other.
    fn steps(&self) -> usize {
        self.conv.kernel[0] * (self.conv.kernel[1] * self.input[2]).div_ceil(8)
    }

    /// Pixels of a tile, down and across. Lanes read pixels that are up to eight apart.
    fn tile(&self) -> [usize; 2] {
        let apart = self.conv.strides[1] * self.input[2];
        let across = if apart.is_multiple_of(2) { 16 } else { 32 };
        [PIXELS / across, across]
    }

    /// Lines of the image under a tile, floats of a line, and how far apart lines begin.
    fn lines(&self) -> usize {
        (self.tile()[0] - 1) * self.conv.strides[0] + self.conv.kernel[0]
    }

    fn seen(&self) -> usize {
        ((self.tile()[1] - 1) * self.conv.strides[1] + self.conv.kernel[1]) * self.input[2]
    }

    fn stride(&self) -> usize {
        (self.seen() + 8).next_multiple_of(4)
    }

    /// For the gradient: packs of filters that a warp has, warps that share the taps, and warps that share
    /// the lines of a tile.
    fn warps(&self) -> [usize; 3] {
        if self.taps() <= TAPS_FEW { [4, 1, 4] } else { [2, 2, 1] }
    }

    fn source(&self, pass: &str) -> Source {
        let ([r, s], channels, [down, across]) = (self.conv.kernel, self.input[2], self.conv.strides);
        let [tile_down, tile_across] = self.tile();
        let half = if self.dtype == DType::F32 { "" } else { "#define HALF\n" };
        let defines = format!(
            "typedef {} X;\n{half}#define R {r}\n#define S {s}\n#define C {channels}\n#define DOWN {down}\n#define ACROSS {across}\n#define F {}\n\
             #define TILE_DOWN {tile_down}\n#define TILE_ACROSS {tile_across}\n#define LINES {}\n#define SEEN {}\n#define STRIDE {}\n{pass}",
            c_type(self.dtype),
            self.output[2],
            self.lines(),
            self.seen(),
            self.stride()
        );
        Source { text: TEXT, defines }
    }

    fn tiles(&self) -> usize {
        let ([down, across], [height, width, _]) = (self.tile(), self.output);
        self.rows * height.div_ceil(down) * width.div_ceil(across)
    }

    fn sizes(&self) -> Vec<Argument> {
        let ([height, width, _], [out_height, out_width, _]) = (self.input, self.output);
        let pads = self.conv.pads;
        let mut arguments = vec![long(self.tiles())];
        arguments.extend([height, width, out_height, out_width, pads.top, pads.left].map(int));
        arguments
    }

    /// `y = x ∗ kernel + bias`, with a ReLU where `relu`.
    pub(super) fn forward(&self, call: &Call<'_>, relu: bool) -> Lowered {
        let (x, kernel, y) = (call.input(X), call.input(Name::Kernel), call.output(Y));
        let bias = call.pointer_if_given(Bias);
        let mut arguments = vec![x.pointer(), kernel.pointer(), bias, y.pointer()];
        arguments.extend(self.sizes());
        let blocks = [count(self.output[2] / FILTERS), count(self.tiles().clamp(1, BLOCKS)), 1];
        let function = if relu { "f_relu" } else { "" };
        let packs = if self.taps() <= TAPS_FEW { 8 } else { 2 };
        let source =
            self.source(&format!("#define FORWARD\n#define FUNCTION {function}\n#define N_TILES {packs}\n"));
        Kernel { source, entry: "few_forward", blocks, threads: THREADS, arguments }.into()
    }

    /// The gradient of the kernel, added to what is there.
    pub(super) fn grad_kernel(&self, call: &Call<'_>) -> Lowered {
        let (x, dy, dkernel) = (call.input(X), call.input(Dy), call.update(DKernel));
        let [packs, of_taps, shares] = self.warps();
        let most = (PARTS_FLOATS / dkernel.elements / shares).max(1);
        let blocks = self.tiles().clamp(1, most);
        let mut lowered = Lowered::default();
        let parts = Argument::At(lowered.scratch(Bytes::of::<f32>(most * shares * dkernel.elements)));
        let mut arguments = vec![x.pointer(), dy.pointer(), parts];
        arguments.extend(self.sizes());
        let source = self.source(&format!("#define N_TILES {packs}\n#define M_WARPS {of_taps}\n"));
        lowered.kernel(Kernel {
            source: source.clone(),
            entry: "few_filter",
            blocks: [count(self.output[2] / FILTERS), count(blocks), 1],
            threads: THREADS,
            arguments,
        });
        lowered.kernel(Kernel {
            source,
            entry: "few_filter_sum",
            blocks: [count(dkernel.elements.div_ceil(32)), 1, 1],
            threads: THREADS,
            arguments: vec![parts, dkernel.pointer(), int(blocks * shares), call.overwrite()],
        });
        lowered
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).expect("there are few blocks")
}
