//! The offload memory of a CPU: a file without a name, in a folder the user chose, whose space is taken
//! before training starts.

use std::fs::{File, OpenOptions, remove_file};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memfit_ir::Bytes;

/// Bytes on a disk. Gone when the process is, however it ends.
pub struct Store {
    file: File,
}

impl Store {
    /// Takes `bytes` bytes in a folder, or says why not: a disk that is full is found now, and not in the
    /// middle of a step.
    pub fn create(folder: &Path, bytes: Bytes) -> io::Result<Store> {
        let path = folder.join(format!(".memfit-store-{}-{}", std::process::id(), crate::heap::live()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        remove_file(&path)?;
        reserve(&file, bytes)?;
        Ok(Store { file })
    }

    /// Writes bytes at an offset.
    pub fn write(&self, offset: Bytes, from: &[u8]) -> io::Result<()> {
        self.file.write_all_at(from, offset.0)
    }

    /// Reads bytes at an offset.
    pub fn read(&self, offset: Bytes, to: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(to, offset.0)
    }
}

/// Takes the space of a file on its disk, so that a disk that is full is found out before there is anything
/// to write.
#[cfg(target_os = "linux")]
pub fn reserve(file: &File, bytes: Bytes) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let length = libc::off_t::try_from(bytes.0).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: the descriptor is the open file's.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Gives a file its length; its space is taken as it is written.
#[cfg(not(target_os = "linux"))]
pub fn reserve(file: &File, bytes: Bytes) -> io::Result<()> {
    file.set_len(bytes.0)
}
