//! Where rows come from: arrays of the caller, files, and synthetic ones.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it stopped")]

mod borrowed;
mod npy;
mod synthetic;
