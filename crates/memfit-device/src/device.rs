//! A device: an arena, and kernels that run in it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memfit_ir::{Bytes, Graph, NodeId, Slice, Slot, SyntheticValues, Tensor, Values};

use crate::arena::Arena;
use crate::cpu::threads::Threads;
use crate::cpu::{synthetic_values, widen};
use crate::cuda::device::CudaDevice;
use crate::cuda::readback::STEPS_IN_FLIGHT;
use crate::found_inf::Kept;
use crate::process;
use crate::store::Store;
use crate::{DeviceError, Setup};

/// What a kernel must know of the step it runs in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Context {
    /// Training steps before this one.
    pub step: u64,
    /// Updates before this one: the steps before, less those that were skipped.
    pub iteration: u64,
    /// The first row of this micro-batch in the batch.
    pub row_start: usize,
    /// Rows of this micro-batch.
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
    /// The same for a slice of the micro-batch.
    pub fn sliced(&self, slice: Slice) -> Context {
        Context { row_start: self.row_start + slice.start(self.rows), rows: slice.rows(self.rows), ..*self }
    }
}

/// One arena and what works in it. It never allocates.
///
/// A GPU works on its own: a launch returns before it is done, and the host looks at copies. Everything that reads a slot waits.
pub struct Device {
    threads: Arc<Threads>,
    memory: Memory,
    store: Option<Store>,
    /// Highest end of any slot handed out so far; host reads through `&self` count too.
    bytes_peak: AtomicU64,
}

/// Where the arena is.
enum Memory {
    Cpu(Arena),
    Cuda(Box<CudaDevice>),
}

impl Device {
    pub(crate) fn new(threads: Arc<Threads>, arena: Arena, store: Option<Store>) -> Device {
        Device { threads, memory: Memory::Cpu(arena), store, bytes_peak: AtomicU64::new(0) }
    }

    pub(crate) fn on_gpu(threads: Arc<Threads>, device: CudaDevice) -> Device {
        Device { threads, memory: Memory::Cuda(Box::new(device)), store: None, bytes_peak: AtomicU64::new(0) }
    }

    /// Copies a slot out to the offload memory.
    ///
    /// # Panics
    /// Where there is none: a plan that copies out is sealed with one.
    pub fn copy_out(&mut self, from: Slot, to: Slot) -> io::Result<()> {
        self.mark(from);
        match &mut self.memory {
            Memory::Cuda(device) => {
                device.copy_host(from, to, true);
                Ok(())
            }
            Memory::Cpu(_) => {
                let store = self.store.as_ref().expect("a plan that copies out is sealed with a store");
                store.write(to.offset, self.bytes(from))
            }
        }
    }

    /// Copies a slot in from the offload memory.
    ///
    /// # Panics
    /// Where there is none: a plan that copies in is sealed with one.
    pub fn copy_in(&mut self, from: Slot, to: Slot) -> io::Result<()> {
        self.mark(to);
        if let Memory::Cuda(device) = &mut self.memory {
            device.copy_host(to, from, false);
            return Ok(());
        }
        let store = self.store.take().expect("a plan that copies in is sealed with a store");
        let read = store.read(from.offset, self.bytes_mut(to));
        self.store = Some(store);
        read
    }

    /// Lets no later launch run before a copy between the offload memory and this slot is over.
    pub fn wait_for_copy(&mut self, slot: Slot) {
        match &mut self.memory {
            Memory::Cuda(device) => device.wait_for_copy(slot),
            // Copies are over when they return.
            Memory::Cpu(_) => {}
        }
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
        let arena = match &mut self.memory {
            Memory::Cuda(device) => return device.launch(graph, node, args, workspace, fresh, context),
            Memory::Cpu(arena) => arena,
        };
        let slice = graph.slice_of(node);
        let context = slice.map_or(*context, |slice| context.sliced(slice));
        // A batch of fewer rows than slices leaves the last of them empty.
        if slice.is_none() || 0 < context.rows {
            widen::launch(arena, &self.threads, graph, node, args, workspace, fresh, &context);
        }
    }

    /// What the launches since this was asked last did not write, because it was not finite. A GPU writes what it computes.
    pub fn take_kept(&mut self) -> Kept {
        match &mut self.memory {
            Memory::Cuda(_) => Kept::default(),
            Memory::Cpu(arena) => arena.found_inf.take(),
        }
    }

    /// The bytes of a slot.
    pub fn bytes(&self, slot: Slot) -> &[u8] {
        self.mark(slot);
        match &self.memory {
            Memory::Cuda(device) => device.bytes(slot),
            // SAFETY: the arena guarantees the slot, all of it is initialised, and it is borrowed with the
            // device.
            Memory::Cpu(arena) => unsafe {
                std::slice::from_raw_parts(arena.pointer(slot).as_ptr(), slot.bytes.to_usize())
            },
        }
    }

    /// The bytes of a slot, to be written.
    pub fn bytes_mut(&mut self, slot: Slot) -> &mut [u8] {
        self.mark(slot);
        match &mut self.memory {
            Memory::Cuda(device) => device.bytes_mut(slot),
            // SAFETY: as in `bytes`; the device is borrowed alone.
            Memory::Cpu(arena) => unsafe {
                std::slice::from_raw_parts_mut(arena.pointer(slot).as_ptr(), slot.bytes.to_usize())
            },
        }
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

    /// The readback of a step in flight, slot after slot, once it has come.
    ///
    /// # Panics
    /// Where [`Device::is_asynchronous`] says that the arena can be read instead.
    pub fn readback(&self, turn: usize) -> &[f32] {
        let Memory::Cuda(device) = &self.memory else { panic!("a CPU's arena is read where it stands") };
        let bytes = device.readback(turn);
        // SAFETY: a turn's part begins where any element may begin, and every pattern of bits is a float.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<f32>()) }
    }

    /// Draws synthetic floats on all threads, from element `first` of their sequence on, and returns whether
    /// it did: other kinds, and other devices, are left to the source.
    pub fn draw(&mut self, SyntheticValues { values, seed }: SyntheticValues, first: u64, to: Slot) -> bool {
        let (Values::Uniform { low, high }, Memory::Cpu(_)) = (values, &self.memory) else {
            return false;
        };
        let threads = Arc::clone(&self.threads);
        synthetic_values::uniform(&threads, seed, first, [low, high], self.floats_mut(to));
        true
    }

    /// Copies a slot over another of its size.
    pub fn copy(&mut self, from: Slot, to: Slot) {
        assert!(from.bytes == to.bytes && !from.overlaps(&to), "two slots of one size");
        self.mark(from);
        self.mark(to);
        match &mut self.memory {
            Memory::Cuda(device) => device.copy(from, to),
            Memory::Cpu(arena) => {
                let (from_at, to_at) = (arena.pointer(from).as_ptr(), arena.pointer(to).as_ptr());
                // SAFETY: the arena guarantees both slots, which share no byte and are borrowed with the
                // device.
                unsafe { std::ptr::copy_nonoverlapping(from_at, to_at, from.bytes.to_usize()) };
            }
        }
    }

    /// The highest end of any slot that a kernel or the host was handed so far.
    pub fn bytes_peak(&self) -> Bytes {
        Bytes(self.bytes_peak.load(Ordering::Relaxed))
    }

    /// The arena as it is mapped.
    pub fn bytes_arena(&self) -> Bytes {
        match &self.memory {
            Memory::Cuda(device) => device.bytes_arena(),
            Memory::Cpu(arena) => arena.bytes(),
        }
    }

    /// The most that the process held so far of the memory that is planned: `VmHWM`, or what it holds of the GPU.
    pub fn bytes_used(&self) -> Bytes {
        match &self.memory {
            Memory::Cuda(device) => device.gpu().bytes_used().unwrap_or(Bytes::ZERO),
            Memory::Cpu(_) => process::resident_peak(),
        }
    }

    /// What it holds of that memory now: resident memory, its program's files in full, or that of the GPU.
    pub fn bytes_held(&self) -> Bytes {
        match &self.memory {
            Memory::Cuda(_) => self.bytes_used(),
            Memory::Cpu(_) => process::held(),
        }
    }

    /// Gives the arena's pages from an offset on back to the system; what they held is lost.
    pub fn give_back(&mut self, from: Bytes) {
        match &mut self.memory {
            Memory::Cuda(device) => device.give_back(from),
            Memory::Cpu(arena) => arena.give_back(from),
        }
    }

    /// Gives the whole pages of one slot back to the system; what they held is lost. A GPU's memory goes back as a whole.
    pub fn give_back_slot(&mut self, slot: Slot) {
        match &mut self.memory {
            Memory::Cuda(_) => {}
            Memory::Cpu(arena) => arena.give_back_slot(slot),
        }
    }

    /// Makes the whole arena resident again.
    pub fn take_again(&mut self) -> Result<(), DeviceError> {
        match &mut self.memory {
            Memory::Cuda(device) => Ok(device.take_again()?),
            Memory::Cpu(arena) => arena.take_again(),
        }
    }

    /// A device on the same threads, for an arena beside this one.
    pub fn setup_beside(&self) -> Setup {
        match &self.memory {
            Memory::Cuda(device) => Setup::on_gpu(Arc::clone(&self.threads), device.shared_gpu()),
            Memory::Cpu(_) => Setup::on(Arc::clone(&self.threads)),
        }
    }

    /// Runs a closure on a thread that is ready to launch.
    pub fn install<R: Send>(&mut self, body: impl FnOnce(&mut Device) -> R + Send) -> R {
        if let Memory::Cuda(device) = &self.memory {
            device.enter();
        }
        body(self)
    }

    /// Whether launches return before they are done, and can be captured.
    pub fn is_asynchronous(&self) -> bool {
        matches!(self.memory, Memory::Cuda(_))
    }

    /// The most steps in flight beside the current one: none where a launch is done when it returns.
    pub fn steps_ahead(&self) -> usize {
        match self.memory {
            Memory::Cuda(_) => STEPS_IN_FLIGHT - 1,
            Memory::Cpu(_) => 0,
        }
    }

    /// Waits until every launch is done.
    pub fn synchronise(&mut self) {
        if let Memory::Cuda(device) = &mut self.memory {
            device.synchronise();
        }
    }

    /// The device that works on its own.
    ///
    /// # Panics
    /// Where [`Device::is_asynchronous`] says that there is none.
    pub fn asynchronous(&mut self) -> Asynchronous<'_> {
        match &mut self.memory {
            Memory::Cuda(device) => Asynchronous { device, bytes_peak: &self.bytes_peak },
            Memory::Cpu(_) => panic!("a CPU is not ahead of anybody"),
        }
    }

    fn mark(&self, slot: Slot) {
        if slot.bytes != Bytes::ZERO {
            self.bytes_peak.fetch_max(slot.end().0, Ordering::Relaxed);
        }
    }
}

/// What only a device with a stream of its own can do: copies from staged rows, and launches that are
/// captured and replayed.
pub struct Asynchronous<'a> {
    device: &'a mut CudaDevice,
    bytes_peak: &'a AtomicU64,
}

impl Asynchronous<'_> {
    /// A new step begins. `resets` says that the host knows how the steps before it ended, so that launches
    /// that the device had stopped may go on.
    pub fn begin_step(&mut self, resets: bool) {
        self.device.begin_step(resets);
    }

    /// Ends a step: begins the readback of slots, which [`Device::readback`] returns.
    pub fn begin_readback(&mut self, turn: usize, slots: impl Iterator<Item = Slot>) {
        let mark = |slot: &Slot| {
            self.bytes_peak.fetch_max(slot.end().0, Ordering::Relaxed);
        };
        self.device.begin_readback(turn, slots.inspect(mark));
    }

    /// Gives kernels the context of the micro-batch that comes now.
    pub fn set_context(&mut self, context: &Context) {
        self.device.set_context(context);
    }

    /// Has host memory for rows in flight, and waits until those that were there have been copied.
    pub fn begin_staging(&mut self, bytes: usize) {
        self.device.begin_staging(bytes);
    }

    /// Which staging buffer is in use: captured launches copy from it.
    pub fn staging_buffer(&self) -> usize {
        self.device.staging_buffer()
    }

    /// Host memory for rows in flight.
    pub fn stage(&mut self, offset: usize, bytes: usize) -> &mut [u8] {
        self.device.stage(offset, bytes)
    }

    /// Says that every copy of staged rows has been asked for.
    pub fn end_staging(&mut self) {
        self.device.mark_staging();
    }

    /// Begins to copy the first of the staged rows to where they wait for their micro-batch, beside launches.
    pub fn bring_ahead(&mut self, bytes: usize, to: Slot) {
        self.bytes_peak.fetch_max(to.end().0, Ordering::Relaxed);
        self.device.bring_ahead(bytes, to);
    }

    /// Takes rows from where they waited: offset and bytes there, and their slots.
    pub fn take_ahead(&mut self, from: Slot, parts: &[(usize, usize, Slot)]) {
        for (_, _, to) in parts {
            self.bytes_peak.fetch_max(to.end().0, Ordering::Relaxed);
        }
        self.device.take_ahead(from, parts);
    }

    /// Copies staged rows to a slot.
    pub fn copy_staged(&mut self, offset: usize, bytes: usize, to: Slot) {
        self.bytes_peak.fetch_max(to.end().0, Ordering::Relaxed);
        self.device.copy_staged(offset, bytes, to);
    }

    /// Where the batch begins in the sequence of synthetic rows.
    pub fn set_source_row(&mut self, row: u64) {
        self.device.set_source_row(row);
    }

    /// Draws synthetic rows into a slot: `rows` of them, from row `row_start` of the micro-batch on.
    pub fn draw_synthetic(
        &mut self,
        tensor: &Tensor,
        synthetic_values: SyntheticValues,
        rows: usize,
        row_start: usize,
        to: Slot,
    ) {
        self.bytes_peak.fetch_max(to.end().0, Ordering::Relaxed);
        self.device.draw_synthetic(tensor, synthetic_values, rows, row_start, to);
    }

    /// Whether launches were captured under a key.
    pub fn is_captured(&self, key: u64) -> bool {
        self.device.is_captured(key)
    }

    /// Begins to capture launches and copies instead of running them.
    pub fn begin_capture(&mut self) {
        self.device.begin_capture();
    }

    /// Ends a capture.
    pub fn end_capture(&mut self, key: u64) {
        self.device.end_capture(key);
    }

    /// Replays the graph that was captured under a key.
    pub fn replay(&mut self, key: u64) {
        self.device.replay(key);
    }
}
