//! The offload memory beside a GPU: pinned memory of the host, which is copied to and from on streams of its
//! own, while launches go on.
//!
//! A copy begins after everything that was launched before it, and the plan says where it is waited for.
//! Streams fork and join by events, which a capture includes.

use memfit_ir::{Bytes, Slot};

use super::driver::{CudaError, Event, Stream};
use super::gpu::Gpu;
use super::memory::Pinned;

/// Pinned memory and the copies in flight.
pub(crate) struct Store {
    memory: Pinned,
    /// Copies that were not waited for yet, by their slots in the arena, with their events.
    in_flight: Vec<(Slot, Event)>,
    /// Events that can be used again.
    spare: Vec<Event>,
    /// The moment at which a copy may begin.
    ready: Event,
}

impl Store {
    pub(crate) fn new(bytes: Bytes) -> Result<Store, CudaError> {
        Ok(Store {
            memory: Pinned::new(bytes.to_usize())?,
            in_flight: Vec::new(),
            spare: Vec::new(),
            ready: Event::new()?,
        })
    }

    /// Begins to copy a slot of the arena, which has this address, to a slot of the offload memory or back,
    /// after all launches so far.
    pub(crate) fn begin(
        &mut self,
        gpu: &Gpu,
        [slot, host]: [Slot; 2],
        address: u64,
        out: bool,
    ) -> Result<(), CudaError> {
        assert!(host.end().to_usize() <= self.memory.len(), "the store has room for what is copied out");
        let stream = if out { &gpu.out } else { &gpu.back };
        self.ready.record(&gpu.stream)?;
        stream.wait_for(&self.ready)?;
        let (memory, bytes) = (self.memory.at(host.offset.to_usize()), slot.bytes.to_usize());
        // SAFETY: both ranges are the plan's, and the checker lets nothing else use them until the copy was
        // waited for.
        unsafe {
            if out {
                stream.download(address, memory, bytes)?;
            } else {
                stream.upload(memory, address, bytes)?;
            }
        }
        let over = self.spare.pop().map_or_else(Event::new, Ok)?;
        over.record(stream)?;
        self.in_flight.push((slot, over));
        Ok(())
    }

    /// Lets no launch that follows run before copies of a slot are over.
    pub(crate) fn wait(&mut self, launches: &Stream, slot: Slot) -> Result<(), CudaError> {
        while let Some(index) = self.in_flight.iter().position(|(known, _)| *known == slot) {
            let (_, over) = self.in_flight.remove(index);
            launches.wait_for(&over)?;
            self.spare.push(over);
        }
        Ok(())
    }

    /// Waits until every copy is over, where a step ended before its time.
    pub(crate) fn wait_all(&mut self, gpu: &Gpu) -> Result<(), CudaError> {
        if !self.in_flight.is_empty() {
            gpu.out.synchronise()?;
            gpu.back.synchronise()?;
            self.spare.extend(self.in_flight.drain(..).map(|(_, over)| over));
        }
        Ok(())
    }
}
