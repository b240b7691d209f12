//! Behind the door: an arena, and kernels that run in it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memfit_ir::{Bytes, Graph, NodeId, Slice, Slot};

use crate::arena::Arena;
use crate::cpu::threads::Threads;
use crate::cpu::widen;
use crate::store::Store;
use crate::{DeviceError, Setup};

/// What a kernel must know of the step it runs in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Context {
    /// Training steps before this one.
    pub step: u64,
    /// Updates before this one: the steps before, less those that were skipped.
    pub iteration: u64,
    /// The first row of this piece in the batch.
    pub row_start: usize,
    /// Rows of this piece.
    pub rows: usize,
    /// Rows of the batch.
    pub rows_total: usize,
    /// The learning rate of this step.
    pub learning_rate: f32,
    /// What gradients are multiplied by from the loss to the update; 1 for plain ones.
    pub loss_scale: f32,
    /// The seed of the run.
    pub seed: u64,
}

impl Context {
    /// The same for a slice of the piece.
    pub fn sliced(&self, slice: Slice) -> Context {
        Context { row_start: self.row_start + slice.start(self.rows), rows: slice.rows(self.rows), ..*self }
    }
}

/// One arena and the threads that work in it. It never allocates.
pub struct Device {
    threads: Arc<Threads>,
    arena: Arena,
    store: Option<Store>,
    /// Highest end of any slot handed out so far; host reads through `&self` count too.
    bytes_peak: AtomicU64,
}

impl Device {
    pub(crate) fn new(threads: Arc<Threads>, arena: Arena, store: Option<Store>) -> Device {
        Device { threads, arena, store, bytes_peak: AtomicU64::new(0) }
    }

    /// Copies a slot out to the second store.
    ///
    /// # Panics
    /// Where there is none: a plan that copies out is sealed with one.
    pub fn copy_out(&self, from: Slot, to: Slot) -> io::Result<()> {
        let store = self.store.as_ref().expect("a plan that copies out is sealed with a store");
        store.write(to.offset, self.bytes(from))
    }

    /// Copies a slot in from the second store.
    ///
    /// # Panics
    /// Where there is none: a plan that copies in is sealed with one.
    pub fn copy_in(&mut self, from: Slot, to: Slot) -> io::Result<()> {
        let store = self.store.take().expect("a plan that copies in is sealed with a store");
        let read = store.read(from.offset, self.bytes_mut(to));
        self.store = Some(store);
        read
    }

    /// Runs a node. `args` are the slots of its inputs, outputs and updates, sized for at least `context.rows` rows;
    /// `fresh` lets it overwrite updates that it would add to.
    ///
    /// # Panics
    /// Where slots are too small, or share bytes that the op does not let them share: such a plan was not checked.
    pub fn launch(
        &mut self,
        graph: &Graph,
        node: NodeId,
        args: &[Slot],
        workspace: Slot,
        fresh: bool,
        context: &Context,
    ) {
        for slot in args.iter().chain([&workspace]) {
            self.mark(*slot);
        }
        let node = &graph.nodes[node.0];
        let slice = graph.slice_of(node);
        let context = slice.map_or(*context, |slice| context.sliced(slice));
        // A batch of fewer rows than slices leaves the last of them empty.
        if slice.is_none() || 0 < context.rows {
            widen::launch(&mut self.arena, &self.threads, graph, node, args, workspace, fresh, &context);
        }
    }

    /// The bytes of a slot.
    pub fn bytes(&self, slot: Slot) -> &[u8] {
        self.mark(slot);
        // SAFETY: the arena vouches for the slot, all of it is initialised, and it is borrowed with the device.
        unsafe { std::slice::from_raw_parts(self.arena.pointer(slot).as_ptr(), slot.bytes.to_usize()) }
    }

    /// The bytes of a slot, to be written.
    pub fn bytes_mut(&mut self, slot: Slot) -> &mut [u8] {
        self.mark(slot);
        // SAFETY: as in `bytes`; the device is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.arena.pointer(slot).as_ptr(), slot.bytes.to_usize()) }
    }

    /// A slot of floats.
    pub fn floats(&self, slot: Slot) -> &[f32] {
        let bytes = self.bytes(slot);
        // SAFETY: slots are aligned to more than a float, and every pattern of bits is a float.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<f32>()) }
    }

    /// A slot of floats, to be written.
    pub fn floats_mut(&mut self, slot: Slot) -> &mut [f32] {
        let bytes = self.bytes_mut(slot);
        // SAFETY: as in `floats`.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len() / size_of::<f32>()) }
    }

    /// The highest end of any slot that a kernel or the host was handed so far.
    pub fn bytes_peak(&self) -> Bytes {
        Bytes(self.bytes_peak.load(Ordering::Relaxed))
    }

    /// The arena as it is mapped.
    pub fn bytes_arena(&self) -> Bytes {
        self.arena.bytes()
    }

    /// Gives the arena's pages from an offset on back to the system; what they held is lost.
    pub fn give_back(&mut self, from: Bytes) {
        self.arena.give_back(from);
    }

    /// Makes the whole arena resident again.
    pub fn take_again(&mut self) -> Result<(), DeviceError> {
        self.arena.take_again()
    }

    /// A device on the same threads, for an arena beside this one.
    pub fn setup_beside(&self) -> Setup {
        Setup::on(Arc::clone(&self.threads))
    }

    /// Runs a closure on a thread of the pool, from where launches cost less.
    pub fn install<R: Send>(&mut self, body: impl FnOnce(&mut Device) -> R + Send) -> R {
        let threads = Arc::clone(&self.threads);
        threads.install(|| body(self))
    }

    fn mark(&self, slot: Slot) {
        if slot.bytes != Bytes::ZERO {
            self.bytes_peak.fetch_max(slot.end().0, Ordering::Relaxed);
        }
    }
}
