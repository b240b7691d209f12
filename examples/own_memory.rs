//! Training in memory of the caller's own: a pool that the program took at its start gives the arena, byte for byte as planned.
//!
//! An allocator is asked once, when the plan is known and before the first step. It may take its memory from wherever it likes: a pool
//! as here, a mapping of another crate, memory that a program shares with others (`memfit::SharedMemory`).
//!
//! Run it with `cargo run --release -p memfit --example own_memory`.
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use memfit::{Allocator, BUFFER_SLACK, Buffer, Bytes, DeviceError, Job, Memory, Quiet, fit};

/// A small network on synthetic rows.
const JOB: &str = r#"
[[model.layers]]
class = "Input"
shape = [12, 12, 3]
[[model.layers]]
class = "Conv2D"
filters = 8
kernel_size = 3
activation = "relu"
[[model.layers]]
class = "MaxPooling2D"
[[model.layers]]
class = "Flatten"
[[model.layers]]
class = "Dense"
units = 4
activation = "softmax"
[train]
loss = "sparse_categorical_crossentropy"
optimizer = "adam"
batch = 16
steps = 10
device = "cpu"
"#;

/// One block of memory, from which parts are cut off and never come back.
#[derive(Debug)]
struct Pool {
    rest: Mutex<&'static mut [u8]>,
}

impl Pool {
    /// The program's own memory. Its pages become resident as they are used.
    fn of(bytes: usize) -> Pool {
        Pool { rest: Mutex::new(Box::leak(vec![0; bytes].into_boxed_slice())) }
    }

    /// What has not been cut off.
    fn left(&self) -> usize {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Allocator for Pool {
    fn allocate(&self, arena: Bytes) -> Result<Box<dyn Memory>, DeviceError> {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = arena.to_usize() + BUFFER_SLACK;
        if rest.len() < wanted {
            let reason = io::Error::other(format!("the pool has {} bytes left", rest.len()));
            return Err(DeviceError::Refused { arena, reason });
        }
        let (part, left) = std::mem::take(&mut *rest).split_at_mut(wanted);
        *rest = left;
        Ok(Box::new(Buffer::new(part)))
    }
}

/// Trains a job in a pool, and again in one that is too small.
pub fn main() {
    let mut job = Job::parse(JOB, PathBuf::new()).expect("the job is well formed");
    let pool = Arc::new(Pool::of(16 << 20));
    job.caller.allocator = Some(Arc::clone(&pool) as Arc<dyn Allocator>);
    let before = pool.left();
    let report = fit(&job, Some(2), &mut Quiet).expect("the pool has room");
    let (predicted, measured) = (report.bytes_peak_predicted, report.bytes_peak_measured);
    println!("the plan predicts a peak of {} bytes, training reached {}", predicted.0, measured.0);
    println!("the pool gave {} bytes for it", before - pool.left());
    assert_eq!(predicted, measured);

    job.caller.allocator = Some(Arc::new(Pool::of(4096)));
    let refused = fit(&job, Some(2), &mut Quiet).expect_err("a page is too little");
    println!("a pool of one page: {refused}");
}
