//! Weights in files: `.keras` archives, `.weights.h5` and `.safetensors`, read and written without a second
//! copy in memory.
//!
//! Knows nothing of graphs: arrays have names, dimensions and a place in a file. Reading goes from the file
//! straight into the caller's bytes; writing lays the whole file out first, so that its size is known and its
//! space taken before training starts, and then streams.
//!
//! ```
//! use memfit_files::{Array, Bytes, Element, FileKind, Layout, WeightsFile};
//!
//! let folder = std::env::temp_dir().join(format!("memfit-files-example-{}", std::process::id()));
//! std::fs::create_dir_all(&folder).unwrap();
//! let path = folder.join("weights.safetensors");
//! let kernel = Array { name: "dense/kernel".into(), dims: vec![2, 3], element: Element::F32 };
//! let values: Vec<u8> = [1f32, 2., 3., 4., 5., 6.].iter().flat_map(|value| value.to_le_bytes()).collect();
//! let layout = Layout::new(FileKind::Safetensors, vec![kernel], &[]);
//! memfit_files::NewFile::create(&path).unwrap().write(&layout, &|_| Bytes::Borrowed(&values)).unwrap();
//!
//! let mut file = WeightsFile::open(&path).unwrap();
//! let mut read = vec![0; 24];
//! file.read("dense/kernel", "dense/kernel", &[2, 3], &mut read).unwrap();
//! assert_eq!(read, values);
//! # std::fs::remove_dir_all(&folder).unwrap();
//! ```
//!
//! # Decisions
//!
//! - **A file is laid out before training** (`layout`): the memory of its headers is a line of the budget,
//!   and the arrays go from slot to file and from file to slot with no copy between.
//! - **Zip and HDF5 are read and written by hand,** as far as Keras uses them, because libraries for them
//!   hold a file whole; other forms are refused by name.
//! - **The reader trusts no number:** every offset is checked against the file before a byte is asked for, no
//!   byte of a file describes two things, and JSON is counted (`json`) before it is taken apart. An archive's
//!   checksums are compared where its weights are about to be used.
//! - **A file has no name until it is whole** (`new_file`): it is opened without one, synced, and linked.
//!   Where a file system cannot do that, the file has a temporary name next to its place, and a lock that ends
//!   with its process, so that the next run can distinguish a leftover from a file that is being written.

mod archive;
mod error;
mod hdf5;
mod json;
mod layout;
mod new_file;
mod safetensors;
mod section;
mod weights;

pub use error::FileError;
pub use json::{json_text, text_of};
pub use layout::{Bytes, FileKind, Layout};
pub use new_file::{NewFile, name_again, remove_leftovers};
pub use weights::WeightsFile;

/// What an array holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// 32-bit floats.
    F32,
    /// 32-bit integers.
    I32,
    /// 64-bit integers.
    I64,
}

impl Element {
    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Element::F32 | Element::I32 => 4,
            Element::I64 => 8,
        }
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Element::F32 => "float32",
            Element::I32 => "int32",
            Element::I64 => "int64",
        }
    }
}

/// An array to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Its name within the file.
    pub name: String,
    /// Its dimensions; none for a single number.
    pub dims: Vec<usize>,
    /// What it holds.
    pub element: Element,
}

impl Array {
    /// Bytes of the whole array.
    pub fn bytes(&self) -> u64 {
        self.dims.iter().map(|size| *size as u64).product::<u64>() * self.element.bytes()
    }
}
