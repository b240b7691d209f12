//! Convolutions and their gradients against plain loops in double precision.

use super::*;
use crate::gemm::tests::{assert_close, noise};
use crate::lanes::Level;
use crate::threads::Threads;

/// Calls `body` with the offsets in input, filter and output of every product in a convolution.
pub(crate) fn every_product(shape: &Convolution, mut body: impl FnMut(usize, usize, usize)) {
    let ([height, width, inputs], [out_height, out_width, outputs]) = (shape.input, shape.output);
    let (channels_in, channels_out) = (inputs / shape.groups, outputs / shape.groups);
    for position in 0..shape.rows * out_height * out_width {
        let (image, oy, ox) =
            (position / (out_height * out_width), position / out_width % out_height, position % out_width);
        for tap in 0..shape.kernel[0] * shape.kernel[1] {
            let (ky, kx) = (tap / shape.kernel[1], tap % shape.kernel[1]);
            let y = (oy * shape.strides[0] + ky * shape.dilation[0]).wrapping_sub(shape.pad_top);
            let x = (ox * shape.strides[1] + kx * shape.dilation[1]).wrapping_sub(shape.pad_left);
            if y >= height || x >= width {
                continue;
            }
            for out in 0..outputs {
                for channel in 0..channels_in {
                    let input = ((image * height + y) * width + x) * inputs
                        + out / channels_out * channels_in
                        + channel;
                    body(input, (tap * channels_in + channel) * outputs + out, position * outputs + out);
                }
            }
        }
    }
}

/// Runs a kernel on 1, 2 and 3 threads, checks that the bits agree, and returns them.
fn on_all(threads: &[Threads], what: &str, run: impl Fn(&Threads) -> Vec<f32>) -> Vec<f32> {
    let results: Vec<_> = threads.iter().map(run).collect();
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert!(
        results.iter().all(|result| bits(result) == bits(&results[0])),
        "{what}: bits depend on the threads"
    );
    results.into_iter().next().unwrap()
}

fn check(threads: &[Threads], shape: &Convolution) {
    let (x, kernel) = (noise(shape.input_floats(), 1), noise(shape.kernel_floats(), 2));
    let (dy, bias) = (noise(shape.output_floats(), 3), noise(shape.output[2], 4));
    let double = |value: &f32| f64::from(*value);

    for bias in [None, Some(&bias)] {
        let mut reference: Vec<f64> =
            (0..dy.len()).map(|at| bias.map_or(0.0, |bias| double(&bias[at % shape.output[2]]))).collect();
        every_product(shape, |i, k, o| reference[o] += double(&x[i]) * double(&kernel[k]));
        let result = on_all(threads, "forward", |threads| {
            let mut y = vec![f32::NAN; dy.len()];
            let mut workspace = vec![f32::NAN; forward_workspace(shape, threads.count())];
            forward(threads, shape, &x, &kernel, bias.map(|bias| &bias[..]), &mut y, &mut workspace);
            y
        });
        assert_close(&result, &reference, shape.taps() * shape.channels_in(), &format!("forward {shape:?}"));
    }

    let mut reference = vec![0.0; x.len()];
    every_product(shape, |i, k, o| reference[i] += double(&dy[o]) * double(&kernel[k]));
    let result = on_all(threads, "grad_input", |threads| {
        let mut dx = vec![f32::NAN; x.len()];
        let mut workspace = vec![f32::NAN; grad_input_workspace(shape, threads.count())];
        grad_input(threads, shape, &dy, &kernel, &mut dx, &mut workspace);
        dx
    });
    assert_close(&result, &reference, shape.taps() * shape.channels_out(), &format!("grad_input {shape:?}"));

    for accumulate in [false, true] {
        let before = noise(kernel.len(), 5);
        let mut reference: Vec<f64> =
            before.iter().map(|value| if accumulate { double(value) } else { 0.0 }).collect();
        every_product(shape, |i, k, o| reference[k] += double(&x[i]) * double(&dy[o]));
        let result = on_all(threads, "grad_kernel", |threads| {
            let mut dkernel = before.clone();
            let mut workspace = vec![f32::NAN; grad_kernel_workspace(shape, threads.count())];
            grad_kernel(threads, shape, &x, &dy, &mut dkernel, accumulate, &mut workspace);
            dkernel
        });
        let terms = shape.rows * shape.output[0] * shape.output[1];
        assert_close(&result, &reference, terms, &format!("grad_kernel {shape:?}"));
    }
}

/// A convolution whose output size follows from "same" or "valid" padding as Keras does it.
fn shape(
    rows: usize,
    [height, width]: [usize; 2],
    [channels_in, channels_out, groups]: [usize; 3],
    kernel: [usize; 2],
    strides: [usize; 2],
    dilation: [usize; 2],
    same: bool,
) -> Convolution {
    let axis = |size: usize, i: usize| {
        let reach = (kernel[i] - 1) * dilation[i] + 1;
        if same {
            let output = size.div_ceil(strides[i]);
            (output, ((output - 1) * strides[i] + reach).saturating_sub(size) / 2)
        } else {
            ((size - reach) / strides[i] + 1, 0)
        }
    };
    let ((out_height, pad_top), (out_width, pad_left)) = (axis(height, 0), axis(width, 1));
    Convolution {
        rows,
        input: [height, width, channels_in],
        output: [out_height, out_width, channels_out],
        kernel,
        strides,
        dilation,
        groups,
        pad_top,
        pad_left,
    }
}

pub(crate) fn shapes() -> Vec<Convolution> {
    let mut shapes = Vec::new();
    for same in [true, false] {
        shapes.extend([
            shape(1, [1, 1], [1, 1, 1], [1, 1], [1, 1], [1, 1], same),
            shape(2, [5, 7], [3, 4, 1], [3, 3], [1, 1], [1, 1], same),
            shape(1, [40, 61], [3, 32, 1], [3, 3], [1, 1], [1, 1], same),
            shape(2, [9, 50], [3, 33, 1], [5, 3], [1, 1], [1, 1], same),
            shape(2, [33, 31], [3, 20, 1], [7, 7], [2, 2], [1, 1], same),
            shape(1, [30, 30], [1, 5, 1], [3, 3], [1, 1], [1, 1], same),
            shape(3, [6, 6], [17, 35, 1], [1, 1], [1, 1], [1, 1], same),
            shape(2, [6, 5], [64, 40, 1], [3, 3], [1, 1], [1, 1], same),
            shape(1, [9, 8], [5, 6, 1], [1, 1], [2, 2], [1, 1], same),
            shape(1, [9, 8], [20, 6, 1], [3, 3], [2, 1], [1, 1], same),
            shape(1, [11, 12], [6, 7, 1], [3, 2], [3, 2], [1, 1], same),
            shape(1, [11, 13], [6, 7, 1], [2, 2], [3, 3], [1, 1], same),
            shape(1, [12, 14], [4, 3, 1], [3, 3], [1, 1], [2, 3], same),
            shape(1, [14, 15], [4, 3, 1], [3, 3], [2, 3], [2, 2], same),
            shape(1, [17, 16], [4, 3, 1], [2, 3], [4, 2], [2, 3], same),
            shape(2, [8, 9], [6, 9, 3], [3, 3], [1, 1], [1, 1], same),
            shape(2, [8, 9], [40, 20, 2], [3, 3], [2, 2], [1, 1], same),
            shape(2, [8, 9], [10, 10, 10], [3, 3], [1, 1], [1, 1], same),
            shape(2, [9, 20], [40, 40, 40], [3, 3], [2, 2], [1, 1], same),
            shape(1, [13, 12], [17, 17, 17], [3, 2], [1, 2], [2, 1], same),
            shape(1, [12, 30], [32, 32, 32], [5, 5], [1, 1], [1, 1], same),
            shape(2, [8, 9], [5, 10, 5], [3, 3], [1, 1], [1, 1], same),
            shape(2, [4, 300], [3, 9, 1], [3, 3], [1, 1], [1, 1], same),
            shape(1, [5, 30], [64, 40, 1], [3, 3], [1, 1], [1, 1], same),
            shape(1, [4, 33], [300, 3, 1], [3, 3], [1, 1], [1, 1], same),
            shape(1, [7, 60], [5, 9, 1], [3, 3], [2, 2], [1, 1], same),
            shape(1, [5, 70], [8, 600, 1], [1, 5], [1, 2], [1, 1], same),
            shape(1, [9, 28], [12, 4, 1], [3, 3], [1, 1], [2, 1], same),
            shape(1, [9, 11], [6, 18, 6], [3, 3], [2, 2], [1, 1], same),
            // Winograd, where both sides have enough channels: tiles at edges, deep sums, parts of the
            // result.
            shape(2, [7, 17], [65, 66, 1], [3, 3], [1, 1], [1, 1], same),
            shape(2, [14, 15], [33, 50, 1], [5, 5], [1, 1], [1, 1], same),
            shape(40, [12, 18], [16, 17, 1], [5, 5], [1, 1], [1, 1], same),
            shape(1, [4, 16], [300, 230, 1], [3, 3], [1, 1], [1, 1], same),
        ]);
    }
    // Padding wider than the filter needs, an output that does not reach the end of the input, no images at
    // all.
    let odd = shape(1, [6, 7], [3, 4, 1], [3, 3], [1, 1], [1, 1], false);
    shapes.push(Convolution { pad_top: 4, pad_left: 5, output: [12, 13, 4], ..odd });
    shapes.push(Convolution { output: [2, 3, 4], ..odd });
    shapes.push(Convolution { rows: 0, ..odd });
    let odd = shape(1, [6, 7], [4, 4, 4], [3, 3], [1, 1], [1, 1], false);
    shapes.push(Convolution { pad_top: 4, pad_left: 5, output: [12, 13, 4], ..odd });
    shapes.push(Convolution { output: [2, 3, 4], ..odd });
    shapes.push(Convolution { rows: 0, ..odd });
    let odd = shape(1, [6, 16], [64, 70, 1], [3, 3], [1, 1], [1, 1], false);
    shapes.push(Convolution { pad_top: 4, pad_left: 5, output: [12, 22, 70], ..odd });
    shapes.push(Convolution { output: [2, 14, 70], ..odd });
    shapes.push(Convolution { rows: 0, ..odd });
    shapes
}

#[test]
fn convolutions_equal_plain_loops_on_every_level_with_any_number_of_threads() {
    for level in Level::available() {
        let threads = [1, 2, 3].map(|count| Threads::at(count, level).unwrap());
        shapes().iter().for_each(|shape| check(&threads, shape));
    }
}

#[test]
fn fewer_images_want_no_more_workspace() {
    for shape in shapes() {
        for (less, more) in [(1, 2), (2, 7), (7, 64), (64, 1000), (1000, 100_000)] {
            let (less, more) = (Convolution { rows: less, ..shape }, Convolution { rows: more, ..shape });
            assert!(forward_workspace(&less, 2) <= forward_workspace(&more, 2));
            assert!(grad_input_workspace(&less, 2) <= grad_input_workspace(&more, 2));
            assert!(grad_kernel_workspace(&less, 2) <= grad_kernel_workspace(&more, 2));
        }
    }
}

#[test]
fn an_image_is_convolved_the_same_alone_and_among_others() {
    let threads = Threads::new(2).unwrap();
    for shape in shapes().into_iter().filter(|shape| shape.rows == 2) {
        let (x, kernel) = (noise(shape.input_floats(), 1), noise(shape.kernel_floats(), 2));
        let run = |rows: usize| {
            let shape = Convolution { rows, ..shape };
            let mut y = vec![0.0; shape.output_floats()];
            let mut workspace = vec![0.0; forward_workspace(&shape, 2)];
            forward(&threads, &shape, &x[..shape.input_floats()], &kernel, None, &mut y, &mut workspace);
            y
        };
        let (one, two) = (run(1), run(2));
        assert_eq!(one, two[..one.len()], "{shape:?}");
    }
}
