//! Anonymous mapped pages, huge ones where the system has them, with a guard page on either side.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use memfit_ir::Bytes;

use super::{Allocator, Memory, populate, require_room};
use crate::DeviceError;

/// Size and alignment of a huge page.
pub const HUGE_PAGE: u64 = 2 << 20;
const HUGE: usize = HUGE_PAGE as usize;

/// Maps pages of its own for every arena: where memory comes from unless a caller provides it.
#[derive(Clone, Copy, Debug, Default)]
pub struct MappedPages;

impl Allocator for MappedPages {
    fn allocate(&self, arena: Bytes) -> Result<Box<dyn Memory>, DeviceError> {
        require_room(arena)?;
        Ok(Box::new(Pages::map(arena)?))
    }
}

/// One range of anonymous memory. It never grows.
pub(crate) struct Pages {
    /// Start of the reservation, the front guard.
    reserved: NonNull<u8>,
    reserved_bytes: usize,
    /// First usable byte.
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: memory that its owner holds alone; the pointers are not tied to a thread.
unsafe impl Send for Pages {}
// SAFETY: shared access only reads.
unsafe impl Sync for Pages {}

/// The size of a page.
pub fn page() -> usize {
    // SAFETY: asks the system for a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("every system has pages")
}

impl Pages {
    /// Maps `bytes`, rounded up to whole pages, and makes them resident.
    pub(crate) fn map(bytes: Bytes) -> Result<Pages, DeviceError> {
        let refused = |reason| DeviceError::Refused { arena: bytes, reason };
        let page = page();
        let usable = bytes.align_up(page as u64).to_usize();
        // Room to move the start to where huge pages begin; small arenas have none to gain.
        let slack = if usable < HUGE { 0 } else { HUGE };
        let reserved_bytes = usable.checked_add(2 * page + slack).ok_or_else(|| refused(out_of_memory()))?;
        let reserved = reserve(reserved_bytes).map_err(refused)?;
        let first = reserved.as_ptr() as usize + page;
        let skip = if slack == 0 { page } else { page + first.next_multiple_of(HUGE) - first };
        // SAFETY: the skip is a page plus less than the slack, so the start lies inside the reservation.
        let start = unsafe { reserved.add(skip) };
        let mut pages = Pages { reserved, reserved_bytes, start, bytes: usable };
        pages.open().map_err(refused)?;
        Ok(pages)
    }

    /// Makes the range between the guards usable and resident.
    fn open(&mut self) -> io::Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range lies inside the reservation, which only this function knows yet.
        let opened = unsafe {
            libc::mprotect(self.start.as_ptr().cast(), self.bytes, libc::PROT_READ | libc::PROT_WRITE)
        };
        if opened != 0 {
            return Err(io::Error::last_os_error());
        }
        self.prefer_huge_pages();
        self.take_again()
    }

    /// Huge pages for the part that whole ones cover, so that no byte beyond the arena becomes resident.
    /// This is a wish: where the system has none, small pages serve.
    fn prefer_huge_pages(&self) {
        #[cfg(target_os = "linux")]
        {
            let aligned = (self.start.as_ptr() as usize).is_multiple_of(HUGE);
            let whole = if aligned { self.bytes - self.bytes % HUGE } else { 0 };
            // SAFETY: advice about memory that this owner holds alone; `whole` is inside it.
            unsafe {
                libc::madvise(self.start.as_ptr().cast(), whole, libc::MADV_HUGEPAGE);
                libc::madvise(
                    self.start.add(whole).as_ptr().cast(),
                    self.bytes - whole,
                    libc::MADV_NOHUGEPAGE,
                );
            }
        }
    }
}

// SAFETY: the range is mapped, readable and writable until `drop`, held by its owner alone, zeros at first, and begins at a page.
unsafe impl Memory for Pages {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn bytes(&self) -> Bytes {
        Bytes(self.bytes as u64)
    }

    fn give_back(&mut self, Range { start, end }: Range<usize>) {
        // SAFETY: the pages lie inside the range, which is borrowed alone, and any bytes will do where they come back.
        unsafe { libc::madvise(self.start.add(start).as_ptr().cast(), end - start, libc::MADV_DONTNEED) };
    }

    fn take_again(&mut self) -> io::Result<()> {
        // SAFETY: the range is whole pages of this owner.
        unsafe { populate(self.start, self.bytes) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the reservation is this owner's, and no slice of it outlives it.
        unsafe { libc::munmap(self.reserved.as_ptr().cast(), self.reserved_bytes) };
    }
}

/// Reserves addresses that have no memory yet.
fn reserve(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new anonymous mapping touches nothing that exists.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANON, -1, 0)
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address.cast()).ok_or_else(out_of_memory)
}

fn out_of_memory() -> io::Error {
    io::Error::from(io::ErrorKind::OutOfMemory)
}
