//! Rows from arrays in the caller's memory, read in place: in their own order, or in an order that the
//! caller gives.

use std::path::PathBuf;

use memfit_ir::Bytes;

use crate::DataError;
use crate::convert::{Misfit, Stored};
use crate::npy::same_elements;
use crate::permutation::Permutation;
use crate::source::{Field, Source, require_rows};

/// An array that belongs to the caller, rows one after the other.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedArray<'a> {
    /// NumPy's name of its elements, as in `<f4`.
    pub description: &'a str,
    /// Its dimensions, rows first.
    pub dims: &'a [u64],
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// The order of the rows of borrowed arrays.
#[derive(Clone, Copy, Debug, Default)]
pub enum BorrowedOrder<'a> {
    /// The arrays' own order.
    #[default]
    Stored,
    /// Row `i` is the arrays' row at place `i` here.
    Rows(&'a [i64]),
    /// The exact shuffle of an epoch, which holds no order in memory.
    Shuffled {
        /// Seed of all epochs.
        seed: u64,
        /// Counted from 0.
        epoch: u64,
    },
}

/// Rows of borrowed arrays, one array for each field.
#[derive(Debug)]
pub struct Borrowed<'a> {
    rows: u64,
    fields: &'a [Field],
    arrays: Vec<(Stored, &'a [u8])>,
    order: Order<'a>,
}

/// [`BorrowedOrder`] with what it takes to find a row.
#[derive(Debug)]
enum Order<'a> {
    Stored,
    Rows(&'a [i64]),
    Shuffled(Box<Permutation>),
}

impl<'a> Borrowed<'a> {
    /// Checks that the arrays suit the fields and each other. Where there is an `order`, row `i` is the arrays' row `order[i]`.
    pub fn new(
        fields: &'a [Field],
        arrays: &[BorrowedArray<'a>],
        order: BorrowedOrder<'a>,
    ) -> Result<Borrowed<'a>, DataError> {
        assert_eq!(fields.len(), arrays.len(), "one array for each field");
        let rows = arrays.first().and_then(|array| array.dims.first()).copied().unwrap_or(0);
        let mut known = Vec::with_capacity(arrays.len());
        for (field, array) in fields.iter().zip(arrays) {
            field.require_writable();
            known.push((check(field, array, rows, &fields[0])?, array.bytes));
        }
        let (order, count) = match order {
            BorrowedOrder::Stored => (Order::Stored, rows),
            BorrowedOrder::Rows(order) => {
                let is_beyond = |row: &&i64| !u64::try_from(**row).is_ok_and(|row| row < rows);
                if let Some(row) = order.iter().find(is_beyond) {
                    return Err(DataError::BeyondEnd { start: row.unsigned_abs(), count: 1, rows });
                }
                (Order::Rows(order), order.len() as u64)
            }
            BorrowedOrder::Shuffled { seed, epoch } => {
                let mut permutation = Permutation::new(seed, rows);
                permutation.set_epoch(epoch);
                (Order::Shuffled(Box::new(permutation)), rows)
            }
        };
        Ok(Borrowed { rows: count, fields, arrays: known, order })
    }
}

/// How an array is stored, where it suits its field.
fn check(field: &Field, array: &BorrowedArray<'_>, rows: u64, first: &Field) -> Result<Stored, DataError> {
    let path = place(field);
    let stored = Stored::from_description(array.description).ok_or_else(|| DataError::ElementType {
        path: path.clone(),
        field: field.name.clone(),
        found: array.description.to_owned(),
        wanted: field.dtype,
    })?;
    let [its_rows, row @ ..] = array.dims else { return Err(DataError::NoRows { path }) };
    if !same_elements(row, &field.dims) {
        let (field, expected) = (field.name.clone(), field.dims.clone());
        return Err(DataError::Shape { path, field, expected, got: row.to_vec() });
    }
    if *its_rows != rows {
        let (other, other_rows) = (place(first), rows);
        return Err(DataError::RowsDiffer { path, rows: *its_rows, other, other_rows });
    }
    let expected = rows * (field.elements() * stored.size()) as u64;
    assert_eq!(array.bytes.len() as u64, expected, "an array has the bytes of its dimensions");
    Ok(stored)
}

/// What errors call an array.
fn place(field: &Field) -> PathBuf {
    format!("the array for `{}`", field.name).into()
}

impl Source for Borrowed<'_> {
    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn fields(&self) -> &[Field] {
        self.fields
    }

    fn read(&mut self, field: usize, start: u64, count: usize, to: &mut [u8]) -> Result<(), DataError> {
        require_rows(Some(self.rows), start, count)?;
        let (known, (stored, bytes)) = (&self.fields[field], self.arrays[field]);
        known.require_size(count, to);
        let row_stored = known.elements() * stored.size();
        let row_fed = known.bytes(1).to_usize();
        let start = usize::try_from(start).expect("checked: a row of an array in memory");
        let copy = |first: usize, count: usize, to: &mut [u8]| {
            let from = &bytes[first * row_stored..(first + count) * row_stored];
            if stored.is_native(known.dtype) {
                to.copy_from_slice(from);
                return Ok(());
            }
            stored.convert(from, known.dtype, to).map_err(|misfit| answer(known, first, misfit))
        };
        match &self.order {
            Order::Stored => return copy(start, count, to),
            Order::Rows(order) => {
                for (row, to) in order[start..start + count].iter().zip(to.chunks_mut(row_fed.max(1))) {
                    copy(usize::try_from(*row).expect("checked: no row below 0"), 1, to)?;
                }
            }
            Order::Shuffled(permutation) => {
                for (position, to) in (start as u64..).zip(to.chunks_mut(row_fed.max(1))) {
                    let row = permutation.at(position);
                    copy(usize::try_from(row).expect("a row of an array in memory"), 1, to)?;
                }
            }
        }
        Ok(())
    }

    fn bytes(&self) -> Bytes {
        match &self.order {
            Order::Stored | Order::Rows(_) => Bytes::ZERO,
            Order::Shuffled(permutation) => permutation.bytes(),
        }
    }

    fn file_row(&self, position: u64) -> u64 {
        match &self.order {
            Order::Stored => position,
            Order::Rows(order) => {
                let row = usize::try_from(position).ok().and_then(|place| order.get(place));
                row.map_or(position, |row| row.unsigned_abs())
            }
            Order::Shuffled(permutation) => permutation.at(position),
        }
    }
}

/// The error for a number that does not fit. The range that was read begins with this row.
fn answer(field: &Field, first: usize, misfit: Misfit) -> DataError {
    let (path, name) = (place(field), field.name.clone());
    let row = |element: usize| (first + element / field.elements().max(1)) as u64;
    match misfit {
        Misfit::NotWhole { element, value } => {
            DataError::NotWhole { path, field: name, row: row(element), value }
        }
        Misfit::OutOfRange { element, value } => {
            DataError::OutOfRange { path, field: name, row: row(element), value }
        }
    }
}
