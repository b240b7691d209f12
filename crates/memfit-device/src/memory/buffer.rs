//! A buffer of the caller's: anything that owns bytes.

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

use memfit_ir::{ALIGNMENT, Bytes};

use super::{Memory, page, populate};

/// Bytes that may be lost at the start of an owner's, which need not begin where an arena may.
pub const BUFFER_SLACK: usize = ALIGNMENT as usize - 1;

/// Memory of an owner of bytes: a boxed slice, a `&'static mut [u8]`, a mapping of another crate. The owner is dropped with it.
pub struct Buffer<B> {
    /// Kept as a pointer, so that no reference to the owner says that its bytes are used by nothing else.
    owner: NonNull<B>,
    start: NonNull<u8>,
    bytes: usize,
    owns: PhantomData<B>,
}

/// Where an arena may begin: the address of a buffer without bytes.
#[repr(align(64))]
struct Line;

const _: () = assert!(align_of::<Line>() == ALIGNMENT as usize);

// SAFETY: the owner may move between threads, and its bytes are reached through this buffer alone.
unsafe impl<B: Send> Send for Buffer<B> {}
// SAFETY: shared access only reads, and never reaches the owner.
unsafe impl<B: Send> Sync for Buffer<B> {}

impl<B: AsMut<[u8]> + Send + 'static> Buffer<B> {
    /// Takes an owner's bytes from the first on at which an arena may begin, and writes zeros there, so that all of them are resident.
    pub fn new(owner: B) -> Buffer<B> {
        // SAFETY: a box is never null.
        let mut owner = unsafe { NonNull::new_unchecked(Box::into_raw(Box::new(owner))) };
        // SAFETY: the owner is on the heap, and this is the only time that it is asked for its bytes.
        let bytes = unsafe { owner.as_mut() }.as_mut();
        let skipped = bytes.as_ptr().align_offset(ALIGNMENT as usize).min(bytes.len());
        let usable = &mut bytes[skipped..];
        usable.fill(0);
        let start = match usable {
            [] => NonNull::<Line>::dangling().cast(),
            [..] => NonNull::from(&mut *usable).cast(),
        };
        Buffer { owner, start, bytes: usable.len(), owns: PhantomData }
    }
}

impl<B> Buffer<B> {
    /// The whole pages inside a range: their start, and their bytes.
    fn pages_in(&self, Range { start, end }: Range<usize>) -> Option<(NonNull<u8>, usize)> {
        let (page, first) = (page(), self.start.as_ptr() as usize);
        let from = (first + start).next_multiple_of(page);
        let to = (first + end) / page * page;
        // SAFETY: the first page begins inside the buffer.
        (from < to).then(|| (unsafe { self.start.add(from - first) }, to - from))
    }
}

// SAFETY: the owner keeps its bytes where they are while nothing touches it, and nothing does before `drop`; they are initialised, and
// the start was aligned.
unsafe impl<B: AsMut<[u8]> + Send + 'static> Memory for Buffer<B> {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn bytes(&self) -> Bytes {
        Bytes(self.bytes as u64)
    }

    fn give_back(&mut self, range: Range<usize>) {
        if let Some((start, bytes)) = self.pages_in(range) {
            // SAFETY: whole pages of the buffer, which is borrowed alone; any bytes will do where they come back. Where the system
            // cannot take them, they stay.
            unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTNEED) };
        }
    }

    fn take_again(&mut self) -> io::Result<()> {
        let Some((start, bytes)) = self.pages_in(0..self.bytes) else { return Ok(()) };
        // SAFETY: whole pages of the buffer, which is borrowed alone.
        unsafe { populate(start, bytes) }
    }
}

impl<B> Drop for Buffer<B> {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and nothing uses its bytes any more.
        drop(unsafe { Box::from_raw(self.owner.as_ptr()) });
    }
}
