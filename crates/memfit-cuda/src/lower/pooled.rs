//! A convolution and the max pool after it in one kernel: the image between them is never stored, and the
//! gradient of the filter is summed over the argmax alone. Factors are rounded to TF32 where that is allowed
//! and the shape suits tensor cores.

use memfit_ir::Operand::{Argmax, Bias, DBias, DKernel, Dx, Dy, X, Y};
use memfit_ir::{Bytes, DType, Op, PooledConv2D, Tensor};

use super::composed::{Parts, composed};
use crate::call::{Call, Name, Operand, THREADS, int, long, pack_width};
use crate::work::{Argument, Kernel, Lowered, Source, c_type};

const PLAIN: &str = concat!(
    include_str!("../kernels/tiles.cu"),
    include_str!("../kernels/pooled.cu"),
    include_str!("../kernels/pooled_plain.cu")
);
const TENSOR_CORES: &str = concat!(
    include_str!("../kernels/tensor_cores.cu"),
    include_str!("../kernels/tf32.cu"),
    include_str!("../kernels/tiles.cu"),
    include_str!("../kernels/pooled.cu"),
    include_str!("../kernels/staged.cu"),
    include_str!("../kernels/pooled_tensor_cores.cu")
);

/// Windows side by side that a thread takes at once; as in the kernel.
const STRIP: usize = 4;

/// Windows of a block's tile, at most.
const WINDOWS: usize = 256;

/// Floats of the tiles that a block has at once, at most: it has 48 KiB, and needs some for sums.
const TILES_FLOATS: usize = 11 << 10;

/// Windows side by side in a tile; tensor cores take sixteen and half of their lines.
const ACROSS: [usize; 2] = [16, 32];

/// Blocks of the gradient, each with a part of it in the workspace, and floats of all parts, at most. On
/// tensor cores a part is one sum from its beginning to its end, so there are more of them.
const PARTS: usize = 528;
const PARTS_TENSOR_CORES: usize = 2112;
const PARTS_FLOATS: usize = 4 << 20;

/// Blocks of a convolution: a few for each place on a large device, so that what a block does once counts
/// little.
const BLOCKS: usize = 1056;

/// Products of one output that tensor cores take, with one more for the bias.
const TENSOR_CORES_TAPS: usize = 31;

/// The gradient of the input, as a pool's and a convolution's: a GPU is not given the joined op by the
/// training graph.
pub(super) fn grad_input(call: &Call<'_>, conv: &PooledConv2D) -> Lowered {
    let (dy, dx) = (call.input(Dy).tensor, call.output(Dx).tensor);
    let size = [dx.shape.dims[0], dx.shape.dims[1]];
    let mut between = Tensor { dtype: dx.dtype, ..dy.clone() };
    let [height, width] = conv.between(size);
    between.shape.dims[..2].copy_from_slice(&[height, width]);
    let nodes = vec![
        (Op::MaxPool2DGrad(PooledConv2D::POOL, [height, width]), [vec![0, 1], vec![4], vec![]]),
        (Op::Conv2DGradInput(conv.conv.clone(), size), [vec![4, 2], vec![3], vec![]]),
    ];
    composed(call, Parts { made: vec![(between, 0)], nodes })
}

/// The maximum of every window of `x ∗ kernel + bias`, and its argmax.
pub(super) fn forward(call: &Call<'_>, conv: &PooledConv2D) -> Lowered {
    let (x, kernel, y, argmax) =
        (call.input(X), call.input(Name::Kernel), call.output(Y), call.output(Argmax));
    let pooled = Pooled::new(call, conv, x, y);
    let bias = call.pointer_if_given(Bias);
    let mut arguments = vec![x.pointer(), kernel.pointer(), bias, y.pointer(), argmax.pointer()];
    let [height, width, filters] = pooled.output;
    let (source, items, at_once, groups) = if pooled.tensor_cores {
        let tile = pooled.tile(pooled.input[2]);
        let defines = tile.defines() + &pooled.packs() + "#define FORWARD\n";
        (pooled.source(TENSOR_CORES, &defines), tile.count(&pooled), 1, filters / (8 * pooled.tiles()))
    } else {
        let pack = pack_width(filters, DType::F32);
        let packs = (filters / pack).min(32);
        let defines = format!("#define WIDTH {pack}\n#define PACKS {packs}\n");
        let strips = call.rows * height * width.div_ceil(STRIP);
        let groups = (filters / pack).div_ceil(packs);
        (pooled.source(PLAIN, &defines), strips, THREADS as usize / packs, groups)
    };
    arguments.push(long(items));
    arguments.extend(pooled.sizes());
    let blocks = [count(items.div_ceil(at_once).clamp(1, BLOCKS)), count(groups), 1];
    Kernel { source, entry: "pooled_forward", blocks, threads: THREADS, arguments }.into()
}

/// The gradients of the kernel and the bias, added to what is there.
pub(super) fn grad_kernel(call: &Call<'_>, conv: &PooledConv2D) -> Lowered {
    let (x, dy, argmax) = (call.input(X), call.input(Dy), call.input(Argmax));
    let pooled = Pooled::new(call, conv, x, dy);
    let dbias = call.update_if_given(DBias).map_or(Argument::Null, |dbias| dbias.pointer());
    let (filters, taps) = (pooled.output[2], pooled.taps());
    let (source, tile, groups) = if pooled.tensor_cores {
        let tile = pooled.tile(pooled.input[2]);
        let defines = tile.defines() + &pooled.packs();
        (pooled.source(TENSOR_CORES, &defines), tile, [filters / (8 * pooled.tiles()), 1])
    } else {
        let ([r, s], channels) = (pooled.conv.conv.kernel, pooled.channels_at_once());
        let rows = if r * s * channels <= 32 { r } else { 1 };
        let (tile, lanes) = (pooled.tile(channels), filters.min(32));
        let defines = tile.defines() + &format!("#define ROWS {rows}\n#define LANES {lanes}\n");
        let groups = [pooled.input[2] / channels * (r / rows), filters.div_ceil(lanes)];
        (pooled.source(PLAIN, &defines), tile, groups)
    };
    let of_part = (taps + 1) * filters;
    let most = if pooled.tensor_cores { PARTS_TENSOR_CORES } else { PARTS };
    let most = (PARTS_FLOATS / of_part).clamp(1, most);
    let mut lowered = Lowered::default();
    let parts = Argument::At(lowered.scratch(Bytes::of::<f32>(most * of_part)));
    let tiles = tile.count(&pooled);
    let blocks = tiles.clamp(1, most);
    let mut arguments = vec![x.pointer(), dy.pointer(), argmax.pointer(), parts, long(tiles)];
    arguments.extend(pooled.sizes());
    let grid = [count(blocks), count(groups[0]), count(groups[1])];
    let entry = "pooled_filter";
    lowered.kernel(Kernel { source: source.clone(), entry, blocks: grid, threads: THREADS, arguments });
    let arguments = [call.update(DKernel).pointer(), dbias, int(blocks), int(taps * filters), int(of_part)];
    lowered.kernel(Kernel {
        source,
        entry: "pooled_sum",
        blocks: [count(of_part.div_ceil(8)), 1, 1],
        threads: THREADS,
        arguments: [&[parts], &arguments[..], &[call.overwrite()]].concat(),
    });
    lowered
}

/// A convolution and its pool at the rows of a call.
struct Pooled<'a> {
    conv: &'a PooledConv2D,
    dtype: DType,
    rows: usize,
    /// Height, width and channels of the image, and of the pool's output.
    input: [usize; 3],
    output: [usize; 3],
    tensor_cores: bool,
}

impl<'a> Pooled<'a> {
    fn new(call: &Call<'_>, conv: &'a PooledConv2D, x: Operand<'_>, y: Operand<'_>) -> Pooled<'a> {
        let image = |operand: Operand<'_>| -> [usize; 3] {
            operand.dims().try_into().expect("the shape rules ask for images of three dimensions")
        };
        let (input, output, dtype) = (image(x), image(y), x.dtype());
        let mut pooled = Pooled { conv, dtype, rows: call.rows, input, output, tensor_cores: false };
        let suits = conv.conv.strides == [1, 1] && input[2] <= 4 && output[2].is_multiple_of(16);
        pooled.tensor_cores = call.tf32 && dtype == DType::F32 && suits && pooled.taps() <= TENSOR_CORES_TAPS;
        pooled.tensor_cores &= ACROSS[0] <= pooled.tile(input[2]).across;
        pooled
    }

    /// Products of one output of the convolution.
    fn taps(&self) -> usize {
        self.conv.conv.kernel.iter().product::<usize>() * self.input[2]
    }

    /// Packs of eight filters that a block has on tensor cores.
    fn tiles(&self) -> usize {
        if self.output[2].is_multiple_of(32) { 4 } else { 2 }
    }

    /// What kernels for tensor cores know of the filters.
    fn packs(&self) -> String {
        format!("#define F {}\n#define TILES {}\n", self.output[2], self.tiles())
    }

    /// Channels of the image that the gradient takes at once: registers hold the sums of a row of taps over
    /// them.
    fn channels_at_once(&self) -> usize {
        let fits = |channels: &usize| {
            self.input[2].is_multiple_of(*channels) && self.conv.conv.kernel[1] * channels <= 48
        };
        (1..=self.input[2]).rev().find(fits).unwrap_or(1)
    }

    fn source(&self, text: &'static str, more: &str) -> Source {
        let ([r, s], [down, across]) = (self.conv.conv.kernel, self.conv.conv.strides);
        let relu = if self.conv.relu { "#define RELU\n" } else { "" };
        let (dtype, channels) = (c_type(self.dtype), self.input[2]);
        let defines = format!(
            "typedef {dtype} X;\n#define R {r}\n#define S {s}\n#define C {channels}\n#define DOWN {down}\n#define ACROSS {across}\n{relu}{more}"
        );
        Source { text, defines }
    }

    fn sizes(&self) -> impl Iterator<Item = Argument> {
        let ([height, width, _], [out_height, out_width, filters]) = (self.input, self.output);
        let pads = self.conv.conv.pads;
        [height, width, out_height, out_width, filters, pads.top, pads.left].map(int).into_iter()
    }

    /// The tile of a block that has `channels` channels. On tensor cores it has two: one is read while the
    /// next is in flight.
    fn tile(&self, channels: usize) -> Tile {
        let [height, width, _] = self.output;
        let across = width.next_power_of_two().clamp(ACROSS[0], ACROSS[1]);
        let down = (WINDOWS / across).min(height.next_power_of_two());
        let mut tile = Tile { down, across, channels };
        let most = if self.tensor_cores { TILES_FLOATS / 2 } else { TILES_FLOATS };
        while most < tile.floats(self) && tile.down * tile.across > 1 {
            if tile.down < tile.across { tile.across /= 2 } else { tile.down /= 2 }
        }
        tile
    }
}

/// The windows that a block has at once, and channels of the image.
struct Tile {
    down: usize,
    across: usize,
    channels: usize,
}

impl Tile {
    /// Floats of the image under them, about.
    fn floats(&self, pooled: &Pooled<'_>) -> usize {
        let ([r, s], [down, across]) = (pooled.conv.conv.kernel, pooled.conv.conv.strides);
        let seen = ((2 * self.across - 1) * across + s) * self.channels;
        ((2 * self.down - 1) * down + r) * (seen + 32)
    }

    fn defines(&self) -> String {
        let Tile { down, across, channels } = self;
        format!("#define TILE_DOWN {down}\n#define TILE_ACROSS {across}\n#define CHANNELS {channels}\n")
    }

    /// How many there are.
    fn count(&self, pooled: &Pooled<'_>) -> usize {
        let [height, width, _] = pooled.output;
        pooled.rows * height.div_ceil(self.down) * width.div_ceil(self.across)
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).expect("there are few blocks")
}
