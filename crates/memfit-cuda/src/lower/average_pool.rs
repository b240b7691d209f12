//! Means of windows, and the maximum of whole images.

use memfit_ir::Operand::{Argmax, Dx, Dy, X, Y};
use memfit_ir::Pool2D;

use crate::call::{Call, Operand, THREADS, blocks_for, int, long, pack_width};
use crate::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/average_pool.cu");

/// The mean of the pixels under every window.
pub(super) fn forward(call: &Call<'_>, pool: &Pool2D) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    windows("mean_pool", pool, [x, y], [x, y])
}

/// Spreads `dy` of every window over its pixels in equal shares.
pub(super) fn grad(call: &Call<'_>, pool: &Pool2D) -> Lowered {
    let (dy, dx) = (call.input(Dy), call.output(Dx));
    windows("mean_pool_grad", pool, [dx, dy], [dy, dx])
}

/// A kernel with a thread for each pack of channels of every pixel that it writes.
fn windows(
    entry: &'static str,
    pool: &Pool2D,
    [image, windows]: [Operand<'_>; 2],
    [from, to]: [Operand<'_>; 2],
) -> Lowered {
    let channels = image.shape().last();
    let width = pack_width(channels, image.dtype());
    let count = to.elements / width;
    let ([height, wide], [out_height, out_wide]) = (size(image), size(windows));
    let sizes = [height, wide, channels / width, out_height, out_wide];
    let shape = [pool.window, pool.strides, [pool.pads.top, pool.pads.left]].concat();
    let mut arguments = vec![from.pointer(), to.pointer(), long(count)];
    arguments.extend(sizes.into_iter().chain(shape).map(int));
    kernel(entry, image, width, count, arguments)
}

/// The maximum of every channel, and its pixel.
pub(super) fn global_max(call: &Call<'_>) -> Lowered {
    let (x, y, argmax) = (call.input(X), call.output(Y), call.output(Argmax));
    let [height, width] = size(x);
    let sizes = [y.elements, height * width, x.shape().last()];
    let arguments = [x, y, argmax].map(|operand| operand.pointer()).into_iter().chain(sizes.map(long));
    kernel("global_max", x, 1, y.elements, arguments.collect())
}

/// Writes `dy` of a channel to its argmax.
pub(super) fn global_max_grad(call: &Call<'_>) -> Lowered {
    let (dy, argmax, dx) = (call.input(Dy), call.input(Argmax), call.output(Dx));
    let [height, width] = size(dx);
    let sizes = [dx.elements, height * width, dx.shape().last()];
    let arguments = [dy, argmax, dx].map(|operand| operand.pointer()).into_iter().chain(sizes.map(long));
    kernel("global_max_grad", dx, 1, dx.elements, arguments.collect())
}

/// Height and width.
fn size(image: Operand<'_>) -> [usize; 2] {
    [image.dims()[0], image.dims()[1]]
}

fn kernel(
    entry: &'static str,
    x: Operand<'_>,
    width: usize,
    count: usize,
    arguments: Vec<Argument>,
) -> Lowered {
    let defines = format!("typedef {} X;\n#define WIDTH {width}\n", x.c_type());
    let source = Source { text: TEXT, defines };
    Kernel { source, entry, blocks: blocks_for(count), threads: THREADS, arguments }.into()
}
