//! A file that appears whole or not at all: written without a name, or under a temporary one, synced, and put
//! over the old one.
//!
//! Where the system can do it, a file has no name until it is whole, so that a process that is killed leaves nothing. Else it is
//! `.NAME.PID.N@HOST.part` beside it, held under a lock that ends with its process: [`remove_leftovers`] removes those
//! that this host wrote and no process holds.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::FileError;
use crate::layout::{Bytes, Layout};

/// How the names of files that are not whole end.
const PART: &str = ".part";

/// A place for a file, found writable before the work starts.
pub struct NewFile {
    path: PathBuf,
    /// Where the file stands while it is not whole, where it has a name.
    beside: Option<PathBuf>,
    file: File,
}

impl NewFile {
    /// Opens a file that is to be put in this place.
    pub fn create(path: &Path) -> Result<NewFile, FileError> {
        check(path)?;
        match unnamed(folder_of(path)) {
            Some(file) => Ok(NewFile { path: path.to_owned(), beside: None, file }),
            None => NewFile::create_named(path),
        }
    }

    /// The same under a name, where the system has no files without one.
    fn create_named(path: &Path) -> Result<NewFile, FileError> {
        check(path)?;
        let named = named(path).map_err(|source| FileError::system("write", path, source));
        named.map(|(file, beside)| NewFile { path: path.to_owned(), beside: Some(beside), file })
    }

    /// The file itself, to take its space before there is anything to write.
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
        self.write_with_state(layout, source, None)
    }

    /// The same with the state of the run, as JSON, for which the layout has room.
    pub fn write_with_state<'a>(
        self,
        layout: &Layout,
        source: &dyn Fn(usize) -> Bytes<'a>,
        state: Option<&str>,
    ) -> Result<PathBuf, FileError> {
        let written = layout.write(&self.file, source, state).and_then(|bytes| {
            assert!(bytes <= layout.bytes(), "a file has at most the size that was laid out for it");
            self.file.set_len(bytes)
        });
        written.map_err(|source| self.refused(source))?;
        self.finish()
    }

    /// Writes a text. An old file stays whole until the new one is.
    pub fn write_text(self, text: &str) -> Result<PathBuf, FileError> {
        (&self.file).write_all(text.as_bytes()).map_err(|source| self.refused(source))?;
        self.finish()
    }

    /// Syncs what was written and puts it in its place.
    pub fn finish(mut self) -> Result<PathBuf, FileError> {
        let placed = self.file.sync_all().and_then(|()| self.place());
        placed.map_err(|source| self.refused(source))?;
        sync_folder_of(&self.path);
        Ok(self.path.clone())
    }

    fn place(&mut self) -> io::Result<()> {
        if self.beside.is_none() {
            // Where nothing has the name yet, the file gets it at once.
            match link(&self.file, &self.path) {
                Ok(()) => return Ok(()),
                Err(_) => self.name()?,
            }
        }
        let beside = self.beside.take().expect("a file without a name was given one");
        fs::rename(&beside, &self.path).inspect_err(|_| self.beside = Some(beside))
    }

    /// Gives the file a temporary name in its folder; copies it there where its file system cannot.
    fn name(&mut self) -> io::Result<()> {
        let beside = name_beside(&self.path);
        if link(&self.file, &beside).is_ok() {
            self.beside = Some(beside);
            return Ok(());
        }
        let (copy, beside) = named(&self.path)?;
        self.beside = Some(beside);
        io::Seek::rewind(&mut &self.file)?;
        io::copy(&mut &self.file, &mut &copy)?;
        copy.sync_all()?;
        self.file = copy;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            let _ = fs::remove_file(beside);
        }
    }
}

/// Gives a whole file a second name, in one step. An old file of that name is replaced. Where a file cannot have two names, it is
/// copied.
pub fn name_again(from: &Path, path: &Path) -> Result<(), FileError> {
    let file = File::open(from).map_err(|source| FileError::system("read", from, source))?;
    // While it is locked, its name between two steps is not taken for a leftover.
    let _ = file.try_lock();
    let beside = name_beside(path);
    if fs::hard_link(from, &beside).is_err() {
        let copy = NewFile::create(path)?;
        io::copy(&mut &file, &mut &copy.file).map_err(|source| copy.refused(source))?;
        copy.finish()?;
        return Ok(());
    }
    let renamed = fs::rename(&beside, path);
    // Where both names already belong to the same file, `rename` does nothing.
    let _ = fs::remove_file(&beside);
    renamed.map_err(|source| FileError::system("write", path, source))?;
    sync_folder_of(path);
    Ok(())
}

/// Removes files that were being written in a folder when their process ended; returns how many. Files of other hosts stay,
/// and so do those that a process still writes.
pub fn remove_leftovers(folder: &Path) -> usize {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let end = end_of_name();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| is_part(entry.file_name().as_bytes(), end.as_bytes()));
    ours.filter(|entry| remove_if_unlocked(&entry.path()).unwrap_or(false)).count()
}

fn remove_if_unlocked(path: &Path) -> io::Result<bool> {
    let file = OpenOptions::new().write(true).open(path)?;
    if file.try_lock().is_err() || !is_at(&file, path) {
        return Ok(false);
    }
    fs::remove_file(path).map(|()| true)
}

/// Whether a name is `.NAME.PID.N@HOST.part` of this host.
fn is_part(name: &[u8], end: &[u8]) -> bool {
    let Some(start) = name.strip_prefix(b".").and_then(|name| name.strip_suffix(end)) else { return false };
    let mut parts = start.rsplit(|byte| *byte == b'.');
    let mut number =
        || parts.next().is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit));
    number() && number() && parts.next().is_some_and(|name| !name.is_empty())
}

fn check(path: &Path) -> Result<(), FileError> {
    if path.file_name().is_none() {
        return Err(FileError::file(path, "is no file name; give one"));
    }
    let there = fs::metadata(path).ok();
    if there.as_ref().is_some_and(|data| !data.is_dir() && !data.is_file()) {
        return Err(FileError::file(path, "is a device and not a file; give the name of a file"));
    }
    if there.is_some_and(|data| data.is_dir() || data.permissions().readonly()) {
        return Err(FileError::system("write", path, io::ErrorKind::PermissionDenied.into()));
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Syncs the folder, which holds the name of a file. Where a folder cannot be opened or synced, the file still stands.
fn sync_folder_of(path: &Path) {
    if let Ok(folder) = File::open(folder_of(path)) {
        let _ = folder.sync_all();
    }
}

/// A file without a name, where the system has such files and can name them later.
#[cfg(target_os = "linux")]
fn unnamed(folder: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags};

    let mode = Mode::from_raw_mode(0o666);
    let file = rustix::fs::open(folder, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode).ok()?;
    let file = File::from(file);
    // It is locked before it has a name, so that a name between two steps is not taken for a leftover.
    let _ = file.try_lock();
    fs::metadata(name_of(&file)).is_ok().then_some(file)
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_folder: &Path) -> Option<File> {
    None
}

/// Names a file that has no name. Fails where another has it.
#[cfg(target_os = "linux")]
fn link(file: &File, path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD};

    Ok(rustix::fs::linkat(CWD, name_of(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(not(target_os = "linux"))]
fn link(_file: &File, _path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What the system calls an open file.
#[cfg(target_os = "linux")]
fn name_of(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd;

    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// A locked file under a temporary name in the folder of another.
fn named(path: &Path) -> io::Result<(File, PathBuf)> {
    loop {
        let beside = name_beside(path);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&beside);
        let file = match file {
            // Of a process that had this number before.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            file => file?,
        };
        let locked = file.try_lock();
        // Another may have taken it for a leftover before it was locked. Without locks, no one does.
        if locked.is_err() || is_at(&file, &beside) {
            return Ok((file, beside));
        }
    }
}

/// `.NAME.PID.N@HOST.part`, another one at each call.
fn name_beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or(OsStr::new("file")));
    name.push(format!(".{}.{count}", std::process::id()));
    name.push(end_of_name());
    path.with_file_name(name)
}

/// `@HOST.part`.
fn end_of_name() -> OsString {
    let system = rustix::system::uname();
    let host = system.nodename().to_bytes().iter().filter(|byte| **byte != b'/').copied();
    OsString::from_vec(b"@".iter().copied().chain(host).chain(PART.bytes()).collect())
}

/// Whether an open file still is the one that stands there.
fn is_at(file: &File, path: &Path) -> bool {
    let same =
        |one: &fs::Metadata, other: &fs::Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    file.metadata().is_ok_and(|one| fs::metadata(path).is_ok_and(|other| same(&one, &other)))
}

#[cfg(test)]
mod tests;
