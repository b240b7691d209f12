//! Some of a source's rows: what is trained on, or what is held out.

use memfit_ir::Bytes;

use crate::source::{Field, Source, require_rows};
use crate::{DataError, RowOrder};

/// Neighbouring rows of a source.
pub struct Part<'a> {
    source: Box<dyn Source + 'a>,
    first: u64,
    rows: u64,
}

impl<'a> Part<'a> {
    /// Rows `first..first + rows`.
    pub fn new(source: Box<dyn Source + 'a>, first: u64, rows: u64) -> Part<'a> {
        Part { source, first, rows }
    }
}

impl Source for Part<'_> {
    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn fields(&self) -> &[Field] {
        self.source.fields()
    }

    fn read(&mut self, field: usize, start: u64, count: usize, to: &mut [u8]) -> Result<(), DataError> {
        require_rows(Some(self.rows), start, count)?;
        self.source.read(field, self.first + start, count, to)
    }

    fn read_scattered(
        &mut self,
        field: usize,
        order: RowOrder<'_>,
        count: usize,
        to: &mut [u8],
    ) -> Result<(), DataError> {
        self.source.read_scattered(field, &|index| self.first + order(index), count, to)
    }

    fn set_epoch(&mut self, epoch: u64) {
        self.source.set_epoch(epoch);
    }

    fn file_row(&self, position: u64) -> u64 {
        self.source.file_row(self.first + position)
    }

    fn bytes(&self) -> Bytes {
        self.source.bytes()
    }
}

#[cfg(test)]
mod tests {
    use memfit_ir::DType;

    use super::*;
    use crate::{Synthetic, Values};

    #[test]
    fn a_part_begins_where_it_begins_and_ends_where_it_ends() {
        let source = || {
            let x = Field { name: "x".to_owned(), dims: vec![2], dtype: DType::F32 };
            Box::new(Synthetic::new(3, Some(10), vec![(x, Values::Uniform { low: 0.0, high: 1.0 })]))
        };
        let (mut whole, mut part) = (source(), Part::new(source(), 7, 3));
        assert_eq!(part.rows(), Some(3));
        let (mut wanted, mut got) = ([0; 16], [0; 16]);
        whole.read(0, 8, 2, &mut wanted).unwrap();
        part.read(0, 1, 2, &mut got).unwrap();
        assert_eq!(got, wanted);
        assert!(part.read(0, 2, 2, &mut got).is_err());
    }
}
