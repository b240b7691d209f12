//! Optimizers against Keras's formulas in double precision.

use memfit_ir::{Clip, Op, Shape, Update, UpdateRule};

use super::{Case, assert_near, doubles, noise, positive_noise};

const LEARNING_RATE: f64 = 0.1f32 as f64;

/// One weight and its state after a step; `g` was clipped already.
fn step(rule: &UpdateRule, w: f64, g: f64, state: &[f64]) -> Vec<f64> {
    match *rule {
        UpdateRule::Sgd { momentum, nesterov } => {
            let momentum = f64::from(momentum);
            if momentum == 0.0 {
                return vec![w - LEARNING_RATE * g];
            }
            let v = momentum * state[0] - LEARNING_RATE * g;
            vec![w + if nesterov { momentum * v - LEARNING_RATE * g } else { v }, v]
        }
        UpdateRule::Adam { beta_1, beta_2, epsilon, amsgrad } => {
            let (beta_1, beta_2, steps) = (f64::from(beta_1), f64::from(beta_2), 4);
            let alpha = LEARNING_RATE * (1.0 - beta_2.powi(steps)).sqrt() / (1.0 - beta_1.powi(steps));
            let m = state[0] + (g - state[0]) * (1.0 - beta_1);
            let v = state[1] + (g * g - state[1]) * (1.0 - beta_2);
            let most = if amsgrad { state[2].max(v) } else { v };
            let w = w - m * alpha / (most.sqrt() + f64::from(epsilon));
            if amsgrad { vec![w, m, v, most] } else { vec![w, m, v] }
        }
        UpdateRule::Rmsprop { rho, momentum, epsilon, centered } => {
            let (rho, momentum, epsilon) = (f64::from(rho), f64::from(momentum), f64::from(epsilon));
            let v = rho * state[0] + (1.0 - rho) * g * g;
            let average = state.last().map(|average| rho * average + (1.0 - rho) * g).filter(|_| centered);
            let increment = LEARNING_RATE * g / (v - average.map_or(0.0, |a| a * a) + epsilon).sqrt();
            let velocity = (momentum != 0.0).then(|| momentum * state[1] + increment);
            let w = w - velocity.unwrap_or(increment);
            [Some(w), Some(v), velocity, average].into_iter().flatten().collect()
        }
        UpdateRule::Adagrad { epsilon, .. } => {
            let sum = state[0] + g * g;
            vec![w - LEARNING_RATE * g / (sum + f64::from(epsilon)).sqrt(), sum]
        }
        UpdateRule::Adadelta { rho, epsilon } => {
            let (rho, epsilon) = (f64::from(rho), f64::from(epsilon));
            let squares = rho * state[0] + (1.0 - rho) * g * g;
            let change = -g * (state[1] + epsilon).sqrt() / (squares + epsilon).sqrt();
            vec![w + LEARNING_RATE * change, squares, rho * state[1] + (1.0 - rho) * change * change]
        }
        UpdateRule::Adamax { beta_1, beta_2, epsilon } => {
            let beta_1 = f64::from(beta_1);
            let m = state[0] + (g - state[0]) * (1.0 - beta_1);
            let most = (f64::from(beta_2) * state[1]).max(g.abs());
            let w = w - LEARNING_RATE * m / ((1.0 - beta_1.powi(4)) * (most + f64::from(epsilon)));
            vec![w, m, most]
        }
        UpdateRule::Lion { beta_1, beta_2 } => {
            let (beta_1, beta_2) = (f64::from(beta_1), f64::from(beta_2));
            let along = state[0] * beta_1 + g * (1.0 - beta_1);
            vec![w - LEARNING_RATE * along.signum(), state[0] * beta_2 + g * (1.0 - beta_2)]
        }
        UpdateRule::Nadam { .. }
        | UpdateRule::Ftrl { .. }
        | UpdateRule::Adafactor { .. }
        | UpdateRule::Lamb { .. } => unreachable!("held against Keras's own steps alone"),
    }
}

pub(super) fn rules() -> Vec<UpdateRule> {
    let mut rules = vec![
        UpdateRule::Sgd { momentum: 0.0, nesterov: false },
        UpdateRule::Adagrad { initial_accumulator_value: 0.1, epsilon: 1e-7 },
        UpdateRule::Adadelta { rho: 0.95, epsilon: 1e-3 },
        UpdateRule::Adamax { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7 },
        UpdateRule::Lion { beta_1: 0.9, beta_2: 0.99 },
    ];
    for flag in [false, true] {
        rules.push(UpdateRule::Sgd { momentum: 0.9, nesterov: flag });
        rules.push(UpdateRule::Adam { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7, amsgrad: flag });
        for momentum in [0.0, 0.8] {
            rules.push(UpdateRule::Rmsprop { rho: 0.9, momentum, epsilon: 1e-2, centered: flag });
        }
    }
    rules
}

#[test]
fn updates_are_keras_s() {
    let norm_squared = 9.0f32;
    for rule in rules() {
        for (clip, weight_decay) in [
            (Clip::None, 0.0),
            (Clip::None, 0.3),
            (Clip::Value(0.5), 0.0),
            (Clip::Norm(2.0), 0.01),
            (Clip::Norm(4.0), 0.0),
        ] {
            for count in [1, 50_000] {
                let (w, g) = (noise(count, 1), noise(count, 2));
                // Means of squares are not negative, and those about a mean not smaller than its square.
                let states: Vec<Vec<f32>> = (0..rule.state(&[count]).len())
                    .map(|index| {
                        positive_noise(count, 3 + index as u64)
                            .iter()
                            .map(|s| if index == 0 { *s } else { 0.05 * s })
                            .collect()
                    })
                    .collect();
                let clipped = |g: f64| match clip {
                    Clip::None => g,
                    Clip::Value(limit) => g.clamp(-f64::from(limit), f64::from(limit)),
                    Clip::Norm(limit) => g * f64::from(limit) / f64::from(norm_squared.sqrt().max(limit)),
                };
                let shape = Shape::fixed([count]);
                let case =
                    Case::new(Op::Update(Update { clip, weight_decay, ..Update::new(rule.clone()) }), 1)
                        .input(shape.clone(), g.clone());
                let case = match clip {
                    Clip::Norm(_) => case.input(Shape::fixed([1]), vec![norm_squared]),
                    Clip::None | Clip::Value(_) => case,
                };
                let mut case = case.update(shape.clone(), w.clone());
                for state in &states {
                    case = case.update(shape.clone(), state.clone());
                }
                let results = case.run();
                let expected: Vec<Vec<f64>> = (0..count)
                    .map(|i| {
                        let w = f64::from(w[i]) * (1.0 - LEARNING_RATE * f64::from(weight_decay));
                        let state: Vec<f64> = states.iter().map(|state| f64::from(state[i])).collect();
                        step(&rule, w, clipped(f64::from(g[i])), &state)
                    })
                    .collect();
                for index in 0..=states.len() {
                    let expected: Vec<f64> = expected.iter().map(|values| values[index]).collect();
                    let what = format!("{rule:?}, {clip:?}, operand {index}");
                    assert_near(results.updated(index), &expected, 3e-6, &what);
                }
            }
        }
    }
}

#[test]
fn squares_are_summed() {
    for count in [1, 100, 300_001] {
        let g = noise(count, 1);
        let total: f64 = doubles(&g).iter().map(|g| g * g).sum();
        let case =
            Case::new(Op::SumSquares, 1).input(Shape::fixed([count]), g).update(Shape::fixed([1]), vec![3.0]);
        assert_near(case.run().updated(0), &[3.0 + total], 1e-7, "added");
        assert_near(case.run_overwriting().updated(0), &[total], 1e-7, "overwritten");
    }
}

#[test]
fn found_inf_is_the_first_gradient_that_is_not_finite() {
    let found_inf = |number: usize, gradient: Vec<f32>, before: f32| {
        let shape = Shape::fixed([gradient.len()]);
        let case = Case::new(Op::CheckFinite(number), 1).input(shape, gradient);
        case.update(Shape::fixed([1]), vec![before]).run().updated(0)[0]
    };
    let mut spoiled = noise(100_000, 1);
    assert_eq!(found_inf(3, spoiled.clone(), 0.0), 0.0);
    spoiled[77_777] = f32::NAN;
    assert_eq!(found_inf(3, spoiled.clone(), 0.0), 3.0);
    assert_eq!(found_inf(3, spoiled.clone(), 2.0), 2.0);
    assert_eq!(found_inf(3, vec![f32::NEG_INFINITY], 5.0), 3.0);
    let overwritten = Case::new(Op::CheckFinite(3), 1).input(Shape::fixed([1]), vec![1.0f32]);
    assert_eq!(overwritten.update(Shape::fixed([1]), vec![9.0f32]).run_overwriting().updated(0)[0], 0.0);
}

#[test]
fn a_guarded_update_takes_the_scale_back_or_touches_nothing() {
    let rule = UpdateRule::Adam { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7, amsgrad: false };
    let shape = Shape::fixed([1000]);
    let (w, g) = (noise(1000, 1), noise(1000, 2));
    for clip in [Clip::None, Clip::Value(0.5), Clip::Norm(2.0)] {
        let run = |scale: f32, found_inf: f32| {
            let update = Update { clip, weight_decay: 0.01, guarded: true, ..Update::new(rule.clone()) };
            let scaled: Vec<f32> = g.iter().map(|g| g * scale).collect();
            let squares: f32 = 25.0 * scale * scale;
            let mut case = Case::new(Op::Update(update), 1).input(shape.clone(), scaled);
            if let Clip::Norm(_) = clip {
                case = case.input(Shape::fixed([1]), vec![squares]);
            }
            case = case.input(Shape::fixed([1]), vec![found_inf]);
            for values in [w.clone(), positive_noise(1000, 3), positive_noise(1000, 4)] {
                case = case.update(shape.clone(), values);
            }
            case.context(|context| context.loss_scale = scale).run()
        };
        assert_eq!(run(1.0, 0.0), run(32768.0, 0.0), "{clip:?}");
        let skipped = run(32768.0, 4.0);
        assert_eq!(skipped.updated(0), w);
        assert_eq!(skipped.updated(1), positive_noise(1000, 3));
    }
}
