//! Convolutions by cuDNN, NHWC: engines are chosen once for each shape and never take more workspace than
//! they are given.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Mutex;

use cudarc::cudnn::sys;
use memfit_ir::Bytes;

use super::backend::{Handle, check};
use super::candidates::Candidates;
use super::driver::{CudaError, Stream};
use super::engines::{Engine, Key, engines};
use super::times::Times;
use super::work::Convolution;

/// What a pass over memory moves, roughly.
const BYTES_PER_MILLISECOND: f32 = 3e9;

/// The library.
pub(crate) struct Convolutions {
    handle: Handle,
    /// Whether f32 may be multiplied in TF32.
    tf32: bool,
    prepared: Mutex<BTreeMap<Key, Prepared>>,
}

// SAFETY: the handle and what was made with it are only used while the lock is held.
unsafe impl Send for Convolutions {}
// SAFETY: as above.
unsafe impl Sync for Convolutions {}

/// A convolution that was prepared.
struct Prepared {
    engines: Vec<Engine>,
    /// Indices of the engines.
    candidates: Candidates<usize>,
}

/// Addresses of a convolution's operands and workspace.
pub(crate) struct Places {
    pub(crate) x: u64,
    pub(crate) filter: u64,
    pub(crate) y: u64,
    pub(crate) bias: u64,
    pub(crate) workspace: u64,
    pub(crate) workspace_bytes: usize,
}

impl Convolutions {
    pub(crate) fn open(stream: &Stream, tf32: bool) -> Result<Convolutions, CudaError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library writes a handle, and takes a stream that lives as long.
        unsafe {
            check(sys::cudnnCreate(&mut handle), "open cuDNN")?;
            check(sys::cudnnSetStream(handle, stream.raw().cast()), "give cuDNN a stream")?;
        }
        Ok(Convolutions { handle: Handle(handle), tf32, prepared: Mutex::default() })
    }

    /// The workspace of the best algorithm that needs no more than this.
    pub(crate) fn workspace(&self, convolution: &Convolution, limit: Bytes) -> Result<Bytes, CudaError> {
        let mut prepared = self.prepared.lock().expect("no thread panics while it holds the lock");
        let known = self.prepare(&mut prepared, Key::of(convolution))?;
        let best = known.candidates.best(limit.to_usize()).map(|one| Bytes(one.workspace as u64));
        best.ok_or_else(|| unknown(convolution))
    }

    /// Workspaces within a limit that make a difference, with their milliseconds, the least first; none where
    /// nothing was timed.
    pub(crate) fn offered(
        &self,
        convolution: &Convolution,
        limit: Bytes,
    ) -> Result<Option<Vec<(usize, f32)>>, CudaError> {
        let mut prepared = self.prepared.lock().expect("no thread panics while it holds the lock");
        Ok(self.prepare(&mut prepared, Key::of(convolution))?.candidates.offered(limit.to_usize()))
    }

    /// Runs a convolution; returns whether it has applied its bias and ReLU.
    pub(crate) fn run(&self, convolution: &Convolution, places: &Places) -> Result<bool, CudaError> {
        let mut prepared = self.prepared.lock().expect("no thread panics while it holds the lock");
        let known = self.prepare(&mut prepared, Key::of(convolution))?;
        let best = known.candidates.best(places.workspace_bytes).ok_or_else(|| unknown(convolution))?;
        let engine = &known.engines[best.algorithm];
        let run = engine.run(self.handle, places);
        run.map(|()| engine.finishes).map_err(|CudaError(words)| {
            CudaError(format!("{words}, by engine {} of {:?}", engine.name, Key::of(convolution)))
        })
    }

    /// Whether some algorithm for a convolution needs no more workspace than this.
    pub(crate) fn fits(&self, convolution: &Convolution, limit: usize) -> Result<bool, CudaError> {
        let mut prepared = self.prepared.lock().expect("no thread panics while it holds the lock");
        let known = self.prepare(&mut prepared, Key::of(convolution))?;
        Ok(known.candidates.best(limit).is_some_and(|one| one.workspace <= limit))
    }

    /// Times the algorithms for a convolution, where that was not done yet.
    pub(crate) fn time(
        &self,
        stream: &Stream,
        convolution: &Convolution,
        places: &Places,
        times: &Times,
    ) -> Result<(), CudaError> {
        let mut prepared = self.prepared.lock().expect("no thread panics while it holds the lock");
        let Prepared { engines, candidates } = self.prepare(&mut prepared, Key::of(convolution))?;
        if candidates.is_timed() {
            return Ok(());
        }
        let name = format!("{:?} tf32 {}", Key::of(convolution), self.tf32);
        candidates.time(stream, places.workspace_bytes, times, &name, |engine, _| {
            engines[engine].run(self.handle, places)
        })?;
        // An algorithm that does not apply bias and ReLU leaves them to another pass, which reads and writes
        // the result.
        let elements = convolution.rows * convolution.output.iter().product::<usize>();
        let pass = 2.0 * elements as f32 * convolution.dtype.size() as f32 / BYTES_PER_MILLISECOND;
        let is_left = |engine: &usize| Key::of(convolution).is_finished() && !engines[*engine].finishes;
        candidates.add_time(|engine| if is_left(engine) { pass } else { 0.0 });
        Ok(())
    }

    fn prepare<'a>(
        &self,
        prepared: &'a mut BTreeMap<Key, Prepared>,
        key: Key,
    ) -> Result<&'a mut Prepared, CudaError> {
        Ok(match prepared.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let engines = engines(self.handle, &key, self.tf32)?;
                let algorithms = engines.iter().map(|engine| engine.workspace).enumerate().collect();
                place.insert(Prepared { engines, candidates: Candidates::new(algorithms) })
            }
        })
    }
}

fn unknown(convolution: &Convolution) -> CudaError {
    CudaError(format!("cuDNN has no algorithm to convolve {:?}", Key::of(convolution)))
}

impl Drop for Convolutions {
    fn drop(&mut self) {
        // What was made with the handle goes before it.
        if let Ok(prepared) = self.prepared.get_mut() {
            prepared.clear();
        }
        // SAFETY: opened once, closed once.
        let _ = unsafe { sys::cudnnDestroy(self.handle.0) };
    }
}
