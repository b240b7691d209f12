//! Normalisations against double precision, and their gradients against differences.

use memfit_ir::{Norm, Op, Shape};

use super::{Case, assert_near, doubles, gradient_of, noise, positive_noise};

/// Columns of a matrix, normalised to `gamma x̂ + beta`; also mean and variance of each.
fn normalised(x: &[f64], groups: &[Vec<usize>], epsilon: f64) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let mut y = vec![0.0; x.len()];
    let (mut means, mut variances) = (vec![], vec![]);
    for group in groups {
        let count = group.len() as f64;
        let mean = group.iter().map(|at| x[*at]).sum::<f64>() / count;
        let variance = group.iter().map(|at| (x[*at] - mean).powi(2)).sum::<f64>() / count;
        group.iter().for_each(|at| y[*at] = (x[*at] - mean) / (variance + epsilon).sqrt());
        means.push(mean);
        variances.push(variance);
    }
    (y, means, variances)
}

fn weighed(y: &[f64], gamma: &[f64], beta: &[f64]) -> Vec<f64> {
    y.iter().enumerate().map(|(at, y)| y * gamma[at % gamma.len()] + beta[at % beta.len()]).collect()
}

fn with_weights(case: Case, norm: &Norm, shape: &Shape, gamma: &[f32], beta: &[f32]) -> Case {
    let case = if norm.scale { case.input(shape.clone(), gamma) } else { case };
    if norm.center { case.input(shape.clone(), beta) } else { case }
}

fn with_gradients(case: Case, norm: &Norm, shape: &Shape, before: &[f32]) -> Case {
    let case = if norm.scale { case.update(shape.clone(), before) } else { case };
    if norm.center { case.update(shape.clone(), before) } else { case }
}

/// The gradients of gamma and beta for normalised values, added to what was there.
fn weight_gradients(norm: &Norm, dy: &[f32], y: &[f64], before: &[f32]) -> Vec<Vec<f64>> {
    let (mut dgamma, mut dbeta) = (doubles(before), doubles(before));
    for (at, dy) in dy.iter().enumerate() {
        dgamma[at % before.len()] += f64::from(*dy) * y[at];
        dbeta[at % before.len()] += f64::from(*dy);
    }
    [(norm.scale, dgamma), (norm.center, dbeta)]
        .into_iter()
        .filter(|(there, _)| *there)
        .map(|(_, sum)| sum)
        .collect()
}

const NORMS: [Norm; 3] = [
    Norm { epsilon: 1e-3, scale: true, center: true },
    Norm { epsilon: 1e-5, scale: false, center: true },
    Norm { epsilon: 1e-2, scale: false, center: false },
];

#[test]
fn batch_normalisation_has_statistics_of_channels() {
    for (rows, dims) in [(4, vec![3]), (2, vec![3, 2, 5]), (3, vec![2, 70]), (5, vec![1])] {
        for norm in NORMS {
            let channels = *dims.last().unwrap();
            let count = rows * dims.iter().product::<usize>();
            let [x, dy] = [1, 2].map(|seed| noise(count, seed));
            let [gamma, beta, before] = [3, 4, 5].map(|seed| noise(channels, seed));
            let groups: Vec<Vec<usize>> =
                (0..channels).map(|channel| (channel..count).step_by(channels).collect()).collect();
            let epsilon = f64::from(norm.epsilon);
            let gain = if norm.scale { doubles(&gamma) } else { vec![1.0; channels] };
            let offset = if norm.center { doubles(&beta) } else { vec![0.0; channels] };
            let forward = |x: &[f64]| weighed(&normalised(x, &groups, epsilon).0, &gain, &offset);
            let (y, mean, variance) = normalised(&doubles(&x), &groups, epsilon);
            let (shape, weights) = (Shape::rows(dims.clone()), Shape::fixed([channels]));

            let results = Case::new(Op::BatchNormStatistics, rows).input(shape.clone(), x.clone()).run();
            assert_near(results.floats(0), &mean, 1e-6, "mean");
            assert_near(results.floats(1), &variance, 1e-6, "variance");

            let case = Case::new(Op::BatchNorm(norm.clone()), rows).input(shape.clone(), x.clone());
            let case = with_weights(case, &norm, &weights, &gamma, &beta)
                .input(weights.clone(), results.floats(0))
                .input(weights.clone(), results.floats(1));
            assert_near(case.run().floats(0), &forward(&doubles(&x)), 1e-5, "y");

            let case = Case::new(Op::BatchNormGrad(norm.clone()), rows)
                .input(shape.clone(), dy.clone())
                .input(shape.clone(), x.clone())
                .input(weights.clone(), results.floats(0))
                .input(weights.clone(), results.floats(1));
            let case = if norm.scale { case.input(weights.clone(), gamma.clone()) } else { case };
            let results = with_gradients(case, &norm, &weights, &before).run();
            let dx = gradient_of(forward, &doubles(&x), &doubles(&dy));
            assert_near(results.floats(0), &dx, 3e-5, "dx");
            for (index, sums) in weight_gradients(&norm, &dy, &y, &before).iter().enumerate() {
                assert_near(results.updated(index), sums, 1e-5, "gradient of a weight");
            }
        }
    }
}

/// Beyond the caches, results are written past them: by the same bits as a few rows of them are.
#[test]
fn a_result_beyond_the_caches_has_the_bits_of_its_rows() {
    // 24 channels fill no vector, so that blocks begin at every place of one; the rows are 49 MiB.
    let (norm, rows, row) = (&NORMS[0], 34, 24 * 15_625);
    let few = noise(2 * row, 1);
    let all: Vec<f32> = few.iter().copied().cycle().take(rows * row).collect();
    let run = |rows: usize, x: &[f32]| {
        let weights = Shape::fixed([24]);
        let case = Case::new(Op::BatchNormInference(norm.clone()), rows).input(Shape::rows([15_625, 24]), x);
        let case = with_weights(case, norm, &weights, &noise(24, 2), &noise(24, 3));
        let case = case.input(weights.clone(), noise(24, 4)).input(weights, positive_noise(24, 5));
        case.run().floats(0).to_vec()
    };
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
    let expected = bits(&run(2, &few));
    let found = run(rows, &all);
    assert!(found.chunks(2 * row).all(|rows| bits(rows) == expected));
}

#[test]
fn batch_normalisation_by_moving_statistics_is_a_line() {
    for norm in NORMS {
        let (x, mean, variance) = (noise(42, 1), noise(3, 2), positive_noise(3, 3));
        let (gamma, beta) = (noise(3, 4), noise(3, 5));
        let gain = |at: usize| {
            let gamma = if norm.scale { f64::from(gamma[at % 3]) } else { 1.0 };
            gamma / (f64::from(variance[at % 3]) + f64::from(norm.epsilon)).sqrt()
        };
        let offset = |at: usize| if norm.center { f64::from(beta[at % 3]) } else { 0.0 };
        let y: Vec<f64> =
            (0..42).map(|at| (f64::from(x[at]) - f64::from(mean[at % 3])) * gain(at) + offset(at)).collect();
        let dx: Vec<f64> = (0..42).map(|at| f64::from(x[at]) * gain(at)).collect();
        let (shape, weights) = (Shape::rows([7, 3]), Shape::fixed([3]));
        let case = Case::new(Op::BatchNormInference(norm.clone()), 2).input(shape.clone(), x.clone());
        let case = with_weights(case, &norm, &weights, &gamma, &beta)
            .input(weights.clone(), mean)
            .input(weights.clone(), variance.clone());
        assert_near(case.run().floats(0), &y, 1e-6, "y");
        let case = Case::new(Op::BatchNormInferenceGrad(norm.clone()), 2).input(shape, x);
        let case = if norm.scale { case.input(weights.clone(), gamma.clone()) } else { case };
        assert_near(case.input(weights, variance).run().floats(0), &dx, 1e-6, "dx");
    }
}

#[test]
fn moving_statistics_move() {
    let [mean, variance, moving_mean, moving_variance] = [1, 2, 3, 4].map(|seed| noise(5, seed));
    let weights = Shape::fixed([5]);
    let mut case = Case::new(Op::BatchNormMoving { momentum: 0.9 }, 1);
    for values in [&mean, &variance] {
        case = case.input(weights.clone(), &values[..]);
    }
    for values in [&moving_mean, &moving_variance] {
        case = case.update(weights.clone(), &values[..]);
    }
    let results = case.run();
    for (index, (value, moving)) in [(mean, moving_mean), (variance, moving_variance)].iter().enumerate() {
        let expected: Vec<f64> =
            moving.iter().zip(value).map(|(m, v)| 0.9 * f64::from(*m) + 0.1 * f64::from(*v)).collect();
        assert_near(results.updated(index), &expected, 1e-6, "moving");
    }
}

#[test]
fn statistics_far_from_zero_keep_their_digits() {
    let x: Vec<f32> = noise(300_000, 1).iter().map(|x| 1000.0 + x * 0.01).collect();
    let groups = [(0..x.len()).collect::<Vec<_>>()];
    let (_, mean, variance) = normalised(&doubles(&x), &groups, 0.0);
    let results = Case::new(Op::BatchNormStatistics, 3).input(Shape::rows([100_000, 1]), x).run();
    assert_near(results.floats(0), &mean, 1e-7, "mean");
    let relative = (f64::from(results.floats(1)[0]) / variance[0] - 1.0).abs();
    assert!(relative < 1e-6, "{relative}");
}

#[test]
fn layer_normalisation_has_statistics_of_positions() {
    for (rows, dims, axes) in [(3, vec![5], 1), (2, vec![4, 6], 1), (2, vec![3, 4, 5], 2), (2, vec![700], 1)]
    {
        for norm in NORMS {
            let width: usize = dims[dims.len() - axes..].iter().product();
            let count = rows * dims.iter().product::<usize>();
            let [x, dy] = [1, 2].map(|seed| noise(count, seed));
            let [gamma, beta, before] = [3, 4, 5].map(|seed| noise(width, seed));
            let groups: Vec<Vec<usize>> = (0..count / width)
                .map(|position| (position * width..(position + 1) * width).collect())
                .collect();
            let epsilon = f64::from(norm.epsilon);
            let gain = if norm.scale { doubles(&gamma) } else { vec![1.0; width] };
            let offset = if norm.center { doubles(&beta) } else { vec![0.0; width] };
            let forward = |x: &[f64]| weighed(&normalised(x, &groups, epsilon).0, &gain, &offset);
            let (y, mean, variance) = normalised(&doubles(&x), &groups, epsilon);
            let inverse: Vec<f64> =
                variance.iter().map(|variance| 1.0 / (variance + epsilon).sqrt()).collect();
            let (shape, weights) = (Shape::rows(dims.clone()), Shape::fixed(&dims[dims.len() - axes..]));
            let statistics = Shape::rows(&dims[..dims.len() - axes]);

            let case = Case::new(Op::LayerNorm(norm.clone(), axes), rows).input(shape.clone(), x.clone());
            let results = with_weights(case, &norm, &weights, &gamma, &beta).run();
            assert_near(results.floats(0), &forward(&doubles(&x)), 1e-5, "y");
            assert_near(results.floats(1), &mean, 1e-6, "mean");
            assert_near(results.floats(2), &inverse, 1e-6, "inverse deviation");

            let case = Case::new(Op::LayerNormGrad(norm.clone(), axes), rows)
                .input(shape.clone(), dy.clone())
                .input(shape.clone(), x.clone())
                .input(statistics.clone(), results.floats(1))
                .input(statistics.clone(), results.floats(2));
            let case = if norm.scale { case.input(weights.clone(), gamma.clone()) } else { case };
            let results = with_gradients(case, &norm, &weights, &before).run();
            let dx = gradient_of(forward, &doubles(&x), &doubles(&dy));
            assert_near(results.floats(0), &dx, 3e-5, "dx");
            for (index, sums) in weight_gradients(&norm, &dy, &y, &before).iter().enumerate() {
                assert_near(results.updated(index), sums, 1e-5, "gradient of a weight");
            }
        }
    }
}
