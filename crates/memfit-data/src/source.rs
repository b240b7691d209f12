//! What every source of rows can do.

use memfit_ir::{Bytes, DType, MadeUp};

use crate::DataError;

/// Rows that can be read from anywhere, as often as wanted.
pub trait Source: Send {
    /// Rows in all; none where they do not end.
    fn rows(&self) -> Option<u64>;

    /// What a row has.
    fn fields(&self) -> &[Field];

    /// Writes rows `start..start + count` of a field, as the field's type, into `to`, which has exactly their size.
    fn read(&mut self, field: usize, start: u64, count: usize, to: &mut [u8]) -> Result<(), DataError>;

    /// Bytes on the host that the source holds beside what it is given.
    fn bytes(&self) -> Bytes;

    /// How a field is drawn, where it is made up: a device that can draws it by itself.
    fn made_up(&self, _field: usize) -> Option<MadeUp> {
        None
    }
}

/// One tensor of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// A name to show.
    pub name: String,
    /// Dimensions without the batch.
    pub dims: Vec<usize>,
    /// The type that is written: f32 or i32.
    pub dtype: DType,
}

impl Field {
    /// Elements of one row.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Bytes of some rows.
    pub fn bytes(&self, rows: usize) -> Bytes {
        Bytes(self.dtype.size()) * self.elements() as u64 * rows as u64
    }

    /// Stops the program unless the field is of a type that sources write.
    pub(crate) fn require_writable(&self) {
        match self.dtype {
            DType::F32 | DType::I32 => {}
            DType::F16 | DType::BF16 | DType::I64 | DType::U8 | DType::Bool => {
                panic!("`{}` is fed as {}, and only f32 and i32 are fed", self.name, self.dtype)
            }
        }
    }

    /// Stops the program unless `to` has the size of `count` rows: the runner's arithmetic is never the user's fault.
    pub(crate) fn require_size(&self, count: usize, to: &[u8]) {
        let expected = self.bytes(count);
        assert_eq!(to.len() as u64, expected.0, "`{}` is {expected} for {count} rows", self.name);
    }
}

/// Refuses rows behind the last.
pub(crate) fn require_rows(rows: Option<u64>, start: u64, count: usize) -> Result<(), DataError> {
    match rows {
        Some(rows) if start.checked_add(count as u64).is_none_or(|end| rows < end) => {
            Err(DataError::BeyondEnd { start, count, rows })
        }
        Some(_) | None => Ok(()),
    }
}
