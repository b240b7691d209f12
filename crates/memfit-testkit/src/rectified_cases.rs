//! Rows of the op table for ReLUs that run in the convolution or the max pool before them, and for biases
//! whose gradients are summed in the same kernels.

use memfit_ir::{Chain, Conv2D, Op, Pads, Pool2D, TensorId, Unary};

use crate::op_cases::{Add, Builder};

const NONE: Pads = Pads { top: 0, bottom: 0, left: 0, right: 0 };
const AROUND: Pads = Pads { top: 1, bottom: 1, left: 1, right: 1 };

fn same() -> Conv2D {
    Conv2D { kernel: [3, 3], strides: [1, 1], dilation: [1, 1], groups: 1, pads: AROUND }
}

fn relu() -> Op {
    Op::Elementwise(Chain::unary(Unary::Relu))
}

pub(crate) fn add(add: Add<'_>) {
    let uneven = Conv2D { strides: [2, 1], pads: Pads { top: 0, ..AROUND }, ..same() };
    // Bits of rows that are whole bytes, and of rows that are not.
    for (name, conv, image, filters) in [
        ("same", same(), [4, 5, 8], 16),
        ("same of few", same(), [5, 5, 3], 5),
        ("strides", uneven, [5, 4, 4], 12),
    ] {
        add(&format!("conv2d {name}, relu and conv2d"), &move |b| {
            let x = b.input(image);
            let between = b.conv(x, conv.clone(), filters);
            rectified(b, between)
        });
    }
    add("conv2d without bias, relu", &|b| {
        let x = b.input([4, 3, 5]);
        let kernel = b.weight("kernel", &[3, 3, 5, 8]);
        let between = b.op(Op::Conv2D(same()), &[x, kernel]);
        b.op(relu(), &[between])
    });
    for (name, pool) in [
        ("2", Pool2D { window: [2, 2], strides: [2, 2], pads: NONE }),
        ("overlapping", Pool2D { window: [3, 3], strides: [2, 2], pads: AROUND }),
        ("of lines", Pool2D { window: [1, 3], strides: [1, 2], pads: NONE }),
    ] {
        for rectifies in [true, false] {
            let tail = if rectifies { ", relu" } else { "" };
            let pool = pool.clone();
            add(&format!("conv2d, max_pool2d {name}{tail} and conv2d"), &move |b| {
                let x = b.input([5, 6, 16]);
                let between = b.conv(x, same(), 3);
                let pooled = b.op(Op::MaxPool2D(pool.clone()), &[between]);
                if rectifies { rectified(b, pooled) } else { convolved(b, pooled) }
            });
        }
    }
}

/// Rows for devices only: among many values, some are so near to 0 that f16 and bf16 lose their sign.
pub(crate) fn add_sizes(add: Add<'_>) {
    add("conv2d 1 by 1, relu and conv2d", &|b| {
        let x = b.input([3, 4, 6]);
        let point = Conv2D { kernel: [1, 1], pads: NONE, ..same() };
        let between = b.conv(x, point, 8);
        rectified(b, between)
    });
}

/// A ReLU, and a convolution after it.
fn rectified(b: &mut Builder, x: TensorId) -> TensorId {
    let y = b.op(relu(), &[x]);
    convolved(b, y)
}

/// A convolution to few small numbers: gradients of two layers, times the loss scale, stay within the range
/// of f16.
fn convolved(b: &mut Builder, x: TensorId) -> TensorId {
    let y = b.conv(x, same(), 2);
    b.op(Op::Elementwise(Chain::unary(Unary::Scale(0.0625))), &[y])
}
