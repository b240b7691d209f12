//! Rows of the op table, and slow values, for convolutions of volumes and for masks.

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

/// Calls back for every pair of values that a convolution joins: the large side's, the kernel's and the small side's index.
fn for_each_term(
    conv: &Conv3D,
    large: [usize; 4],
    small: [usize; 4],
    mut term: impl FnMut(usize, usize, usize),
) {
    let (channels, filters) = (large[3] / conv.groups, small[3] / conv.groups);
    let index = |dims: [usize; 4], place: [usize; 3], last: usize| {
        ((place[0] * dims[1] + place[1]) * dims[2] + place[2]) * dims[3] + last
    };
    for window in places(small) {
        for tap in places([conv.kernel[0], conv.kernel[1], conv.kernel[2], 0]) {
            let at = [0, 1, 2].map(|axis| {
                (window[axis] * conv.strides[axis] + tap[axis] * conv.dilation[axis])
                    .wrapping_sub(conv.pads[axis][0])
            });
            if (0..3).any(|axis| large[axis] <= at[axis]) {
                continue;
            }
            let tap = (tap[0] * conv.kernel[1] + tap[1]) * conv.kernel[2] + tap[2];
            for filter in 0..small[3] {
                for channel in 0..channels {
                    let from = filter / filters * channels + channel;
                    let weight = (tap * channels + channel) * small[3] + filter;
                    term(index(large, at, from), weight, index(small, window, filter));
                }
            }
        }
    }
}

fn places(dims: [usize; 4]) -> impl Iterator<Item = [usize; 3]> {
    let [depth, height, width, _] = dims;
    (0..depth * height * width)
        .map(move |index| [index / (height * width), index / width % height, index % width])
}

pub(crate) fn conv(
    conv: &Conv3D,
    x: &[f64],
    kernel: &[f64],
    bias: Option<&[f64]>,
    from: [usize; 4],
    to: [usize; 4],
) -> Vec<f64> {
    let mut y = Vec::new();
    for row in x.chunks(from.iter().product()) {
        let mut sums: Vec<f64> =
            (0..to.iter().product()).map(|index| bias.map_or(0.0, |bias| bias[index % to[3]])).collect();
        for_each_term(conv, from, to, |large, weight, small| sums[small] += row[large] * kernel[weight]);
        y.extend(sums);
    }
    y
}

pub(crate) fn conv_backwards(
    conv: &Conv3D,
    x: &[f64],
    kernel: &[f64],
    from: [usize; 4],
    to: [usize; 4],
) -> Vec<f64> {
    let mut y = Vec::new();
    for row in x.chunks(from.iter().product()) {
        let mut sums = vec![0.0; to.iter().product()];
        for_each_term(conv, to, from, |large, weight, small| sums[large] += row[small] * kernel[weight]);
        y.extend(sums);
    }
    y
}

pub(crate) fn mask(mask: Mask, x: &[f64], features: usize) -> Vec<f64> {
    let number = |counts: bool| if counts { 1.0 } else { 0.0 };
    match mask {
        Mask::NotZero => x.iter().map(|id| number(*id != 0.0)).collect(),
        Mask::OtherClass(class) => x.iter().map(|other| number(*other != f64::from(class))).collect(),
        Mask::AnyOther(value) => {
            x.chunks(features).map(|place| number(place.iter().any(|x| *x != f64::from(value)))).collect()
        }
    }
}
