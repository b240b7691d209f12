//! A device: an arena, and kernels that run in it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use memfit_ir::{Bytes, Graph, NodeId, Slice, Slot, SyntheticValues, Tensor};

use crate::found_inf::Kept;
use crate::{Backend, DeviceError};

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
/// A device may work on its own: a launch returns before it is done, and the host looks at copies. Everything that reads a slot
/// waits.
pub trait Device: Send {
    /// Runs a node. `args` are the slots of its inputs, outputs and updates, sized for at least `context.rows` rows;
    /// `overwrite` lets it overwrite updates that it would add to.
    ///
    /// # Panics
    /// Where slots are too small, or share bytes that the op does not let them share: such a plan was not checked.
    fn launch(
        &mut self,
        graph: &Graph,
        node: NodeId,
        args: &[Slot],
        workspace: Slot,
        overwrite: bool,
        context: &Context,
    );

    /// What the launches since this was asked last did not write, because it was not finite; nothing on a device that writes what
    /// it computes.
    fn take_kept(&mut self) -> Kept {
        Kept::default()
    }

    /// Makes this thread one that may launch.
    fn enter(&self) {}

    /// Waits until every launch is done.
    fn synchronise(&mut self) {}

    /// The bytes of a slot.
    fn bytes(&self, slot: Slot) -> &[u8];

    /// The bytes of a slot, to be written.
    fn bytes_mut(&mut self, slot: Slot) -> &mut [u8];

    /// Copies a slot over another of its size.
    fn copy(&mut self, from: Slot, to: Slot);

    /// Copies a slot out to the offload memory.
    ///
    /// # Panics
    /// Where there is none: a plan that copies out is sealed with one.
    fn copy_out(&mut self, from: Slot, to: Slot) -> io::Result<()>;

    /// Copies a slot in from the offload memory.
    ///
    /// # Panics
    /// Where there is none: a plan that copies in is sealed with one.
    fn copy_in(&mut self, from: Slot, to: Slot) -> io::Result<()>;

    /// Lets no later launch run before a copy between the offload memory and this slot is over.
    fn wait_for_copy(&mut self, _slot: Slot) {}

    /// Draws synthetic floats on all threads, from element `first` of their sequence on, and returns whether
    /// it did: other kinds, and other devices, are left to the source.
    fn draw(&mut self, _synthetic_values: SyntheticValues, _first: u64, _to: Slot) -> bool {
        false
    }

    /// The highest end of any slot that a kernel or the host was handed so far.
    fn bytes_peak(&self) -> Bytes;

    /// The arena as it is mapped.
    fn bytes_arena(&self) -> Bytes;

    /// The most that the process held so far of the memory that is planned: `VmHWM`, or what it holds of the GPU.
    fn bytes_used(&self) -> Bytes;

    /// What it holds of that memory now: resident memory, its program's files in full, or that of the GPU.
    fn bytes_held(&self) -> Bytes;

    /// Gives the arena's pages from an offset on back to the system; what they held is lost.
    fn give_back(&mut self, from: Bytes);

    /// Gives the whole pages of one slot back to the system; what they held is lost. Does nothing where memory goes back as a
    /// whole.
    fn give_back_slot(&mut self, _slot: Slot) {}

    /// Makes the whole arena resident again.
    fn take_again(&mut self) -> Result<(), DeviceError>;

    /// The same device for an arena beside this one, on the same threads.
    fn backend_beside(&self) -> Box<dyn Backend>;

    /// The readback of a step in flight, slot after slot, once it has come; none where the arena can be read instead.
    fn readback(&self, _turn: usize) -> Option<&[f32]> {
        None
    }

    /// The device as one whose launches return before they are done, where it is such.
    fn asynchronous(&mut self) -> Option<&mut dyn Asynchronous> {
        None
    }
}

/// What only a device with a stream of its own can do: copies from staged rows, and launches that are
/// captured and replayed.
pub trait Asynchronous {
    /// A new step begins. `resets` says that the host knows how the steps before it ended, so that launches
    /// that the device had stopped may go on.
    fn begin_step(&mut self, resets: bool);

    /// Ends a step: begins the readback of slots, which [`Device::readback`] returns.
    fn begin_readback(&mut self, turn: usize, slots: &mut dyn Iterator<Item = Slot>);

    /// Gives kernels the context of the micro-batch that comes now.
    fn set_context(&mut self, context: &Context);

    /// Has host memory for rows in flight, and waits until those that were there have been copied.
    fn begin_staging(&mut self, bytes: usize);

    /// Which staging buffer is in use: captured launches copy from it.
    fn staging_buffer(&self) -> usize;

    /// Host memory for rows in flight.
    fn stage(&mut self, offset: usize, bytes: usize) -> &mut [u8];

    /// Says that every copy of staged rows has been asked for.
    fn end_staging(&mut self);

    /// Begins to copy the first of the staged rows to where they wait for their micro-batch, beside launches.
    fn bring_ahead(&mut self, bytes: usize, to: Slot);

    /// Takes rows from where they waited: offset and bytes there, and their slots.
    fn take_ahead(&mut self, from: Slot, parts: &[(usize, usize, Slot)]);

    /// Copies staged rows to a slot.
    fn copy_staged(&mut self, offset: usize, bytes: usize, to: Slot);

    /// Where the batch begins in the sequence of synthetic rows.
    fn set_source_row(&mut self, row: u64);

    /// Draws synthetic rows into a slot: `rows` of them, from row `row_start` of the micro-batch on.
    fn draw_synthetic(
        &mut self,
        tensor: &Tensor,
        synthetic_values: SyntheticValues,
        rows: usize,
        row_start: usize,
        to: Slot,
    );

    /// Whether launches were captured under a key.
    fn is_captured(&self, key: u64) -> bool;

    /// Begins to capture launches and copies instead of running them.
    fn begin_capture(&mut self);

    /// Ends a capture.
    fn end_capture(&mut self, key: u64);

    /// Replays the graph that was captured under a key.
    fn replay(&mut self, key: u64);
}

impl<'a> dyn Device + 'a {
    /// A slot of floats.
    pub fn floats(&self, slot: Slot) -> &[f32] {
        as_floats(self.bytes(slot))
    }

    /// A slot of floats, to be written.
    pub fn floats_mut(&mut self, slot: Slot) -> &mut [f32] {
        let bytes = self.bytes_mut(slot);
        assert!(bytes.as_ptr().cast::<f32>().is_aligned(), "slots are aligned to more than a float");
        // SAFETY: the start is aligned, and every pattern of bits is a float.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len() / size_of::<f32>()) }
    }
}

/// Bytes that begin where a float may begin, as floats.
pub fn as_floats(bytes: &[u8]) -> &[f32] {
    assert!(bytes.as_ptr().cast::<f32>().is_aligned(), "slots are aligned to more than a float");
    // SAFETY: the start is aligned, and every pattern of bits is a float.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<f32>()) }
}

/// The highest end of any slot that was handed out so far; host reads through `&self` count too.
#[derive(Default)]
pub struct Peak(AtomicU64);

impl Peak {
    /// Counts a slot.
    pub fn mark(&self, slot: Slot) {
        if slot.bytes != Bytes::ZERO {
            self.0.fetch_max(slot.end().0, Ordering::Relaxed);
        }
    }

    /// The highest end so far.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.0.load(Ordering::Relaxed))
    }
}
