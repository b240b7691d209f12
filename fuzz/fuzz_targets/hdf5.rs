//! An HDF5 file of any bytes behind its signature.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "opened.rs"]
mod opened;

fuzz_target!(|bytes: &[u8]| {
    // What is no HDF5 is the other targets' matter.
    if bytes.starts_with(b"\x89HDF\r\n\x1a\n") {
        opened::open_and_read(bytes);
    }
});
