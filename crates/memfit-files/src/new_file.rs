//! A file that appears whole or not at all: written beside, synced, and renamed over the old one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::FileError;
use crate::layout::{Bytes, Layout};

/// A place for a file, found writable before the work starts.
pub struct NewFile {
    path: PathBuf,
    beside: PathBuf,
    file: File,
}

impl NewFile {
    /// Opens a file beside the one that is to be.
    pub fn create(path: &Path) -> Result<NewFile, FileError> {
        let cannot = |source| FileError::system("write", path, source);
        let name = path.file_name().ok_or_else(|| FileError::file(path, "is no file name; give one"))?;
        if fs::metadata(path).is_ok_and(|data| data.is_dir() || data.permissions().readonly()) {
            return Err(cannot(io::ErrorKind::PermissionDenied.into()));
        }
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.part", std::process::id()));
        let beside = path.with_file_name(hidden);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&beside);
        Ok(NewFile { path: path.to_owned(), file: file.map_err(cannot)?, beside })
    }

    /// The file beside, to take its space before there is anything to write.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The answer that the system refused to write.
    pub fn refused(&self, source: io::Error) -> FileError {
        FileError::system("write", &self.path, source)
    }

    /// Writes the file. An old one stays whole until the new one is.
    pub fn write<'a>(
        self,
        layout: &Layout,
        source: &dyn Fn(usize) -> Bytes<'a>,
    ) -> Result<PathBuf, FileError> {
        let written = layout.write(&self.file, source).and_then(|bytes| {
            assert_eq!(bytes, layout.bytes(), "a file has the size that was laid out for it");
            self.file.set_len(bytes)
        });
        written.map_err(|source| self.refused(source))?;
        self.finish()
    }

    /// Syncs what was written and puts it in its place.
    pub fn finish(self) -> Result<PathBuf, FileError> {
        let placed = self.file.sync_all().and_then(|()| fs::rename(&self.beside, &self.path));
        placed.map_err(|source| self.refused(source))?;
        // The rename itself is kept by the folder; where a folder cannot be opened or synced, the file still stands.
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
            let _ = folder.sync_all();
        }
        Ok(self.path.clone())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // Renamed away when all went well.
        let _ = fs::remove_file(&self.beside);
    }
}
