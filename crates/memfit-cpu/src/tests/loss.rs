//! Losses against Keras's formulas in double precision, and their gradients against differences.

use memfit_ir::{Loss, LossKind, Op, Shape};

use super::{Case, Values, assert_near, doubles, gradient_of, noise, positive_noise};

const EPSILON: f64 = 1e-7;

fn clip(p: f64) -> f64 {
    p.clamp(EPSILON, 1.0 - EPSILON)
}

fn log_softmax(x: &[f64]) -> Vec<f64> {
    let total: f64 = x.iter().map(|x| x.exp()).sum();
    x.iter().map(|x| x - total.ln()).collect()
}

/// The loss of one sample, with targets as shares of classes.
fn value(kind: &LossKind, p: &[f64], t: &[f64]) -> f64 {
    let classes = p.len() as f64;
    let mean =
        |term: &dyn Fn(f64, f64) -> f64| p.iter().zip(t).map(|(p, t)| term(*p, *t)).sum::<f64>() / classes;
    match *kind {
        LossKind::MeanSquaredError => mean(&|p, t| (p - t).powi(2)),
        LossKind::MeanAbsoluteError => mean(&|p, t| (p - t).abs()),
        LossKind::Huber { delta } => mean(&|p, t| {
            let (d, delta) = ((p - t).abs(), f64::from(delta));
            if d <= delta { 0.5 * d * d } else { delta * d - 0.5 * delta * delta }
        }),
        LossKind::BinaryCrossentropy { from_logits, label_smoothing } => mean(&|p, t| {
            let smoothing = f64::from(label_smoothing);
            let t = t * (1.0 - smoothing) + 0.5 * smoothing;
            if from_logits {
                p.max(0.0) - p * t + (-p.abs()).exp().ln_1p()
            } else {
                -(t * clip(p).ln() + (1.0 - t) * (1.0 - clip(p)).ln())
            }
        }),
        LossKind::CategoricalCrossentropy { from_logits, label_smoothing } => {
            let smoothing = f64::from(label_smoothing);
            let total: f64 = p.iter().sum();
            let logarithms = match from_logits {
                true => log_softmax(p),
                false => p.iter().map(|p| clip(p / total).ln()).collect(),
            };
            -t.iter()
                .zip(logarithms)
                .map(|(t, log)| (t * (1.0 - smoothing) + smoothing / classes) * log)
                .sum::<f64>()
        }
        LossKind::SparseCategoricalCrossentropy { from_logits } => {
            let logits = if from_logits { p.to_vec() } else { p.iter().map(|p| clip(*p).ln()).collect() };
            -t.iter().zip(log_softmax(&logits)).map(|(t, log)| t * log).sum::<f64>()
        }
        LossKind::Distance(_) | LossKind::Reduced { .. } | LossKind::UnitCategoricalCrossentropy { .. } => {
            unreachable!("held against the reference of the op table and against Keras")
        }
    }
}

fn kinds() -> Vec<LossKind> {
    let mut kinds = vec![
        LossKind::MeanSquaredError,
        LossKind::MeanAbsoluteError,
        LossKind::Huber { delta: 0.7 },
        LossKind::SparseCategoricalCrossentropy { from_logits: true },
        LossKind::SparseCategoricalCrossentropy { from_logits: false },
    ];
    for from_logits in [true, false] {
        for label_smoothing in [0.0, 0.1] {
            kinds.push(LossKind::BinaryCrossentropy { from_logits, label_smoothing });
            kinds.push(LossKind::CategoricalCrossentropy { from_logits, label_smoothing });
        }
    }
    kinds
}

fn is_of_probabilities(kind: &LossKind) -> bool {
    match kind {
        LossKind::BinaryCrossentropy { from_logits, .. }
        | LossKind::CategoricalCrossentropy { from_logits, .. }
        | LossKind::SparseCategoricalCrossentropy { from_logits } => !from_logits,
        LossKind::MeanSquaredError
        | LossKind::MeanAbsoluteError
        | LossKind::Huber { .. }
        | LossKind::Reduced { .. }
        | LossKind::UnitCategoricalCrossentropy { .. }
        | LossKind::Distance(_) => false,
    }
}

#[test]
fn losses_and_their_gradients_are_keras_s() {
    for kind in kinds() {
        for (rows, outer, classes) in [(4, vec![], 3), (2, vec![3, 2], 5), (2, vec![], 600)] {
            let in_row: usize = outer.iter().product();
            let (samples, count) = (rows * in_row, rows * in_row * classes);
            let prediction =
                if is_of_probabilities(&kind) { positive_noise(count, 1) } else { noise(count, 1) };
            let numbers: Vec<i32> = (0..samples).map(|sample| (sample * 7 % classes) as i32).collect();
            let one_hot = |at: usize| if numbers[at / classes] as usize == at % classes { 1.0 } else { 0.0 };
            let targets: Vec<f32> = (0..count).map(one_hot).collect();
            let weights = positive_noise(rows, 3);
            let rows_total = 2 * rows;
            let share =
                |sample: usize| 0.5 * f64::from(weights[sample / in_row]) / (rows_total * in_row) as f64;
            let values = |p: &[f64]| -> Vec<f64> {
                let samples = p
                    .chunks(classes)
                    .zip(doubles(&targets).chunks(classes).map(<[f64]>::to_vec).collect::<Vec<_>>());
                samples.map(|(p, t)| value(&kind, p, &t)).collect()
            };
            let shares: Vec<f64> = (0..samples).map(share).collect();
            let total: f64 = values(&doubles(&prediction)).iter().zip(&shares).map(|(v, s)| v * s).sum();

            let dims: Vec<usize> = outer.iter().copied().chain([classes]).collect();
            let case = Case::new(Op::Loss(Loss { kind: kind.clone(), weight: 0.5 }), rows)
                .context(|context| context.rows_total = rows_total)
                .input(Shape::rows(dims.clone()), prediction.clone());
            let case = match kind.is_sparse() {
                true => case.input(Shape::rows(outer.clone()), numbers.clone()),
                false => case.input(Shape::rows(dims), targets.clone()),
            };
            let case = case.input(Shape::rows([]), weights.clone()).update(Shape::fixed([1]), vec![1.5]);
            let results = case.run();
            let what = format!("{kind:?} of {classes} classes");
            assert_near(results.updated(0), &[1.5 + total], 1e-6, &what);
            if classes < 100 {
                let gradients = gradient_of(values, &doubles(&prediction), &shares);
                assert_near(results.floats(0), &gradients, 2e-6, &what);
            }
        }
    }
}

#[test]
fn probabilities_at_the_ends_are_clipped_and_have_no_gradient() {
    let kind = LossKind::BinaryCrossentropy { from_logits: false, label_smoothing: 0.0 };
    let case = Case::new(Op::Loss(Loss { kind, weight: 1.0 }), 1)
        .input(Shape::rows([4]), vec![0.0, 1.0, 0.0, 1.0])
        .input(Shape::rows([4]), vec![0.0, 1.0, 1.0, 0.0])
        .update(Shape::fixed([1]), vec![9.0]);
    let results = case.run_overwriting();
    assert_eq!(results.floats(0), [0.0; 4]);
    let (wrong, gap) = (-1e-7f64.ln(), f64::from(1.0f32 - (1.0f32 - 1e-7)));
    assert_near(results.updated(0), &[(wrong - gap.ln() + 2.0 * 1e-7) / 4.0], 1e-6, "loss");
}

#[test]
fn a_class_that_is_not_there_makes_the_loss_nan() {
    for number in [-1, 3, i32::MAX, i32::MIN] {
        for from_logits in [true, false] {
            let kind = LossKind::SparseCategoricalCrossentropy { from_logits };
            let case = Case::new(Op::Loss(Loss { kind, weight: 1.0 }), 2)
                .input(Shape::rows([3]), positive_noise(6, 1))
                .input(Shape::rows([]), vec![1, number])
                .update(Shape::fixed([1]), vec![0.0]);
            let results = case.run();
            assert!(results.updated(0)[0].is_nan());
            assert!(results.floats(0)[..3].iter().all(|gradient| gradient.is_finite()));
            assert!(results.floats(0)[3..].iter().all(|gradient| gradient.is_nan()));
        }
    }
}

#[test]
fn large_logits_stay_finite() {
    for kind in [
        LossKind::SparseCategoricalCrossentropy { from_logits: true },
        LossKind::BinaryCrossentropy { from_logits: true, label_smoothing: 0.0 },
    ] {
        let target = if kind.is_sparse() { Values::I32(vec![0]) } else { Values::F32(vec![1.0, 0.0]) };
        let shape = if kind.is_sparse() { Shape::rows([]) } else { Shape::rows([2]) };
        let case = Case::new(Op::Loss(Loss { kind, weight: 1.0 }), 1)
            .input(Shape::rows([2]), vec![1e4, -1e4])
            .input(shape, target)
            .update(Shape::fixed([1]), vec![0.0]);
        let results = case.run();
        assert_eq!((results.updated(0), results.floats(0)), (&[0.0][..], &[0.0, 0.0][..]));
    }
}

#[test]
fn softmax_and_its_gradient_sum_over_the_last_axis() {
    for (rows, dims) in [(3, vec![4]), (2, vec![3, 1]), (2, vec![2, 33]), (2, vec![1100])] {
        let classes = *dims.last().unwrap();
        let count = rows * dims.iter().product::<usize>();
        let (x, dy) = (noise(count, 1), noise(count, 2));
        let softmax = |x: &[f64]| -> Vec<f64> {
            x.chunks(classes).flat_map(|x| log_softmax(x).into_iter().map(f64::exp)).collect()
        };
        let y = softmax(&doubles(&x));
        let shape = Shape::rows(dims);
        let forward = Case::new(Op::Softmax, rows).input(shape.clone(), x.clone()).run();
        assert_near(forward.floats(0), &y, 1e-6, "softmax");
        let grad =
            Case::new(Op::SoftmaxGrad, rows).input(shape.clone(), dy.clone()).input(shape, forward.floats(0));
        let dx: Vec<f64> = (0..count)
            .map(|at| {
                let group = at / classes * classes..(at / classes + 1) * classes;
                y[at] * (f64::from(dy[at]) - group.map(|at| f64::from(dy[at]) * y[at]).sum::<f64>())
            })
            .collect();
        assert_near(grad.run().floats(0), &dx, 1e-6, "gradient");
    }
    let case = Case::new(Op::Softmax, 1).input(Shape::rows([3]), vec![1.0, f32::NAN, 2.0]);
    assert!(case.run().floats(0).iter().all(|y| y.is_nan()));
}
