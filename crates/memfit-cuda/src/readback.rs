//! Readback of steps in flight: copies of a few small slots to pinned memory, so that the next step is
//! launched before they are read.

use memfit_ir::Bytes;

use super::driver::{CudaError, Event, Stream};
use super::memory::Pinned;

/// Steps whose words the host may not have read yet.
pub(crate) const STEPS_IN_FLIGHT: usize = 2;

/// Pinned memory with a part for each turn, and when what was asked for there has come.
pub(crate) struct Readback {
    memory: Pinned,
    bytes: usize,
    over: [Event; STEPS_IN_FLIGHT],
}

impl Readback {
    /// Room for `bytes` bytes of each step.
    pub(crate) fn new(bytes: Bytes) -> Result<Readback, CudaError> {
        let bytes = bytes.to_usize();
        Ok(Readback {
            memory: Pinned::new(bytes * STEPS_IN_FLIGHT)?,
            bytes,
            over: [Event::new()?, Event::new()?],
        })
    }

    /// Begins to copy ranges of the device, by address and bytes, one after the other to the part of one step
    /// in flight, after all launches so far.
    pub(crate) fn begin(
        &mut self,
        stream: &Stream,
        turn: usize,
        parts: impl Iterator<Item = (u64, usize)>,
    ) -> Result<(), CudaError> {
        let mut end = 0;
        for (from, bytes) in parts {
            assert!(end + bytes <= self.bytes, "the readback of a step has its room");
            // SAFETY: the part is read once its event has passed, and written again by a step that begins
            // after that.
            unsafe { stream.download(from, self.memory.at(turn * self.bytes + end), bytes)? };
            end += bytes;
        }
        self.over[turn].record(stream)
    }

    /// Waits for the readback of a step in flight, and reads it.
    pub(crate) fn read(&self, turn: usize) -> Result<&[u8], CudaError> {
        self.over[turn].wait()?;
        Ok(self.memory.part(turn * self.bytes, self.bytes))
    }
}
