//! What a GPU does while the host goes on: readbacks, rows that are staged, and launches that are captured and replayed.

use memfit_device::{Asynchronous, Context, Device};
use memfit_ir::{Bytes, Slot, SyntheticValues, Tensor};

use super::{CudaDevice, FAILED};
use crate::gpu::{CONTEXT_BYTES, Slots};
use crate::lower;
use crate::memory::Pinned;

impl Asynchronous for CudaDevice {
    fn begin_step(&mut self, resets: bool) {
        self.flush();
        self.enter();
        if let Some(store) = &mut self.store {
            store.wait_all(&self.gpu).expect(FAILED);
        }
        if !resets {
            return;
        }
        // SAFETY: the word after the context.
        unsafe {
            self.gpu.stream.fill(self.gpu.context_address() + CONTEXT_BYTES as u64, 0, 4).expect(FAILED)
        };
    }

    fn begin_readback(&mut self, turn: usize, slots: &mut dyn Iterator<Item = Slot>) {
        self.flush();
        let (arena, peak) = (&self.arena, &self.peak);
        let parts =
            slots.inspect(|slot| peak.mark(*slot)).map(|slot| (arena.address(slot), slot.bytes.to_usize()));
        self.readback.begin(&self.gpu.stream, turn, parts).expect(FAILED);
    }

    fn set_context(&mut self, context: &Context) {
        self.upload_context(context);
    }

    fn begin_staging(&mut self, bytes: usize) {
        self.enter();
        self.half = 1 - self.half;
        self.staged[self.half].wait().expect(FAILED);
        if self.staging[self.half].len() < bytes {
            // A captured graph holds the old address, and is captured again.
            self.gpu.stream.synchronise().expect(FAILED);
            self.gpu.back.synchronise().expect(FAILED);
            self.graphs.clear();
            self.staging[self.half] = Pinned::new(bytes).expect("the host has memory for the rows of a step");
        }
    }

    fn staging_buffer(&self) -> usize {
        self.half
    }

    fn stage(&mut self, offset: usize, bytes: usize) -> &mut [u8] {
        self.staging[self.half].part_mut(offset, bytes)
    }

    fn end_staging(&mut self) {
        self.staged[self.half].record(&self.gpu.stream).expect(FAILED);
    }

    fn bring_ahead(&mut self, bytes: usize, to: Slot) {
        self.peak.mark(to);
        assert!(bytes as u64 <= to.bytes.0, "rows fit their slot");
        self.enter();
        // SAFETY: the staged part is not written again before launches that wait for it have passed.
        unsafe {
            let from = self.staging[self.half].at(0);
            self.gpu.back.wait_for(&self.taken).expect(FAILED);
            self.gpu.back.upload(from, self.arena.address(to), bytes).expect(FAILED);
        }
        self.arrived.record(&self.gpu.back).expect(FAILED);
    }

    fn take_ahead(&mut self, from: Slot, parts: &[(usize, usize, Slot)]) {
        self.flush();
        self.enter();
        self.gpu.stream.wait_for(&self.arrived).expect(FAILED);
        for &(offset, bytes, to) in parts {
            self.peak.mark(to);
            assert!(
                (offset + bytes) as u64 <= from.bytes.0 && bytes as u64 <= to.bytes.0,
                "rows fit their slot"
            );
            let (from, to) = (self.arena.address(from) + offset as u64, self.arena.address(to));
            // SAFETY: both lie in slots of the arena.
            unsafe { self.gpu.stream.copy(from, to, bytes).expect(FAILED) };
        }
        self.taken.record(&self.gpu.stream).expect(FAILED);
    }

    fn copy_staged(&mut self, offset: usize, bytes: usize, to: Slot) {
        self.peak.mark(to);
        assert!(bytes as u64 <= to.bytes.0, "rows fit their slot");
        self.send_waiting();
        // SAFETY: the staged part is not written again before its event has passed.
        unsafe {
            let from = self.staging[self.half].at(offset);
            self.gpu.stream.upload(from, self.arena.address(to), bytes).expect(FAILED);
        }
    }

    fn set_source_row(&mut self, row: u64) {
        if self.source_row != row {
            self.source_row = row;
            self.last_context = None;
        }
    }

    fn draw_synthetic(
        &mut self,
        tensor: &Tensor,
        synthetic_values: SyntheticValues,
        rows: usize,
        row_start: usize,
        to: Slot,
    ) {
        self.peak.mark(to);
        self.send_waiting();
        let none = Slot { offset: Bytes::ZERO, bytes: Bytes::ZERO };
        let slots = Slots { arena: &self.arena, args: &[to], workspace: none };
        self.gpu
            .run(
                &lower::synthetic_values::synthetic_values(tensor, synthetic_values, rows, row_start),
                &slots,
            )
            .expect(FAILED);
    }

    fn is_captured(&self, key: u64) -> bool {
        self.graphs.iter().any(|(known, _)| *known == key)
    }

    fn begin_capture(&mut self) {
        self.flush();
        self.enter();
        self.gpu.stream.begin_capture().expect(FAILED);
    }

    fn end_capture(&mut self, key: u64) {
        self.send_waiting();
        let captured = self.gpu.stream.end_capture().expect("launches can be captured");
        self.graphs.push((key, captured));
    }

    fn replay(&mut self, key: u64) {
        self.flush();
        let (_, captured) =
            self.graphs.iter().find(|(known, _)| *known == key).expect("the graph was captured");
        self.gpu.stream.launch_graph(captured).expect(FAILED);
    }
}
