//! The program's own pages: text, constants and shared libraries, made resident so that they count from the
//! start, and given back when most of them have done their work.

use std::sync::atomic::{AtomicU64, Ordering};

use memfit_ir::Bytes;

/// Touches every page of the files this program runs from, and says how much that is. Files that are only
/// mapped as data are left alone.
pub fn populate_program() -> Bytes {
    populate_files(|_| true)
}

/// Touches every page of the file that this code is in: the library, where it runs within another program.
pub fn populate_library() -> Bytes {
    let here = populate_library as fn() -> Bytes as usize;
    populate_files(|mappings| mappings.iter().any(|mapping| (mapping.start..mapping.end).contains(&here)))
}

/// Touches every page of the files with code whose mappings are wanted, and adds them up.
fn populate_files(wanted: impl Fn(&[&Mapping<'_>]) -> bool) -> Bytes {
    let mut touched = Bytes::ZERO;
    #[cfg(not(target_os = "linux"))]
    let _ = wanted;
    #[cfg(target_os = "linux")]
    if let Ok(maps) = std::fs::read_to_string("/proc/self/maps") {
        let mappings: Vec<Mapping> = maps.lines().filter_map(Mapping::parse).collect();
        for mapping in &mappings {
            let same: Vec<&Mapping> = mappings.iter().filter(|other| other.path == mapping.path).collect();
            let runs = same.iter().any(|other| other.executable);
            if runs && mapping.readable && wanted(&same) {
                populate(mapping);
                touched += Bytes((mapping.end - mapping.start) as u64);
            }
        }
    }
    touched
}

/// Frees the pages of the files that this program runs from: pages that are needed again are read again.
/// Mappings with a page of their own, such as one with a breakpoint, are left alone.
pub fn give_back_program() {
    #[cfg(target_os = "linux")]
    if let Ok(text) = std::fs::read_to_string("/proc/self/smaps") {
        let mappings = as_in_files(&text);
        let files = mappings.iter().map(|mapping| (mapping.end - mapping.start) as u64).sum();
        FILES_GIVEN_BACK.store(files, Ordering::Relaxed);
        for mapping in mappings {
            let (start, length) = (mapping.start as *mut libc::c_void, mapping.end - mapping.start);
            // SAFETY: these pages are not written, and none differs from its file, which is read again where
            // one is needed.
            unsafe { libc::madvise(start, length, libc::MADV_DONTNEED) };
        }
    }
}

/// The size of the mappings whose pages were given back.
static FILES_GIVEN_BACK: AtomicU64 = AtomicU64::new(0);

/// The size of the mappings whose pages were given back, and come back one by one from then on; none where
/// none were.
pub(super) fn files_given_back() -> Option<Bytes> {
    Some(Bytes(FILES_GIVEN_BACK.load(Ordering::Relaxed))).filter(|files| *files != Bytes::ZERO)
}

/// Of the mappings in `/proc/self/smaps`, those of files with code that cannot be written and hold nothing
/// but what is in the file.
#[cfg(target_os = "linux")]
fn as_in_files(text: &str) -> Vec<Mapping<'_>> {
    // How much of a mapping is its own follows its line, as other figures do; so does the next mapping, which
    // may have no file.
    let mut mappings: Vec<(Mapping, Option<&str>)> = Vec::new();
    for line in text.lines() {
        if let Some(mapping) = Mapping::parse(line) {
            mappings.push((mapping, None));
        } else if let (Some(own), Some((_, known))) = (line.strip_prefix("Anonymous:"), mappings.last_mut()) {
            known.get_or_insert(own.trim());
        }
    }
    let code: Vec<&str> =
        mappings.iter().filter(|(mapping, _)| mapping.executable).map(|(mapping, _)| mapping.path).collect();
    let unchanged = |mapping: &Mapping| mapping.readable && !mapping.writable && code.contains(&mapping.path);
    let kept = mappings.into_iter().filter(|(mapping, own)| *own == Some("0 kB") && unchanged(mapping));
    kept.map(|(mapping, _)| mapping).collect()
}

/// A line of `/proc/self/maps` that maps a file.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "other systems have no such lines"))]
#[derive(Debug, PartialEq)]
struct Mapping<'a> {
    start: usize,
    end: usize,
    readable: bool,
    writable: bool,
    executable: bool,
    offset: usize,
    path: &'a str,
}

#[cfg(target_os = "linux")]
impl Mapping<'_> {
    /// Reads `start-end permissions offset device inode path`.
    fn parse(line: &str) -> Option<Mapping<'_>> {
        let path = &line[line.find('/')?..];
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let permissions = words.next()?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some(Mapping {
            start: number(start)?,
            end: number(end)?,
            readable: permissions.starts_with('r'),
            writable: permissions.contains('w'),
            executable: permissions.contains('x'),
            offset: number(words.next()?)?,
            path,
        })
    }
}

#[cfg(target_os = "linux")]
fn populate(mapping: &Mapping<'_>) {
    let length = mapping.end - mapping.start;
    // SAFETY: the advice reads pages in; it fails where a page has no file, and changes nothing.
    let populated =
        unsafe { libc::madvise(mapping.start as *mut libc::c_void, length, libc::MADV_POPULATE_READ) };
    if populated == 0 {
        return;
    }
    // Kernels before 5.14 do not know the advice. Pages after the end of the file must not be touched.
    let file = std::fs::metadata(mapping.path).map_or(0, |file| file.len() as usize);
    let inside = file.saturating_sub(mapping.offset).min(length);
    for offset in (0..inside).step_by(crate::page()) {
        // SAFETY: the page is mapped, readable, and lies inside its file.
        unsafe { ((mapping.start + offset) as *const u8).read_volatile() };
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn lines_with_a_file_are_mappings() {
        let line = "7f10-7f30 r-xp 00002000 fd:01 1234    /usr/lib/a library.so";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x7f10, 0x7f30, 0x2000));
        assert!(
            mapping.readable
                && !mapping.writable
                && mapping.executable
                && mapping.path == "/usr/lib/a library.so"
        );
        assert_eq!(Mapping::parse("7f10-7f30 rw-p 00000000 00:00 0          [heap]"), None);
        assert_eq!(Mapping::parse("7f10-7f30 rw-p 00000000 00:00 0"), None);
    }

    #[test]
    fn mappings_with_pages_of_their_own_are_kept() {
        let text = "10-20 r--p 00000000 fd:01 12    /bin/a\nAnonymous:    0 kB\n\
            20-30 r-xp 00000000 fd:01 12    /bin/a\nRss:    8 kB\nAnonymous:    0 kB\n\
            30-40 r--p 00000000 fd:01 12    /bin/a\nAnonymous:    4 kB\n50-60 rw-p 00000000 00:00 0 \nAnonymous:    0 kB\n\
            70-80 rw-p 00000000 fd:01 12    /bin/a\nAnonymous:    0 kB\n\
            80-90 r--p 00000000 fd:01 13    /data.npy\nAnonymous:    0 kB\n";
        let starts: Vec<usize> = as_in_files(text).iter().map(|mapping| mapping.start).collect();
        assert_eq!(starts, [0x10, 0x20]);
    }

    #[test]
    fn the_program_runs_on_when_its_pages_are_given_back() {
        populate_program();
        give_back_program();
        assert_eq!("1,2".split(',').count(), 2);
    }
}
