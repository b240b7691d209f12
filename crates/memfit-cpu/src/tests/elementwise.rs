//! Elementwise work: chains, bits and dropout.

use memfit_ir::{Binary, Chain, DType, Link, Op, Saves, Shape, Unary, random};

use super::{Case, Values, assert_near, doubles, gradient_of, noise};

const UNARIES: [Unary; 17] = [
    Unary::Relu,
    Unary::ReluGeneral { negative_slope: 0.1, max_value: 1.5, threshold: 0.3 },
    Unary::ReluGeneral { negative_slope: 0.0, max_value: f32::INFINITY, threshold: 0.0 },
    Unary::LeakyRelu(0.2),
    Unary::Elu(1.3),
    Unary::Gelu,
    Unary::Silu,
    Unary::Sigmoid,
    Unary::Tanh,
    Unary::Softplus,
    Unary::Scale(-0.7),
    Unary::Offset(0.4),
    Unary::Square,
    Unary::Abs,
    Unary::Clip { low: -0.5, high: 0.8 },
    Unary::Sin,
    Unary::Cos,
];

unsafe extern "C" {
    safe fn erf(x: f64) -> f64;
}

fn unary(function: Unary, x: f64) -> f64 {
    match function {
        Unary::Relu => x.max(0.0),
        Unary::ReluGeneral { negative_slope, max_value, threshold } => {
            let (alpha, most, threshold) =
                (f64::from(negative_slope), f64::from(max_value), f64::from(threshold));
            if x >= most {
                most
            } else if x >= threshold {
                x
            } else {
                alpha * (x - threshold)
            }
        }
        Unary::LeakyRelu(alpha) => {
            if x > 0.0 {
                x
            } else {
                f64::from(alpha) * x
            }
        }
        Unary::Elu(alpha) => {
            if x > 0.0 {
                x
            } else {
                f64::from(alpha) * x.exp_m1()
            }
        }
        Unary::Gelu => x * 0.5 * (1.0 + erf(x / std::f64::consts::SQRT_2)),
        Unary::Silu => x / (1.0 + (-x).exp()),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Tanh => x.tanh(),
        Unary::Softplus => {
            if x > 30.0 {
                x
            } else {
                x.exp().ln_1p()
            }
        }
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Reciprocal => 1.0 / x,
        Unary::Square => x * x,
        Unary::Abs => x.abs(),
        Unary::Power(power) => x.powf(f64::from(power)),
        Unary::Clip { low, high } => x.clamp(f64::from(low), f64::from(high)),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Scale(factor) => f64::from(factor) * x,
        Unary::Offset(term) => x + f64::from(term),
    }
}

/// Values around 0, far from it, and plenty of them.
fn wide(count: usize) -> Vec<f32> {
    let special = [0.0, 1e-30, -1e-30, 1e-4, -1e-4, 5.0, -5.0, 20.0, -20.0, 80.0, -80.0];
    special.into_iter().chain(noise(count, 1).into_iter().map(|x| 3.0 * x)).take(count).collect()
}

#[test]
fn functions_are_those_of_double_precision() {
    for function in UNARIES {
        let x = wide(3 * 700);
        let y: Vec<f64> = x.iter().map(|x| unary(function, f64::from(*x))).collect();
        let case = Case::new(Op::Elementwise(Chain::unary(function)), 3).input(Shape::rows([700]), x);
        assert_near(case.run().floats(0), &y, 3e-7, &format!("{function:?}"));
    }
}

#[test]
fn derivatives_are_those_of_double_precision() {
    for function in UNARIES {
        let (x, dy) = (noise(600, 1), noise(600, 2));
        let forward = |x: &[f64]| x.iter().map(|x| unary(function, *x)).collect::<Vec<_>>();
        let saved: Vec<f32> = match function.saves() {
            Saves::Output => forward(&doubles(&x)).into_iter().map(|y| y as f32).collect(),
            Saves::Input | Saves::Nothing => x.clone(),
        };
        let dx: Vec<f64> = x
            .iter()
            .zip(&dy)
            .map(|(x, dy)| gradient_of(forward, &[f64::from(*x)], &[f64::from(*dy)])[0])
            .collect();
        let case = Case::new(Op::Elementwise(Chain::binary(Binary::Derivative(function))), 2)
            .input(Shape::rows([300]), dy)
            .input(Shape::rows([300]), saved);
        assert_near(case.run().floats(0), &dx, 2e-6, &format!("{function:?}"));
    }
}

#[test]
fn chains_run_link_by_link() {
    let links = vec![
        Link::Binary(Binary::Add, 0, 2),
        Link::Unary(Unary::Scale(0.5), 3),
        Link::Binary(Binary::Multiply, 4, 4),
        Link::Binary(Binary::Maximum, 5, 1),
        Link::Binary(Binary::GreaterEqual, 6, 0),
        Link::Binary(Binary::Subtract, 6, 7),
    ];
    let chain = Chain { inputs: 3, links };
    for (rows, width) in [(1, 1), (3, 511), (2, 40_000)] {
        let [a, b, c] = [1, 2, 3].map(|seed| noise(rows * width, seed));
        let y: Vec<f64> = (0..a.len())
            .map(|i| {
                let (a, b, c) = (f64::from(a[i]), f64::from(b[i]), f64::from(c[i]));
                let most = (0.25 * (a + c) * (a + c)).max(b);
                most - if most >= a { 1.0 } else { 0.0 }
            })
            .collect();
        let shape = Shape::rows([width]);
        let case = Case::new(Op::Elementwise(chain.clone()), rows)
            .input(shape.clone(), a)
            .input(shape.clone(), b)
            .input(shape, c);
        assert_near(case.run().floats(0), &y, 1e-6, "chain");
    }
}

#[test]
fn what_is_not_a_number_stays_so() {
    let shape = Shape::rows([1]);
    for function in UNARIES {
        let case = Case::new(Op::Elementwise(Chain::unary(function)), 1).input(shape.clone(), vec![f32::NAN]);
        assert!(case.run().floats(0)[0].is_nan(), "{function:?}");
    }
    for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
        let case = Case::new(Op::Elementwise(Chain::binary(Binary::Maximum)), 1)
            .input(shape.clone(), vec![a])
            .input(shape.clone(), vec![b]);
        assert!(case.run().floats(0)[0].is_nan());
    }
}

#[test]
fn infinities_saturate() {
    for (function, low, high) in [
        (Unary::Relu, 0.0, f32::INFINITY),
        (Unary::ReluGeneral { negative_slope: 0.0, max_value: 6.0, threshold: 0.0 }, 0.0, 6.0),
        (Unary::Sigmoid, 0.0, 1.0),
        (Unary::Tanh, -1.0, 1.0),
        (Unary::Softplus, 0.0, f32::INFINITY),
        (Unary::Elu(1.0), -1.0, f32::INFINITY),
    ] {
        let case = Case::new(Op::Elementwise(Chain::unary(function)), 1)
            .input(Shape::rows([2]), vec![f32::NEG_INFINITY, f32::INFINITY]);
        assert_eq!(case.run().floats(0), [low, high], "{function:?}");
    }
}

#[test]
fn bits_mask_what_was_not_positive() {
    for (rows, width) in [(1, 1), (3, 7), (2, 8), (5, 9), (2, 50_001)] {
        let (y, dy) = (noise(rows * width, 1), noise(rows * width, 2));
        let bytes = width.div_ceil(8);
        let mut bits = vec![0u8; rows * bytes];
        for at in (0..y.len()).filter(|at| y[*at] > 0.0) {
            bits[at / width * bytes + at % width / 8] |= 1 << (at % width % 8);
        }
        let signs = Case::new(Op::SignBits { below: f32::INFINITY }, rows)
            .input(Shape::rows([width]), y.clone())
            .run();
        assert_eq!(signs.outputs, [Values::U8(bits.clone())]);
        let masked = Case::new(Op::MaskBits, rows)
            .input(Shape::rows([width]), dy.clone())
            .input(Shape::rows([bytes]), bits)
            .run();
        let dx: Vec<f32> = y.iter().zip(&dy).map(|(y, dy)| if *y > 0.0 { *dy } else { 0.0 }).collect();
        assert_eq!(masked.floats(0), dx);
    }
}

#[test]
fn dropout_draws_by_place_in_the_batch() {
    let (rate, seed, width, rows) = (0.4, 9, 1000, 20);
    let x = noise(rows * width, 1);
    let case = |start: usize, rows: usize| {
        Case::new(Op::Dropout { rate, seed }, rows)
            .input(Shape::rows([width]), x[start * width..(start + rows) * width].to_vec())
            .context(|context| context.row_start = start)
    };
    let whole = case(0, rows).run();
    let drawn = random::derive(random::derive(11, seed), 3);
    for (at, y) in whole.floats(0).iter().enumerate() {
        let kept = random::unit(drawn, at as u64) >= rate;
        assert_eq!(*y, if kept { x[at] * (1.0 / (1.0 - rate)) } else { 0.0 });
    }
    let share = whole.floats(0).iter().filter(|y| **y != 0.0).count() as f64 / x.len() as f64;
    assert!((share - 0.6).abs() < 0.02, "{share}");
    let parts: Vec<f32> = [(0, 7), (7, 13)]
        .iter()
        .flat_map(|(start, rows)| case(*start, *rows).run().floats(0).to_vec())
        .collect();
    assert_eq!(parts, whole.floats(0), "a split batch draws the same");
}

#[test]
fn zeros_and_other_shapes_are_bytes() {
    for (dtype, expected) in [
        (DType::F32, Values::F32(vec![0.0; 6])),
        (DType::I32, Values::I32(vec![0; 6])),
        (DType::U8, Values::U8(vec![0; 6])),
    ] {
        assert_eq!(Case::new(Op::Zero, 2).output(Shape::fixed([6]), dtype).run().outputs, [expected]);
    }
    let values =
        [Values::F32(noise(120_000, 1)), Values::I32((0..120_000).collect()), Values::U8(vec![7; 120_000])];
    for values in values {
        let case = Case::new(Op::Reshape(vec![3, 20_000]), 2).input(Shape::rows([60_000]), values.clone());
        assert_eq!(case.run().outputs, [values]);
    }
}
