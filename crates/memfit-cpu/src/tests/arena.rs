//! The arena and the device around it.

use memfit_ir::{Bytes, Slot};

use memfit_device::{DeviceError, page};

use crate::open;

fn slot(offset: u64, bytes: u64) -> Slot {
    Slot { offset: Bytes(offset), bytes: Bytes(bytes) }
}

#[test]
fn an_arena_is_whole_pages_zeroed_and_aligned() {
    let page = page() as u64;
    for (bytes, mapped) in [(0, 0), (1, page), (page, page), (page + 1, 2 * page), (5 << 20, 5 << 20)] {
        let device = open(Some(1)).unwrap().seal(Bytes(bytes)).unwrap();
        assert_eq!(device.bytes_arena(), Bytes(mapped));
        let all = device.bytes(slot(0, mapped));
        assert!(all.len() as u64 == mapped && all.iter().all(|byte| *byte == 0));
        let alignment = if mapped < 2 << 20 { page } else { 2 << 20 };
        assert!((all.as_ptr() as u64).is_multiple_of(alignment));
    }
}

#[test]
fn the_peak_is_the_highest_end_of_a_slot() {
    let mut device = open(Some(1)).unwrap().seal(Bytes(8192)).unwrap();
    assert_eq!(device.bytes_peak(), Bytes(0));
    device.floats_mut(slot(64, 8)).fill(1.0);
    assert_eq!(device.bytes_peak(), Bytes(72));
    assert_eq!(device.floats(slot(0, 128))[15..19], [0.0, 1.0, 1.0, 0.0]);
    assert_eq!(device.bytes_peak(), Bytes(128));
    device.bytes(slot(4096, 0));
    assert_eq!(device.bytes_peak(), Bytes(128));
}

#[test]
fn slots_outside_the_arena_or_between_lines_are_refused() {
    for wrong in [slot(0, 8192), slot(4096, 4), slot(32, 4)] {
        let device = open(Some(1)).unwrap().seal(Bytes(4096)).unwrap();
        let reading = std::panic::AssertUnwindSafe(|| device.bytes(wrong).len());
        assert!(std::panic::catch_unwind(reading).is_err(), "{wrong:?}");
    }
}

/// A write past the arena ends the process that does it: a child, since this one must live.
#[cfg(target_os = "linux")]
#[test]
fn guards_stand_on_both_sides() {
    let mut device = open(Some(1)).unwrap().seal(Bytes(page() as u64)).unwrap();
    let bytes = device.bytes_mut(slot(0, page() as u64));
    let (before, after) = (bytes.as_mut_ptr().wrapping_sub(1), bytes.as_mut_ptr().wrapping_add(bytes.len()));
    for outside in [before, after] {
        // SAFETY: the child does nothing but touch a byte and leave, neither of which needs a lock.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                outside.write_volatile(1);
                libc::_exit(0);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            status
        };
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV);
    }
}

#[test]
fn what_cannot_be_had_is_an_answer_with_numbers() {
    let error = open(Some(1)).unwrap().seal(Bytes(1 << 50)).err().unwrap();
    assert!(matches!(error, DeviceError::NoRoom { arena: Bytes(0x4_0000_0000_0000), .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("the arena needs 1024.00 TiB") && text.contains("lower the budget"), "{text}");
    let error = open(Some(0)).err().unwrap();
    assert_eq!(
        error.to_string(),
        "cannot start 0 threads (a pool needs at least 1 thread); ask for fewer, at least 1"
    );
}
