//! The arena: one mapping, as large as the plan says, resident from the start, with a guard page on either
//! side.

use std::io;
use std::ptr::NonNull;

use memfit_ir::{ALIGNMENT, Bytes, Slot};

use crate::DeviceError;
use crate::found_inf::FoundInf;

/// Size and alignment of a huge page.
pub const HUGE_PAGE: u64 = 2 << 20;
const HUGE: usize = HUGE_PAGE as usize;

/// One range of anonymous memory. It never grows, and is freed when dropped.
pub struct Arena {
    /// Start of the reservation, the front guard.
    reserved: NonNull<u8>,
    reserved_bytes: usize,
    /// First usable byte.
    start: NonNull<u8>,
    bytes: usize,
    /// Raised by kernels that did not write what was not finite.
    pub found_inf: FoundInf,
}

// SAFETY: an arena is memory that it owns alone; the pointers are not tied to a thread.
unsafe impl Send for Arena {}
// SAFETY: shared access only reads.
unsafe impl Sync for Arena {}

/// The size of a page.
pub fn page() -> usize {
    // SAFETY: asks the system for a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("every system has pages")
}

impl Arena {
    /// Maps `bytes`, rounded up to whole pages, and makes them resident.
    pub fn map(bytes: Bytes) -> Result<Arena, DeviceError> {
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
        let found_inf = FoundInf::default();
        let arena = Arena { reserved, reserved_bytes, start, bytes: usable, found_inf };
        arena.open(page).map_err(refused)?;
        Ok(arena)
    }

    /// Makes the range between the guards usable and resident.
    fn open(&self, page: usize) -> io::Result<()> {
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
        self.populate(page)
    }

    /// Huge pages for the part that whole ones cover, so that no byte beyond the arena becomes resident.
    /// This is a wish: where the system has none, small pages serve.
    fn prefer_huge_pages(&self) {
        #[cfg(target_os = "linux")]
        {
            let aligned = (self.start.as_ptr() as usize).is_multiple_of(HUGE);
            let whole = if aligned { self.bytes - self.bytes % HUGE } else { 0 };
            // SAFETY: advice about memory that this arena owns; `whole` is inside it.
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

    /// Makes every page resident now, so that a lack of memory is an answer here and not a crash later.
    fn populate(&self, page: usize) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            let (start, bytes) = (self.start.as_ptr().cast(), self.bytes);
            // SAFETY: writes nothing but zeros that are there already.
            if unsafe { libc::madvise(start, bytes, libc::MADV_POPULATE_WRITE) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            // Kernels before 5.14 do not know the advice.
            if error.raw_os_error() != Some(libc::EINVAL) {
                return Err(error);
            }
        }
        for offset in (0..self.bytes).step_by(page) {
            // SAFETY: the byte lies inside the arena.
            unsafe { self.start.add(offset).write_volatile(0) };
        }
        Ok(())
    }

    /// Gives the pages from an offset on back to the system, in whole huge ones; what they held is lost.
    pub fn give_back(&mut self, from: Bytes) {
        let from = self.bytes.min(from.align_up(HUGE_PAGE).to_usize());
        // SAFETY: the pages lie inside the arena, which is borrowed alone, and any bytes will do where they
        // come back.
        unsafe {
            libc::madvise(self.start.add(from).as_ptr().cast(), self.bytes - from, libc::MADV_DONTNEED)
        };
    }

    /// Gives the whole pages within a slot back to the system; what they held is lost, and what shares a page
    /// with another slot stays.
    pub fn give_back_slot(&mut self, slot: Slot) {
        let page = page() as u64;
        let first = slot.offset.align_up(page).to_usize();
        let end = (slot.end().0 / page * page) as usize;
        if end <= first || self.bytes < end {
            return;
        }
        // SAFETY: the pages lie inside the arena, which is borrowed alone, and any bytes will do where they
        // come back.
        unsafe { libc::madvise(self.start.add(first).as_ptr().cast(), end - first, libc::MADV_DONTNEED) };
    }

    /// Makes every page resident again.
    pub fn take_again(&mut self) -> Result<(), DeviceError> {
        let arena = self.bytes();
        self.populate(page()).map_err(|reason| DeviceError::Refused { arena, reason })
    }

    /// How many bytes can be used.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.bytes as u64)
    }

    /// The bytes of a slot.
    pub fn slot(&self, slot: Slot) -> &[u8] {
        // SAFETY: the slot lies inside the arena, all of it is initialised, and it is borrowed with the arena.
        unsafe { std::slice::from_raw_parts(self.pointer(slot).as_ptr(), slot.bytes.to_usize()) }
    }

    /// The bytes of a slot, to be written.
    pub fn slot_mut(&mut self, slot: Slot) -> &mut [u8] {
        // SAFETY: as in `slot`; the arena is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(slot).as_ptr(), slot.bytes.to_usize()) }
    }

    /// The first byte of a slot, which must lie inside the arena at a multiple of [`ALIGNMENT`].
    pub fn pointer(&self, slot: Slot) -> NonNull<u8> {
        assert!(
            slot.bytes == Bytes::ZERO || slot.offset.0.is_multiple_of(ALIGNMENT),
            "slot {}+{} is not aligned",
            slot.offset.0,
            slot.bytes.0
        );
        self.pointer_to_part(slot)
    }

    /// The first byte of a part of a slot, such as some of its rows.
    pub fn pointer_to_part(&self, part: Slot) -> NonNull<u8> {
        if part.bytes == Bytes::ZERO {
            return self.start;
        }
        assert!(
            part.end() <= self.bytes(),
            "slot {}+{} does not lie in an arena of {} bytes",
            part.offset.0,
            part.bytes.0,
            self.bytes
        );
        // SAFETY: the offset lies inside the arena.
        unsafe { self.start.add(part.offset.to_usize()) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the reservation is this arena's own, and no slice of it outlives it.
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
