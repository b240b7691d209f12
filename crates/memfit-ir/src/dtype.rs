//! Element types and their sizes.

use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// 16-bit float of IEEE 754.
    F16,
    /// 16-bit float with f32's exponent.
    BF16,
    /// 32-bit integer.
    I32,
    /// 64-bit integer.
    I64,
    /// Byte.
    U8,
    /// Truth value, one byte.
    Bool,
}

impl DType {
    /// Whether it is a float of two bytes.
    pub fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        match self {
            DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::U8 | DType::Bool => 1,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::Bool => "bool",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::DType::*;

    #[test]
    fn sizes_are_those_of_memory() {
        for (dtype, size) in [(F32, 4), (F16, 2), (BF16, 2), (I32, 4), (I64, 8), (U8, 1), (Bool, 1)] {
            assert_eq!(dtype.size(), size, "{dtype}");
        }
    }
}
