//! Convolution and pool as one against the two apart, at every level of vectors and on several threads.

use memfit_ir::{Pads, Pool2D, PooledConv2D};

use super::super::super::gemm::tests::{assert_close, noise};
use super::super::super::lanes::Level;
use super::super::super::max_pool;
use super::super::super::threads::Threads;
use super::super::{self as convolution, Convolution};
use super::*;

/// A convolution of `input` by `kernel` to `channels` channels.
pub(super) fn pooled(
    input: [usize; 3],
    kernel: [usize; 2],
    channels: usize,
    strides: [usize; 2],
    pads: Pads,
) -> Pooled {
    let size = |axis: usize, margin: usize| (input[axis] + margin - kernel[axis]) / strides[axis] + 1;
    let conv = Convolution {
        rows: 3,
        input,
        output: [size(0, pads.height()), size(1, pads.width()), channels],
        kernel,
        strides,
        dilation: [1, 1],
        groups: 1,
        pad_top: pads.top,
        pad_left: pads.left,
    };
    Pooled { conv, relu: false }
}

fn cases() -> Vec<Pooled> {
    let none = Pads::default();
    let same = |pad: usize| Pads { top: pad, bottom: pad, left: pad, right: pad };
    vec![
        pooled([12, 13, 3], [3, 3], 32, [1, 1], none),
        pooled([9, 8, 3], [3, 3], 20, [1, 1], same(1)),
        pooled([7, 45, 2], [3, 3], 50, [1, 1], same(1)),
        pooled([30, 29, 1], [5, 5], 20, [1, 1], none),
        pooled([28, 28, 1], [5, 5], 37, [1, 1], same(2)),
        pooled([5, 6, 1], [3, 3], 2, [1, 1], none),
        pooled([11, 17, 3], [5, 5], 8, [2, 2], Pads { top: 1, bottom: 2, left: 1, right: 2 }),
        pooled([9, 33, 4], [3, 2], 70, [1, 2], none),
        pooled([6, 7, 15], [4, 3], 9, [1, 1], same(1)),
        pooled([8, 300, 3], [3, 3], 33, [1, 1], none),
        pooled([13, 12, 3], [5, 5], 18, [1, 1], same(2)),
    ]
    .into_iter()
    .chain(deep_cases())
    .collect()
}

/// Winograd convolutions, with whole windows and with some that reach past the edge.
fn deep_cases() -> Vec<Pooled> {
    let same = |pad: usize| Pads { top: pad, bottom: pad, left: pad, right: pad };
    let cases = vec![
        pooled([9, 14, 16], [5, 5], 18, [1, 1], same(2)),
        pooled([8, 19, 17], [5, 5], 16, [1, 1], Pads::default()),
        pooled([7, 16, 64], [3, 3], 70, [1, 1], same(1)),
        pooled([2, 17, 65], [3, 3], 64, [1, 1], Pads { top: 2, bottom: 0, left: 1, right: 0 }),
    ];
    assert!(cases.iter().all(deep::applies));
    cases
}

#[test]
fn a_pooled_convolution_is_the_convolution_and_then_the_pool() {
    for level in Level::available() {
        let threads = [1, 2, 3].map(|count| Threads::at(count, level).unwrap());
        for (case, relu) in cases().into_iter().flat_map(|case| [(case, false), (case, true)]) {
            check_forward(&threads, &Pooled { relu, ..case });
        }
    }
}

fn check_forward(threads: &[Threads], pooled: &Pooled) {
    let conv = &pooled.conv;
    let (x, kernel) = (noise(conv.input_floats(), 1), noise(conv.kernel_floats(), 2));
    let bias = noise(conv.output[2], 3);
    for bias in [None, Some(&bias[..])] {
        let mut between = vec![f32::NAN; conv.output_floats()];
        let mut workspace = vec![f32::NAN; convolution::forward_workspace(conv, threads[0].count())];
        convolution::forward(&threads[0], conv, &x, &kernel, bias, &mut between, &mut workspace);
        let (mut expected, mut places) =
            (vec![f32::NAN; pooled.output_floats()], vec![9; pooled.output_floats()]);
        let sizes = [conv.output, pooled.output()];
        let pool = PooledConv2D::POOL;
        let relu = pooled.relu;
        max_pool::forward_of(
            &threads[0],
            &pool,
            sizes,
            conv.rows,
            &between,
            &mut expected,
            &mut places,
            relu,
        );
        let mut results = Vec::new();
        for threads in threads {
            let (mut y, mut argmax) = (vec![f32::NAN; expected.len()], vec![9; expected.len()]);
            let mut workspace = vec![f32::NAN; forward_workspace(pooled, threads.count())];
            forward(threads, pooled, &x, &kernel, bias, &mut y, &mut argmax, &mut workspace);
            if winograd_rgb::applies(pooled, threads.level().rows()) {
                assert_near(pooled, &between, [&y, &expected], &argmax);
            } else {
                assert!(y == expected && argmax == places, "{} {pooled:?}", threads.vectors());
            }
            results.push((y, argmax));
        }
        assert!(results.iter().all(|result| *result == results[0]), "bits depend on the threads");
    }
}

/// Winograd rounds differently: the argmax may be any place whose value is as large up to that rounding.
fn assert_near(pooled: &Pooled, between: &[f32], [y, expected]: [&[f32]; 2], argmax: &[u8]) {
    let [height, width, channels] = pooled.output();
    for (at, ((value, expected), argmax)) in y.iter().zip(expected).zip(argmax).enumerate() {
        let near = |other: f32| (value - other).abs() <= 1e-5 * (1.0 + other.abs());
        assert!(near(*expected), "{value}, not {expected}");
        let place = usize::from(*argmax);
        let (line, across, channel) = (at / channels / width, at / channels % width, at % channels);
        let (row, down) = (line / height, line % height);
        let y = row * pooled.conv.output[0] + 2 * down + place / 2;
        let x = 2 * across + place % 2;
        let none = *argmax == Pool2D::NO_ARGMAX;
        let value_there =
            if none { 0.0 } else { between[(y * pooled.conv.output[1] + x) * channels + channel] };
        assert!(
            near(value_there) && (place < 4 || pooled.relu && none),
            "place {place} of {value} has {value_there}"
        );
    }
}

#[test]
fn the_gradient_of_the_pools_output_is_enough_for_the_filter() {
    for level in Level::available() {
        let threads = [1, 2, 3].map(|count| Threads::at(count, level).unwrap());
        for (case, relu) in cases().into_iter().flat_map(|case| [(case, false), (case, true)]) {
            check_gradient(&threads, &Pooled { relu, ..case });
        }
    }
}

fn check_gradient(threads: &[Threads], pooled: &Pooled) {
    let (conv, count) = (&pooled.conv, pooled.output_floats());
    let (x, dy) = (noise(conv.input_floats(), 1), noise(count, 2));
    let (argmax, between) = unpooled(&threads[0], pooled, &dy);
    let channels = conv.output[2];
    let before = noise(conv.kernel_floats() + channels, 4);
    for accumulate in [false, true] {
        let mut expected: Vec<f64> =
            before.iter().map(|value| if accumulate { f64::from(*value) } else { 0.0 }).collect();
        convolution::tests::every_product(conv, |input, product, output| {
            expected[product] += f64::from(x[input]) * f64::from(between[output]);
        });
        for (at, dy) in between.iter().enumerate() {
            expected[conv.kernel_floats() + at % channels] += f64::from(*dy);
        }
        let results = threads.iter().map(|threads| {
            let mut result = before.clone();
            let (dkernel, dbias) = result.split_at_mut(conv.kernel_floats());
            let mut workspace = vec![f32::NAN; grad_kernel_workspace(pooled, true, threads.count())];
            let images = [&x[..], &dy[..]];
            grad_kernel(threads, pooled, images, &argmax, dkernel, Some(dbias), accumulate, &mut workspace);
            result
        });
        let results: Vec<Vec<f32>> = results.collect();
        assert!(results.iter().all(|result| *result == results[0]), "bits depend on the threads");
        assert_close(&results[0], &expected, count / channels, &format!("{pooled:?}"));
    }
}

/// A random argmax for the gradient of a pool's output, and the gradient of the pool's input that follows.
fn unpooled(threads: &Threads, pooled: &Pooled, dy: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let place = |draw: &f32| match (draw.to_bits() >> 3) % 5 {
        4 if pooled.relu => Pool2D::NO_ARGMAX,
        place => (place % 4) as u8,
    };
    let argmax: Vec<u8> = noise(dy.len(), 3).iter().map(place).collect();
    let (conv, mut between) = (&pooled.conv, vec![0.0; pooled.conv.output_floats()]);
    let sizes = [conv.output, pooled.output()];
    max_pool::grad_of(threads, &PooledConv2D::POOL, sizes, conv.rows, dy, &argmax, &mut between);
    (argmax, between)
}

#[test]
fn the_gradient_of_the_filter_by_winograd_is_that_of_the_pool_and_then_the_convolution() {
    for level in Level::available() {
        let all = [1, 2, 3].map(|count| Threads::at(count, level).unwrap());
        for (case, relu) in deep_cases().into_iter().flat_map(|case| [(case, false), (case, true)]) {
            let pooled = Pooled { relu, ..case };
            let conv = &pooled.conv;
            let (x, dy) = (noise(conv.input_floats(), 1), noise(pooled.output_floats(), 2));
            let before = noise(conv.kernel_floats(), 5);
            let (argmax, between) = unpooled(&all[0], &pooled, &dy);
            for (threads, accumulate) in all.iter().flat_map(|threads| [(threads, false), (threads, true)]) {
                let (mut expected, mut got) = (before.clone(), before.clone());
                let floats = convolution::grad_kernel_workspace(conv, threads.count());
                let mut room = vec![f32::NAN; floats];
                convolution::grad_kernel(threads, conv, &x, &between, &mut expected, accumulate, &mut room);
                let mut room = vec![f32::NAN; grad_kernel_workspace(&pooled, false, threads.count())];
                let images = [&x[..], &dy[..]];
                grad_kernel(threads, &pooled, images, &argmax, &mut got, None, accumulate, &mut room);
                assert!(got == expected, "filter, {} {pooled:?}", threads.vectors());
            }
        }
    }
}

#[test]
fn the_gradient_of_the_input_is_that_of_the_pool_and_then_the_convolution() {
    for level in Level::available() {
        let all = [1, 2, 3].map(|count| Threads::at(count, level).unwrap());
        for (case, relu) in cases().into_iter().flat_map(|case| [(case, false), (case, true)]) {
            let pooled = Pooled { relu, ..case };
            let conv = &pooled.conv;
            let (dy, kernel) = (noise(pooled.output_floats(), 2), noise(conv.kernel_floats(), 4));
            let (argmax, between) = unpooled(&all[0], &pooled, &dy);
            for threads in &all {
                let (mut expected, mut got) =
                    (vec![f32::NAN; conv.input_floats()], vec![f32::NAN; conv.input_floats()]);
                let mut room = vec![f32::NAN; convolution::grad_input_workspace(conv, threads.count())];
                convolution::grad_input(threads, conv, &between, &kernel, &mut expected, &mut room);
                let mut room = vec![f32::NAN; grad_input_workspace(&pooled, threads.count())];
                grad_input(threads, &pooled, &dy, &argmax, &kernel, &mut got, &mut room);
                assert!(got == expected, "{} {pooled:?}", threads.vectors());
            }
        }
    }
}
