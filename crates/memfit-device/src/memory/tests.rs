//! What every provider promises of its memory.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use memfit_ir::ALIGNMENT;

use super::*;

/// The heap, from a byte on where no arena may begin.
#[derive(Debug)]
struct Heap;

impl Allocator for Heap {
    fn allocate(&self, arena: Bytes) -> Result<Box<dyn Memory>, DeviceError> {
        Ok(Box::new(Buffer::new(vec![0xff; arena.to_usize() + BUFFER_SLACK])))
    }
}

/// Sets a byte, and returns what was there.
fn swap(memory: &mut dyn Memory, at: usize, value: u8) -> u8 {
    assert!(at < memory.bytes().to_usize());
    // SAFETY: the byte lies inside memory that is borrowed alone.
    unsafe { std::mem::replace(memory.start().add(at).as_mut(), value) }
}

#[test]
fn memory_is_aligned_zero_and_keeps_what_is_not_given_back() {
    let providers: [Arc<dyn Allocator>; 3] =
        [Arc::new(MappedPages), Arc::new(SharedMemory::default()), Arc::new(Heap)];
    for allocator in providers {
        let bytes = 16 * page();
        let mut memory = allocator.allocate(Bytes(bytes as u64)).unwrap();
        assert!(memory.bytes() >= Bytes(bytes as u64), "{allocator:?}");
        assert!((memory.start().as_ptr() as u64).is_multiple_of(ALIGNMENT), "{allocator:?}");
        for at in 0..bytes {
            assert_eq!(swap(&mut *memory, at, 7), 0, "{allocator:?}");
        }
        let (from, to) = (4 * page(), 12 * page());
        memory.give_back(from..to);
        memory.take_again().unwrap();
        for at in (0..from).chain(to..bytes) {
            assert_eq!(swap(&mut *memory, at, 8), 7, "{allocator:?}");
        }
        // Whole pages went, so that they came back as zeros.
        assert_eq!(swap(&mut *memory, from + 2 * page(), 8), 0, "{allocator:?}");
    }
}

#[test]
fn another_mapping_of_shared_memory_sees_what_is_written() {
    let shared = SharedMemory::default();
    let mut arena = shared.allocate(Bytes(1)).unwrap();
    swap(&mut *arena, 3, 42);
    let mut seen = vec![0; page()];
    shared.file().unwrap().read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(seen[..5], [0, 0, 0, 42, 0]);
}

#[test]
fn an_owner_without_room_gives_nothing() {
    for bytes in [vec![], vec![1; 1]] {
        let buffer = Buffer::new(bytes);
        assert!(buffer.bytes() <= Bytes(1) && (buffer.start().as_ptr() as u64).is_multiple_of(ALIGNMENT));
    }
}

#[test]
fn more_than_there_is_is_refused_with_numbers() {
    let error = MappedPages.allocate(Bytes(1 << 50)).err().unwrap();
    assert!(matches!(error, DeviceError::NoRoom { arena: Bytes(0x4_0000_0000_0000), .. }), "{error:?}");
    let error = SharedMemory::default().allocate(Bytes(1 << 50)).err().unwrap();
    assert!(error.to_string().contains("lower the budget"), "{error}");
}
