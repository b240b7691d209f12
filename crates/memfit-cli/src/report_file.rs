//! The report's file: found writable before training starts, written beside and renamed when it ends.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use memfit::Error;

/// A place for the report.
pub struct ReportFile {
    path: PathBuf,
    beside: PathBuf,
}

impl ReportFile {
    /// Finds out now whether the report can be written, and not after hours of training.
    pub fn reserve(path: &Path) -> Result<ReportFile, Error> {
        let name = path.file_name().ok_or_else(|| Error::Job {
            place: "--report".to_owned(),
            problem: format!("`{}` is not a file name; give one, as in report.html", path.display()),
        })?;
        let beside = path.with_file_name(format!(".{}.part", name.to_string_lossy()));
        let cannot = |source: std::io::Error| Error::Job {
            place: "--report".to_owned(),
            problem: format!("cannot write `{}`: {source}; choose another place", path.display()),
        };
        let read_only = fs::metadata(path).is_ok_and(|data| data.permissions().readonly() || data.is_dir());
        if read_only {
            return Err(cannot(std::io::ErrorKind::PermissionDenied.into()));
        }
        File::create(&beside).map_err(cannot)?;
        Ok(ReportFile { path: path.to_owned(), beside })
    }

    /// Writes the report; an old one stays whole until the new one is.
    pub fn write(&self, page: &str) -> Result<&Path, Error> {
        let written = File::create(&self.beside)
            .and_then(|mut file| file.write_all(page.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&self.beside, &self.path));
        written.map_err(|source| Error::File { verb: "write", path: self.path.clone(), source })?;
        Ok(&self.path)
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        // Renamed away when all went well.
        let _ = fs::remove_file(&self.beside);
    }
}
