//! The CPU with its arena.

use std::io;
use std::sync::Arc;

use memfit_device::{Allocator, Arena, Backend, Context, Device, DeviceError, Kept, Peak, Store, process};
use memfit_ir::{Bytes, Graph, NodeId, Slot, SyntheticValues, Values};

use super::operands::Operands;
use super::setup::Cpu;
use super::threads::Threads;
use super::widen::Widening;
use super::{launch, synthetic_values};

/// An arena in the process's memory, and threads that compute in it. A launch or a copy is over when it returns.
pub(crate) struct CpuDevice {
    threads: Arc<Threads>,
    arena: Arena,
    store: Option<Store>,
    allocator: Option<Arc<dyn Allocator>>,
    peak: Peak,
}

impl CpuDevice {
    pub(crate) fn new(
        threads: Arc<Threads>,
        arena: Arena,
        store: Option<Store>,
        allocator: Option<Arc<dyn Allocator>>,
    ) -> CpuDevice {
        CpuDevice { threads, arena, store, allocator, peak: Peak::default() }
    }
}

impl Device for CpuDevice {
    fn launch(
        &mut self,
        graph: &Graph,
        node: NodeId,
        args: &[Slot],
        workspace: Slot,
        overwrite: bool,
        context: &Context,
    ) {
        for slot in args.iter().chain([&workspace]) {
            self.peak.mark(*slot);
        }
        let node = &graph.nodes[node.0];
        let slice = graph.slice_of(node);
        let context = slice.map_or(*context, |slice| context.sliced(slice));
        // A batch of fewer rows than slices leaves the last of them empty.
        if slice.is_none() || 0 < context.rows {
            let (arena, threads) = (&mut self.arena, &self.threads);
            match Widening::of(graph, node) {
                Some(widening) => widening.launch(arena, threads, args, workspace, overwrite, &context),
                None => launch::launch(&Operands::new(
                    arena, threads, graph, node, args, workspace, overwrite, &context, false,
                )),
            }
        }
    }

    fn take_kept(&mut self) -> Kept {
        self.arena.found_inf.take()
    }

    fn bytes(&self, slot: Slot) -> &[u8] {
        self.peak.mark(slot);
        self.arena.slot(slot)
    }

    fn bytes_mut(&mut self, slot: Slot) -> &mut [u8] {
        self.peak.mark(slot);
        self.arena.slot_mut(slot)
    }

    fn copy(&mut self, from: Slot, to: Slot) {
        assert!(from.bytes == to.bytes && !from.overlaps(&to), "two slots of one size");
        self.peak.mark(from);
        self.peak.mark(to);
        let (from_at, to_at) = (self.arena.pointer(from).as_ptr(), self.arena.pointer(to).as_ptr());
        // SAFETY: the arena guarantees both slots, which share no byte and are borrowed with the device.
        unsafe { std::ptr::copy_nonoverlapping(from_at, to_at, from.bytes.to_usize()) };
    }

    fn copy_out(&mut self, from: Slot, to: Slot) -> io::Result<()> {
        let store = self.store.as_ref().expect("a plan that copies out is sealed with a store");
        store.write(to.offset, self.bytes(from))
    }

    fn copy_in(&mut self, from: Slot, to: Slot) -> io::Result<()> {
        let store = self.store.take().expect("a plan that copies in is sealed with a store");
        let read = store.read(from.offset, self.bytes_mut(to));
        self.store = Some(store);
        read
    }

    fn draw(&mut self, SyntheticValues { values, seed }: SyntheticValues, first: u64, to: Slot) -> bool {
        let Values::Uniform { low, high } = values else { return false };
        let threads = Arc::clone(&self.threads);
        let device: &mut dyn Device = self;
        synthetic_values::uniform(&threads, seed, first, [low, high], device.floats_mut(to));
        true
    }

    fn bytes_peak(&self) -> Bytes {
        self.peak.bytes()
    }

    fn bytes_arena(&self) -> Bytes {
        self.arena.bytes()
    }

    fn bytes_used(&self) -> Bytes {
        process::resident_peak()
    }

    fn bytes_held(&self) -> Bytes {
        process::held()
    }

    fn give_back(&mut self, from: Bytes) {
        self.arena.give_back(from);
    }

    fn give_back_slot(&mut self, slot: Slot) {
        self.arena.give_back_slot(slot);
    }

    fn take_again(&mut self) -> Result<(), DeviceError> {
        self.arena.take_again()
    }

    fn backend_beside(&self) -> Box<dyn Backend> {
        Box::new(Cpu::on(Arc::clone(&self.threads), self.allocator.clone()))
    }
}
