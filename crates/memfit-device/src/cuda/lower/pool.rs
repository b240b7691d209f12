//! Pools over windows and over whole images.

use memfit_ir::Pool2D;

use crate::cuda::call::{Call, Operand, THREADS, blocks_for, int, long, pack_width};
use crate::cuda::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/pool.cu");

/// The largest element of every window, and its place.
pub(super) fn max_pool(call: &Call<'_>, pool: &Pool2D) -> Lowered {
    let (x, y, winners) = (call.input(0), call.output(0), call.output(1));
    let operands = [x.pointer(), y.pointer(), winners.pointer()];
    windows("max_pool", pool, [x, y], y, operands)
}

/// Hands every window's slope to its winner.
pub(super) fn max_pool_grad(call: &Call<'_>, pool: &Pool2D) -> Lowered {
    let (dy, winners, dx) = (call.input(0), call.input(1), call.output(0));
    let operands = [dy.pointer(), winners.pointer(), dx.pointer()];
    let apart = pool.window == pool.strides && [pool.pads.top, pool.pads.left] == [0, 0];
    if apart && pool.window.iter().product::<usize>() <= 16 {
        return max_pool_grad_apart(call.rows, pool, [dx, dy], operands);
    }
    windows("max_pool_grad", pool, [dx, dy], dx, operands)
}

/// The same where windows lie side by side, with a thread for each pack of channels of every window.
fn max_pool_grad_apart(
    rows: usize,
    pool: &Pool2D,
    [large, small]: [Operand<'_>; 2],
    operands: [Argument; 3],
) -> Lowered {
    let channels = large.shape().last();
    let width = pack_width(channels, large.dtype());
    let ([height, wide], [out_height, out_wide]) = (size(large), size(small));
    let [window_height, window_width] = pool.window;
    let all = height.div_ceil(window_height) * wide.div_ceil(window_width);
    let count = rows * all * channels / width;
    let mut arguments = operands.to_vec();
    arguments.push(long(count));
    arguments.extend([height, wide, channels / width, out_height, out_wide].map(int));
    let kernel = kernel("max_pool_grad_apart", large, width, blocks_for(count), arguments);
    with_window(kernel, pool).into()
}

/// A kernel that knows the size of its windows.
fn with_window(mut kernel: Kernel, pool: &Pool2D) -> Kernel {
    let [height, width] = pool.window;
    kernel.source.defines += &format!("#define WINDOW_HEIGHT {height}\n#define WINDOW_WIDTH {width}\n");
    kernel
}

/// A kernel with a thread for each pack of channels of every pixel of `over`.
fn windows(
    entry: &'static str,
    pool: &Pool2D,
    [large, small]: [Operand<'_>; 2],
    over: Operand<'_>,
    operands: [Argument; 3],
) -> Lowered {
    let channels = large.shape().last();
    let width = pack_width(channels, large.dtype());
    let count = over.elements / width;
    let ([height, wide], [out_height, out_wide]) = (size(large), size(small));
    let mut arguments = operands.to_vec();
    arguments.push(long(count));
    let sizes = [height, wide, channels / width, out_height, out_wide];
    let shape = [pool.strides, [pool.pads.top, pool.pads.left]].concat();
    arguments.extend(sizes.into_iter().chain(shape).map(int));
    with_window(kernel(entry, large, width, blocks_for(count), arguments), pool).into()
}

/// The mean of every channel.
pub(super) fn global_average(call: &Call<'_>) -> Lowered {
    let (x, y) = (call.input(0), call.output(0));
    let channels = x.shape().last();
    let [height, width] = size(x);
    let count = |count: usize| u32::try_from(count).expect("a piece has fewer rows");
    let blocks = [count(channels.div_ceil(32)), count(call.rows), 1];
    let arguments = vec![x.pointer(), y.pointer(), int(height * width), int(channels)];
    kernel("global_average", x, 1, blocks, arguments).into()
}

/// Hands a channel's slope to its pixels in equal shares.
pub(super) fn global_average_grad(call: &Call<'_>) -> Lowered {
    let (dy, dx) = (call.input(0), call.output(0));
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
