//! A file to be written: found writable before the work starts, written beside and renamed when it ends.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use memfit::Error;

/// A place for a file.
pub struct NewFile {
    path: PathBuf,
    beside: PathBuf,
}

impl NewFile {
    /// Finds out now whether the file that an option names can be written, and not after hours of training.
    pub fn reserve(option: &str, path: &Path) -> Result<NewFile, Error> {
        let name = path.file_name().ok_or_else(|| Error::Job {
            place: option.to_owned(),
            problem: format!("`{}` is not a file name; give one", path.display()),
        })?;
        let beside = path.with_file_name(format!(".{}.part", name.to_string_lossy()));
        let cannot = |source: std::io::Error| Error::Job {
            place: option.to_owned(),
            problem: format!("cannot write `{}`: {source}; choose another place", path.display()),
        };
        let read_only = fs::metadata(path).is_ok_and(|data| data.permissions().readonly() || data.is_dir());
        if read_only {
            return Err(cannot(std::io::ErrorKind::PermissionDenied.into()));
        }
        File::create(&beside).map_err(cannot)?;
        Ok(NewFile { path: path.to_owned(), beside })
    }

    /// Writes the file; an old one stays whole until the new one is.
    pub fn write(&self, text: &str) -> Result<&Path, Error> {
        let written = File::create(&self.beside)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&self.beside, &self.path));
        written.map_err(|source| Error::File { verb: "write", path: self.path.clone(), source })?;
        Ok(&self.path)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // Renamed away when all went well.
        let _ = fs::remove_file(&self.beside);
    }
}
