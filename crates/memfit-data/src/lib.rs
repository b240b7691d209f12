//! Rows for training: sources that read or draw any range of rows straight into the given bytes.
//!
//! A source holds no more than [`Source::bytes`] says; nothing is mapped, cached or read ahead without the
//! budget's knowledge.
//!
//! ```
//! use memfit_data::{Field, Source, Synthetic, Values};
//! use memfit_ir::DType;
//!
//! let x = Field { name: "x".to_owned(), dims: vec![3], dtype: DType::F32 };
//! let mut source = Synthetic::new(7, Some(100), vec![(x, Values::Uniform { low: 0.0, high: 1.0 })]);
//! let mut rows = vec![0u8; 2 * 3 * 4];
//! source.read(0, 98, 2, &mut rows).unwrap();
//! assert!(source.read(0, 99, 2, &mut rows).is_err());
//! ```
//!
//! # Decisions
//!
//! - **The order of rows is a function** of seed, epoch and index (`permutation`): nothing is buffered, any
//!   position of any epoch can be read first, and a checkpoint keeps a seed and a position.
//! - **Shuffled rows are read one by one to their places** ([`Source::read_scattered`]); messages name the
//!   row of the file ([`Source::file_row`]).
//! - **A caller's arrays are read in place** (`borrowed`).

mod borrowed;
mod convert;
mod error;
mod header;
mod npy;
mod npy_header;
mod part;
mod permutation;
mod shuffled;
mod source;
mod synthetic;

pub use borrowed::{Borrowed, BorrowedArray, BorrowedOrder};
pub use error::DataError;
pub use memfit_ir::Values;
pub use npy::Npy;
pub use npy_header::npy_header;
pub use part::Part;
pub use permutation::Permutation;
pub use shuffled::Shuffled;
pub use source::{Field, RowOrder, Source};
pub use synthetic::Synthetic;
