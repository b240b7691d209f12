//! The engine of the Python package `memfit`: requests in as JSON, arrays borrowed without a copy. What a
//! Python user sees is in `python/memfit`.

mod answers;
mod error;
mod request;
mod session;

use pyo3::prelude::*;

/// The module `memfit._engine`.
#[pymodule]
mod _engine {
    use memfit::process;
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::answers::{PlanAnswer, largest_batch, plan, sweep, weights};
    #[pymodule_export]
    use crate::session::Session;

    /// What this process holds now, freed heap given back: bytes that a budget does not count from here on.
    #[pyfunction]
    fn baseline() -> u64 {
        process::trim();
        process::resident().0
    }

    /// Bytes that this process holds now.
    #[pyfunction]
    fn resident() -> u64 {
        process::resident().0
    }

    /// Most bytes that this process held since the last plan began.
    #[pyfunction]
    fn resident_peak() -> u64 {
        process::resident_peak().0
    }

    /// Bytes as people write them: 1.50 GiB.
    #[pyfunction]
    fn size(bytes: u64) -> String {
        memfit::Bytes(bytes).to_string()
    }

    /// The processor's name, threads that this process may run at once, the most bytes that it may hold, and who says so.
    #[pyfunction]
    fn cpu() -> (String, usize, u64, String) {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let limits = process::limits();
        (process::processor(), threads, limits.available.0, limits.by.to_string())
    }

    /// Everything that there is to run on, as JSON: see `memfit devices --json`.
    #[pyfunction]
    fn devices() -> String {
        memfit::Devices::find().to_json().to_string()
    }
}

/// Runs without the interpreter, so that other Python threads go on.
fn without_python<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, memfit::Error> + Send,
) -> PyResult<T> {
    py.detach(work).map_err(|error| error::raise(py, &error))
}
