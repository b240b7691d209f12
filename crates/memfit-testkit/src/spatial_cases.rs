//! Rows of the op table, and slow values, for noise, scales and offsets, axes in another order, resized
//! images and transposed convolutions.

use memfit_ir::{Conv2D, Interpolation, Noise, NoiseKind, Op, Pads, random};

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

/// What noise makes of values of these dimensions after the batch.
pub(crate) fn noise(noise: &Noise, dims: &[usize], x: &[f64]) -> Vec<f64> {
    // The harness trains step 0 with seed 5.
    let draws = random::derive(random::derive(5, noise.seed), 0);
    let per_row: usize = dims.iter().product();
    let drawn_per_row: usize = noise.dims.iter().product();
    let place = |index: usize| {
        let (row, mut rest) = (index / per_row, index % per_row);
        let (mut at, mut stride) = (0, 1);
        for (size, drawn) in dims.iter().zip(&noise.dims).rev() {
            at += (rest % size).min(drawn - 1) * stride;
            stride *= drawn;
            rest /= size;
        }
        (row * drawn_per_row + at) as u64
    };
    let each = |(index, x): (usize, &f64)| {
        let (unit, normal) =
            (f64::from(random::unit(draws, place(index))), f64::from(random::normal(draws, place(index))));
        match noise.kind {
            NoiseKind::Dropout { rate } if unit >= f64::from(rate) => x / (1.0 - f64::from(rate)),
            NoiseKind::Dropout { .. } => 0.0,
            NoiseKind::Add { stddev } => x + f64::from(stddev) * normal,
            NoiseKind::Multiply { stddev } => x * (1.0 + f64::from(stddev) * normal),
            NoiseKind::Alpha { rate } => {
                let rate = f64::from(rate);
                let lowest = -1.758_099_340_847_376_6;
                let scale = 1.0 / ((1.0 - rate) * (1.0 + rate * lowest * lowest)).sqrt();
                scale * if unit >= rate { *x } else { lowest } - scale * lowest * rate
            }
            NoiseKind::AlphaGrad { .. } => panic!("a gradient is not a forward op"),
        }
    };
    x.iter().enumerate().map(each).collect()
}

/// Values times and plus numbers that repeat.
pub(crate) fn affine(x: &[f64], scale: Option<&[f64]>, offset: Option<&[f64]>) -> Vec<f64> {
    let at = |numbers: Option<&[f64]>, index: usize, without: f64| {
        numbers.map_or(without, |numbers| numbers[index % numbers.len()])
    };
    x.iter().enumerate().map(|(index, x)| x * at(scale, index, 1.0) + at(offset, index, 0.0)).collect()
}

/// Axes in another order.
pub(crate) fn transpose(order: &[usize], dims: &[usize], x: &[f64]) -> Vec<f64> {
    let per_row: usize = dims.iter().product();
    let mut y = vec![0.0; x.len()];
    for (index, value) in x.iter().enumerate() {
        let mut places = vec![0; dims.len()];
        let mut rest = index % per_row;
        for axis in (0..dims.len()).rev() {
            places[axis] = rest % dims[axis];
            rest /= dims[axis];
        }
        let to = order.iter().fold(0, |to, axis| to * dims[*axis] + places[*axis]);
        y[index / per_row * per_row + to] = *value;
    }
    y
}

/// Images of another size, from height, width and channels `from` to `to`.
pub(crate) fn resize(x: &[f64], from: [usize; 3], to: [usize; 3], how: Interpolation) -> Vec<f64> {
    let taps = |place: usize, from: usize, to: usize| {
        let centre = (place as f64 + 0.5) * from as f64 / to as f64;
        let clamp = |pixel: f64| pixel.clamp(0.0, (from - 1) as f64) as usize;
        match how {
            Interpolation::Nearest => [(clamp(centre.floor()), 1.0), (0, 0.0)],
            Interpolation::Bilinear => {
                let share = (centre - 0.5) - (centre - 0.5).floor();
                let above = (centre - 0.5).floor();
                [(clamp(above), 1.0 - share), (clamp(above + 1.0), share)]
            }
        }
    };
    let mut y = Vec::new();
    for image in x.chunks(from.iter().product()) {
        for index in 0..to.iter().product() {
            let (down, across, channel) = (index / (to[1] * to[2]), index / to[2] % to[1], index % to[2]);
            let mut sum = 0.0;
            for (iy, high) in taps(down, from[0], to[0]) {
                for (ix, wide) in taps(across, from[1], to[1]) {
                    sum += high * wide * image[(iy * from[1] + ix) * from[2] + channel];
                }
            }
            y.push(sum);
        }
    }
    y
}

/// Every value of `x` spread by the kernel over an image of height, width and channels `to`.
pub(crate) fn conv_backwards(
    conv: &Conv2D,
    x: &[f64],
    kernel: &[f64],
    from: [usize; 3],
    to: [usize; 3],
) -> Vec<f64> {
    let mut y = Vec::new();
    for image in x.chunks(from.iter().product()) {
        let mut spread = vec![0.0; to.iter().product()];
        for (index, value) in image.iter().enumerate() {
            let (down, across, filter) =
                (index / (from[1] * from[2]), index / from[2] % from[1], index % from[2]);
            for (tap, weight) in kernel.iter().enumerate().filter(|(tap, _)| tap % from[2] == filter) {
                let channel = tap / from[2] % to[2];
                let (ky, kx) =
                    (tap / (from[2] * to[2]) / conv.kernel[1], tap / (from[2] * to[2]) % conv.kernel[1]);
                let iy = (down * conv.strides[0] + ky * conv.dilation[0]).wrapping_sub(conv.pads.top);
                let ix = (across * conv.strides[1] + kx * conv.dilation[1]).wrapping_sub(conv.pads.left);
                if iy < to[0] && ix < to[1] {
                    spread[(iy * to[1] + ix) * to[2] + channel] += value * weight;
                }
            }
        }
        y.extend(spread);
    }
    y
}
