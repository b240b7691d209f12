//! Memory that other processes can map.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use memfit_ir::Bytes;

use super::{Allocator, Memory, page, populate, require_room};
use crate::DeviceError;

/// Takes a file in memory for every arena, without a name in any folder. It is gone when no process has it open or mapped.
#[derive(Debug, Default)]
pub struct SharedMemory {
    /// The file of the arena that was taken last.
    latest: Mutex<Option<Arc<File>>>,
}

impl SharedMemory {
    /// The file of the arena that was taken last, whose first byte is the arena's. Another process that has it, over a socket or as
    /// `/proc/PID/fd/N`, can map it and read what training writes. What it reads while a step runs is what that step has written so far.
    pub fn file(&self) -> Option<Arc<File>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Allocator for SharedMemory {
    fn allocate(&self, arena: Bytes) -> Result<Box<dyn Memory>, DeviceError> {
        require_room(arena)?;
        let shared = SharedPages::map(arena).map_err(|reason| DeviceError::Refused { arena, reason })?;
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&shared.file));
        Ok(Box::new(shared))
    }
}

/// A file in memory, mapped as a whole.
struct SharedPages {
    file: Arc<File>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pointer is not tied to a thread.
unsafe impl Send for SharedPages {}
// SAFETY: shared access only reads.
unsafe impl Sync for SharedPages {}

impl SharedPages {
    /// Takes whole pages, and makes them resident.
    fn map(bytes: Bytes) -> io::Result<SharedPages> {
        // A mapping of no byte does not exist.
        let bytes = bytes.align_up(page() as u64).to_usize().max(page());
        let file = file_in_memory()?;
        file.set_len(bytes as u64)?;
        // SAFETY: a new mapping touches nothing that exists.
        let address = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut shared = SharedPages { file: Arc::new(file), start, bytes };
        shared.take_again()?;
        Ok(shared)
    }
}

// SAFETY: the range is mapped, readable and writable until `drop`, zeros at first, and begins at a page. This process holds it alone;
// that others write there would break what the caller was promised when asking for shared memory.
unsafe impl Memory for SharedPages {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn bytes(&self) -> Bytes {
        Bytes(self.bytes as u64)
    }

    fn give_back(&mut self, Range { start, end }: Range<usize>) {
        #[cfg(target_os = "linux")]
        let advice = libc::MADV_REMOVE;
        #[cfg(not(target_os = "linux"))]
        let advice = libc::MADV_DONTNEED;
        // SAFETY: the pages lie inside the range, which is borrowed alone, and any bytes will do where they come back.
        unsafe { libc::madvise(self.start.add(start).as_ptr().cast(), end - start, advice) };
    }

    fn take_again(&mut self) -> io::Result<()> {
        // SAFETY: the range is whole pages of this owner.
        unsafe { populate(self.start, self.bytes) }
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this owner's, and no slice of it outlives it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// An empty file in memory that no folder has.
fn file_in_memory() -> io::Result<File> {
    let descriptor = open_in_memory();
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and this file's alone.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

#[cfg(target_os = "linux")]
fn open_in_memory() -> RawFd {
    // SAFETY: reads a name.
    unsafe { libc::memfd_create(c"memfit-arena".as_ptr(), libc::MFD_CLOEXEC) }
}

#[cfg(not(target_os = "linux"))]
fn open_in_memory() -> RawFd {
    let name = format!("/memfit-{}-{}\0", std::process::id(), crate::heap::live());
    let name = name.as_ptr().cast();
    // SAFETY: reads a name that ends with a zero, which is given up at once.
    unsafe {
        let descriptor = libc::shm_open(name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600);
        libc::shm_unlink(name);
        descriptor
    }
}
