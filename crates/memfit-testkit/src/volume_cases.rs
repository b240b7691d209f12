//! Rows of the op table about convolutions of volumes and about masks.

use memfit_ir::{Conv3D, Mask, Op};

use crate::op_cases::Add;

pub(crate) fn add(add: Add<'_>) {
    for (name, conv) in [
        ("plain", geometry([2, 3, 2], [1, 1, 1], [1, 1, 1], 1, [[0; 2]; 3])),
        ("with margins", geometry([3, 2, 3], [1, 1, 1], [1, 1, 1], 1, [[1, 1], [0, 1], [2, 1]])),
        ("with strides", geometry([2, 2, 3], [2, 1, 3], [1, 1, 1], 1, [[0, 1], [0, 0], [1, 1]])),
        ("with dilation", geometry([2, 2, 2], [1, 1, 1], [2, 1, 3], 1, [[0; 2]; 3])),
        ("in groups", geometry([2, 2, 1], [1, 2, 1], [1, 1, 1], 2, [[1, 0], [0, 0], [0, 0]])),
        ("of single voxels", geometry([1, 1, 1], [1, 1, 1], [1, 1, 1], 1, [[0; 2]; 3])),
    ] {
        for bias in [false, true] {
            let conv = conv.clone();
            add(&format!("conv3d {name}, bias {bias}"), &move |b| {
                let x = b.input([3, 4, 5, 2]);
                let [depth, height, width] = conv.kernel;
                let mut operands = vec![x, b.weight("kernel", &[depth, height, width, 2 / conv.groups, 4])];
                if bias {
                    operands.push(b.weight("bias", &[4]));
                }
                b.op(Op::Conv3D(conv.clone()), &operands)
            });
        }
    }
    add("conv3d of more windows than a strip has", &|b| {
        let x = b.input([9, 9, 9, 1]);
        let kernel = b.weight("kernel", &[2, 2, 2, 1, 2]);
        let conv = geometry([2, 2, 2], [1, 1, 1], [1, 1, 1], 1, [[0, 1], [0, 1], [0, 1]]);
        b.op(Op::Conv3D(conv), &[x, kernel])
    });
    for (strides, size) in [([1, 1, 1], [4, 3, 5]), ([2, 1, 3], [6, 3, 11])] {
        add(&format!("conv3d backwards, strides {strides:?}"), &move |b| {
            let x = b.input([3, 2, 4, 3]);
            let kernel = b.weight("kernel", &[2, 2, 2, 2, 3]);
            let conv = geometry([2, 2, 2], strides, [1, 1, 1], 1, [[0; 2]; 3]);
            b.op(Op::Conv3DGradInput(conv, size), &[x, kernel])
        });
    }
    add("mask of entries", &|b| {
        let ids = b.ids([6], 3);
        let mask = b.op(Op::Mask(Mask::NotZero), &[ids]);
        b.dense(mask, 2, false)
    });
}

fn geometry(
    kernel: [usize; 3],
    strides: [usize; 3],
    dilation: [usize; 3],
    groups: usize,
    pads: [[usize; 2]; 3],
) -> Conv3D {
    Conv3D { kernel, strides, dilation, groups, pads }
}
