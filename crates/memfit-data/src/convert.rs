//! Elements as a file has them, turned into what is fed: f32 or i32, in the machine's byte order.

use memfit_ir::DType;

/// How the elements of a file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub kind: StoredKind,
    pub big_endian: bool,
}

/// NumPy's types that can be fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredKind {
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
}

/// A number that is not a 32-bit integer, and its index among the elements that were converted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Misfit {
    NotWhole { element: usize, value: f64 },
    OutOfRange { element: usize, value: i128 },
}

impl Stored {
    /// The type that NumPy describes so, as in `<f4`, where it can be fed.
    pub fn from_description(text: &str) -> Option<Stored> {
        let order = text.chars().next()?;
        let kind = match text.get(1..)? {
            "f2" => StoredKind::F16,
            "f4" => StoredKind::F32,
            "f8" => StoredKind::F64,
            "i1" => StoredKind::I8,
            "i2" => StoredKind::I16,
            "i4" => StoredKind::I32,
            "i8" => StoredKind::I64,
            "u1" => StoredKind::U8,
            "u2" => StoredKind::U16,
            "u4" => StoredKind::U32,
            "u8" => StoredKind::U64,
            "b1" => StoredKind::Bool,
            _ => return None,
        };
        Some(Stored { kind, big_endian: order == '>' })
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self.kind {
            StoredKind::I8 | StoredKind::U8 | StoredKind::Bool => 1,
            StoredKind::F16 | StoredKind::I16 | StoredKind::U16 => 2,
            StoredKind::F32 | StoredKind::I32 | StoredKind::U32 => 4,
            StoredKind::F64 | StoredKind::I64 | StoredKind::U64 => 8,
        }
    }

    /// Whether the bytes on file are the bytes that are fed.
    pub fn is_native(self, dtype: DType) -> bool {
        let same = match self.kind {
            StoredKind::F32 => dtype == DType::F32,
            StoredKind::I32 => dtype == DType::I32,
            StoredKind::F16
            | StoredKind::F64
            | StoredKind::I8
            | StoredKind::I16
            | StoredKind::I64
            | StoredKind::U8
            | StoredKind::U16
            | StoredKind::U32
            | StoredKind::U64
            | StoredKind::Bool => false,
        };
        same && self.big_endian == cfg!(target_endian = "big")
    }

    /// Converts elements one by one; `to` has four bytes for each.
    pub fn convert(self, from: &[u8], dtype: DType, to: &mut [u8]) -> Result<(), Misfit> {
        if dtype == DType::F32 {
            self.convert_to_f32(from, to);
            return Ok(());
        }
        self.convert_to_i32(from, to)
    }

    fn convert_to_f32(self, from: &[u8], to: &mut [u8]) {
        let big = self.big_endian;
        match self.kind {
            StoredKind::F16 => floats(from, to, big, |b| f32_from_f16(u16::from_le_bytes(b))),
            StoredKind::F32 => floats(from, to, big, f32::from_le_bytes),
            StoredKind::F64 => floats(from, to, big, |b| f64::from_le_bytes(b) as f32),
            StoredKind::I8 => floats(from, to, big, |b| f32::from(i8::from_le_bytes(b))),
            StoredKind::I16 => floats(from, to, big, |b| f32::from(i16::from_le_bytes(b))),
            StoredKind::I32 => floats(from, to, big, |b| i32::from_le_bytes(b) as f32),
            StoredKind::I64 => floats(from, to, big, |b| i64::from_le_bytes(b) as f32),
            StoredKind::U8 => floats(from, to, big, |b| f32::from(u8::from_le_bytes(b))),
            StoredKind::U16 => floats(from, to, big, |b| f32::from(u16::from_le_bytes(b))),
            StoredKind::U32 => floats(from, to, big, |b| u32::from_le_bytes(b) as f32),
            StoredKind::U64 => floats(from, to, big, |b| u64::from_le_bytes(b) as f32),
            StoredKind::Bool => floats(from, to, big, |[b]: [u8; 1]| f32::from(u8::from(b != 0))),
        }
    }

    fn convert_to_i32(self, from: &[u8], to: &mut [u8]) -> Result<(), Misfit> {
        let big = self.big_endian;
        match self.kind {
            StoredKind::F16 => integers(from, to, big, |b| whole(f32_from_f16(u16::from_le_bytes(b)).into())),
            StoredKind::F32 => integers(from, to, big, |b| whole(f32::from_le_bytes(b).into())),
            StoredKind::F64 => integers(from, to, big, |b| whole(f64::from_le_bytes(b))),
            StoredKind::I8 => integers(from, to, big, |b| Ok(i8::from_le_bytes(b).into())),
            StoredKind::I16 => integers(from, to, big, |b| Ok(i16::from_le_bytes(b).into())),
            StoredKind::I32 => integers(from, to, big, |b| Ok(i32::from_le_bytes(b).into())),
            StoredKind::I64 => integers(from, to, big, |b| Ok(i64::from_le_bytes(b).into())),
            StoredKind::U8 => integers(from, to, big, |b| Ok(u8::from_le_bytes(b).into())),
            StoredKind::U16 => integers(from, to, big, |b| Ok(u16::from_le_bytes(b).into())),
            StoredKind::U32 => integers(from, to, big, |b| Ok(u32::from_le_bytes(b).into())),
            StoredKind::U64 => integers(from, to, big, |b| Ok(u64::from_le_bytes(b).into())),
            StoredKind::Bool => integers(from, to, big, |[b]: [u8; 1]| Ok((b != 0).into())),
        }
    }
}

/// The bytes of one element, in little-endian order.
fn element<const SIZE: usize>(bytes: &[u8], big_endian: bool) -> [u8; SIZE] {
    let mut element: [u8; SIZE] = bytes.try_into().expect("chunks have the element's size");
    if big_endian {
        element.reverse();
    }
    element
}

fn floats<const SIZE: usize>(from: &[u8], to: &mut [u8], big_endian: bool, read: impl Fn([u8; SIZE]) -> f32) {
    for (from, to) in from.chunks_exact(SIZE).zip(to.chunks_exact_mut(4)) {
        to.copy_from_slice(&read(element(from, big_endian)).to_ne_bytes());
    }
}

fn integers<const SIZE: usize>(
    from: &[u8],
    to: &mut [u8],
    big_endian: bool,
    read: impl Fn([u8; SIZE]) -> Result<i128, f64>,
) -> Result<(), Misfit> {
    for (index, (from, to)) in from.chunks_exact(SIZE).zip(to.chunks_exact_mut(4)).enumerate() {
        let value = read(element(from, big_endian));
        let value = value.map_err(|value| Misfit::NotWhole { element: index, value })?;
        let value = i32::try_from(value).map_err(|_| Misfit::OutOfRange { element: index, value })?;
        to.copy_from_slice(&value.to_ne_bytes());
    }
    Ok(())
}

/// A float as an integer, or the float itself where it is none.
fn whole(value: f64) -> Result<i128, f64> {
    if value.fract() == 0.0 { Ok(value as i128) } else { Err(value) }
}

/// A 16-bit float of IEEE 754 as a 32-bit one; every one of them has an exact counterpart.
fn f32_from_f16(bits: u16) -> f32 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 0x1F);
    let mantissa = f32::from(bits & 0x3FF);
    match exponent {
        0 => sign * mantissa * 2f32.powi(-24),
        31 if mantissa == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        exponent => sign * (1024.0 + mantissa) * 2f32.powi(exponent - 25),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(description: &str, bytes: &[u8], float: f32, integer: i32) {
        let stored = Stored::from_description(description).unwrap();
        let mut to = [0u8; 4];
        stored.convert(bytes, DType::F32, &mut to).unwrap();
        assert_eq!(f32::from_ne_bytes(to), float, "{description}");
        stored.convert(bytes, DType::I32, &mut to).unwrap();
        assert_eq!(i32::from_ne_bytes(to), integer, "{description}");
        assert_eq!(stored.size(), bytes.len(), "{description}");
    }

    #[test]
    fn every_type_is_read_in_both_byte_orders() {
        check("<f2", &0xC200u16.to_le_bytes(), -3.0, -3);
        check(">f2", &0x7800u16.to_be_bytes(), 32768.0, 32768);
        check("<f4", &5f32.to_le_bytes(), 5.0, 5);
        check(">f4", &5f32.to_be_bytes(), 5.0, 5);
        check("<f8", &(-7f64).to_le_bytes(), -7.0, -7);
        check(">f8", &(-7f64).to_be_bytes(), -7.0, -7);
        check("|i1", &[0xFE], -2.0, -2);
        check("<i2", &(-300i16).to_le_bytes(), -300.0, -300);
        check(">i2", &(-300i16).to_be_bytes(), -300.0, -300);
        check(">i4", &70_000i32.to_be_bytes(), 70_000.0, 70_000);
        check("<i8", &(-70_000i64).to_le_bytes(), -70_000.0, -70_000);
        check(">i8", &(-70_000i64).to_be_bytes(), -70_000.0, -70_000);
        check("|u1", &[200], 200.0, 200);
        check("<u2", &60_000u16.to_le_bytes(), 60_000.0, 60_000);
        check(">u4", &70_000u32.to_be_bytes(), 70_000.0, 70_000);
        check("<u8", &70_000u64.to_le_bytes(), 70_000.0, 70_000);
        check("|b1", &[1], 1.0, 1);
    }

    #[test]
    fn small_and_strange_halves_are_exact() {
        for (bits, value) in
            [(0x0001, 2f32.powi(-24)), (0x03FF, 1023.0 * 2f32.powi(-24)), (0x3555, 0.333_251_95)]
        {
            assert_eq!(f32_from_f16(bits), value);
        }
        assert_eq!(f32_from_f16(0xFC00), f32::NEG_INFINITY);
        assert!(f32_from_f16(0x7E00).is_nan());
        assert_eq!(f32_from_f16(0x8000).to_bits(), (-0f32).to_bits());
    }

    #[test]
    fn what_is_no_i32_is_told_with_its_place() {
        let floats: Vec<u8> = [1.0f32, 2.5].iter().flat_map(|value| value.to_le_bytes()).collect();
        let stored = Stored::from_description("<f4").unwrap();
        let error = stored.convert(&floats, DType::I32, &mut [0; 8]).unwrap_err();
        assert_eq!(error, Misfit::NotWhole { element: 1, value: 2.5 });
        let stored = Stored::from_description("<u4").unwrap();
        let error = stored.convert(&u32::MAX.to_le_bytes(), DType::I32, &mut [0; 4]).unwrap_err();
        assert_eq!(error, Misfit::OutOfRange { element: 0, value: u32::MAX.into() });
        let stored = Stored::from_description("<f8").unwrap();
        assert!(stored.convert(&f64::NAN.to_le_bytes(), DType::I32, &mut [0; 4]).is_err());
        assert!(stored.convert(&f64::INFINITY.to_le_bytes(), DType::I32, &mut [0; 4]).is_err());
    }
}
