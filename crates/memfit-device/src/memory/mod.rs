//! Who provides the arena's bytes: mapped pages, memory that other processes can map, or a buffer of the caller's.
//!
//! ```
//! use std::sync::Arc;
//!
//! use memfit_device::{Allocator, BUFFER_SLACK, Buffer, DeviceError, Memory};
//! use memfit_ir::Bytes;
//!
//! /// Takes what it gives from the heap.
//! #[derive(Debug)]
//! struct Heap;
//!
//! impl Allocator for Heap {
//!     fn allocate(&self, arena: Bytes) -> Result<Box<dyn Memory>, DeviceError> {
//!         Ok(Box::new(Buffer::new(vec![0; arena.to_usize() + BUFFER_SLACK])))
//!     }
//! }
//!
//! let allocator: Arc<dyn Allocator> = Arc::new(Heap);
//! assert!(allocator.allocate(Bytes(4096))?.bytes() >= Bytes(4096));
//! # Ok::<(), DeviceError>(())
//! ```
//!
//! # Decisions
//!
//! - **An [`Allocator`] is asked once for each arena,** with the exact bytes of the plan, and answers with a [`Memory`] that frees itself
//!   when it is dropped. What it gives is checked before training starts. Memory in which nodes are timed is not an arena: it is
//!   mapped pages.
//! - **Implementing `Memory` is unsafe, since kernels trust its addresses;** implementing `Allocator` is not. [`Buffer`] is a `Memory`
//!   of anything that owns bytes, so that an allocator of the user's needs no unsafe code.
//! - **A GPU's arena is no `Memory`.** Its addresses mean nothing to this process, which is all that [`crate::Arena`] relies on; its
//!   physical memory goes back as a whole and not by ranges; and mapping it again needs the driver's context to be current and its
//!   streams to be idle, which the device that owns them knows. It stays a type of `memfit-cuda`, with the same verbs.

mod buffer;
mod pages;
mod shared;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use memfit_ir::Bytes;

use crate::{DeviceError, process};

pub use buffer::{BUFFER_SLACK, Buffer};
pub(crate) use pages::Pages;
pub use pages::{HUGE_PAGE, MappedPages, page};
pub use shared::SharedMemory;

/// Provides the memory of arenas.
pub trait Allocator: fmt::Debug + Send + Sync {
    /// Memory of at least `arena` bytes, all of them zero, or why there is none.
    fn allocate(&self, arena: Bytes) -> Result<Box<dyn Memory>, DeviceError>;
}

/// One range of memory of this process, for one arena. It is freed when it is dropped.
///
/// # Safety
/// From `start` on, `bytes` bytes can be read and written, all of them initialised, until it is dropped; nothing else reads or writes
/// them; `start` is a multiple of [`memfit_ir::ALIGNMENT`]; and neither changes.
pub unsafe trait Memory: Send + Sync {
    /// The first byte.
    fn start(&self) -> NonNull<u8>;

    /// How many there are.
    fn bytes(&self) -> Bytes;

    /// Gives what lies in a range, which is inside, back to the system until [`Memory::take_again`]; any bytes will do there afterwards.
    /// A budget counts what stays resident, so that memory which does not go back may exceed it while a validation runs.
    fn give_back(&mut self, _range: Range<usize>) {}

    /// Makes all of it resident again, so that a lack of memory is an answer and not a crash later.
    fn take_again(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Refuses what is more than this process may still take.
pub fn require_room(arena: Bytes) -> Result<(), DeviceError> {
    let (limits, resident) = (process::limits(), process::resident());
    if limits.available.saturating_sub(resident) < arena {
        return Err(DeviceError::NoRoom { arena, resident, available: limits.available, by: limits.by });
    }
    Ok(())
}

/// Makes pages resident now; what they hold stays.
///
/// # Safety
/// The range is whole pages that can be written, and nothing else uses them meanwhile.
unsafe fn populate(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: as the caller guarantees; the advice changes no byte.
        if unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // Kernels before 5.14 do not know the advice.
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
    }
    for offset in (0..bytes).step_by(page()) {
        // SAFETY: the byte lies inside the range, and is written as it was.
        unsafe {
            let byte = start.add(offset);
            byte.write_volatile(byte.read_volatile());
        }
    }
    Ok(())
}
