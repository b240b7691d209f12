//! A lease on what is measured of the whole process: its resident memory and its peak belong to one job at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

static PROCESS: Mutex<()> = Mutex::new(());

/// Held while a job measures the process. A second job of the same process waits for the first.
pub(crate) struct Lease {
    _held: MutexGuard<'static, ()>,
}

impl Lease {
    /// Waits for it. A job that panicked has given it back.
    pub(crate) fn take() -> Lease {
        Lease { _held: PROCESS.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}
