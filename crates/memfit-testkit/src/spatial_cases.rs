//! Rows of the op table about noise, scales and offsets, axes in another order, resized
//! images and transposed convolutions.

use memfit_ir::{Conv2D, Interpolation, Noise, NoiseKind, Op, Pads};

use crate::op_cases::Add;

pub(crate) fn add(add: Add<'_>) {
    let kinds = [
        ("dropout", NoiseKind::Dropout { rate: 0.3 }),
        ("add", NoiseKind::Add { stddev: 0.5 }),
        ("multiply", NoiseKind::Multiply { stddev: 0.5 }),
        ("alpha", NoiseKind::Alpha { rate: 0.3 }),
    ];
    for (name, kind) in kinds {
        for dims in [[3, 2, 4], [1, 1, 4], [1, 1, 1], [3, 1, 4], [3, 1, 1]] {
            add(&format!("noise {name} of {dims:?}"), &move |b| {
                let x = b.input([3, 2, 4]);
                b.op(Op::Noise(Noise { kind, seed: 9, dims: dims.to_vec() }), &[x])
            });
        }
    }
    for (scale, center) in [(true, true), (true, false), (false, true)] {
        add(&format!("affine scale {scale} center {center}"), &move |b| {
            let x = b.input([3, 2, 4]);
            let hidden = b.dense(x, 5, false);
            let mut operands = vec![hidden];
            if scale {
                operands.push(b.weight("scale", &[5]));
            }
            if center {
                operands.push(b.weight("offset", &[5]));
            }
            b.op(Op::Affine { scale, center }, &operands)
        });
    }
    add("affine with a scale of all axes", &|b| {
        let x = b.input([3, 2, 4]);
        let scale = b.weight("scale", &[3, 2, 4]);
        b.op(Op::Affine { scale: true, center: false }, &[x, scale])
    });
    add("affine_constant", &|b| {
        let x = b.input([3, 2, 3]);
        b.op(Op::AffineConstant { scale: vec![0.5, -2.0, 1.5], offset: vec![0.25, 0.0, -1.0] }, &[x])
    });
    for order in [vec![1, 0, 2], vec![2, 1, 0], vec![1, 2, 0], vec![0, 2, 1], vec![0, 1, 2]] {
        add(&format!("transpose {order:?}"), &move |b| {
            let x = b.input([3, 2, 4]);
            b.op(Op::Transpose(order.clone()), &[x])
        });
    }
    for how in [Interpolation::Nearest, Interpolation::Bilinear] {
        for size in [[5, 4], [2, 9], [7, 3], [3, 5], [1, 1]] {
            add(&format!("resize2d to {size:?} {how:?}"), &move |b| {
                let x = b.input([3, 5, 2]);
                b.op(Op::Resize2D(size, how), &[x])
            });
        }
    }
    for (kernel, strides, dilation, size) in [
        ([3, 2], [2, 1], [1, 1], [9, 4]),
        ([3, 3], [1, 1], [1, 1], [6, 5]),
        ([2, 2], [3, 3], [1, 1], [12, 9]),
        ([3, 3], [1, 1], [2, 1], [8, 5]),
    ] {
        add(&format!("conv2d backwards {kernel:?} strides {strides:?} dilation {dilation:?}"), &move |b| {
            let x = b.input([4, 3, 3]);
            let kernel_weight = b.weight("kernel", &[kernel[0], kernel[1], 2, 3]);
            let conv = Conv2D { kernel, strides, dilation, groups: 1, pads: Pads::default() };
            b.op(Op::Conv2DGradInput(conv, size), &[x, kernel_weight])
        });
    }
}
