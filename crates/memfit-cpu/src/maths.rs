//! Functions of one float, without branches, so that loops over them become vector code.
//!
//! Each is within a few units in the last place of the exact value, and what is not a number stays so.

use std::f32::consts::{LN_2, LOG2_E};

/// `eˣ`, by `2ⁿ eʳ` with `r` within half of ln 2.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Beyond these the result is 0 or infinite; comparisons let NaN pass.
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    // Adding and subtracting 1.5 · 2²³ rounds to a whole number, which then stands in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x * LOG2_E + ROUND;
    let whole = shifted - ROUND;
    // ln 2 in two parts, of which the first has few enough bits for exact products.
    let r = x - whole * 0.693_359_4 - whole * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let e = p * r * r + r + 1.0;
    // Two factors, since 2ⁿ alone can lie outside the normal numbers.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let half = n >> 1;
    e * power_of_two(half) * power_of_two(n - half)
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// The natural logarithm of a positive, normal number.
#[inline(always)]
pub(crate) fn ln(x: f32) -> f32 {
    // x = 2ⁿ m with m within a factor of √2 around 1.
    const OFFSET: u32 = 0x3F80_0000 - 0x3F35_04F3;
    let shifted = x.to_bits().wrapping_add(OFFSET);
    let n = (shifted >> 23) as i32 - 127;
    let m = f32::from_bits((shifted & 0x007F_FFFF) + 0x3F35_04F3);
    let s = (m - 1.0) / (m + 1.0);
    let value = twice_atanh(s) + n as f32 * LN_2;
    if x.is_nan() { x } else { value }
}

/// `ln(1 + u)` for `u` from 0 to 1.
#[inline(always)]
pub(crate) fn ln_1p(u: f32) -> f32 {
    twice_atanh(u / (2.0 + u))
}

/// `2 artanh(s) = ln((1 + s) / (1 − s))` for `s` up to a third.
#[inline(always)]
fn twice_atanh(s: f32) -> f32 {
    let z = s * s;
    let mut p = 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    2.0 * s + 2.0 * s * z * p
}

/// `1 / (1 + e⁻ˣ)`.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let z = x * x;
    let mut p = -5.704_988_7e-3;
    p = p * z + 2.063_909e-2;
    p = p * z - 5.373_971_6e-2;
    p = p * z + 1.333_144_2e-1;
    p = p * z - 3.333_328e-1;
    let near = p * z * x + x;
    let far = (1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0)).copysign(x);
    if x.abs() < 0.625 { near } else { far }
}

/// `ln(1 + eˣ)`.
#[inline(always)]
pub(crate) fn softplus(x: f32) -> f32 {
    let positive = if x < 0.0 { 0.0 } else { x };
    positive + ln_1p(exp(-x.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest relative error over evenly spaced arguments.
    fn error(function: fn(f32) -> f32, exact: fn(f64) -> f64, low: f32, high: f32) -> f64 {
        const COUNT: usize = 20_001;
        let argument = |i: usize| low + (high - low) * (i as f32 / (COUNT - 1) as f32);
        let error = |x: f32| (f64::from(function(x)) / exact(f64::from(x)) - 1.0).abs();
        (0..COUNT).map(argument).filter(|x| *x != 0.0).map(error).fold(0.0, f64::max)
    }

    #[test]
    fn functions_are_exact_to_a_few_last_places() {
        for (name, error) in [
            ("exp", error(exp, f64::exp, -87.0, 88.7)),
            ("ln", error(ln, f64::ln, 1e-7, 1.1)),
            ("ln of large numbers", error(ln, f64::ln, 2.0, 1e30)),
            ("ln_1p", error(ln_1p, f64::ln_1p, 0.0, 1.0)),
            ("sigmoid", error(sigmoid, |x| 1.0 / (1.0 + (-x).exp()), -80.0, 80.0)),
            ("tanh", error(tanh, f64::tanh, -12.0, 12.0)),
            ("softplus", error(softplus, |x| if x > 30.0 { x } else { x.exp().ln_1p() }, -80.0, 80.0)),
        ] {
            assert!(error < 8e-7, "{name}: {error}");
        }
    }

    #[test]
    fn powers_end_in_zero_and_infinity() {
        assert_eq!(
            [-f32::INFINITY, -200.0, 0.0, 89.0, f32::INFINITY].map(exp),
            [0.0, 0.0, 1.0, f32::INFINITY, f32::INFINITY]
        );
        assert!(exp(f32::NAN).is_nan() && ln(f32::NAN).is_nan());
        assert!(0.0 < exp(-103.0) && exp(88.7).is_finite());
    }
}
