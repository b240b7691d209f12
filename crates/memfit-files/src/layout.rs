//! A file laid out before it is written: its exact size is known, and so is what writing it takes.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::archive::{ArchiveWriter, archive_bytes};
use crate::hdf5::GroupTree;
use crate::{Array, safetensors};

/// Descriptions are gathered to writes of this size; arrays go out as they lie.
const BUFFER: usize = 64 << 10;
const WEIGHTS: &str = "model.weights.h5";
/// The state of the run, which Keras does not look at.
pub(crate) const STATE: &str = "memfit.json";

/// What kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A zip archive with configuration, weights and optimizer state.
    Keras,
    /// Weights and optimizer state in HDF5.
    WeightsH5,
    /// Weights by their Keras paths.
    Safetensors,
}

impl FileKind {
    /// The kind that a file's name says.
    pub fn of(path: &Path) -> Option<FileKind> {
        let name = path.file_name()?.to_str()?;
        let kinds = [
            (".keras", FileKind::Keras),
            (".weights.h5", FileKind::WeightsH5),
            (".safetensors", FileKind::Safetensors),
        ];
        kinds.into_iter().find(|(end, _)| name.ends_with(end)).map(|(_, kind)| kind)
    }
}

/// The bytes of an array to be written.
pub enum Bytes<'a> {
    /// Bytes that stand somewhere.
    Borrowed(&'a [u8]),
    /// A single number.
    Number([u8; 8]),
    /// Zeros.
    Zeros,
}

/// A file laid out: every array has its place.
pub struct Layout {
    arrays: Vec<Array>,
    body: Body,
    /// Most bytes of the state of the run, where there is room for it.
    state: Option<u64>,
}

enum Body {
    /// The texts in front of the weights, by name.
    Keras(Vec<(String, String)>, GroupTree),
    WeightsH5(GroupTree),
    Safetensors(Vec<u8>),
}

impl Layout {
    /// Lays a file out. `texts` are the other entries of a `.keras` archive.
    pub fn new(kind: FileKind, arrays: Vec<Array>, texts: &[(&str, Cow<'_, str>)]) -> Layout {
        let owned = |(name, text): &(&str, Cow<'_, str>)| ((*name).to_owned(), text.clone().into_owned());
        let body = match kind {
            FileKind::Keras => Body::Keras(texts.iter().map(owned).collect(), GroupTree::new(&arrays)),
            FileKind::WeightsH5 => Body::WeightsH5(GroupTree::new(&arrays)),
            FileKind::Safetensors => Body::Safetensors(safetensors::header(&arrays)),
        };
        Layout { arrays, body, state: None }
    }

    /// Leaves room in a `.keras` archive for the state of the run: a JSON text of at most
    /// `bytes_most` bytes, which is given when the file is written.
    ///
    /// # Panics
    /// Where the file is no archive.
    #[must_use]
    pub fn with_state(self, bytes_most: u64) -> Layout {
        assert!(matches!(self.body, Body::Keras(..)), "only an archive has room for another entry");
        Layout { state: Some(bytes_most), ..self }
    }

    /// Its arrays, in the order in which they were given.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// Bytes of the file; where it has room for the state of the run, the most that it can have.
    pub fn bytes(&self) -> u64 {
        match &self.body {
            Body::Keras(texts, tree) => {
                let texts = texts.iter().map(|(name, text)| (name.as_str(), text.len() as u64));
                archive_bytes(
                    texts.chain([(WEIGHTS, tree.bytes())]).chain(self.state.map(|most| (STATE, most))),
                )
            }
            Body::WeightsH5(tree) => tree.bytes(),
            Body::Safetensors(header) => {
                header.len() as u64 + self.arrays.iter().map(Array::bytes).sum::<u64>()
            }
        }
    }

    /// Memory that writing takes, besides the layout.
    pub fn bytes_writing(&self) -> u64 {
        let block = match &self.body {
            Body::Keras(_, tree) | Body::WeightsH5(tree) => tree.bytes_at_once(),
            Body::Safetensors(_) => 0,
        };
        // A block grows by doubling while it is built.
        2 * block + BUFFER as u64
    }

    /// Writes the file and returns its bytes.
    pub(crate) fn write<'a>(
        &self,
        file: &File,
        source: &dyn Fn(usize) -> Bytes<'a>,
        state: Option<&str>,
    ) -> io::Result<u64> {
        if let Some(state) = state {
            let most = self.state.expect("there is room for the state of the run");
            assert!(
                state.len() as u64 <= most,
                "the state of the run has {} bytes, room {most}",
                state.len()
            );
        }
        let mut body = |index: usize, to: &mut dyn Write| write_array(&self.arrays[index], source(index), to);
        let mut tree_out = |tree: &GroupTree, to: &mut dyn Write| {
            let mut buffered = BufWriter::with_capacity(BUFFER, to);
            tree.write(&self.arrays, &mut buffered, &mut body)?;
            buffered.flush()
        };
        match &self.body {
            Body::Keras(texts, tree) => {
                let mut archive = ArchiveWriter::new(file);
                for (name, text) in texts {
                    archive.entry(name, text.len() as u64, |to| to.write_all(text.as_bytes()))?;
                }
                archive.entry(WEIGHTS, tree.bytes(), |to| tree_out(tree, to))?;
                if let Some(state) = state {
                    archive.entry(STATE, state.len() as u64, |to| to.write_all(state.as_bytes()))?;
                }
                archive.finish()
            }
            Body::WeightsH5(tree) => {
                tree_out(tree, &mut &*file)?;
                Ok(tree.bytes())
            }
            Body::Safetensors(header) => {
                let mut to = file;
                to.write_all(header)?;
                for index in 0..self.arrays.len() {
                    body(index, &mut to)?;
                }
                Ok(self.bytes())
            }
        }
    }
}

fn write_array(array: &Array, bytes: Bytes<'_>, to: &mut dyn Write) -> io::Result<()> {
    let length = usize::try_from(array.bytes()).expect("an array lies in memory");
    match bytes {
        Bytes::Borrowed(bytes) => {
            assert_eq!(bytes.len(), length, "`{}` has the bytes that were laid out for it", array.name);
            to.write_all(bytes)
        }
        Bytes::Number(bytes) => to.write_all(&bytes[..length]),
        Bytes::Zeros => {
            let zeros = [0; 4096];
            let mut left = length;
            while 0 < left {
                let now = left.min(zeros.len());
                to.write_all(&zeros[..now])?;
                left -= now;
            }
            Ok(())
        }
    }
}
