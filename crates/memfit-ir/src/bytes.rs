//! A count of bytes: checked arithmetic, and the spelling people use (`2GiB`, `1536MiB`).

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub};
use std::str::FromStr;

/// A count of bytes. Arithmetic is checked: an overflow is a bug and stops the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// `count` mebibytes.
    pub const fn mib(count: u64) -> Bytes {
        Bytes(count << 20)
    }

    /// The bytes of `count` values of type `T`.
    pub fn of<T>(count: usize) -> Bytes {
        Bytes(size_of::<T>() as u64) * count as u64
    }

    /// Rounded up to a multiple of `alignment`, which must not be zero.
    #[inline]
    pub fn align_up(self, alignment: u64) -> Bytes {
        Bytes(self.0.div_ceil(alignment).checked_mul(alignment).expect("bytes overflow"))
    }

    /// What is left after taking `other`, or nothing.
    pub fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// The count as an index into memory.
    pub fn to_usize(self) -> usize {
        usize::try_from(self.0).expect("more bytes than this machine can address")
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.checked_add(other.0).expect("bytes overflow"))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.checked_sub(other.0).expect("fewer than zero bytes"))
    }
}

impl Mul<u64> for Bytes {
    type Output = Bytes;
    fn mul(self, count: u64) -> Bytes {
        Bytes(self.0.checked_mul(count).expect("bytes overflow"))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = UNITS
            .iter()
            .find(|(_, size)| *size <= self.0 && *size > 1)
            .map(|(unit, size)| format!("{:.2} {unit}", self.0 as f64 / *size as f64))
            .unwrap_or_else(|| format!("{} B", self.0));
        f.pad(&text)
    }
}

/// Why a text is not a count of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseBytesError {
    text: String,
}

impl fmt::Display for ParseBytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a size; write a number and a unit, as in 2GiB, 1536MiB or 500MB", self.text)
    }
}

impl std::error::Error for ParseBytesError {}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Bytes, ParseBytesError> {
        let error = || ParseBytesError { text: text.to_owned() };
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kib" | "k" => 1 << 10,
            "mib" | "m" => 1 << 20,
            "gib" | "g" => 1 << 30,
            "tib" | "t" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(error()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(scale).map(Bytes).ok_or_else(error);
        }
        let value: f64 = number.parse().map_err(|_| error())?;
        let bytes = value * scale as f64;
        if !bytes.is_finite() || bytes >= u64::MAX as f64 {
            return Err(error());
        }
        Ok(Bytes(bytes as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("2GiB", 2u64 << 30),
            ("1536MiB", 1536 << 20),
            ("1.5 GiB", 3 << 29),
            ("500MB", 500_000_000),
            ("4096", 4096),
            ("0", 0),
            ("8g", 8 << 30),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "GiB", "2 parsecs", "-1GiB", "1e400", "99999999999TiB", "1.2.3MiB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_written_in_the_largest_unit() {
        for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (3 << 29, "1.50 GiB")] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
