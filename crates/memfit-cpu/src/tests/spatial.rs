//! Margins and larger images.

use memfit_ir::{Interpolation, Op, Pads, Shape};

use super::{Case, assert_near, noise};

#[test]
fn margins_are_zeros_and_can_be_cut_off() {
    let pads = Pads { top: 1, bottom: 0, left: 2, right: 3 };
    let (rows, [height, width, channels]) = (2, [4, 3, 5]);
    let (high, wide) = (height + 1, width + 5);
    let x = noise(rows * height * width * channels, 1);
    let mut y = vec![0.0; rows * high * wide * channels];
    for (at, x) in x.iter().enumerate() {
        let (channel, across) = (at % channels, at / channels % width);
        let (down, row) = (at / channels / width % height, at / channels / width / height);
        y[((row * high + down + 1) * wide + across + 2) * channels + channel] = *x;
    }
    let padded = Case::new(Op::Pad2D(pads), rows).input(Shape::rows([height, width, channels]), x.clone());
    assert_eq!(padded.run().floats(0), y);
    let cropped = Case::new(Op::Crop2D(pads), rows).input(Shape::rows([high, wide, channels]), y);
    assert_eq!(cropped.run().floats(0), x);
}

/// The share of every small pixel in every large one, along an axis.
fn shares(interpolation: Interpolation, small: usize, size: usize) -> Vec<Vec<f64>> {
    let share = |large: usize| {
        let mut shares = vec![0.0; small];
        match interpolation {
            Interpolation::Nearest => shares[large / size] = 1.0,
            Interpolation::Bilinear => {
                let place = (large as f64 + 0.5) / size as f64 - 0.5;
                let (below, part) = (place.floor(), place - place.floor());
                let last = small as f64 - 1.0;
                shares[below.clamp(0.0, last) as usize] += 1.0 - part;
                shares[(below + 1.0).clamp(0.0, last) as usize] += part;
            }
        }
        shares
    };
    (0..small * size).map(share).collect()
}

#[test]
fn images_grow_and_gradients_come_back() {
    for interpolation in [Interpolation::Nearest, Interpolation::Bilinear] {
        for (rows, [height, width, channels], size) in
            [(2, [3, 4, 5], [2, 2]), (1, [1, 5, 1], [3, 1]), (2, [4, 1, 70], [2, 5]), (1, [2, 2, 2], [1, 1])]
        {
            let (high, wide) = (height * size[0], width * size[1]);
            let (down, across) =
                (shares(interpolation, height, size[0]), shares(interpolation, width, size[1]));
            let (x, dy) =
                (noise(rows * height * width * channels, 1), noise(rows * high * wide * channels, 2));
            let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
            for at in 0..dy.len() {
                let (channel, large_x) = (at % channels, at / channels % wide);
                let (large_y, row) = (at / channels / wide % high, at / channels / wide / high);
                for pixel in 0..height * width {
                    let share = down[large_y][pixel / width] * across[large_x][pixel % width];
                    let from = (row * height * width + pixel) * channels + channel;
                    y[at] += share * f64::from(x[from]);
                    dx[from] += share * f64::from(dy[at]);
                }
            }
            let what = format!("{interpolation:?} by {size:?}");
            let case = Case::new(Op::UpSample2D(size, interpolation), rows)
                .input(Shape::rows([height, width, channels]), x);
            assert_near(case.run().floats(0), &y, 1e-6, &what);
            let case = Case::new(Op::UpSample2DGrad(size, interpolation), rows)
                .input(Shape::rows([high, wide, channels]), dy);
            assert_near(case.run().floats(0), &dx, 1e-6, &what);
        }
    }
}
