//! Why a file could not be read or written: every answer names the file, and the weight where it is about one.

use std::io;
use std::path::{Path, PathBuf};

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refused.
    #[error("cannot {verb} `{}`: {source}{}", path.display(), advice(source))]
    System {
        /// Read or write.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not what its name says.
    #[error("`{}` {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// One weight is missing or does not suit the model.
    #[error("`{}`, weight `{weight}` ({place} in the file): {problem}", path.display())]
    Weight {
        /// The file.
        path: PathBuf,
        /// The weight, as the model names it.
        weight: String,
        /// The array, as the file names it.
        place: String,
        /// What is wrong, and what to do.
        problem: String,
    },
}

fn advice(source: &io::Error) -> &'static str {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
    if full.contains(&source.kind()) {
        "; make room or name another place: what stood there before is untouched"
    } else {
        ""
    }
}

impl FileError {
    /// Whether the user's file is at fault, and not the disk or the system.
    pub fn is_bad_input(&self) -> bool {
        match self {
            FileError::System { verb, .. } => *verb == "read",
            FileError::File { .. } | FileError::Weight { .. } => true,
        }
    }

    pub(crate) fn system(verb: &'static str, path: &Path, source: io::Error) -> FileError {
        FileError::System { verb, path: path.to_owned(), source }
    }

    pub(crate) fn file(path: &Path, problem: impl Into<String>) -> FileError {
        FileError::File { path: path.to_owned(), problem: problem.into() }
    }
}
