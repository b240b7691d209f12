//! What every source of rows can do.

use memfit_ir::{Bytes, DType, SyntheticValues};

use crate::DataError;

/// Which rows are wanted, one after the other.
pub type RowOrder<'a> = &'a (dyn Fn(usize) -> u64 + Sync);

/// Rows that can be read from anywhere, as often as wanted.
pub trait Source: Send {
    /// Rows in all; none where they do not end.
    fn rows(&self) -> Option<u64>;

    /// What a row has.
    fn fields(&self) -> &[Field];

    /// Writes rows `start..start + count` of a field, as the field's type, into `to`, which has exactly their size.
    fn read(&mut self, field: usize, start: u64, count: usize, to: &mut [u8]) -> Result<(), DataError>;

    /// Writes `count` rows of a field to their places in `to`: first `order(0)`, then `order(1)`, and so on.
    fn read_scattered(
        &mut self,
        field: usize,
        order: RowOrder<'_>,
        count: usize,
        to: &mut [u8],
    ) -> Result<(), DataError> {
        let row_bytes = self.fields()[field].bytes(1).to_usize();
        for (index, row, run) in runs(order, 0, count) {
            self.read(field, row, run, &mut to[index * row_bytes..(index + run) * row_bytes])?;
        }
        Ok(())
    }

    /// Says which epoch the next rows are of. Only a source whose order depends on it does something.
    fn set_epoch(&mut self, _epoch: u64) {}

    /// The row of the file, or of the array, at a position of the source in this epoch: what messages name.
    fn file_row(&self, position: u64) -> u64 {
        position
    }

    /// The seed of the order, where rows are shuffled.
    fn shuffle_seed(&self) -> Option<u64> {
        None
    }

    /// Bytes on the host that the source holds, without the bytes that it is given.
    fn bytes(&self) -> Bytes;

    /// How a synthetic field is drawn. A device that can draw it does so by itself.
    fn synthetic_values(&self, _field: usize) -> Option<SyntheticValues> {
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

/// The rows that are wanted, as runs of rows that follow each other in the source: index of the first, its row, and how many.
pub(crate) fn runs(order: RowOrder<'_>, from: usize, to: usize) -> impl Iterator<Item = (usize, u64, usize)> {
    let mut index = from;
    let mut row = (from < to).then(|| order(from));
    std::iter::from_fn(move || {
        let first = row.take()?;
        let mut count = 1;
        while index + count < to {
            let next = order(index + count);
            if next != first + count as u64 {
                row = Some(next);
                break;
            }
            count += 1;
        }
        let run = (index, first, count);
        index += count;
        Some(run)
    })
}

/// Refuses rows after the last one.
pub(crate) fn require_rows(rows: Option<u64>, start: u64, count: usize) -> Result<(), DataError> {
    match rows {
        Some(rows) if start.checked_add(count as u64).is_none_or(|end| rows < end) => {
            Err(DataError::BeyondEnd { start, count, rows })
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn rows_that_follow_each_other_are_read_together() {
        let rows = [4u64, 5, 6, 2, 3, 9, 1, 0, 1];
        let order = |index: usize| rows[index];
        let all: Vec<_> = runs(&order, 0, rows.len()).collect();
        assert_eq!(all, [(0, 4, 3), (3, 2, 2), (5, 9, 1), (6, 1, 1), (7, 0, 2)]);
        assert_eq!(runs(&order, 1, 4).collect::<Vec<_>>(), [(1, 5, 2), (3, 2, 1)]);
        assert_eq!(runs(&order, 2, 2).count(), 0);
    }
}
