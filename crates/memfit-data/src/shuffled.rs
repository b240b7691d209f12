//! A source's rows in the order of an epoch's permutation: read one by one to their places, with no buffer of rows.

use memfit_ir::Bytes;

use crate::permutation::Permutation;
use crate::source::{Field, Source, require_rows};
use crate::{DataError, RowOrder};

/// The rows of a source in a random order, another one in every epoch.
pub struct Shuffled<'a> {
    source: Box<dyn Source + 'a>,
    permutation: Permutation,
}

impl<'a> Shuffled<'a> {
    /// The rows in the order of epoch 0; none where the source has no end.
    pub fn new(source: Box<dyn Source + 'a>, seed: u64) -> Option<Shuffled<'a>> {
        let permutation = Permutation::new(seed, source.rows()?);
        Some(Shuffled { source, permutation })
    }

    /// The source's row at a position of the epoch.
    pub fn row_of(&self, position: u64) -> u64 {
        self.permutation.at(position)
    }
}

impl Source for Shuffled<'_> {
    fn rows(&self) -> Option<u64> {
        Some(self.permutation.rows())
    }

    fn fields(&self) -> &[Field] {
        self.source.fields()
    }

    fn read(&mut self, field: usize, start: u64, count: usize, to: &mut [u8]) -> Result<(), DataError> {
        require_rows(self.rows(), start, count)?;
        let permutation = &self.permutation;
        self.source.read_scattered(field, &|index| permutation.at(start + index as u64), count, to)
    }

    fn read_scattered(
        &mut self,
        field: usize,
        order: RowOrder<'_>,
        count: usize,
        to: &mut [u8],
    ) -> Result<(), DataError> {
        let permutation = &self.permutation;
        self.source.read_scattered(field, &|index| permutation.at(order(index)), count, to)
    }

    fn bytes(&self) -> Bytes {
        self.source.bytes() + self.permutation.bytes()
    }

    fn set_epoch(&mut self, epoch: u64) {
        self.source.set_epoch(epoch);
        self.permutation.set_epoch(epoch);
    }

    fn file_row(&self, position: u64) -> u64 {
        self.source.file_row(self.permutation.at(position))
    }

    fn shuffle_seed(&self) -> Option<u64> {
        Some(self.permutation.seed())
    }
}

#[cfg(test)]
mod tests {
    use memfit_ir::DType;

    use super::*;
    use crate::{Part, Synthetic, Values};

    fn counted(rows: Option<u64>) -> Box<dyn Source> {
        let x = Field { name: "x".to_owned(), dims: vec![2], dtype: DType::F32 };
        Box::new(Synthetic::new(3, rows, vec![(x, Values::Uniform { low: 0.0, high: 1.0 })]))
    }

    fn rows(source: &mut dyn Source, start: u64, count: usize) -> Vec<[u8; 8]> {
        let mut bytes = vec![0; 8 * count];
        source.read(0, start, count, &mut bytes).unwrap();
        bytes.as_chunks().0.to_vec()
    }

    #[test]
    fn a_row_is_that_of_the_file_that_it_names() {
        for total in [50, 6000] {
            let mut plain = counted(Some(total));
            let part = Part::new(counted(Some(total)), 10, total - 10);
            let mut shuffled = Shuffled::new(Box::new(part), 9).unwrap();
            for epoch in [0, 1, 4] {
                shuffled.set_epoch(epoch);
                let mut seen = Vec::new();
                for start in (0..total - 10).step_by(40) {
                    let count = (total - 10 - start).min(40) as usize;
                    for (row, position) in rows(&mut shuffled, start, count).into_iter().zip(start..) {
                        let of_file = shuffled.file_row(position);
                        assert_eq!(row, rows(&mut *plain, of_file, 1)[0], "position {position}");
                        assert_eq!(shuffled.row_of(position) + 10, of_file);
                        seen.push(of_file);
                    }
                }
                assert!(!seen.is_sorted());
                seen.sort_unstable();
                assert!(seen.into_iter().eq(10..total));
            }
        }
    }

    #[test]
    fn reading_in_parts_or_at_once_is_the_same() {
        let mut shuffled = Shuffled::new(counted(Some(100)), 1).unwrap();
        let whole = rows(&mut shuffled, 0, 100);
        let parts: Vec<_> = (0..10).flat_map(|part| rows(&mut shuffled, part * 10, 10)).collect();
        assert_eq!(whole, parts);
        assert!(shuffled.read(0, 99, 2, &mut [0; 16]).is_err());
    }

    #[test]
    fn rows_without_end_have_no_order() {
        assert!(Shuffled::new(counted(None), 1).is_none());
    }

    #[test]
    fn shuffled_rows_are_not_drawn_on_the_device() {
        assert!(Shuffled::new(counted(Some(9)), 1).unwrap().synthetic_values(0).is_none());
    }

    #[test]
    fn the_table_is_counted() {
        assert_eq!(Shuffled::new(counted(Some(9)), 1).unwrap().bytes(), Bytes(18));
        assert_eq!(Shuffled::new(counted(Some(9000)), 1).unwrap().bytes(), Bytes::ZERO);
    }
}
