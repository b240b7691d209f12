//! What this process holds, as the system counts it, and what it may hold.

mod limits;
mod program;
mod start;

use memfit_ir::Bytes;

pub use limits::{LimitedBy, Limits, limits};
pub use program::{give_back_program, populate_library, populate_program};
pub use start::{let_writes_fail, stack_limit};

/// Memory that is resident now (`VmRSS`).
pub fn resident() -> Bytes {
    status("VmRSS:").unwrap_or_else(resident_max)
}

/// Memory that counts as held now: what is resident, with the program's files in full where their pages were
/// given back, since these come back as they are needed, and when is a matter of which thread runs what.
pub fn held() -> Bytes {
    match (program::files_given_back(), status("RssFile:")) {
        (Some(files), Some(of_files)) => resident().saturating_sub(of_files) + files,
        (None, _) | (_, None) => resident(),
    }
}

/// The most memory that was ever resident (`VmHWM`).
pub fn resident_peak() -> Bytes {
    status("VmHWM:").unwrap_or_else(resident_max)
}

/// Resets `VmHWM` to what is resident now; false where the system does not allow it.
pub fn reset_peak() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// What the processor calls itself; the name of its architecture where the system does not say more.
pub fn processor() -> String {
    let known = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = known.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).to_owned()
}

/// Gives freed heap back to the system, where its allocator can.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the allocator may be asked this at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Has freed heap go back to the system soon, on every thread, where the allocator can: what planning frees
/// on its threads is otherwise kept by each, how much hangs on who ran when, and [`trim`] does not reach it.
/// For a program of our own.
pub fn give_back_early() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: this may be called at any time.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 20);
        // Said too, since it would follow what is freed, and the other with it. Below it, memory is taken
        // from what a thread has.
        libc::mallopt(libc::M_MMAP_THRESHOLD, 4 << 20);
        // Where the address space is limited, heaps of threads, 64 MiB each whatever they hold, would take
        // all of it.
        if limits::address_space_is_limited() {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// A line of `/proc/self/status`, read without the heap, which the caller may be measuring.
fn status(field: &str) -> Option<Bytes> {
    use std::io::Read;

    let mut buffer = [0; 8192];
    let mut length = 0;
    let mut file = std::fs::File::open("/proc/self/status").ok()?;
    while length < buffer.len() {
        match file.read(&mut buffer[length..]).ok()? {
            0 => break,
            count => length += count,
        }
    }
    kibibytes(std::str::from_utf8(&buffer[..length]).ok()?, field)
}

/// The value after `field` in a text of lines such as `VmRSS:    1776 kB`.
fn kibibytes(text: &str, field: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let count: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(1024) * count)
}

/// For systems without `/proc`: the largest resident size, in kibibytes except on Apple's, which count bytes.
fn resident_max() -> Bytes {
    // SAFETY: the call fills the structure, for which zeros are valid.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let unit = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
    Bytes(unit) * u64::try_from(usage.ru_maxrss).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_is_read_in_kibibytes() {
        let text = "Name:\tcat\nVmHWM:\t    1776 kB\nVmRSS:\t 12 kB\n";
        assert_eq!(kibibytes(text, "VmHWM:"), Some(Bytes(1776 * 1024)));
        assert_eq!(kibibytes(text, "VmRSS:"), Some(Bytes(12 * 1024)));
        assert_eq!(kibibytes(text, "VmSwap:"), None);
    }

    #[test]
    fn the_peak_is_at_least_what_is_resident() {
        let resident = resident();
        assert!(Bytes::mib(1) < resident && resident <= resident_peak() + Bytes::mib(1));
    }

    #[test]
    fn the_program_can_be_made_resident_and_freed_heap_given_back() {
        populate_program();
        trim();
        assert!(Bytes::mib(1) < resident());
    }
}
