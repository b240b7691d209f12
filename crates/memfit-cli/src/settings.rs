//! What is typed as settings of a job. Paths are relative to where they are typed, and not to the job file.

use std::ops::RangeToInclusive;
use std::path::{Path, absolute};
use std::str::FromStr;

use memfit::{Error, Setting};

/// What a job can count.
pub const COUNTS: RangeToInclusive<u64> = ..=i64::MAX as u64;

/// A text that reads as a `T`: it is checked where it is typed, and handed on as it is.
pub fn checked<T: FromStr>(text: &str) -> Result<String, T::Err> {
    text.parse::<T>().map(|_| text.to_owned())
}

/// A key and its value, where one is typed.
pub fn given(key: &str, value: Option<impl Typed>) -> Option<Setting> {
    value.map(|value| value.setting(key))
}

/// What is typed as one value.
pub trait Typed {
    /// The setting of it.
    fn setting(self, key: &str) -> Setting;
}

impl Typed for &str {
    fn setting(self, key: &str) -> Setting {
        Setting::new(key, self)
    }
}

impl Typed for f64 {
    fn setting(self, key: &str) -> Setting {
        Setting::new(key, self)
    }
}

impl Typed for u64 {
    fn setting(self, key: &str) -> Setting {
        Setting::new(key, i64::try_from(self).expect("what is typed is one of `COUNTS`"))
    }
}

/// A file or a folder.
pub fn from_here(key: &str, path: &str) -> Result<Setting, Error> {
    Ok(Setting::new(key, absolute_text(key, path)?))
}

/// Several files.
pub fn files(key: &str, paths: &[String]) -> Result<Setting, Error> {
    let paths: Vec<String> = paths.iter().map(|path| absolute_text(key, path)).collect::<Result<_, _>>()?;
    Ok(Setting::new(key, paths))
}

/// The path from the root on.
pub fn absolute_text(key: &str, path: &str) -> Result<String, Error> {
    let whole = absolute(path).unwrap_or_else(|_| Path::new(path).to_owned());
    whole.into_os_string().into_string().map_err(|whole| Error::Job {
        place: key.to_owned(),
        problem: format!("{} is not UTF-8; call the folder by a name that is", whole.display()),
    })
}
