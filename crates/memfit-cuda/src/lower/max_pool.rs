//! Pools over windows and over whole images.

use memfit_ir::Operand::{Argmax, Dx, Dy, X, Y};
use memfit_ir::Pool2D;

use crate::call::{Call, Operand, THREADS, blocks_for, int, long, pack_width};
use crate::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/max_pool.cu");

/// Windows that reach a tile of pixels, at most, where a thread has a tile: it reads them all before it uses
/// them.
const WINDOWS_OF_A_TILE: usize = 9;

/// The maximum and the argmax of every window; with `relu`, what is not positive becomes 0 and has no argmax.
pub(super) fn max_pool(call: &Call<'_>, pool: &Pool2D, relu: bool) -> Lowered {
    let (x, y, argmax) = (call.input(X), call.output(Y), call.output(Argmax));
    let operands = [x.pointer(), y.pointer(), argmax.pointer()];
    let more = if relu { "#define RELU\n" } else { "" };
    windows("max_pool", pool, [x, y], y.elements / y.shape().last(), operands, &[], more)
}

/// Writes `dy` of every window to its argmax.
pub(super) fn max_pool_grad(call: &Call<'_>, pool: &Pool2D) -> Lowered {
    let (dy, argmax, dx) = (call.input(Dy), call.input(Argmax), call.output(Dx));
    let operands = [dy.pointer(), argmax.pointer(), dx.pointer()];
    let ([height, width], [down, across]) = (size(dx), pool.strides);
    let pixels = dx.elements / dx.shape().last();
    if WINDOWS_OF_A_TILE < pool.window[0].div_ceil(down) * pool.window[1].div_ceil(across) {
        return windows("max_pool_grad_pixels", pool, [dx, dy], pixels, operands, &[], "");
    }
    let tiles = [(height + pool.pads.top).div_ceil(down), (width + pool.pads.left).div_ceil(across)];
    let count = pixels / (height * width) * tiles[0] * tiles[1];
    windows("max_pool_grad", pool, [dx, dy], count, operands, &tiles, "#define TILED\n")
}

/// A kernel with a thread for each pack of channels of every pixel or tile.
fn windows(
    entry: &'static str,
    pool: &Pool2D,
    [large, small]: [Operand<'_>; 2],
    count: usize,
    operands: [Argument; 3],
    tiles: &[usize],
    more: &str,
) -> Lowered {
    let channels = large.shape().last();
    let width = pack_width(channels, large.dtype());
    let count = count * (channels / width);
    let ([height, wide], [out_height, out_wide]) = (size(large), size(small));
    let mut arguments = operands.to_vec();
    arguments.push(long(count));
    let sizes = [height, wide, channels / width, out_height, out_wide, pool.pads.top, pool.pads.left];
    arguments.extend(sizes.iter().chain(tiles).copied().map(int));
    let mut kernel = kernel(entry, large, width, blocks_for(count), arguments);
    let ([window_height, window_width], [down, across]) = (pool.window, pool.strides);
    kernel.source.defines += &format!(
        "#define WINDOW_HEIGHT {window_height}\n#define WINDOW_WIDTH {window_width}\n#define STRIDE_HEIGHT {down}\n#define STRIDE_WIDTH {across}\n{more}"
    );
    kernel.into()
}

/// The mean of every channel.
pub(super) fn global_average(call: &Call<'_>) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    let channels = x.shape().last();
    let [height, width] = size(x);
    let count = |count: usize| u32::try_from(count).expect("a micro-batch has fewer rows");
    let blocks = [count(channels.div_ceil(32)), count(call.rows), 1];
    let arguments = vec![x.pointer(), y.pointer(), int(height * width), int(channels)];
    kernel("global_average", x, 1, blocks, arguments).into()
}

/// Spreads `dy` of a channel over its pixels in equal shares.
pub(super) fn global_average_grad(call: &Call<'_>) -> Lowered {
    let (dy, dx) = (call.input(Dy), call.output(Dx));
    let channels = dx.shape().last();
    let width = pack_width(channels, dx.dtype());
    let [height, wide] = size(dx);
    let count = dx.elements / width;
    let share = Argument::Float(1.0 / (height * wide) as f32);
    let arguments =
        vec![dy.pointer(), dx.pointer(), long(count), int(height * wide), int(channels / width), share];
    kernel("global_average_grad", dx, width, blocks_for(count), arguments).into()
}

fn kernel(
    entry: &'static str,
    x: Operand<'_>,
    width: usize,
    blocks: [u32; 3],
    arguments: Vec<Argument>,
) -> Kernel {
    let defines = format!("typedef {} X;\n#define WIDTH {width}\n", x.c_type());
    Kernel { source: Source { text: TEXT, defines }, entry, blocks, threads: THREADS, arguments }
}

fn size(image: Operand<'_>) -> [usize; 2] {
    let [height, width, _] = image.dims() else {
        panic!("the shape rules ask for images of three dimensions")
    };
    [*height, *width]
}
