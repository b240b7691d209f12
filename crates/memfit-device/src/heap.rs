//! An allocator that counts: how many bytes of heap live now, so that growth between steps can be seen.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static LIVE: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, with a count of what it has handed out. A program makes it its `#[global_allocator]`.
pub struct Counting;

/// Bytes of heap that live now; 0 in a program whose allocator is not [`Counting`].
pub fn live() -> u64 {
    LIVE.load(Ordering::Relaxed)
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
        LIVE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `realloc`.
        let moved = unsafe { System.realloc(pointer, layout, size) };
        if !moved.is_null() {
            count(moved, size);
            LIVE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        }
        moved
    }
}

fn count(pointer: *mut u8, size: usize) {
    if !pointer.is_null() {
        LIVE.fetch_add(size as u64, Ordering::Relaxed);
    }
}
