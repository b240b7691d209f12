//! Dense layers, convolutions and biases: that operands arrive where the products need them.

use memfit_ir::{Conv2D, Op, Pads, Shape};

use super::{Case, assert_near, doubles, noise};

fn product(a: &[f32], b: &[f32], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let entry = |at: usize| (0..k).map(|p| f64::from(a[at / n * k + p]) * f64::from(b[p * n + at % n])).sum();
    (0..m * n).map(entry).collect()
}

fn transposed(a: &[f32], columns: usize) -> Vec<f32> {
    let rows = a.len() / columns;
    (0..a.len()).map(|at| a[at % rows * columns + at / rows]).collect()
}

#[test]
fn dense_layers_are_products_over_the_last_axis() {
    for (rows, dims, [k, n]) in [(3, vec![5], [5, 4]), (2, vec![3, 7], [7, 1]), (1, vec![1], [1, 9])] {
        let positions = rows * dims.iter().product::<usize>() / k;
        let (x, kernel, bias) = (noise(positions * k, 1), noise(k * n, 2), noise(n, 3));
        let plain = Case::new(Op::Dense, rows)
            .input(Shape::rows(dims.clone()), x.clone())
            .input(Shape::fixed([k, n]), kernel.clone());
        let mut y = product(&x, &kernel, [positions, k, n]);
        assert_near(plain.run().floats(0), &y, 1e-5, "dense");
        y.iter_mut().enumerate().for_each(|(at, y)| *y += f64::from(bias[at % n]));
        assert_near(plain.input(Shape::fixed([n]), bias).run().floats(0), &y, 1e-5, "dense with bias");

        let mut dims_out = dims.clone();
        *dims_out.last_mut().unwrap() = n;
        let dy = noise(positions * n, 4);
        let grad = Case::new(Op::DenseGradInput, rows)
            .input(Shape::rows(dims_out.clone()), dy.clone())
            .input(Shape::fixed([k, n]), kernel.clone());
        let dx = product(&dy, &transposed(&kernel, n), [positions, n, k]);
        assert_near(grad.run().floats(0), &dx, 1e-5, "gradient of the input");

        let before = noise(k * n, 5);
        let grad = Case::new(Op::DenseGradKernel, rows)
            .input(Shape::rows(dims), x.clone())
            .input(Shape::rows(dims_out), dy.clone())
            .update(Shape::fixed([k, n]), before.clone());
        let mut dkernel = product(&transposed(&x, k), &dy, [k, positions, n]);
        assert_near(grad.run_overwriting().updated(0), &dkernel, 1e-5, "gradient of the kernel");
        dkernel.iter_mut().zip(&before).for_each(|(sum, before)| *sum += f64::from(*before));
        assert_near(grad.run().updated(0), &dkernel, 1e-5, "gradient of the kernel, added");
    }
}

#[test]
fn bias_gradients_sum_over_all_but_the_last_axis() {
    for (rows, dims) in
        [(3, vec![5]), (2, vec![31, 29, 3]), (1, vec![1]), (7, vec![70, 130]), (9, vec![4000, 65])]
    {
        let width = *dims.last().unwrap();
        let count = rows * dims.iter().product::<usize>();
        let (dy, before) = (noise(count, 1), noise(width, 2));
        let case = Case::new(Op::BiasGrad, rows)
            .input(Shape::rows(dims), dy.clone())
            .update(Shape::fixed([width]), before.clone());
        let mut sums = vec![0.0; width];
        dy.iter().enumerate().for_each(|(at, dy)| sums[at % width] += f64::from(*dy));
        assert_near(case.run_overwriting().updated(0), &sums, 1e-6, "overwrite");
        sums.iter_mut().zip(doubles(&before)).for_each(|(sum, before)| *sum += before);
        assert_near(case.run().updated(0), &sums, 1e-6, "added");
    }
}

#[test]
fn a_sum_over_millions_keeps_its_digits() {
    let dy = vec![0.1f32; 4_000_000];
    let case = Case::new(Op::BiasGrad, 1)
        .input(Shape::rows([2_000_000, 2]), dy)
        .update(Shape::fixed([2]), vec![0.0; 2]);
    assert_near(case.run().updated(0), &[f64::from(0.1f32) * 2e6; 2], 1e-7, "sum");
}

/// One convolution with everything: strides, dilation, groups and uneven margins.
struct Convolved {
    conv: Conv2D,
    rows: usize,
    input: [usize; 3],
    output: [usize; 3],
}

impl Convolved {
    /// Calls `body` with the places in `x`, kernel and `y` of every product of a sum.
    fn products(&self, mut body: impl FnMut(usize, usize, usize)) {
        let Convolved { conv, rows, input: [height, width, channels], output: [high, wide, filters] } = self;
        let (in_group, out_group) = (channels / conv.groups, filters / conv.groups);
        for at in 0..rows * high * wide * filters {
            let (filter, across, down) = (at % filters, at / filters % wide, at / filters / wide % high);
            let row = at / filters / wide / high;
            for tap in 0..conv.kernel[0] * conv.kernel[1] {
                let y = down * conv.strides[0] + tap / conv.kernel[1] * conv.dilation[0];
                let x = across * conv.strides[1] + tap % conv.kernel[1] * conv.dilation[1];
                if y < conv.pads.top || x < conv.pads.left {
                    continue;
                }
                let (y, x) = (y - conv.pads.top, x - conv.pads.left);
                if *height <= y || *width <= x {
                    continue;
                }
                for channel in 0..in_group {
                    let from = filter / out_group * in_group + channel;
                    let place = ((row * height + y) * width + x) * channels + from;
                    body(place, (tap * in_group + channel) * filters + filter, at);
                }
            }
        }
    }
}

#[test]
fn convolutions_read_their_geometry_from_shapes() {
    let pads = Pads { top: 1, bottom: 2, left: 0, right: 1 };
    convolutions_agree_with_their_sums(pads, [4, 4, 6]);
    // Margins wider than the kernel, as padding by a layer of its own may ask for.
    let pads = Pads { top: 5, bottom: 4, left: 3, right: 6 };
    convolutions_agree_with_their_sums(pads, [7, 12, 6]);
}

fn convolutions_agree_with_their_sums(pads: Pads, output: [usize; 3]) {
    let conv = Conv2D { kernel: [3, 2], strides: [2, 1], dilation: [1, 2], groups: 2, pads };
    let case = Convolved { rows: 3, input: [6, 5, 4], output, conv: conv.clone() };
    let (x, kernel, bias) = (noise(3 * 120, 1), noise(3 * 2 * 2 * 6, 2), noise(6, 3));
    let dy = noise(3 * output.iter().product::<usize>(), 4);
    let (images, filters) = (Shape::rows([6, 5, 4]), Shape::fixed([3, 2, 2, 6]));

    let mut y: Vec<f64> = (0..dy.len()).map(|at| f64::from(bias[at % 6])).collect();
    let (mut dx, mut dkernel) = (vec![0.0; x.len()], vec![0.0; kernel.len()]);
    case.products(|i, k, o| {
        y[o] += f64::from(x[i]) * f64::from(kernel[k]);
        dx[i] += f64::from(dy[o]) * f64::from(kernel[k]);
        dkernel[k] += f64::from(x[i]) * f64::from(dy[o]);
    });

    let forward = Case::new(Op::Conv2D(conv.clone()), 3)
        .input(images.clone(), x.clone())
        .input(filters.clone(), kernel.clone())
        .input(Shape::fixed([6]), bias);
    assert_near(forward.run().floats(0), &y, 1e-5, "forward");
    let grad_input = Case::new(Op::Conv2DGradInput(conv.clone(), [6, 5]), 3)
        .input(Shape::rows(output), dy.clone())
        .input(filters.clone(), kernel);
    assert_near(grad_input.run().floats(0), &dx, 1e-5, "gradient of the input");
    let before = noise(dkernel.len(), 5);
    let grad_kernel = Case::new(Op::Conv2DGradKernel(conv), 3)
        .input(images, x)
        .input(Shape::rows(output), dy)
        .update(filters, before.clone());
    assert_near(grad_kernel.run_overwriting().updated(0), &dkernel, 1e-5, "gradient of the kernel");
    dkernel.iter_mut().zip(&before).for_each(|(sum, before)| *sum += f64::from(*before));
    assert_near(grad_kernel.run().updated(0), &dkernel, 1e-5, "gradient of the kernel, added");
}
