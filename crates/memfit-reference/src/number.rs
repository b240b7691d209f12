//! Elements of every type as f64, and back, rounded to the nearest and to even between two.

use memfit_ir::DType;

/// Whether a number is finite when it is stored as f32.
pub(crate) fn is_finite(value: f64) -> bool {
    (value as f32).is_finite()
}

/// The elements that bytes hold.
pub(crate) fn load(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    match dtype {
        DType::F32 => each(bytes, |bytes| f64::from(f32::from_ne_bytes(bytes))),
        DType::F16 => each(bytes, |bytes| widen(u16::from_ne_bytes(bytes), F16)),
        DType::BF16 => each(bytes, |bytes| widen(u16::from_ne_bytes(bytes), BF16)),
        DType::I32 => each(bytes, |bytes| f64::from(i32::from_ne_bytes(bytes))),
        DType::I64 => each(bytes, |bytes| i64::from_ne_bytes(bytes) as f64),
        DType::U8 | DType::Bool => bytes.iter().map(|byte| f64::from(*byte)).collect(),
    }
}

/// Writes numbers as elements of a type.
pub(crate) fn store(dtype: DType, values: &[f64], bytes: &mut [u8]) {
    match dtype {
        DType::F32 => write(values, bytes, |value| (value as f32).to_ne_bytes()),
        DType::F16 => write(values, bytes, |value| narrow(value, F16).to_ne_bytes()),
        DType::BF16 => write(values, bytes, |value| narrow(value, BF16).to_ne_bytes()),
        DType::I32 => write(values, bytes, |value| (value as i32).to_ne_bytes()),
        DType::I64 => write(values, bytes, |value| (value as i64).to_ne_bytes()),
        DType::U8 | DType::Bool => write(values, bytes, |value| [value as u8]),
    }
}

fn each<const N: usize>(bytes: &[u8], of: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|bytes| of(*bytes)).collect()
}

fn write<const N: usize>(values: &[f64], bytes: &mut [u8], of: impl Fn(f64) -> [u8; N]) {
    assert_eq!(values.len() * N, bytes.len(), "room for every element");
    for (to, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
        *to = of(*value);
    }
}

/// A float of sixteen bits: how many of them are the fraction's, and the exponent of the smallest normal number.
#[derive(Clone, Copy)]
struct Format {
    fraction: u32,
    lowest: i32,
}

const F16: Format = Format { fraction: 10, lowest: -14 };
const BF16: Format = Format { fraction: 7, lowest: -126 };

impl Format {
    /// The bits of infinity.
    fn infinity(self) -> u16 {
        0x7fff >> self.fraction << self.fraction
    }
}

fn widen(bits: u16, format: Format) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (magnitude, infinity) = (bits & 0x7fff, format.infinity());
    if infinity <= magnitude {
        return if magnitude == infinity { sign * f64::INFINITY } else { f64::NAN };
    }
    let (exponent, fraction) = (i32::from(magnitude >> format.fraction), magnitude % (1 << format.fraction));
    let one = 2f64.powi(format.lowest - format.fraction as i32);
    match exponent {
        0 => sign * f64::from(fraction) * one,
        _ => sign * f64::from(fraction + (1 << format.fraction)) * one * 2f64.powi(exponent - 1),
    }
}

fn narrow(value: f64, format: Format) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let infinity = format.infinity();
    if value.is_nan() {
        return sign | infinity | 1 << (format.fraction - 1);
    }
    // Below the smallest normal number all numbers are as far apart as right above it.
    let own = (value.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    let exponent = own.max(format.lowest);
    let apart = 2f64.powi(exponent - format.fraction as i32);
    let steps = (value.abs() / apart).round_ties_even();
    let bits = f64::from(exponent - format.lowest) * f64::from(1u32 << format.fraction) + steps;
    sign | if bits < f64::from(infinity) { bits as u16 } else { infinity }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float_of_sixteen_bits_is_read_and_written_as_it_is() {
        for format in [F16, BF16] {
            for bits in 0..=u16::MAX {
                let value = widen(bits, format);
                assert!(value.is_nan() || narrow(value, format) == bits, "{bits:#x} {value}");
            }
        }
    }

    #[test]
    fn numbers_between_two_floats_are_rounded_to_the_nearest() {
        for (format, value, wanted) in [
            (F16, 1.0 + 1.0 / 2048.0, 0x3c00),
            (F16, 1.0 + 3.0 / 2048.0, 0x3c02),
            (F16, 1.0 + 1.01 / 2048.0, 0x3c01),
            (F16, 65519.9, 0x7bff),
            (F16, 65520.0, 0x7c00),
            (F16, -1e300, 0xfc00),
            (F16, 2f64.powi(-25), 0),
            (F16, 1.01 * 2f64.powi(-25), 1),
            (BF16, 1.0 + 1.0 / 256.0, 0x3f80),
            (BF16, -(1.0 + 3.0 / 256.0), 0xbf82),
            (BF16, 3.4e38, 0x7f80),
        ] {
            assert_eq!(narrow(value, format), wanted, "{value}");
        }
    }
}
