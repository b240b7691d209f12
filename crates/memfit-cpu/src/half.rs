//! Sixteen-bit floats: to single precision, which is exact, and back, rounded to the nearest and to even
//! between two.
//!
//! Nothing computes in these types. Kernels widen a block, compute in single precision, and narrow the block
//! they write.

use memfit_ir::DType;

/// A sixteen-bit float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    F16,
    Bf16,
}

impl Half {
    /// The sixteen-bit float that tensors of a type hold, where they hold one.
    pub(crate) fn of(dtype: DType) -> Option<Half> {
        match dtype {
            DType::F16 => Some(Half::F16),
            DType::BF16 => Some(Half::Bf16),
            DType::F32 | DType::I32 | DType::I64 | DType::U8 | DType::Bool => None,
        }
    }

    /// Writes every element in single precision.
    pub(crate) fn widen(self, from: &[u16], to: &mut [f32]) {
        assert_eq!(from.len(), to.len(), "as many elements on both sides");
        #[cfg(target_arch = "x86_64")]
        if x86::is_there() {
            // SAFETY: the instructions are there.
            return unsafe {
                match self {
                    Half::F16 => x86::widen_f16(from, to),
                    Half::Bf16 => x86::widen_bf16(from, to),
                }
            };
        }
        match self {
            Half::F16 => map(from, to, widen_f16),
            Half::Bf16 => map(from, to, widen_bf16),
        }
    }

    /// Writes every element rounded.
    pub(crate) fn narrow(self, from: &[f32], to: &mut [u16]) {
        assert_eq!(from.len(), to.len(), "as many elements on both sides");
        #[cfg(target_arch = "x86_64")]
        if x86::is_there() {
            // SAFETY: the instructions are there.
            return unsafe {
                match self {
                    Half::F16 => x86::narrow_f16(from, to),
                    Half::Bf16 => x86::narrow_bf16(from, to),
                }
            };
        }
        match self {
            Half::F16 => map(from, to, narrow_f16),
            Half::Bf16 => map(from, to, narrow_bf16),
        }
    }
}

#[inline(always)]
fn map<A: Copy, B>(from: &[A], to: &mut [B], function: impl Fn(A) -> B) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = function(*from);
    }
}

/// The bits of a float without its sign.
const MAGNITUDE: u32 = 0x7fff_ffff;
/// The bits of an infinite float.
const INFINITE: u32 = 0x7f80_0000;
/// The bit that makes a NaN a quiet one, as the machine's own conversions do.
const QUIET: u32 = 0x0040_0000;

#[inline(always)]
fn widen_f16(half: u16) -> f32 {
    // The exponent of single precision begins 112 lower.
    const REBASE: f32 = f32::from_bits((127 + 112) << 23);
    let (sign, magnitude) = (u32::from(half & 0x8000) << 16, u32::from(half & 0x7fff) << 13);
    let finite = (f32::from_bits(magnitude) * REBASE).to_bits();
    let special = if magnitude > 0x7c00 << 13 { INFINITE | QUIET | magnitude } else { INFINITE };
    f32::from_bits(sign | if magnitude < 0x7c00 << 13 { finite } else { special })
}

#[inline(always)]
fn narrow_f16(value: f32) -> u16 {
    // Above this every float rounds to infinity, below the other the result is subnormal.
    const BEYOND: u32 = (127 + 16) << 23;
    const NORMAL: u32 = (127 - 14) << 23;
    let (sign, magnitude) = (value.to_bits() >> 16 & 0x8000, value.to_bits() & MAGNITUDE);
    let special = if magnitude > INFINITE { 0x7e00 | magnitude >> 13 & 0x3ff } else { 0x7c00 };
    // The last place of a half is the last place of a sum with 0.5, which the addition rounds as wanted.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let even = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + even) >> 13;
    let finite = if magnitude < NORMAL { subnormal } else { normal };
    (sign | if magnitude < BEYOND { finite } else { special }) as u16
}

#[inline(always)]
fn widen_bf16(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

#[inline(always)]
fn narrow_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    (if bits & MAGNITUDE > INFINITE { bits | QUIET } else { rounded } >> 16) as u16
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! Eight elements at a time: the machine's own conversion for f16, shifts and additions for bf16.

    use std::arch::x86_64::*;

    /// Elements of a vector.
    const COUNT: usize = 8;

    /// Whether this machine has the instructions.
    #[inline]
    pub(super) fn is_there() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
    }

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn widen_f16(from: &[u16], to: &mut [f32]) {
        let ((vectors, rest), (whole, last)) = (from.as_chunks::<COUNT>(), to.as_chunks_mut::<COUNT>());
        for (from, to) in vectors.iter().zip(whole) {
            // SAFETY: both ends hold eight elements.
            unsafe {
                _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast())))
            };
        }
        super::map(rest, last, super::widen_f16);
    }

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn narrow_f16(from: &[f32], to: &mut [u16]) {
        let ((vectors, rest), (whole, last)) = (from.as_chunks::<COUNT>(), to.as_chunks_mut::<COUNT>());
        for (from, to) in vectors.iter().zip(whole) {
            // SAFETY: both ends hold eight elements.
            unsafe {
                let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.as_ptr()));
                _mm_storeu_si128(to.as_mut_ptr().cast(), half);
            }
        }
        super::map(rest, last, super::narrow_f16);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn widen_bf16(from: &[u16], to: &mut [f32]) {
        super::map(from, to, super::widen_bf16);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn narrow_bf16(from: &[f32], to: &mut [u16]) {
        super::map(from, to, super::narrow_bf16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the bits of a half mean, by the definition of its fields; `None` for a NaN.
    fn meaning(half: Half, bits: u16) -> Option<f64> {
        let (exponent_bits, bias) = match half {
            Half::F16 => (5, 15),
            Half::Bf16 => (8, 127),
        };
        let fraction_bits = 15 - exponent_bits;
        let exponent = i32::from(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
        let fraction = f64::from(bits & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        if exponent == (1 << exponent_bits) - 1 {
            return (fraction == 0.0).then_some(sign * f64::INFINITY);
        }
        Some(match exponent {
            0 => sign * fraction * 2f64.powi(1 - bias),
            _ => sign * (1.0 + fraction) * 2f64.powi(exponent - bias),
        })
    }

    type Widen = fn(u16) -> f32;
    type Narrow = fn(f32) -> u16;

    /// The portable conversions.
    fn plain(half: Half) -> (Widen, Narrow) {
        match half {
            Half::F16 => (widen_f16, narrow_f16),
            Half::Bf16 => (widen_bf16, narrow_bf16),
        }
    }

    #[test]
    fn every_half_widens_to_what_its_fields_mean_and_comes_back() {
        for half in [Half::F16, Half::Bf16] {
            let all: Vec<u16> = (0..=u16::MAX).collect();
            let mut wide = vec![0.0; all.len()];
            half.widen(&all, &mut wide);
            let mut back = vec![0; all.len()];
            half.narrow(&wide, &mut back);
            let (widen, narrow) = plain(half);
            for ((bits, wide), back) in all.iter().zip(&wide).zip(&back) {
                assert_eq!(widen(*bits).to_bits(), wide.to_bits(), "{half:?} {bits:04x}: portable differs");
                assert_eq!(narrow(*wide), *back, "{half:?} {bits:04x}: portable differs on the way back");
                match meaning(half, *bits) {
                    Some(value) => {
                        assert_eq!(f64::from(*wide), value, "{half:?} {bits:04x}");
                        assert_eq!(wide.is_sign_negative(), bits >> 15 == 1);
                        assert_eq!(back, bits, "{half:?} {bits:04x} does not come back");
                    }
                    None => assert!(wide.is_nan() && meaning(half, *back).is_none()),
                }
            }
        }
    }

    /// The nearest half, the even one between two, found by looking at the neighbours.
    fn nearest(half: Half, value: f32) -> u16 {
        let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
        let infinite: u16 = match half {
            Half::F16 => 0x7c00,
            Half::Bf16 => 0x7f80,
        };
        let size = f64::from(value.abs());
        let meaning = |bits: u16| meaning(half, bits).expect("finite or infinite halves are numbers");
        // Half-precision numbers of one sign are ordered as their bits are.
        let mut range = 0..infinite;
        while range.len() > 1 {
            let middle = range.start + (range.end - range.start) / 2;
            if meaning(middle) <= size { range.start = middle } else { range.end = middle }
        }
        let (below, above) = (range.start, range.start + 1);
        // Infinity stands where the next finite number would.
        let step = meaning(below) - meaning(below - u16::from(below > 0));
        let top = if above == infinite { meaning(below) + step } else { meaning(above) };
        let (down, up) = (size - meaning(below), top - size);
        let rounded = match down.total_cmp(&up) {
            std::cmp::Ordering::Less => below,
            std::cmp::Ordering::Greater => above,
            std::cmp::Ordering::Equal => below + (below & 1),
        };
        sign | rounded
    }

    #[test]
    fn narrowing_rounds_to_the_nearest_and_to_even_between_two() {
        for half in [Half::F16, Half::Bf16] {
            let (widen, portable) = plain(half);
            let mut values =
                vec![0.0, -0.0, f32::INFINITY, -f32::INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-45];
            // Every half, halfway to the next, and the floats beside both.
            for bits in 0..0x7f80u16 {
                let (here, next) = (widen(bits), widen(bits + 1));
                if !here.is_finite() || !next.is_finite() {
                    continue;
                }
                let middle = here + (next - here) / 2.0;
                for value in [here, middle] {
                    values.extend([value.next_down(), value, value.next_up(), -value.next_up(), -value]);
                }
            }
            values.extend([65519.0, 65519.996, 65520.0, 65535.0, 65536.0, 3.3961775e38, 3.39e38]);
            let mut draws = 0x9e37_79b9_7f4a_7c15u64;
            values.extend((0..200_000).map(|_| {
                draws = draws.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
                f32::from_bits((draws >> 32) as u32)
            }));
            let mut narrow = vec![0; values.len()];
            half.narrow(&values, &mut narrow);
            for (value, narrow) in values.iter().zip(&narrow) {
                assert_eq!(portable(*value), *narrow, "{half:?} {value}: portable differs");
                if value.is_nan() {
                    assert!(meaning(half, *narrow).is_none());
                } else if value.is_infinite() {
                    assert_eq!(meaning(half, *narrow), Some(f64::from(*value)));
                } else {
                    assert_eq!(*narrow, nearest(half, *value), "{half:?} {value:e}");
                }
            }
        }
    }
}
