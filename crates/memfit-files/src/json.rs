//! JSON of untrusted files. It is counted before it is parsed, so that a short text cannot take much memory
//! and a deep one cannot use up the stack.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::FileError;
use crate::section::Problem;

/// Texts beyond this are no model's.
const LONGEST: u64 = 64 << 20;
/// Models are nested by hand; each takes three levels.
const DEEPEST: usize = 120;
/// A model of a thousand layers has about ten thousand objects. Each takes some hundred bytes.
const MOST_OBJECTS: usize = 1_000_000;
/// Everything between commas, each of which takes at least 32 bytes.
const MOST_VALUES: usize = 8_000_000;

/// The text of a file, which is not longer than any model's or job's.
pub fn text_of(path: &Path) -> Result<String, FileError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes));
    read.map_err(|source| FileError::system("read", path, source))?;
    require_short(bytes.len() as u64).map_err(|problem| FileError::file(path, problem))?;
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        FileError::file(path, format!("is no text, from byte {place} on; give a text file"))
    })
}

/// The text of a JSON file, which is neither longer nor deeper than any model's.
pub fn json_text(path: &Path) -> Result<String, FileError> {
    let text = text_of(path)?;
    require_modest(text.as_bytes()).map_err(|problem| FileError::file(path, problem))?;
    Ok(text)
}

/// A text as JSON, after it was counted.
pub(crate) fn parse(text: &[u8]) -> Result<Value, Problem> {
    require_modest(text)?;
    serde_json::from_slice(text).map_err(|error| format!("is no JSON: {error}"))
}

/// Refuses a text by its length, before it is read.
pub(crate) fn require_short(bytes: u64) -> Result<(), Problem> {
    if LONGEST < bytes {
        return Err(format!(
            "has {bytes} bytes or more, over the {LONGEST} of the longest model that is read"
        ));
    }
    Ok(())
}

pub(crate) fn require_modest(text: &[u8]) -> Result<(), Problem> {
    let (mut depth, mut objects, mut values) = (0usize, 0, 0);
    let (mut quoted, mut escaped) = (false, false);
    for (place, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => {
                depth += 1;
                objects += usize::from(*byte == b'{');
                values += 1;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
        if DEEPEST < depth {
            return Err(format!(
                "nests values more than {DEEPEST} deep at byte {place}; use fewer models within models"
            ));
        }
        if MOST_OBJECTS < objects || MOST_VALUES < values {
            return Err(format!(
                "has more than {MOST_OBJECTS} objects or {MOST_VALUES} values, at byte {place}; use fewer layers"
            ));
        }
    }
    Ok(())
}
