//! Budgets as people give them: bytes, or a share of what the machine allows.

use std::fmt;
use std::str::FromStr;

use memfit_ir::Bytes;

/// How much may be held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// This much.
    Bytes(Bytes),
    /// A share of what the machine, or the GPU, allows: above 0, at most 1.
    Share(f64),
}

impl Size {
    /// In bytes, where this much is allowed.
    pub fn of(self, allowed: Bytes) -> Bytes {
        match self {
            Size::Bytes(bytes) => bytes,
            Size::Share(share) => Bytes((allowed.0 as f64 * share) as u64),
        }
    }
}

impl From<Bytes> for Size {
    fn from(bytes: Bytes) -> Size {
        Size::Bytes(bytes)
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Size, SizeError> {
        let error = || SizeError { text: text.to_owned() };
        let Some(percent) = text.trim().strip_suffix('%') else {
            return text.parse().map(Size::Bytes).map_err(|_| error());
        };
        let percent: f64 = percent.trim().parse().map_err(|_| error())?;
        if 0.0 < percent && percent <= 100.0 { Ok(Size::Share(percent / 100.0)) } else { Err(error()) }
    }
}

/// A text that is no size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeError {
    text: String,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.text;
        if text.trim_start().starts_with('-') {
            return write!(
                f,
                "`{text}` is below zero, and no process holds less than nothing; give a size such as 2GiB"
            );
        }
        if text.trim_end().ends_with('%') {
            return write!(
                f,
                "`{text}` is no share of what the machine allows; give one above 0% and up to 100%"
            );
        }
        write!(f, "`{text}` is no size; give one such as 2GiB, 1536MiB, 500MB or 50%")
    }
}

impl std::error::Error for SizeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_or_shares() {
        for (text, size) in [
            ("2GiB", Size::Bytes(Bytes(2 << 30))),
            ("0", Size::Bytes(Bytes::ZERO)),
            ("50%", Size::Share(0.5)),
            (" 12.5 % ", Size::Share(0.125)),
            ("100%", Size::Share(1.0)),
        ] {
            assert_eq!(text.parse(), Ok(size), "{text}");
        }
        assert_eq!(Size::Share(0.5).of(Bytes(1000)), Bytes(500));
    }

    #[test]
    fn other_texts_are_refused_in_words_that_name_them() {
        for (text, words) in [
            ("-2GiB", "below zero"),
            ("-5%", "below zero"),
            ("0%", "above 0%"),
            ("101%", "up to 100%"),
            ("NaN%", "share"),
            ("much", "no size"),
            ("", "no size"),
            ("99999999999999999999", "no size"),
        ] {
            let error = text.parse::<Size>().unwrap_err().to_string();
            assert!(error.contains(words) && error.contains(&format!("`{text}`")), "{error}");
        }
    }
}
