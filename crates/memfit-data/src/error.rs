//! Why rows could not be read: every answer names the file and ends in what to do.

use std::io;
use std::path::PathBuf;

use memfit_ir::DType;
use thiserror::Error;

/// Why rows could not be read.
#[derive(Debug, Error)]
pub enum DataError {
    /// There is no such file.
    #[error("there is no file {}; check the path in the job", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The system could not read the file.
    #[error("{} cannot be read: {source}; check the file and the disk", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not what `np.save` writes.
    #[error("{} is no .npy file: {reason}; write it with np.save", path.display())]
    NotNpy {
        /// The file.
        path: PathBuf,
        /// What is missing or strange.
        reason: String,
    },
    /// The file ends before its data does.
    #[error("{} is cut off: expected {expected} bytes, got {got}; write or copy it again", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes that its header promises, header included.
        expected: u64,
        /// Bytes that are there.
        got: u64,
    },
    /// Rows do not stand one after the other.
    #[error(
        "{} is in Fortran order, so its rows are scattered; write it with np.save(path, np.ascontiguousarray(x))",
        path.display()
    )]
    FortranOrder {
        /// The file.
        path: PathBuf,
    },
    /// Elements that are not numbers, or not numbers this reads.
    #[error(
        "{} holds elements of type {found}, which cannot become {wanted} for `{field}`; \
         convert them with x.astype(\"float32\") or x.astype(\"int32\")",
        path.display()
    )]
    ElementType {
        /// The file.
        path: PathBuf,
        /// The field it feeds.
        field: String,
        /// NumPy's name of the type on file.
        found: String,
        /// The type that is fed.
        wanted: DType,
    },
    /// A number with a fraction where an integer is fed.
    #[error(
        "{} has {value} in row {row}, and `{field}` takes whole numbers; round the values or choose a loss for floats",
        path.display()
    )]
    NotWhole {
        /// The file.
        path: PathBuf,
        /// The field it feeds.
        field: String,
        /// The first row with such a number, counted from 0.
        row: u64,
        /// The number.
        value: f64,
    },
    /// An integer that does not fit.
    #[error(
        "{} has {value} in row {row}, beyond the 32-bit integers that `{field}` takes; use numbers from {} to {}",
        path.display(), i32::MIN, i32::MAX
    )]
    OutOfRange {
        /// The file.
        path: PathBuf,
        /// The field it feeds.
        field: String,
        /// The first row with such a number, counted from 0.
        row: u64,
        /// The number.
        value: i128,
    },
    /// A class number that the model has no class for.
    #[error(
        "`{field}` is {value} in row {row}, and the model has {classes} classes, numbered from 0 to {}; correct the labels, \
         or give the model more classes",
        classes - 1
    )]
    Label {
        /// The field.
        field: String,
        /// The first row with such a number, counted from 0.
        row: u64,
        /// The number.
        value: i32,
        /// Classes that there are.
        classes: usize,
    },
    /// Rows of another shape than the model takes.
    #[error(
        "{} has rows of {got:?} and `{field}` takes {expected:?}; {}",
        path.display(),
        other_shape(field)
    )]
    Shape {
        /// The file.
        path: PathBuf,
        /// The field it feeds.
        field: String,
        /// Dimensions of a row that the model takes.
        expected: Vec<usize>,
        /// Dimensions of a row on file.
        got: Vec<u64>,
    },
    /// A single number instead of rows.
    #[error("{} holds a single number instead of rows; write an array with a first axis of rows", path.display())]
    NoRows {
        /// The file.
        path: PathBuf,
    },
    /// Files of different lengths.
    #[error(
        "{} has {rows} rows and {} has {other_rows}; give files of the same rows",
        path.display(), other.display()
    )]
    RowsDiffer {
        /// The file.
        path: PathBuf,
        /// Its rows.
        rows: u64,
        /// The first file.
        other: PathBuf,
        /// The rows of the first file.
        other_rows: u64,
    },
    /// A file without a single row.
    #[error("{} has no rows; give a file with at least one", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Rows after the last one were asked for.
    #[error("rows {start} to {} were asked for and there are {rows}; ask for rows before the end", start.saturating_add(*count as u64))]
    BeyondEnd {
        /// The first row asked for.
        start: u64,
        /// Rows asked for.
        count: usize,
        /// Rows there are.
        rows: u64,
    },
}

/// What to do about rows of another shape.
fn other_shape(field: &str) -> &'static str {
    if field.starts_with("target/") {
        "reshape the targets, or choose the loss for them: sparse_categorical_crossentropy takes class numbers, \
         categorical_crossentropy one number for every class"
    } else {
        "reshape the array or change the model's input"
    }
}
