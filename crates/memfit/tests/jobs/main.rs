//! Jobs through the front door. Tests that look at the memory of their process have binaries of their own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

mod example;
mod hostile;
mod stopped;
