//! A GPU as a device: an arena, launches in order, and copies of slots to the host.

mod asynchronous;

use std::io;
use std::sync::{Arc, Mutex};

use memfit_device::{Asynchronous, Backend, Context, Device, DeviceError, Peak, as_floats};
use memfit_ir::{Bytes, Graph, NodeId, Op, Slot};

use super::driver::{CapturedGraph, CudaError, Event};
use super::gpu::{CONTEXT_BYTES, Gpu, Slots};
use super::joined::Joined;
use super::memory::{DeviceArena, Pinned};
use super::readback::Readback;
use super::setup::Cuda;
use super::store::Store;
use super::updates::{Updates, WORDS};
use super::work::{Source, Work};
use super::{call_of, lower};

/// The most contexts in flight: one half of them is written while the device reads the other.
const CONTEXTS: usize = 64;

/// A GPU with its arena.
pub(crate) struct CudaDevice {
    // Dropped before the GPU that they belong to.
    graphs: Vec<(u64, CapturedGraph)>,
    arena: DeviceArena,
    contexts: Pinned,
    contexts_used: usize,
    contexts_read: [Event; 2],
    /// The readback of steps in flight.
    readback: Readback,
    /// Rows in flight, and when they have been copied: one buffer is filled while the device reads the other.
    staging: [Pinned; 2],
    staged: [Event; 2],
    half: usize,
    /// When rows of the next micro-batch have arrived, and when they were taken from the staging buffer.
    arrived: Event,
    taken: Event,
    /// Where values go that are copied out, where the plan has such.
    store: Option<Store>,
    views: Mutex<Vec<View>>,
    /// Updates that are held back to share a launch. Every other access to the device or to the stream
    /// launches them first.
    updates: Mutex<Option<Updates>>,
    /// Elementwise work that waits for what may join it. Never together with updates.
    joined: Mutex<Option<Joined>>,
    last_context: Option<Context>,
    /// The batch's first row in the sequence of synthetic rows.
    source_row: u64,
    /// The start of the arena on the host, while its memory is given back.
    kept: Option<View>,
    peak: Peak,
    gpu: Arc<Gpu>,
}

/// A copy of a slot that the host looks at.
struct View {
    slot: Slot,
    /// Words, so that it is aligned to any element.
    words: Box<[u64]>,
    /// Whether the host may have changed it.
    changed: bool,
}

/// What to say when the GPU itself fails, which no plan can answer.
const FAILED: &str = "the GPU works";

impl CudaDevice {
    /// Takes an arena, offload memory where there is some, and room for the readback of a step.
    pub(crate) fn new(
        gpu: Arc<Gpu>,
        arena: Bytes,
        store: Option<Bytes>,
        readback: Bytes,
    ) -> Result<CudaDevice, CudaError> {
        let arena = DeviceArena::map(&gpu.context, arena)?;
        let store = store.map(Store::new).transpose()?;
        let contexts = Pinned::new(CONTEXTS * CONTEXT_BYTES)?;
        let staging = [Pinned::new(0)?, Pinned::new(0)?];
        let staged = [Event::new()?, Event::new()?];
        let device = CudaDevice {
            graphs: Vec::new(),
            arena,
            contexts,
            contexts_used: 0,
            contexts_read: [Event::new()?, Event::new()?],
            readback: Readback::new(readback)?,
            staging,
            staged,
            half: 0,
            arrived: Event::new()?,
            taken: Event::new()?,
            store,
            views: Mutex::default(),
            updates: Mutex::default(),
            joined: Mutex::default(),
            last_context: None,
            source_row: 0,
            kept: None,
            peak: Peak::default(),
            gpu,
        };
        // Nothing in the arena is ever read before it is written, but a value that is not finite must not
        // come from nowhere.
        if device.arena.bytes() != Bytes::ZERO {
            let whole = Slot { offset: Bytes::ZERO, bytes: device.arena.bytes() };
            // SAFETY: the whole arena and nothing else.
            unsafe { device.gpu.stream.fill(device.arena.address(whole), 0, whole.bytes.to_usize())? };
        }
        // SAFETY: the block that the GPU took for its context.
        unsafe { device.gpu.stream.fill(device.gpu.context_address(), 0, CONTEXT_BYTES + 8)? };
        device.gpu.stream.synchronise()?;
        Ok(device)
    }

    /// Keeps an update back until it can go with others.
    fn put_aside(&self, source: &Source, weight: [u64; WORDS]) {
        let mut waiting = self.updates.lock().expect("no thread panics while it holds the lock");
        if !waiting.as_mut().is_some_and(|updates| updates.take(source, weight))
            && let Some(full) = waiting.replace(Updates::new(source.clone(), weight))
        {
            self.gpu.update(&full).expect(FAILED);
        }
    }

    /// Puts everything that waits into the stream.
    fn send_waiting(&self) {
        self.send_joined();
        self.send_updates();
    }

    /// Puts elementwise work that waits into the stream, with what has joined it.
    fn send_joined(&self) {
        let waiting = self.joined.lock().expect("no thread panics while it holds the lock").take();
        if let Some(Joined { lowered, args, workspace, .. }) = waiting {
            self.gpu.run(&lowered, &Slots { arena: &self.arena, args: &args, workspace }).expect(FAILED);
        }
    }

    /// Puts updates that wait into the stream.
    fn send_updates(&self) {
        let waiting = self.updates.lock().expect("no thread panics while it holds the lock").take();
        if let Some(updates) = waiting {
            self.gpu.update(&updates).expect(FAILED);
        }
    }

    /// Gives kernels the context of the step and micro-batch that come now.
    fn upload_context(&mut self, context: &Context) {
        if self.last_context == Some(*context) {
            return;
        }
        self.enter();
        self.send_waiting();
        self.last_context = Some(*context);
        let number = self.contexts_used % CONTEXTS;
        self.contexts_used = number + 1;
        if number.is_multiple_of(CONTEXTS / 2) {
            let half = number / (CONTEXTS / 2);
            self.contexts_read[1 - half].record(&self.gpu.stream).expect(FAILED);
            self.contexts_read[half].wait().expect(FAILED);
        }
        let offset = number * CONTEXT_BYTES;
        let numbers = [
            context.step,
            context.iteration,
            context.row_start as u64,
            context.rows as u64,
            context.rows_total as u64,
            context.seed,
            u64::from(context.learning_rate.to_bits()) | u64::from(context.loss_scale.to_bits()) << 32,
            self.source_row,
        ];
        let part = self.contexts.part_mut(offset, CONTEXT_BYTES);
        for (to, number) in part.chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        // SAFETY: the part is not written again before the event of its half has passed.
        unsafe {
            let from = self.contexts.at(offset);
            self.gpu.stream.upload(from, self.gpu.context_address(), 64).expect(FAILED);
        }
    }

    /// Begins to copy a slot to the offload memory, or back.
    fn copy_host(&mut self, slot: Slot, host: Slot, out: bool) {
        self.flush();
        let address = self.arena.address(slot);
        let store = self.store.as_mut().expect("a plan that copies out is sealed with a store");
        store.begin(&self.gpu, [slot, host], address, out).expect(FAILED);
    }

    fn download(&self, slot: Slot) -> View {
        self.send_waiting();
        let bytes = slot.bytes.to_usize();
        let mut words = vec![0u64; bytes.div_ceil(8)].into_boxed_slice();
        if bytes != 0 {
            // SAFETY: the words have room for the slot's bytes, and are looked at once the copy was waited
            // for.
            unsafe {
                let to = words.as_mut_ptr().cast();
                self.gpu.stream.download(self.arena.address(slot), to, bytes).expect(FAILED);
            }
            self.gpu.stream.synchronise().expect(FAILED);
        }
        View { slot, words, changed: false }
    }

    /// Sends off what waits here before anything else happens on the device.
    fn flush(&mut self) {
        self.send_waiting();
        self.flush_views();
    }

    /// Sends back what the host has changed, and forgets the other copies.
    fn flush_views(&mut self) {
        let views = std::mem::take(self.views.get_mut().expect("no thread panics while it holds the lock"));
        if views.is_empty() {
            return;
        }
        self.enter();
        for view in views.iter().filter(|view| view.changed) {
            // SAFETY: the words stay where they are until the copy was waited for.
            unsafe {
                let (from, to) = (view.words.as_ptr().cast(), self.arena.address(view.slot));
                self.gpu.stream.upload(from, to, view.slot.bytes.to_usize()).expect(FAILED);
            }
        }
        if views.iter().any(|view| view.changed) {
            self.gpu.stream.synchronise().expect(FAILED);
        }
    }
}

impl Device for CudaDevice {
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
        if !matches!(node.op, Op::Update(_) | Op::Cast(_)) {
            self.send_updates();
        }
        if !matches!(node.op, Op::Elementwise(_) | Op::BiasGrad) {
            self.send_joined();
        }
        self.flush_views();
        self.upload_context(context);
        let call = call_of(graph, node, context.rows, overwrite, self.gpu.tf32);
        if call.rows == 0 && graph.slice_of(node).is_some() {
            return;
        }
        let waiting = self.joined.get_mut().expect("no thread panics while it holds the lock");
        if waiting.as_mut().is_some_and(|joined| joined.take(&call, args, workspace)) {
            return;
        }
        self.send_joined();
        if let Some(joined) = Joined::begin(&call, args, workspace) {
            self.joined = Mutex::new(Some(joined));
            return;
        }
        let lowered = lower::lower(&call);
        let slots = Slots { arena: &self.arena, args, workspace };
        if let [Work::Update(kernel)] = &lowered.work[..] {
            self.put_aside(&kernel.source, self.gpu.weight_of(kernel, &slots));
            return;
        }
        self.send_updates();
        if let Err(error) = self.gpu.run(&lowered, &slots) {
            panic!("{} of layer `{}`: {error}", node.op.name(), graph.layers[node.layer.0]);
        }
    }

    fn enter(&self) {
        self.gpu.context.make_current().expect(FAILED);
    }

    fn synchronise(&mut self) {
        self.send_waiting();
        self.gpu.stream.synchronise().expect(FAILED);
        self.last_context = None;
    }

    fn bytes(&self, slot: Slot) -> &[u8] {
        self.peak.mark(slot);
        if let Some(kept) = &self.kept {
            assert!(slot.end() <= kept.slot.bytes, "what was given back is not read");
            let start = slot.offset.to_usize();
            // SAFETY: the words hold the start of the arena, in which the slot lies; they are borrowed with
            // the device.
            let bytes = unsafe {
                std::slice::from_raw_parts(kept.words.as_ptr().cast::<u8>(), kept.slot.bytes.to_usize())
            };
            return &bytes[start..start + slot.bytes.to_usize()];
        }
        self.enter();
        let mut views = self.views.lock().expect("no thread panics while it holds the lock");
        let index = views.iter().position(|view| view.slot == slot).unwrap_or_else(|| {
            views.push(self.download(slot));
            views.len() - 1
        });
        let words = &views[index].words;
        // SAFETY: a view is dropped or written only by those who borrow the device alone, and its words do
        // not move.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), slot.bytes.to_usize()) }
    }

    fn bytes_mut(&mut self, slot: Slot) -> &mut [u8] {
        self.peak.mark(slot);
        self.flush();
        self.enter();
        let view = View { changed: true, ..self.download(slot) };
        let views = self.views.get_mut().expect("no thread panics while it holds the lock");
        views.push(view);
        let words = &mut views.last_mut().expect("it was just put there").words;
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), slot.bytes.to_usize()) }
    }

    fn copy(&mut self, from: Slot, to: Slot) {
        assert!(from.bytes == to.bytes && !from.overlaps(&to), "two slots of one size");
        self.peak.mark(from);
        self.peak.mark(to);
        self.flush();
        self.enter();
        let (from_at, to_at) = (self.arena.address(from), self.arena.address(to));
        // SAFETY: both are slots of the arena.
        unsafe { self.gpu.stream.copy(from_at, to_at, from.bytes.to_usize()).expect(FAILED) };
    }

    fn copy_out(&mut self, from: Slot, to: Slot) -> io::Result<()> {
        self.peak.mark(from);
        self.copy_host(from, to, true);
        Ok(())
    }

    fn copy_in(&mut self, from: Slot, to: Slot) -> io::Result<()> {
        self.peak.mark(to);
        self.copy_host(to, from, false);
        Ok(())
    }

    fn wait_for_copy(&mut self, slot: Slot) {
        self.flush();
        if let Some(store) = &mut self.store {
            store.wait(&self.gpu.stream, slot).expect(FAILED);
        }
    }

    fn bytes_peak(&self) -> Bytes {
        self.peak.bytes()
    }

    fn bytes_arena(&self) -> Bytes {
        self.arena.bytes()
    }

    fn bytes_used(&self) -> Bytes {
        self.gpu.bytes_used().unwrap_or(Bytes::ZERO)
    }

    fn bytes_held(&self) -> Bytes {
        self.bytes_used()
    }

    fn give_back(&mut self, from: Bytes) {
        self.flush();
        self.enter();
        self.synchronise();
        self.gpu.back.synchronise().expect(FAILED);
        self.kept = Some(self.download(Slot { offset: Bytes::ZERO, bytes: from }));
        self.arena.give_back().expect(FAILED);
    }

    fn take_again(&mut self) -> Result<(), DeviceError> {
        self.flush();
        self.arena.take_again(&self.gpu.context)?;
        if let Some(kept) = self.kept.take() {
            // SAFETY: the words stay where they are until the copy was waited for.
            unsafe {
                let (from, to) = (kept.words.as_ptr().cast(), self.arena.address(kept.slot));
                self.gpu.stream.upload(from, to, kept.slot.bytes.to_usize())?;
            }
        }
        // Another device may have given kernels the context of its own step meanwhile.
        self.synchronise();
        Ok(())
    }

    fn backend_beside(&self) -> Box<dyn Backend> {
        Box::new(Cuda::on(Arc::clone(&self.gpu)))
    }

    fn readback(&self, turn: usize) -> Option<&[f32]> {
        self.enter();
        Some(as_floats(self.readback.read(turn).expect(FAILED)))
    }

    fn asynchronous(&mut self) -> Option<&mut dyn Asynchronous> {
        Some(self)
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // Nothing may still run in memory that is freed. There is no use for an error at this point.
        let _ = self.gpu.context.make_current();
        let _ = self.gpu.stream.synchronise();
        let _ = self.gpu.out.synchronise();
        let _ = self.gpu.back.synchronise();
    }
}
