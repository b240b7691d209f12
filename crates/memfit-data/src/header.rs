//! The header of a .npy file: what it holds, and where the data begins.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use npyz::{DType as FileType, NpyHeader, Order};

use crate::DataError;

/// What a file says of itself.
#[derive(Debug)]
pub(crate) struct Header {
    /// NumPy's description of the elements, as in `<f4`.
    pub description: String,
    /// Dimensions, rows first.
    pub shape: Vec<u64>,
    /// Where the data begins.
    pub data: u64,
}

/// The longest header that is read. NumPy's own are 128 bytes for a few dimensions.
const LONGEST: u64 = 4096;

/// Reads the header of an open file.
pub(crate) fn read(file: &mut File, path: &Path) -> Result<Header, DataError> {
    let not_npy = |reason: String| DataError::NotNpy { path: path.to_owned(), reason };
    require_modest(file, path)?;
    let header = NpyHeader::from_reader(file.by_ref()).map_err(|error| not_npy(error.to_string()))?;
    let failed = |source| DataError::Read { path: path.to_owned(), source };
    let data = file.stream_position().map_err(failed)?;
    if header.order() == Order::Fortran && header.shape().len() > 1 {
        return Err(DataError::FortranOrder { path: path.to_owned() });
    }
    let description = match header.dtype() {
        FileType::Plain(description) => description.to_string(),
        structure @ (FileType::Array(..) | FileType::Record(_)) => structure.descr(),
    };
    Ok(Header { description, shape: header.shape().to_vec(), data })
}

/// Refuses a header that is too long, or whose number of elements overflows. This check runs before the
/// parser allocates, recurses or multiplies.
fn require_modest(file: &mut File, path: &Path) -> Result<(), DataError> {
    let failed = |source| DataError::Read { path: path.to_owned(), source };
    let refuse = |reason: String| Err(DataError::NotNpy { path: path.to_owned(), reason });
    let mut start = Vec::new();
    file.by_ref().take(LONGEST + 12).read_to_end(&mut start).map_err(failed)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let Some((b"\x93NUMPY", [version, _, rest @ ..])) = start.split_at_checked(6) else { return Ok(()) };
    let width = if *version == 1 { 2 } else { 4 };
    let Some((length, text)) = rest.split_at_checked(width) else { return Ok(()) };
    let length = length.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    if LONGEST < length {
        return refuse(format!("its header claims {length} bytes, over {LONGEST}"));
    }
    let text = &text[..text.len().min(usize::try_from(length).unwrap_or(0))];
    if !is_countable(&String::from_utf8_lossy(text)) {
        return refuse("its header claims more elements than can be counted".to_owned());
    }
    Ok(())
}

/// Whether the numbers of the shape have a product.
fn is_countable(header: &str) -> bool {
    let product = |text: &str| {
        let shape = text.split(['(', ')']).nth(1).unwrap_or_default();
        let sizes =
            shape.split(|character: char| !character.is_ascii_digit()).filter(|digits| !digits.is_empty());
        sizes
            .map(|digits| digits.parse::<u64>().ok())
            .try_fold(1u64, |product, size| product.checked_mul(size?))
    };
    // The word may also be part of a name, so every occurrence is checked.
    header.split("shape").skip(1).all(|text| product(text).is_some())
}
