//! Functions whose loops are the hottest, over whole vectors, with products that are rounded once where the
//! machine can.

use std::f32::consts::{FRAC_1_SQRT_2, LOG2_E, SQRT_2};

use super::lanes::Lanes;

/// `eˣ`, as in `maths`.
#[inline(always)]
pub(crate) fn exp<L: Lanes>(x: L) -> L {
    const ROUND: f32 = 12_582_912.0;
    // Beyond these the result is 0 or infinite.
    let x = x.at_least(L::splat(-104.0)).at_most(L::splat(89.0));
    let whole = x.mul_add(L::splat(LOG2_E), L::splat(ROUND)).sub(L::splat(ROUND));
    let r = whole.mul_add(L::splat(-0.693_359_4), x);
    let r = whole.mul_add(L::splat(2.121_944_4e-4), r);
    let p =
        polynomial(r, [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5]);
    p.mul(r).mul_add(r, r).add(L::splat(1.0)).times_power_of_two(whole)
}

/// `1 / (1 + e⁻ˣ)`.
#[inline(always)]
pub(crate) fn sigmoid<L: Lanes>(x: L) -> L {
    L::splat(1.0).div(exp(L::splat(0.0).sub(x)).add(L::splat(1.0)))
}

/// Hyperbolic tangent, as in `maths`.
#[inline(always)]
pub(crate) fn tanh<L: Lanes>(x: L) -> L {
    let (zero, one) = (L::splat(0.0), L::splat(1.0));
    let size = x.at_least(zero.sub(x));
    let far = one.sub(L::splat(2.0).div(exp(size.add(size)).add(one)));
    let far = zero.sub(far).or_where(x.beats(zero), far);
    tanh_near(x).or_where(size.beats(L::splat(0.625)), far)
}

/// The same below 0.625.
#[inline(always)]
fn tanh_near<L: Lanes>(x: L) -> L {
    let z = x.mul(x);
    let p = polynomial(z, [-5.704_988_7e-3, 2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1]);
    p.mul(z).mul_add(x, x)
}

/// `eˣ − 1`.
#[inline(always)]
pub(crate) fn exp_m1<L: Lanes>(x: L) -> L {
    let one = L::splat(1.0);
    let t = tanh_near(x.mul(L::splat(0.5)));
    let size = x.at_least(L::splat(0.0).sub(x));
    t.add(t).div(one.sub(t)).or_where(size.beats(one), exp(x).sub(one))
}

/// `ln(1 + eˣ)`.
#[inline(always)]
pub(crate) fn softplus<L: Lanes>(x: L) -> L {
    let zero = L::splat(0.0);
    let power = exp(x.at_most(zero.sub(x)));
    // ln(1 + power) = 2 artanh(s).
    let s = power.div(power.add(L::splat(2.0)));
    let z = s.mul(s);
    let p = polynomial(z, [1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0]);
    let s = s.add(s);
    x.at_least(zero).add(p.mul(z).mul_add(s, s))
}

/// The distribution function of the normal distribution, `Φ(x)`, by the error function.
#[inline(always)]
pub(crate) fn normal_distribution<L: Lanes>(x: L) -> L {
    let (half, one) = (L::splat(0.5), L::splat(1.0));
    let a = x.mul(L::splat(FRAC_1_SQRT_2));
    let (t, s) = (a.at_least(L::splat(0.0).sub(a)), a.mul(a));
    // erf(a) near 0, and 1 − erf(t) further out, where a difference to 1 would lose digits.
    let near = polynomial(
        s,
        [-5.967_617e-4, 4.991_194_2e-3, -2.676_813_5e-2, 1.128_199_25e-1, -3.761_253_4e-1, 1.283_791_7e-1],
    );
    let near = near.mul_add(a, a);
    let far = t.mul_add(L::splat(-1.728_534_7e-5), L::splat(3.831_971_3e-4));
    let far = far.mul_add(s, t.mul_add(L::splat(-3.883_964_4e-3), L::splat(2.425_462_2e-2)));
    let far = far.mul_add(t, L::splat(-1.067_778_8e-1));
    let far = far.mul_add(t, L::splat(-6.348_467e-1));
    let far = far.mul_add(t, L::splat(-1.287_175_1e-1));
    let tail = half.mul(exp(far.mul_add(t, L::splat(0.0).sub(t))));
    let outer = tail.or_where(x.beats(L::splat(0.0)), one.sub(tail));
    half.mul_add(near, half).or_where(t.beats(L::splat(0.927_734_4)), outer)
}

/// The density of the normal distribution.
#[inline(always)]
pub(crate) fn normal_density<L: Lanes>(x: L) -> L {
    const SCALE: f32 = std::f32::consts::FRAC_2_SQRT_PI / (2.0 * SQRT_2);
    L::splat(SCALE).mul(exp(x.mul(x).mul(L::splat(-0.5))))
}

/// The highest coefficient first.
#[inline(always)]
fn polynomial<L: Lanes, const N: usize>(x: L, coefficients: [f32; N]) -> L {
    let mut sum = L::splat(coefficients[0]);
    for coefficient in &coefficients[1..] {
        sum = sum.mul_add(x, L::splat(*coefficient));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::super::lanes::{Kernel, LANES_MAX, Level};
    use super::super::maths;
    use super::*;

    /// Values of Φ.
    const DISTRIBUTION: [(f32, f32); 9] = [
        (0.0, 0.5),
        (0.5, 0.691_462_46),
        (1.0, 0.841_344_7),
        (2.0, 0.977_249_87),
        (-0.25, 0.401_293_67),
        (-1.0, 0.158_655_25),
        (-2.0, 0.022_750_132),
        (f32::INFINITY, 1.0),
        (f32::NEG_INFINITY, 0.0),
    ];

    struct Check;

    impl Kernel for Check {
        fn run<L: Lanes>(self) {
            let same = |what: &str, x: f32, vector: L, wanted: f32| {
                let mut values = [0.0; LANES_MAX];
                // SAFETY: there is room for every vector.
                unsafe { vector.store(values.as_mut_ptr()) };
                for value in &values[..L::COUNT] {
                    let near = (value - wanted).abs() <= 1e-6 * wanted.abs() + f32::MIN_POSITIVE;
                    let alike = near || *value == wanted || (value.is_nan() && wanted.is_nan());
                    assert!(alike, "{what} of {x} is {value}, not {wanted}");
                }
            };
            let mut arguments: Vec<f32> = (-20_000..20_000).map(|i| i as f32 * 5.4e-3).collect();
            arguments.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -0.0, 1e-30, 200.0, -200.0]);
            for x in arguments {
                same("exp", x, exp(L::splat(x)), maths::exp(x));
                same("sigmoid", x, sigmoid(L::splat(x)), maths::sigmoid(x));
                same("tanh", x, tanh(L::splat(x)), maths::tanh(x));
                same("exp_m1", x, exp_m1(L::splat(x)), f64::from(x).exp_m1() as f32);
                same("softplus", x, softplus(L::splat(x)), maths::softplus(x));
            }
            for (x, wanted) in DISTRIBUTION {
                same("distribution", x, normal_distribution(L::splat(x)), wanted);
                let wanted = (-0.5 * f64::from(x) * f64::from(x)).exp() / std::f64::consts::TAU.sqrt();
                same("density", x, normal_density(L::splat(x)), wanted as f32);
            }
            same("distribution", f32::NAN, normal_distribution(L::splat(f32::NAN)), f32::NAN);
        }
    }

    #[test]
    fn vectors_have_the_values_of_single_floats_at_every_level() {
        Level::available().for_each(|level| level.call(Check));
    }
}
