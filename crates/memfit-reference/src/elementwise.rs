//! Elementwise work: functions of one and of two elements, and their derivatives.

use memfit_ir::{Binary, Chain, Link, Unary};

use super::call::Call;

/// The result of a chain for every element.
pub(crate) fn forward(call: &Call, chain: &Chain) -> Vec<f64> {
    let of = |index: usize| {
        let mut known: Vec<f64> = (0..chain.inputs).map(|input| call.input(input)[index]).collect();
        for link in &chain.links {
            known.push(match *link {
                Link::Unary(function, a) => unary(function, known[a]),
                Link::Binary(function, a, b) => binary(function, known[a], known[b]),
            });
        }
        known[known.len() - 1]
    };
    (0..call.input(0).len()).map(of).collect()
}

fn unary(function: Unary, x: f64) -> f64 {
    let f = f64::from;
    match function {
        Unary::Relu => positive(x),
        Unary::ReluGeneral { negative_slope, max_value, threshold } => {
            if x >= f(max_value) {
                f(max_value)
            } else if x > f(threshold) {
                x
            } else if negative_slope == 0.0 && x < f(threshold) {
                0.0
            } else {
                f(negative_slope) * (x - f(threshold))
            }
        }
        Unary::LeakyRelu(factor) => {
            if x > 0.0 {
                x
            } else {
                f(factor) * x
            }
        }
        Unary::Elu(alpha) => {
            if x > 0.0 {
                x
            } else {
                f(alpha) * x.exp_m1()
            }
        }
        Unary::Gelu => x * normal_distribution(x),
        Unary::Silu => x * sigmoid(x),
        Unary::Sigmoid => sigmoid(x),
        Unary::Tanh => x.tanh(),
        Unary::Softplus => softplus(x),
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Reciprocal => 1.0 / x,
        Unary::Square => x * x,
        Unary::Abs => x.abs(),
        Unary::Power(power) => x.powf(f(power)),
        Unary::Clip { low, high } => x.clamp(f(low), f(high)),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Scale(factor) => f(factor) * x,
        Unary::Offset(term) => x + f(term),
    }
}

fn binary(function: Binary, a: f64, b: f64) -> f64 {
    match function {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        Binary::Maximum => {
            if a > b || a.is_nan() {
                a
            } else {
                b
            }
        }
        Binary::Minimum => {
            if a < b || a.is_nan() {
                a
            } else {
                b
            }
        }
        Binary::GreaterEqual => f64::from(u8::from(a >= b)),
        Binary::Derivative(of) => {
            let is_constant =
                matches!(of, Unary::Relu | Unary::ReluGeneral { .. } | Unary::Clip { .. } | Unary::Abs)
                    && derivative(of, b) == 0.0;
            // No gradient passes where these are constant, whatever it is.
            if is_constant { 0.0 } else { a * derivative(of, b) }
        }
    }
}

/// The derivative of a function, from its argument or from its value, as [`Unary::saves`] says.
fn derivative(of: Unary, saved: f64) -> f64 {
    let f = f64::from;
    match of {
        Unary::Relu => step(0.0 < saved),
        Unary::ReluGeneral { negative_slope, max_value, threshold } => {
            if saved >= f(max_value) {
                0.0
            } else if saved > f(threshold) {
                1.0
            } else {
                f(negative_slope)
            }
        }
        Unary::LeakyRelu(factor) => {
            if 0.0 < saved {
                1.0
            } else {
                f(factor)
            }
        }
        Unary::Elu(alpha) => {
            if 0.0 < saved {
                1.0
            } else {
                saved + f(alpha)
            }
        }
        Unary::Gelu => normal_distribution(saved) + saved * normal_density(saved),
        Unary::Silu => sigmoid(saved) * (1.0 + saved * (1.0 - sigmoid(saved))),
        Unary::Sigmoid => saved * (1.0 - saved),
        Unary::Tanh => 1.0 - saved * saved,
        Unary::Softplus => 1.0 - (-saved).exp(),
        Unary::Exp => saved,
        Unary::Log => 1.0 / saved,
        Unary::Sqrt => 0.5 / saved,
        Unary::Rsqrt => -0.5 * saved.powi(3),
        Unary::Reciprocal => -saved * saved,
        Unary::Square => 2.0 * saved,
        Unary::Abs => sign(saved),
        Unary::Power(power) => f(power) * saved.powf(f(power) - 1.0),
        Unary::Clip { low, high } => step(!(saved < f(low) || f(high) < saved)),
        Unary::Sin => saved.cos(),
        Unary::Cos => -saved.sin(),
        Unary::Scale(factor) => f(factor),
        Unary::Offset(_) => 1.0,
    }
}

/// What is negative becomes 0; NaN stays.
pub(crate) fn positive(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// −1, 0 or 1; NaN stays.
pub(crate) fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `ln (1 + eˣ)`.
pub(crate) fn softplus(x: f64) -> f64 {
    positive(x) + (-x.abs()).exp().ln_1p()
}

/// 1 where a condition holds, else 0.
pub(crate) fn step(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// The share of normal deviates below `x`.
fn normal_distribution(x: f64) -> f64 {
    0.5 * (1.0 + error_function(x / std::f64::consts::SQRT_2))
}

fn normal_density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt()
}

/// The error function: by its Taylor series, and far from 0 by the continued fraction of what it lacks to 1.
fn error_function(x: f64) -> f64 {
    if x.abs() < 3.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..100 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let size = x.abs();
    let fraction = (1..100).rev().fold(size, |below, n| size + 0.5 * f64::from(n) / below);
    let rest = (-size * size).exp() / (fraction * std::f64::consts::PI.sqrt());
    x.signum() * (1.0 - rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_has_its_known_values() {
        for (x, wanted) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (2.5, 0.999_593_047_982_555),
            (3.5, 0.999_999_256_901_627_7),
            (-4.0, -0.999_999_984_582_742_1),
            (30.0, 1.0),
        ] {
            assert!((error_function(x) - wanted).abs() < 1e-13, "{x}: {}", error_function(x));
        }
        let across = [2.999_999_999, 3.0].map(error_function);
        assert!((across[0] - across[1]).abs() < 1e-11, "{across:?}");
    }

    #[test]
    fn derivatives_are_those_of_the_functions() {
        let relu = Unary::ReluGeneral { negative_slope: 0.1, max_value: 1.0, threshold: 0.25 };
        let functions = [
            Unary::Relu,
            relu,
            Unary::LeakyRelu(0.2),
            Unary::Elu(1.3),
            Unary::Gelu,
            Unary::Silu,
            Unary::Sigmoid,
            Unary::Tanh,
            Unary::Softplus,
            Unary::Exp,
            Unary::Log,
            Unary::Sqrt,
            Unary::Rsqrt,
            Unary::Reciprocal,
            Unary::Square,
            Unary::Abs,
            Unary::Power(1.7),
            Unary::Clip { low: 0.2, high: 0.6 },
            Unary::Sin,
            Unary::Cos,
            Unary::Scale(3.0),
            Unary::Offset(2.0),
        ];
        for function in functions {
            for x in [-1.3, -0.4, 0.1, 0.5, 0.9, 1.7, 3.1] {
                let wanted = (unary(function, x + 1e-6) - unary(function, x - 1e-6)) / 2e-6;
                let saved = match function.saves() {
                    memfit_ir::Saves::Output => unary(function, x),
                    memfit_ir::Saves::Input | memfit_ir::Saves::Nothing => x,
                };
                let gap = (derivative(function, saved) - wanted).abs();
                assert!(wanted.is_nan() || gap < 1e-7 * (1.0 + wanted.abs()), "{function:?} at {x}");
            }
        }
    }
}
