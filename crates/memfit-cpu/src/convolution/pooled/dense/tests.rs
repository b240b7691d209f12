//! A dense layer after a pool, block by block, against the convolution, the pool and the layer apart, at
//! every level of vectors and on several threads.

use super::super::super::super::gemm::tests::{assert_close, noise};
use super::super::super::super::lanes::Level;
use super::super::super::super::threads::{Shared, Threads};
use super::super::tests::pooled;
use super::super::{self as apart};
use super::*;
use memfit_ir::Pads;

fn cases() -> Vec<PooledDense> {
    let none = Pads::default();
    let same = |pad: usize| Pads { top: pad, bottom: pad, left: pad, right: pad };
    let shapes = [
        (pooled([12, 13, 3], [3, 3], 32, [1, 1], none), 10),
        (pooled([9, 8, 3], [3, 3], 20, [1, 1], same(1)), 3),
        (pooled([8, 300, 3], [3, 3], 33, [1, 1], none), 17),
        (pooled([30, 29, 1], [5, 5], 20, [1, 1], none), 1),
        (pooled([7, 45, 2], [3, 3], 50, [1, 1], same(1)), 12),
        (pooled([13, 12, 3], [5, 5], 18, [1, 1], same(2)), 7),
        (pooled([5, 6, 1], [3, 3], 2, [1, 1], none), 4),
    ];
    let with = |shape: PooledDense| {
        [(false, 3), (true, 1), (true, 19)].map(|(relu, rows)| {
            let mut shape = shape;
            (shape.pooled.relu, shape.pooled.conv.rows) = (relu, rows);
            shape
        })
    };
    shapes.into_iter().flat_map(|(pooled, units)| with(PooledDense { pooled, units })).collect()
}

/// Weights and images of a case.
struct Operands {
    x: Vec<f32>,
    filter: Vec<f32>,
    bias: Vec<f32>,
    kernel: Vec<f32>,
    kernel_bias: Vec<f32>,
}

impl Operands {
    fn new(shape: &PooledDense) -> Operands {
        let conv = &shape.pooled.conv;
        Operands {
            x: noise(conv.input_floats(), 1),
            filter: noise(conv.kernel_floats(), 2),
            bias: noise(conv.output[2], 3),
            kernel: noise(floats_of_image(shape) * shape.units, 4),
            kernel_bias: noise(shape.units, 5),
        }
    }

    /// What the convolution and its pool give by themselves.
    fn pooled(&self, threads: &Threads, shape: &PooledDense) -> (Vec<f32>, Vec<u8>) {
        let count = shape.pooled.conv.rows * floats_of_image(shape);
        let (mut y, mut argmax) = (vec![f32::NAN; count], vec![9; count]);
        let mut workspace = vec![f32::NAN; apart::forward_workspace(&shape.pooled, threads.count())];
        let bias = Some(&self.bias[..]);
        apart::forward(
            threads,
            &shape.pooled,
            &self.x,
            &self.filter,
            bias,
            &mut y,
            &mut argmax,
            &mut workspace,
        );
        (y, argmax)
    }
}

fn floats_of_image(shape: &PooledDense) -> usize {
    shape.pooled.output().iter().product()
}

#[test]
fn a_dense_layer_takes_what_the_pool_gives_block_by_block() {
    for level in Level::available() {
        let threads = [1, 2, 3].map(|count| Threads::at(count, level).unwrap());
        for shape in cases() {
            let given = Operands::new(&shape);
            let (pooled, argmax) = given.pooled(&threads[0], &shape);
            let expected: Vec<f64> = pooled
                .chunks_exact(floats_of_image(&shape))
                .flat_map(|image| {
                    (0..shape.units).map(|unit| product(image, &given, unit)).collect::<Vec<_>>()
                })
                .collect();
            for threads in &threads {
                let mut y = vec![f32::NAN; expected.len()];
                let mut got = vec![9; argmax.len()];
                let mut workspace = vec![f32::NAN; forward_workspace(&shape, threads.count())];
                let (filter, kernel) =
                    ([&given.filter[..], &given.bias], [&given.kernel[..], &given.kernel_bias]);
                forward(threads, &shape, &given.x, filter, kernel, &mut y, &mut got, &mut workspace);
                assert!(got == argmax, "the argmax is that of the pool: {shape:?}");
                assert_close(&y, &expected, floats_of_image(&shape), &format!("{shape:?}"));
            }
        }
    }
}

/// The output of a unit for one image of the pool's output.
fn product(image: &[f32], given: &Operands, unit: usize) -> f64 {
    let units = given.kernel_bias.len();
    let products = image.iter().zip(given.kernel.chunks_exact(units));
    let sum: f64 = products.map(|(value, row)| f64::from(*value) * f64::from(row[unit])).sum();
    f64::from(given.kernel_bias[unit]) + sum
}

#[test]
fn gradients_block_by_block_are_those_of_the_three_apart() {
    for level in Level::available() {
        let threads = [1, 2, 3].map(|count| Threads::at(count, level).unwrap());
        for (shape, accumulate) in cases().into_iter().flat_map(|case| [(case, false), (case, true)]) {
            check_gradients(&threads, &shape, accumulate);
        }
    }
}

fn check_gradients(threads: &[Threads], shape: &PooledDense, accumulate: bool) {
    let given = Operands::new(shape);
    let (pooled, argmax) = given.pooled(&threads[0], shape);
    let (units, rows, count) = (shape.units, shape.pooled.conv.rows, floats_of_image(shape));
    let dy = noise(rows * units, 6);
    let before = [noise(given.kernel.len(), 7), noise(given.filter.len(), 8), noise(given.bias.len(), 9)];
    let start = |index: usize| -> Vec<f64> {
        before[index].iter().map(|value| if accumulate { f64::from(*value) } else { 0.0 }).collect()
    };
    let (mut dkernel, mut dpooled) = (start(0), vec![0.0; rows * count]);
    for (at, value) in pooled.iter().enumerate() {
        let (image, row) = (at / count, at % count);
        for unit in 0..units {
            let dy = f64::from(dy[image * units + unit]);
            dkernel[row * units + unit] += f64::from(*value) * dy;
            dpooled[at] += dy * f64::from(given.kernel[row * units + unit]);
        }
    }
    let dpooled: Vec<f32> = dpooled.iter().map(|value| *value as f32).collect();
    let [mut dfilter, mut dbias] = [1, 2].map(|index| before[index].clone());
    let mut workspace = vec![f32::NAN; apart::grad_kernel_workspace(&shape.pooled, true, 1)];
    let images = [&given.x[..], &dpooled];
    let bias = Some(&mut dbias[..]);
    apart::grad_kernel(
        &threads[0],
        &shape.pooled,
        images,
        &argmax,
        &mut dfilter,
        bias,
        accumulate,
        &mut workspace,
    );
    let expected = [dfilter, dbias].map(|values| values.into_iter().map(f64::from).collect::<Vec<f64>>());
    let mut results = Vec::new();
    for threads in threads {
        let mut result = before.clone();
        let operands =
            Grad { x: &given.x, filter: &given.filter, bias: &given.bias, argmax: &argmax, dy: &dy };
        let mut workspace = vec![f32::NAN; grad_workspace(shape, threads.count())];
        let [sum, dfilter, dbias] = result.each_mut().map(|values| &mut values[..]);
        let learning = Learning::Sum { kernel: &given.kernel, sum: Shared::new(sum), accumulate };
        grad(threads, shape, &operands, &learning, [dfilter, dbias], accumulate, &mut workspace);
        assert_close(&result[0], &dkernel, rows, &format!("kernel of {shape:?}"));
        for (result, expected) in result[1..].iter().zip(&expected) {
            assert_close(result, expected, 2 * units * rows * count, &format!("filter of {shape:?}"));
        }
        results.push(result);
    }
    assert!(results.iter().all(|result| *result == results[0]), "bits depend on the threads");
}
