//! A `.keras` archive with a few fields changed: the zip's own records and what they lead to.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "opened.rs"]
mod opened;

fuzz_target!(|bytes: &[u8]| opened::open_and_read(bytes));
