//! The packer: tables, random properties and the benchmarks of the minimalloc paper.
#![expect(clippy::print_stdout, reason = "a skipped test says so")]

mod minimalloc;
mod packing;
mod random;
