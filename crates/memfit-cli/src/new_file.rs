//! A file that an option names: found writable before the work starts, and there when it is whole.

use std::path::{Path, PathBuf};

use memfit::{Error, FileError};

/// A place for a file.
pub struct NewFile(memfit::NewFile);

impl NewFile {
    /// Finds out now whether the file that an option names can be written, and not after hours of training.
    pub fn reserve(option: &str, path: &Path) -> Result<NewFile, Error> {
        memfit::remove_leftovers(path.parent().unwrap_or(Path::new("")));
        memfit::NewFile::create(path).map(NewFile).map_err(|error| Error::Job {
            place: option.to_owned(),
            problem: match error {
                FileError::System { source, .. } => {
                    format!("cannot write `{}`: {source}; choose another place", path.display())
                }
                FileError::File { .. } | FileError::Weight { .. } => {
                    format!("`{}` is not a file name; give one", path.display())
                }
            },
        })
    }

    /// Writes the file; an old one stays whole until the new one is.
    pub fn write(self, text: &str) -> Result<PathBuf, Error> {
        Ok(self.0.write_text(text)?)
    }
}
