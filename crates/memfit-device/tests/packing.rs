//! What a search may hold is known before it: a program that counts its heap is asked.
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use memfit_pack::{Effort, Item, bytes_of_search, pack};

struct Counting;

static LIVE: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size() as u64;
        PEAK.fetch_max(LIVE.fetch_add(size, Ordering::Relaxed) + size, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

/// One test at a time: the heap is that of all threads.
static ALONE: Mutex<()> = Mutex::new(());

/// Heap that some work takes at the most beyond what was held before.
fn most(work: impl FnOnce()) -> u64 {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    work();
    PEAK.load(Ordering::Relaxed) - before
}

/// Lives of a training step: what forward makes waits for backward, beside many short ones; repeated in slices.
fn items(seed: u64, count: u64, slices: u64) -> Vec<Item> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let life = |from: u64, to: u64, size| Item::new(from as usize, to as usize, size).aligned(64);
    let mut items = Vec::new();
    for slice in 0..slices {
        let start = slice * 4 * count;
        for index in 0..count {
            let size = 64 * (1 + draw(400));
            items.push(life(start + 2 * index, start + 4 * count - 2 * index - 1, size));
            let short = start + draw(4 * count - 3);
            items.push(life(short, short + 1 + draw(count), 64 * (1 + draw(900))));
        }
        let end = (slices - slice) * 4 * count;
        items.push(life(start, start + 1 + draw(end), 64 * (1 + draw(50))));
    }
    items
}

#[test]
fn a_search_holds_no_more_than_is_said() {
    let _alone = ALONE.lock();
    let mut searched = 0;
    for seed in 0..12 {
        for (count, slices) in [(25, 1), (80, 1), (250, 1), (10, 20), (4, 120), (40, 5)] {
            let items = items(seed, count, slices);
            let greedy = most(|| drop(pack(&items, Effort::GREEDY)));
            let whole = most(|| drop(pack(&items, Effort::nodes(5_000))));
            let said = bytes_of_search(&items);
            assert!(whole <= greedy + said, "{count} in {slices}: {whole} of {greedy} + {said}");
            searched += u32::from(greedy < whole);
        }
    }
    assert!(10 < searched, "only {searched} were searched");
}

#[test]
fn a_search_that_would_hold_too_much_is_not_begun() {
    let _alone = ALONE.lock();
    let items = items(3, 250, 1);
    let said = bytes_of_search(&items);
    let greedy = pack(&items, Effort::GREEDY);
    assert!(pack(&items, Effort::nodes(5_000)).height < greedy.height);
    assert_eq!(pack(&items, Effort::nodes(5_000).holding(said - 1)), greedy);
    assert!(pack(&items, Effort::nodes(5_000).holding(said)).height < greedy.height);
}
