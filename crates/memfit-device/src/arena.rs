//! The arena: one block of memory, as large as the plan says, resident from the start.

use std::ptr::NonNull;

use memfit_ir::{ALIGNMENT, Bytes, Slot};

use crate::DeviceError;
use crate::found_inf::FoundInf;
use crate::memory::{Allocator, HUGE_PAGE, MappedPages, Memory, Pages, page};

/// One range of memory of some provider. It never grows, and is freed when dropped.
pub struct Arena {
    memory: Box<dyn Memory>,
    /// First usable byte.
    start: NonNull<u8>,
    bytes: usize,
    /// Raised by kernels that did not write what was not finite.
    pub found_inf: FoundInf,
}

// SAFETY: an arena is memory that it owns alone; the pointer is not tied to a thread.
unsafe impl Send for Arena {}
// SAFETY: shared access only reads.
unsafe impl Sync for Arena {}

impl Arena {
    /// Takes `bytes` bytes of an allocator, or of whole mapped pages without one.
    pub fn take(bytes: Bytes, allocator: Option<&dyn Allocator>) -> Result<Arena, DeviceError> {
        Arena::over(bytes, allocator.unwrap_or(&MappedPages).allocate(bytes)?)
    }

    /// Maps `bytes` bytes for a moment, in which nodes are timed: the caller knows that there is room.
    pub fn map(bytes: Bytes) -> Result<Arena, DeviceError> {
        Arena::over(bytes, Box::new(Pages::map(bytes)?))
    }

    /// An arena of `bytes` bytes, in whole pages where the memory has them.
    fn over(bytes: Bytes, memory: Box<dyn Memory>) -> Result<Arena, DeviceError> {
        let (start, given) = (memory.start(), memory.bytes());
        if given < bytes {
            return Err(DeviceError::TooLittle { arena: bytes, given });
        }
        assert!((start.as_ptr() as u64).is_multiple_of(ALIGNMENT), "memory begins where an arena may");
        let bytes = given.min(bytes.align_up(page() as u64)).to_usize();
        Ok(Arena { memory, start, bytes, found_inf: FoundInf::default() })
    }

    /// Gives the pages from an offset on back to the system, in whole huge ones; what they held is lost.
    pub fn give_back(&mut self, from: Bytes) {
        let from = self.bytes.min(from.align_up(HUGE_PAGE).to_usize());
        self.memory.give_back(from..self.bytes);
    }

    /// Gives the whole pages within a slot back to the system; what they held is lost, and what shares a page
    /// with another slot stays.
    pub fn give_back_slot(&mut self, slot: Slot) {
        let page = page() as u64;
        let first = slot.offset.align_up(page).to_usize();
        let end = (slot.end().0 / page * page) as usize;
        if first < end && end <= self.bytes {
            self.memory.give_back(first..end);
        }
    }

    /// Makes every page resident again.
    pub fn take_again(&mut self) -> Result<(), DeviceError> {
        let arena = self.bytes();
        self.memory.take_again().map_err(|reason| DeviceError::Refused { arena, reason })
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
