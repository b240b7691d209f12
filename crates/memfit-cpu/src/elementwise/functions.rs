//! The functions of a chain and their derivatives. What is not a number stays so.

use memfit_ir::{Binary, Unary};

use super::super::lanes::{Lanes, load, store};
use super::super::maths::ln;
use super::super::vector_maths;

/// Elements that loops of single floats take at a time: all are read before one is written, since the result
/// may stand where an operand stood.
const CHUNK: usize = 64;

/// Up to a chunk of elements from `at` on, and zeros.
///
/// # Safety
/// There are `length` elements.
#[inline(always)]
unsafe fn read(from: *const f32, at: usize, length: usize) -> [f32; CHUNK] {
    let mut values = [0.0; CHUNK];
    // SAFETY: no more than what is left is read.
    unsafe {
        match length - at < CHUNK {
            true => values.as_mut_ptr().copy_from_nonoverlapping(from.add(at), length - at),
            false => values = from.add(at).cast::<[f32; CHUNK]>().read_unaligned(),
        }
    }
    values
}

/// Writes what [`read`] read.
///
/// # Safety
/// There are `length` elements.
#[inline(always)]
unsafe fn write(values: [f32; CHUNK], to: *mut f32, at: usize, length: usize) {
    // SAFETY: no more than what is left is written.
    unsafe {
        match length - at < CHUNK {
            true => to.add(at).copy_from_nonoverlapping(values.as_ptr(), length - at),
            false => to.add(at).cast::<[f32; CHUNK]>().write_unaligned(values),
        }
    }
}

/// A loop over elements. No function takes a closure here: those would at times be compiled apart, without
/// the machine's vectors.
macro_rules! map {
    ($x:expr, $to:expr, $length:expr, |$element:ident| $value:expr) => {
        for at in (0..$length).step_by(CHUNK) {
            // SAFETY: the caller guarantees `length` elements.
            let mut values = unsafe { read($x, at, $length) };
            for value in &mut values {
                let $element = *value;
                *value = $value;
            }
            // SAFETY: as above.
            unsafe { write(values, $to, at, $length) };
        }
    };
}

/// The same over pairs of elements.
macro_rules! zip {
    ($a:expr, $b:expr, $to:expr, $length:expr, |$first:ident, $second:ident| $value:expr) => {
        for at in (0..$length).step_by(CHUNK) {
            // SAFETY: the caller guarantees `length` elements.
            let (mut values, others) = unsafe { (read($a, at, $length), read($b, at, $length)) };
            for (value, other) in values.iter_mut().zip(&others) {
                let ($first, $second) = (*value, *other);
                *value = $value;
            }
            // SAFETY: as above.
            unsafe { write(values, $to, at, $length) };
        }
    };
}

/// A loop over vectors of the named operands.
macro_rules! vectors {
    ($lanes:ident, $to:expr, $length:expr, |$($x:ident),+| $value:expr) => {{
        let mut at = 0;
        while at + $lanes::COUNT <= $length {
            // SAFETY: the caller guarantees the elements, and a vector is left.
            $(let $x = unsafe { $lanes::load($x.add(at)) };)+
            // SAFETY: as above.
            unsafe { $value.store($to.add(at)) };
            at += $lanes::COUNT;
        }
        if at < $length {
            let count = $length - at;
            // SAFETY: as above, and `count` elements are left.
            $(let $x: $lanes = unsafe { load($x.add(at), count) };)+
            // SAFETY: as above.
            unsafe { store($value, $to.add(at), count) };
        }
    }};
}

/// A function of every element.
///
/// # Safety
/// There are `length` elements of the operand and the result, which may stand at the same place.
#[inline(always)]
pub(crate) unsafe fn unary<L: Lanes>(function: Unary, x: *const f32, to: *mut f32, length: usize) {
    let (zero, one) = (L::splat(0.0), L::splat(1.0));
    match function {
        Unary::Relu => vectors!(L, to, length, |x| x.at_least(zero)),
        Unary::ReluGeneral { negative_slope: 0.0, max_value, threshold: 0.0 } => {
            vectors!(L, to, length, |x| x.at_least(zero).at_most(L::splat(max_value)));
        }
        Unary::ReluGeneral { negative_slope, max_value, threshold } => map!(x, to, length, |x| {
            // With a negative slope of 0 even minus infinity gives 0.
            let flat = negative_slope == 0.0 && x < threshold;
            let below = if flat { 0.0 } else { negative_slope * (x - threshold) };
            let inside = if x > threshold { x } else { below };
            if x >= max_value { max_value } else { inside }
        }),
        Unary::LeakyRelu(negative_slope) => {
            vectors!(L, to, length, |x| x.mul(L::splat(negative_slope)).or_where(x.beats(zero), x));
        }
        Unary::Elu(alpha) => vectors!(L, to, length, |x| {
            vector_maths::exp_m1(x).mul(L::splat(alpha)).or_where(x.beats(zero), x)
        }),
        Unary::Gelu => vectors!(L, to, length, |x| x.mul(vector_maths::normal_distribution(x))),
        Unary::Silu => vectors!(L, to, length, |x| x.mul(vector_maths::sigmoid(x))),
        Unary::Sigmoid => vectors!(L, to, length, |x| vector_maths::sigmoid(x)),
        Unary::Tanh => vectors!(L, to, length, |x| vector_maths::tanh(x)),
        Unary::Softplus => vectors!(L, to, length, |x| vector_maths::softplus(x)),
        Unary::Exp => vectors!(L, to, length, |x| vector_maths::exp(x)),
        Unary::Log => map!(x, to, length, |x| logarithm(x)),
        Unary::Sqrt => map!(x, to, length, |x| x.sqrt()),
        Unary::Rsqrt => map!(x, to, length, |x| 1.0 / x.sqrt()),
        Unary::Reciprocal => vectors!(L, to, length, |x| one.div(x)),
        Unary::Square => vectors!(L, to, length, |x| x.mul(x)),
        Unary::Abs => map!(x, to, length, |x| x.abs()),
        Unary::Power(power) => map!(x, to, length, |x| x.powf(power)),
        Unary::Clip { low, high } => map!(x, to, length, |x| clip(x, low, high)),
        Unary::Sin => map!(x, to, length, |x| x.sin()),
        Unary::Cos => map!(x, to, length, |x| x.cos()),
        Unary::Scale(factor) => vectors!(L, to, length, |x| x.mul(L::splat(factor))),
        Unary::Offset(term) => vectors!(L, to, length, |x| x.add(L::splat(term))),
    }
}

/// A function of every pair of elements.
///
/// # Safety
/// There are `length` elements of the operands and the result, which may stand where one of them does.
#[inline(always)]
pub(super) unsafe fn binary<L: Lanes>(
    function: Binary,
    a: *const f32,
    b: *const f32,
    to: *mut f32,
    length: usize,
) {
    match function {
        Binary::Add => vectors!(L, to, length, |a, b| a.add(b)),
        Binary::Subtract => vectors!(L, to, length, |a, b| a.sub(b)),
        Binary::Multiply => vectors!(L, to, length, |a, b| a.mul(b)),
        Binary::Divide => vectors!(L, to, length, |a, b| a.div(b)),
        Binary::Minimum => zip!(a, b, to, length, |a, b| if a < b || a.is_nan() { a } else { b }),
        Binary::Maximum => zip!(a, b, to, length, |a, b| if a > b || a.is_nan() { a } else { b }),
        Binary::GreaterEqual => zip!(a, b, to, length, |a, b| if a >= b { 1.0 } else { 0.0 }),
        // SAFETY: the caller's promise.
        Binary::Derivative(of) => unsafe { derivative::<L>(of, a, b, to, length) },
    }
}

/// `dy f′`, from the input `x` or the output `y` of the function, as `Unary::saves` says.
///
/// # Safety
/// As for [`binary`].
#[inline(always)]
unsafe fn derivative<L: Lanes>(of: Unary, dy: *const f32, saved: *const f32, to: *mut f32, length: usize) {
    let (zero, one, lowest) = (L::splat(0.0), L::splat(1.0), L::splat(f32::NEG_INFINITY));
    match of {
        // Whether 0 lies below.
        Unary::Relu => vectors!(L, to, length, |dy, saved| dy.keep(zero.between(lowest, saved))),
        Unary::ReluGeneral { negative_slope: 0.0, max_value, threshold: 0.0 } => {
            vectors!(L, to, length, |dy, saved| dy.keep(saved.between(zero, L::splat(max_value))));
        }
        Unary::ReluGeneral { negative_slope, max_value, threshold } => {
            zip!(dy, saved, to, length, |dy, x| {
                let inside = if x > threshold { dy } else { negative_slope * dy };
                if x >= max_value { 0.0 } else { inside }
            });
        }
        Unary::LeakyRelu(negative_slope) => vectors!(L, to, length, |dy, saved| {
            dy.mul(L::splat(negative_slope)).or_where(zero.between(lowest, saved), dy)
        }),
        Unary::Elu(alpha) => vectors!(L, to, length, |dy, saved| {
            dy.mul(saved.add(L::splat(alpha))).or_where(zero.between(lowest, saved), dy)
        }),
        Unary::Gelu => vectors!(L, to, length, |dy, saved| {
            let density = vector_maths::normal_density(saved);
            dy.mul(saved.mul_add(density, vector_maths::normal_distribution(saved)))
        }),
        Unary::Silu => vectors!(L, to, length, |dy, saved| {
            let s = vector_maths::sigmoid(saved);
            dy.mul(s).mul(saved.mul_add(one.sub(s), one))
        }),
        Unary::Sigmoid => vectors!(L, to, length, |dy, saved| dy.mul(saved).mul(one.sub(saved))),
        Unary::Tanh => vectors!(L, to, length, |dy, saved| dy.mul(one.sub(saved.mul(saved)))),
        Unary::Softplus => {
            vectors!(L, to, length, |dy, saved| dy.mul(zero.sub(vector_maths::exp_m1(zero.sub(saved)))))
        }
        Unary::Exp => vectors!(L, to, length, |dy, saved| dy.mul(saved)),
        Unary::Log => vectors!(L, to, length, |dy, saved| dy.div(saved)),
        Unary::Sqrt => zip!(dy, saved, to, length, |dy, y| 0.5 * dy / y),
        Unary::Rsqrt => zip!(dy, saved, to, length, |dy, y| -0.5 * dy * y * y * y),
        Unary::Reciprocal => zip!(dy, saved, to, length, |dy, y| -dy * y * y),
        Unary::Square => vectors!(L, to, length, |dy, saved| dy.mul(L::splat(2.0)).mul(saved)),
        Unary::Abs => {
            zip!(dy, saved, to, length, |dy, x| if x == 0.0 { 0.0 } else { dy * x.signum() });
        }
        Unary::Power(power) => {
            zip!(dy, saved, to, length, |dy, x| dy * power * x.powf(power - 1.0));
        }
        Unary::Clip { low, high } => {
            zip!(dy, saved, to, length, |dy, x| if x < low || high < x { 0.0 } else { dy });
        }
        Unary::Sin => zip!(dy, saved, to, length, |dy, x| dy * x.cos()),
        Unary::Cos => zip!(dy, saved, to, length, |dy, x| -dy * x.sin()),
        Unary::Scale(factor) => vectors!(L, to, length, |dy| dy.mul(L::splat(factor))),
        Unary::Offset(_) => vectors!(L, to, length, |dy| dy),
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
