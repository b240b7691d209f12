//! A range of an open file, read at offsets that are checked before a byte is asked for.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// A range of a file that is a file of its own, as an entry of an archive is.
#[derive(Clone, Copy)]
pub(crate) struct Section<'a> {
    file: &'a File,
    start: u64,
    length: u64,
}

/// What is wrong with a file, in words.
pub(crate) type Problem = String;

/// The most that is read at once of what describes a file, and not of its arrays.
const MOST_AT_ONCE: u64 = 64 << 20;

impl<'a> Section<'a> {
    pub(crate) fn new(file: &'a File, start: u64, length: u64) -> Section<'a> {
        Section { file, start, length }
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Where an offset of the section stands in the file.
    pub(crate) fn place(&self, offset: u64) -> u64 {
        self.start + offset
    }

    /// Whether `bytes` bytes follow the offset.
    pub(crate) fn holds(&self, offset: u64, bytes: u64) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.length)
    }

    /// Reads `bytes` bytes at an offset. It allocates nothing if the file is too short.
    pub(crate) fn bytes(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, Problem> {
        if !self.holds(offset, bytes) {
            return Err(format!("ends before byte {}", offset.saturating_add(bytes)));
        }
        if MOST_AT_ONCE < bytes {
            return Err(format!("describes itself in {bytes} bytes, more than any model needs"));
        }
        let mut read = vec![0; usize::try_from(bytes).map_err(|_| "is too large".to_owned())?];
        self.file.read_exact_at(&mut read, self.start + offset).map_err(|error| error.to_string())?;
        Ok(read)
    }
}

/// Reads little-endian numbers from bytes, one after the other.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Problem> {
        let (taken, rest) =
            self.bytes.split_at_checked(count).ok_or("is cut off within a record".to_owned())?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(crate) fn skip(&mut self, count: usize) -> Result<(), Problem> {
        self.take(count).map(|_| ())
    }

    /// An unsigned number of up to 8 bytes.
    pub(crate) fn number(&mut self, width: usize) -> Result<u64, Problem> {
        let bytes = self.take(width)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(crate) fn small(&mut self, width: usize) -> Result<usize, Problem> {
        usize::try_from(self.number(width)?).map_err(|_| "holds a number that is too large".to_owned())
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }
}
