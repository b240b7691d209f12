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
    require_short(file, path)?;
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

/// Refuses a header that claims to be long, before the parser allocates or recurses over it.
fn require_short(file: &mut File, path: &Path) -> Result<(), DataError> {
    let failed = |source| DataError::Read { path: path.to_owned(), source };
    let mut start = [0u8; 12];
    let mut filled = 0;
    while filled < start.len() {
        match file.read(&mut start[filled..]).map_err(failed)? {
            0 => break,
            count => filled += count,
        }
    }
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let length = match start[6] {
        1 => u64::from(u16::from_le_bytes([start[8], start[9]])),
        _ => u64::from(u32::from_le_bytes([start[8], start[9], start[10], start[11]])),
    };
    if start.starts_with(b"\x93NUMPY") && LONGEST < length {
        let reason = format!("its header claims {length} bytes, over {LONGEST}");
        return Err(DataError::NotNpy { path: path.to_owned(), reason });
    }
    Ok(())
}
