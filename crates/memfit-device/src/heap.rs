//! An allocator that counts: how many bytes of heap live now, so that growth between steps can be seen.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

static LIVE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Bytes that this thread took less those it freed.
    static HERE: Cell<i64> = const { Cell::new(0) };
    /// The most of them since [`measured`] began.
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, with a count of what it has handed out. A program makes it its
/// `#[global_allocator]`.
pub struct Counting;

/// Bytes of heap that live now; 0 in a program whose allocator is not [`Counting`].
pub fn live() -> u64 {
    LIVE.load(Ordering::Relaxed)
}

/// Bytes of heap that this thread took less those it freed. What a part of its work left is the difference of
/// two readings, whatever other threads do meanwhile. 0 in a program whose allocator is not [`Counting`].
pub fn here() -> i64 {
    HERE.get()
}

/// Does some work and says how much more heap this thread held at the most while it did, and when it was
/// done.
pub fn measured<T>(work: impl FnOnce() -> T) -> (T, Taken) {
    let (before, outer) = (HERE.get(), PEAK.get());
    PEAK.set(before);
    let result = work();
    let (most, left) = (PEAK.get() - before, HERE.get() - before);
    PEAK.set(outer.max(PEAK.get()));
    (result, Taken { most: most.max(0) as u64, left: left.max(0) as u64 })
}

/// What some work took of the heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// At the most.
    pub most: u64,
    /// When it was done.
    pub left: u64,
}

/// Whether the program counts its heap.
pub fn is_counted() -> bool {
    live() != 0
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        let pointer = unsafe { System.alloc(layout) };
        count(pointer, layout.size());
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        count(pointer, layout.size());
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) };
        uncount(layout.size());
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `realloc`.
        let moved = unsafe { System.realloc(pointer, layout, size) };
        if !moved.is_null() {
            count(moved, size);
            uncount(layout.size());
        }
        moved
    }
}

fn count(pointer: *mut u8, size: usize) {
    if !pointer.is_null() {
        LIVE.fetch_add(size as u64, Ordering::Relaxed);
        let here = HERE.get() + size as i64;
        HERE.set(here);
        if PEAK.get() < here {
            PEAK.set(here);
        }
    }
}

fn uncount(size: usize) {
    LIVE.fetch_sub(size as u64, Ordering::Relaxed);
    HERE.set(HERE.get() - size as i64);
}
