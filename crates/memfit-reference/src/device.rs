//! The device: an arena, whose nodes are computed in vectors of f64 beside it.

use std::io;
use std::path::Path;

use memfit_device::{Arena, Backend, Context, Device, DeviceError, Kept, Peak, Store, page, process};
use memfit_ir::{Bytes, Capabilities, Cost, Graph, Node, NodeId, Op, Slot, TensorId};

use super::call::Call;
use super::{cost, node, number};

/// Opens the reference.
pub fn open() -> Box<dyn Backend> {
    Box::new(Reference { store: None })
}

/// The reference, which can still allocate.
struct Reference {
    store: Option<Store>,
}

impl Backend for Reference {
    fn name(&self) -> String {
        "reference".to_owned()
    }

    fn hardware(&self) -> String {
        process::processor()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { granule: Bytes(page() as u64), ..Capabilities::default() }
    }

    fn costs(&self, graph: &Graph) -> Vec<Cost> {
        graph.nodes.iter().map(|node| cost::cost(graph, node)).collect()
    }

    fn take_offload(&mut self, folder: &Path, bytes: Bytes) -> Result<(), DeviceError> {
        let refused = |reason| DeviceError::Store { folder: folder.to_owned(), bytes, reason };
        self.store = Some(Store::create(folder, bytes).map_err(refused)?);
        Ok(())
    }

    fn scratch(&self, arena: Bytes) -> Result<Box<dyn Device>, DeviceError> {
        Ok(Box::new(ReferenceDevice::new(Arena::map(arena)?, None)))
    }

    fn seal(self: Box<Self>, arena: Bytes) -> Result<Box<dyn Device>, DeviceError> {
        let (limits, resident) = (process::limits(), process::resident());
        if limits.available.saturating_sub(resident) < arena {
            return Err(DeviceError::NoRoom { arena, resident, available: limits.available, by: limits.by });
        }
        Ok(Box::new(ReferenceDevice::new(Arena::map(arena)?, self.store)))
    }
}

/// An arena in the process's memory. A launch or a copy is over when it returns.
struct ReferenceDevice {
    arena: Arena,
    store: Option<Store>,
    peak: Peak,
    kept: Kept,
}

impl ReferenceDevice {
    fn new(arena: Arena, store: Option<Store>) -> ReferenceDevice {
        ReferenceDevice { arena, store, peak: Peak::default(), kept: Kept::default() }
    }

    /// The elements of an operand.
    fn load(&self, graph: &Graph, node: &Node, id: TensorId, slot: Slot, context: &Context) -> Vec<f64> {
        let bytes = part(graph, node, id, context);
        number::load(graph.tensors[id.0].dtype, &self.arena.slot(slot)[bytes])
    }

    /// Rounds and stores the elements of an operand.
    fn store(
        &mut self,
        graph: &Graph,
        node: &Node,
        id: TensorId,
        slot: Slot,
        context: &Context,
        values: &[f64],
    ) {
        let bytes = part(graph, node, id, context);
        number::store(graph.tensors[id.0].dtype, values, &mut self.arena.slot_mut(slot)[bytes]);
    }
}

/// Where the rows of a launch stand in a tensor's slot: of one that holds all rows, ops that move a slice touch that slice.
fn part(graph: &Graph, node: &Node, id: TensorId, context: &Context) -> std::ops::Range<usize> {
    let tensor = &graph.tensors[id.0];
    let is_part = tensor.slice.is_none() && matches!(node.op, Op::TakeRows | Op::PutRows);
    let before = if is_part && tensor.shape.batched { context.row_start } else { 0 };
    let start = tensor.shape.elements_per_row() * before;
    let elements = start..start + tensor.shape.elements(context.rows);
    let size = tensor.dtype.size() as usize;
    elements.start * size..elements.end * size
}

impl Device for ReferenceDevice {
    fn launch(
        &mut self,
        graph: &Graph,
        node: NodeId,
        args: &[Slot],
        _workspace: Slot,
        overwrite: bool,
        context: &Context,
    ) {
        args.iter().for_each(|slot| self.peak.mark(*slot));
        let node = &graph.nodes[node.0];
        let slice = graph.slice_of(node);
        let context = slice.map_or(*context, |slice| context.sliced(slice));
        // A batch of fewer rows than slices leaves the last of them empty.
        if slice.is_some() && context.rows == 0 {
            return;
        }
        let (read, written) = args.split_at(node.inputs.len());
        let (written, changed) = written.split_at(node.outputs.len());
        let load = |ids: &[TensorId], slots: &[Slot]| -> Vec<Vec<f64>> {
            let pairs = ids.iter().zip(slots);
            pairs.map(|(id, slot)| self.load(graph, node, *id, *slot, &context)).collect()
        };
        let (inputs, updates) = (load(&node.inputs, read), load(&node.updates, changed));
        let computed = node::compute(&Call {
            graph,
            node,
            context: &context,
            overwrite,
            inputs: inputs.iter().map(Vec::as_slice).collect(),
            updates: updates.iter().map(Vec::as_slice).collect(),
        });
        self.kept.elements += computed.kept.elements;
        self.kept.state_written |= computed.kept.state_written;
        let outputs = node.outputs.iter().zip(written).zip(&computed.outputs);
        for ((id, slot), values) in outputs.chain(node.updates.iter().zip(changed).zip(&computed.updates)) {
            self.store(graph, node, *id, *slot, &context, values);
        }
    }

    fn take_kept(&mut self) -> Kept {
        std::mem::take(&mut self.kept)
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
        let bytes = self.bytes(from).to_vec();
        self.bytes_mut(to).copy_from_slice(&bytes);
    }

    fn copy_out(&mut self, from: Slot, to: Slot) -> io::Result<()> {
        let store = self.store.as_ref().expect("a plan that copies out is sealed with a store");
        store.write(to.offset, self.bytes(from))
    }

    fn copy_in(&mut self, from: Slot, to: Slot) -> io::Result<()> {
        self.peak.mark(to);
        let store = self.store.as_ref().expect("a plan that copies in is sealed with a store");
        store.read(from.offset, self.arena.slot_mut(to))
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
        open()
    }
}
