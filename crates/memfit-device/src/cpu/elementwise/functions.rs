//! The functions of a chain and their derivatives. What is not a number stays so.

use memfit_ir::{Binary, Unary};

use super::super::lanes::{Lanes, load, store};
use super::super::maths::{exp_m1, ln, softplus, tanh};
use super::super::vector_maths;

/// A loop over elements. No function takes a closure here: those would at times be compiled apart, without the machine's
/// vectors.
macro_rules! map {
    ($x:expr, $to:expr, |$element:ident| $value:expr) => {
        for (to, x) in $to.iter_mut().zip($x) {
            let $element = *x;
            *to = $value;
        }
    };
}

/// The same over pairs of elements.
macro_rules! zip {
    ($a:expr, $b:expr, $to:expr, |$first:ident, $second:ident| $value:expr) => {
        for ((to, a), b) in $to.iter_mut().zip($a).zip($b) {
            let ($first, $second) = (*a, *b);
            *to = $value;
        }
    };
}

/// A loop over vectors of the named slices, for what compilers do badly.
macro_rules! vectors {
    ($lanes:ident, $to:expr, |$($x:ident),+| $value:expr) => {{
        let length = $to.len();
        assert!($($x.len() == length)&&+, "operands have as many elements");
        let mut at = 0;
        while at < length {
            let count = $lanes::COUNT.min(length - at);
            // SAFETY: so many elements are left in all of them.
            $(let $x: $lanes = unsafe { load($x.as_ptr().add(at), count) };)+
            // SAFETY: as above.
            unsafe { store($value, $to.as_mut_ptr().add(at), count) };
            at += $lanes::COUNT;
        }
    }};
}

/// A function of every element.
#[inline(always)]
pub(super) fn unary<L: Lanes>(function: Unary, x: &[f32], to: &mut [f32]) {
    match function {
        Unary::Relu => vectors!(L, to, |x| x.at_least(L::splat(0.0))),
        Unary::ReluGeneral { negative_slope, max_value, threshold } => map!(x, to, |x| {
            // Without a slope even what is infinitely far below is 0.
            let flat = negative_slope == 0.0 && x < threshold;
            let below = if flat { 0.0 } else { negative_slope * (x - threshold) };
            let inside = if x > threshold { x } else { below };
            if x >= max_value { max_value } else { inside }
        }),
        Unary::LeakyRelu(slope) => map!(x, to, |x| if x > 0.0 { x } else { slope * x }),
        Unary::Elu(alpha) => map!(x, to, |x| if x > 0.0 { x } else { alpha * exp_m1(x) }),
        Unary::Gelu => vectors!(L, to, |x| x.mul(vector_maths::normal_distribution(x))),
        Unary::Silu => vectors!(L, to, |x| x.mul(vector_maths::sigmoid(x))),
        Unary::Sigmoid => vectors!(L, to, |x| vector_maths::sigmoid(x)),
        Unary::Tanh => map!(x, to, |x| tanh(x)),
        Unary::Softplus => map!(x, to, |x| softplus(x)),
        Unary::Exp => vectors!(L, to, |x| vector_maths::exp(x)),
        Unary::Log => map!(x, to, |x| logarithm(x)),
        Unary::Sqrt => map!(x, to, |x| x.sqrt()),
        Unary::Rsqrt => map!(x, to, |x| 1.0 / x.sqrt()),
        Unary::Reciprocal => map!(x, to, |x| 1.0 / x),
        Unary::Square => map!(x, to, |x| x * x),
        Unary::Abs => map!(x, to, |x| x.abs()),
        Unary::Power(power) => map!(x, to, |x| x.powf(power)),
        Unary::Clip { low, high } => map!(x, to, |x| clip(x, low, high)),
        Unary::Sin => map!(x, to, |x| x.sin()),
        Unary::Cos => map!(x, to, |x| x.cos()),
        Unary::Scale(factor) => map!(x, to, |x| factor * x),
        Unary::Offset(term) => map!(x, to, |x| x + term),
    }
}

/// A function of every pair of elements.
#[inline(always)]
pub(super) fn binary<L: Lanes>(function: Binary, a: &[f32], b: &[f32], to: &mut [f32]) {
    match function {
        Binary::Add => zip!(a, b, to, |a, b| a + b),
        Binary::Subtract => zip!(a, b, to, |a, b| a - b),
        Binary::Multiply => zip!(a, b, to, |a, b| a * b),
        Binary::Divide => zip!(a, b, to, |a, b| a / b),
        Binary::Minimum => zip!(a, b, to, |a, b| if a < b || a.is_nan() { a } else { b }),
        Binary::Maximum => zip!(a, b, to, |a, b| if a > b || a.is_nan() { a } else { b }),
        Binary::GreaterEqual => zip!(a, b, to, |a, b| if a >= b { 1.0 } else { 0.0 }),
        Binary::Derivative(of) => derivative::<L>(of, a, b, to),
    }
}

/// `dy f′`, from the input `x` or the output `y` of the function, as `Unary::saves` says.
#[inline(always)]
fn derivative<L: Lanes>(of: Unary, dy: &[f32], saved: &[f32], to: &mut [f32]) {
    match of {
        Unary::Relu => vectors!(L, to, |dy, saved| {
            // Whether 0 lies below.
            dy.keep(L::splat(0.0).between(L::splat(f32::NEG_INFINITY), saved))
        }),
        Unary::ReluGeneral { negative_slope, max_value, threshold } => zip!(dy, saved, to, |dy, x| {
            let inside = if x > threshold { dy } else { negative_slope * dy };
            if x >= max_value { 0.0 } else { inside }
        }),
        Unary::LeakyRelu(slope) => zip!(dy, saved, to, |dy, y| if y > 0.0 { dy } else { slope * dy }),
        Unary::Elu(alpha) => zip!(dy, saved, to, |dy, y| if y > 0.0 { dy } else { dy * (y + alpha) }),
        Unary::Gelu => vectors!(L, to, |dy, saved| {
            let density = vector_maths::normal_density(saved);
            dy.mul(saved.mul_add(density, vector_maths::normal_distribution(saved)))
        }),
        Unary::Silu => vectors!(L, to, |dy, saved| {
            let (s, one) = (vector_maths::sigmoid(saved), L::splat(1.0));
            dy.mul(s).mul(saved.mul_add(one.sub(s), one))
        }),
        Unary::Sigmoid => zip!(dy, saved, to, |dy, y| dy * y * (1.0 - y)),
        Unary::Tanh => zip!(dy, saved, to, |dy, y| dy * (1.0 - y * y)),
        Unary::Softplus => zip!(dy, saved, to, |dy, y| dy * -exp_m1(-y)),
        Unary::Exp => zip!(dy, saved, to, |dy, y| dy * y),
        Unary::Log => zip!(dy, saved, to, |dy, x| dy / x),
        Unary::Sqrt => zip!(dy, saved, to, |dy, y| 0.5 * dy / y),
        Unary::Rsqrt => zip!(dy, saved, to, |dy, y| -0.5 * dy * y * y * y),
        Unary::Reciprocal => zip!(dy, saved, to, |dy, y| -dy * y * y),
        Unary::Square => zip!(dy, saved, to, |dy, x| 2.0 * dy * x),
        Unary::Abs => zip!(dy, saved, to, |dy, x| if x == 0.0 { 0.0 } else { dy * x.signum() }),
        Unary::Power(power) => zip!(dy, saved, to, |dy, x| dy * power * x.powf(power - 1.0)),
        Unary::Clip { low, high } => {
            zip!(dy, saved, to, |dy, x| if x < low || high < x { 0.0 } else { dy });
        }
        Unary::Sin => zip!(dy, saved, to, |dy, x| dy * x.cos()),
        Unary::Cos => zip!(dy, saved, to, |dy, x| -dy * x.sin()),
        Unary::Scale(factor) => map!(dy, to, |dy| factor * dy),
        Unary::Offset(_) => to.copy_from_slice(dy),
    }
}

/// The natural logarithm of any number: `ln` knows positive, normal ones.
#[inline(always)]
fn logarithm(x: f32) -> f32 {
    let value = ln(x);
    let outside = if x == 0.0 { f32::NEG_INFINITY } else { f32::NAN };
    let tiny = x > 0.0 && x < f32::MIN_POSITIVE;
    let value = if tiny { ln(x * 8_388_608.0) - 15.942_385 } else { value };
    let value = if x == f32::INFINITY { x } else { value };
    if x > 0.0 { value } else { outside }
}

#[inline(always)]
fn clip(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}
