//! The operands of one launch: typed ranges of the arena, handed out so that no two references share a byte.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use memfit_ir::{
    DType, Graph, Named, Node, Op, Operand, OperandList, Shape, Signature, Slot, Tensor, TensorId,
};

use super::floats::Floats;
use super::half::Half;
use super::threads::Threads;
use memfit_device::Arena;
use memfit_device::Context;
use memfit_device::found_inf::FoundInf;

/// What one launch works on.
pub(crate) struct Operands<'a> {
    pub(crate) node: &'a Node,
    pub(crate) context: &'a Context,
    pub(crate) threads: &'a Threads,
    /// Whether updates count as zero before the node adds to them.
    pub(crate) fresh: bool,
    graph: &'a Graph,
    /// The names of the node's operands.
    signature: Signature,
    /// Whether f16 and bf16 operands were widened: their slots hold floats.
    widened: bool,
    args: &'a [Slot],
    workspace: Slot,
    arena: &'a Arena,
    /// One bit for each output and update that was handed out to be written, and one for the workspace.
    taken: AtomicU64,
}

/// Element types that any pattern of bits is a value of.
pub(crate) trait Element: Copy + Send + Sync {
    /// Whether tensors of a type hold these elements.
    fn holds(dtype: DType) -> bool;
}

impl Element for f32 {
    fn holds(dtype: DType) -> bool {
        dtype == DType::F32
    }
}

impl Element for i32 {
    fn holds(dtype: DType) -> bool {
        dtype == DType::I32
    }
}

impl Element for u16 {
    fn holds(dtype: DType) -> bool {
        Half::of(dtype).is_some()
    }
}

impl Element for u8 {
    fn holds(dtype: DType) -> bool {
        dtype == DType::U8
    }
}

impl<'a> Operands<'a> {
    /// Checks the slots of a launch and keeps the arena for it.
    pub(crate) fn new(
        arena: &'a mut Arena,
        threads: &'a Threads,
        graph: &'a Graph,
        node: &'a Node,
        args: &'a [Slot],
        workspace: Slot,
        fresh: bool,
        context: &'a Context,
        widened: bool,
    ) -> Operands<'a> {
        let operands = Operands {
            node,
            context,
            threads,
            fresh,
            graph,
            signature: node.op.operands(),
            widened,
            args,
            workspace,
            arena,
            taken: AtomicU64::new(0),
        };
        operands.check();
        operands
    }

    /// Every write is alone with its bytes, but for an output that the op lets stand where an input stands.
    fn check(&self) {
        let Node { op, inputs, outputs, updates, .. } = self.node;
        assert_eq!(
            self.args.len(),
            inputs.len() + outputs.len() + updates.len(),
            "{}: a slot for every operand",
            op.name()
        );
        let (reads, writes) = self.args.split_at(inputs.len());
        for (index, write) in writes.iter().chain([&self.workspace]).enumerate() {
            let clash = writes.iter().take(index).any(|other| other.overlaps(write));
            let shared = reads.iter().enumerate().any(|(input, read)| {
                let allowed = || {
                    index < outputs.len()
                        && read == write
                        && self.node.in_place().any(|pair| pair == (index, input))
                };
                read.overlaps(write) && !allowed()
            });
            assert!(!clash && !shared, "{}: write {index} shares bytes with another operand", op.name());
        }
    }

    /// Raised where what outlives the step is not written, since it is not finite.
    pub(crate) fn found_inf(&self) -> &'a FoundInf {
        &self.arena.found_inf
    }

    /// The shape of an operand.
    pub(crate) fn shape(&self, operand: impl Into<Named>) -> &'a Shape {
        &self.tensor(self.place_of_any(operand.into())).shape
    }

    /// The element type of an operand.
    pub(crate) fn dtype(&self, operand: impl Into<Named>) -> DType {
        self.tensor(self.place_of_any(operand.into())).dtype
    }

    /// How many inputs there are by a name.
    pub(crate) fn inputs(&self, operand: Operand) -> usize {
        self.signature.inputs.find(operand, self.node.inputs.len()).map_or(0, |(_, times)| times)
    }

    /// An input that shares no byte with an output.
    pub(crate) fn input<T: Element>(&self, operand: impl Into<Named>) -> &'a [T] {
        let operand = operand.into();
        self.input_if_given(operand).unwrap_or_else(|| self.has_no(operand))
    }

    /// An input that the node may be without.
    pub(crate) fn input_if_given<T: Element>(&self, operand: impl Into<Named>) -> Option<&'a [T]> {
        let place = self.place_of_input(operand.into())?;
        let slot = self.args[place];
        let writes = &self.args[self.node.inputs.len()..];
        assert!(!writes.iter().any(|write| write.overlaps(&slot)), "an input in place is read as `Floats`");
        let (start, length) = self.range::<T>(slot, self.tensor(place));
        // SAFETY: `range` guarantees the elements, and they are not written during this launch.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), length) })
    }

    /// An output that shares no byte with an input; can be taken once.
    pub(crate) fn output<T: Element>(&self, operand: impl Into<Named>) -> &'a mut [T] {
        let operand = operand.into();
        self.output_if_given(operand).unwrap_or_else(|| self.has_no(operand))
    }

    /// An output that the node may be without; can be taken once.
    pub(crate) fn output_if_given<T: Element>(&self, operand: impl Into<Named>) -> Option<&'a mut [T]> {
        let place = self.place_of_output(operand.into())?;
        self.check_apart(place);
        self.take(place);
        let (start, length) = self.range::<T>(self.args[place], self.tensor(place));
        // SAFETY: `range` guarantees the elements; no other operand shares them and `take` hands them out
        // once.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) })
    }

    /// A tensor that is changed in place; can be taken once.
    pub(crate) fn update(&self, operand: impl Into<Named>) -> &'a mut [f32] {
        let operand = operand.into();
        self.update_if_given(operand).unwrap_or_else(|| self.has_no(operand))
    }

    /// A tensor that is changed in place, and that the node may be without; can be taken once.
    pub(crate) fn update_if_given(&self, operand: impl Into<Named>) -> Option<&'a mut [f32]> {
        let place = self.place_of_update(operand.into())?;
        self.take(place);
        let (start, length) = self.range(self.args[place], self.tensor(place));
        // SAFETY: as for an output.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) })
    }

    /// The bytes of a tensor of any type that is changed in place; can be taken once.
    pub(crate) fn update_bytes(&self, operand: impl Into<Named>) -> &'a mut [u8] {
        let operand = operand.into();
        let place = self.place_of_update(operand).unwrap_or_else(|| self.has_no(operand));
        self.take(place);
        let (start, length) = self.byte_range(self.args[place], self.tensor(place));
        // SAFETY: as for an output.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    /// Whether two operands stand at the same bytes.
    pub(crate) fn is_in_place(&self, output: Operand, input: Operand) -> bool {
        self.args[self.place_of_any(output.into())] == self.args[self.place_of_any(input.into())]
    }

    /// The bytes of an input of any type.
    pub(crate) fn input_bytes(&self, operand: impl Into<Named>) -> &'a [u8] {
        let operand = operand.into();
        let place = self.place_of_input(operand).unwrap_or_else(|| self.has_no(operand));
        let writes = &self.args[self.node.inputs.len()..];
        assert!(!writes.iter().any(|write| write.overlaps(&self.args[place])), "an input is not written");
        let (start, length) = self.byte_range(self.args[place], self.tensor(place));
        // SAFETY: `byte_range` guarantees the bytes, and they are not written during this launch.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// The bytes of an output of any type; can be taken once.
    pub(crate) fn output_bytes(&self, operand: impl Into<Named>) -> &'a mut [u8] {
        let operand = operand.into();
        let place = self.place_of_output(operand).unwrap_or_else(|| self.has_no(operand));
        self.check_apart(place);
        self.take(place);
        let (start, length) = self.byte_range(self.args[place], self.tensor(place));
        // SAFETY: as for an output of elements.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    /// An input of floats of any size that an output may share.
    pub(crate) fn input_floats(&self, operand: impl Into<Named>) -> Floats<'a> {
        let operand = operand.into();
        let place = self.place_of_input(operand).unwrap_or_else(|| self.has_no(operand));
        self.floats(self.args[place], self.tensor(place))
    }

    /// An output of floats of any size that may stand where an input stands; can be taken once.
    pub(crate) fn output_floats(&self, operand: impl Into<Named>) -> Floats<'a> {
        let operand = operand.into();
        self.output_floats_if_given(operand).unwrap_or_else(|| self.has_no(operand))
    }

    /// The same of an output that the node may be without.
    pub(crate) fn output_floats_if_given(&self, operand: impl Into<Named>) -> Option<Floats<'a>> {
        let place = self.place_of_output(operand.into())?;
        self.take(place);
        Some(self.floats(self.args[place], self.tensor(place)))
    }

    fn floats(&self, slot: Slot, tensor: &Tensor) -> Floats<'a> {
        let half = Half::of(self.dtype_in_slot(tensor));
        let (start, length) = match half {
            None => {
                let (start, length) = self.range::<f32>(slot, tensor);
                (start.cast(), length)
            }
            Some(_) => {
                let (start, length) = self.range::<u16>(slot, tensor);
                (start.cast(), length)
            }
        };
        Floats::new(start, length, half)
    }

    /// The scratch memory; can be taken once.
    pub(crate) fn workspace(&self) -> Workspace<'a> {
        self.take_bit(u64::BITS as usize - 1);
        let start = self.arena.pointer(self.workspace);
        // SAFETY: the arena guarantees the slot, no operand shares it, and `take` hands it out once.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.workspace.bytes.to_usize()) };
        Workspace { bytes }
    }

    /// The element type of a tensor as it stands in its slot.
    fn dtype_in_slot(&self, tensor: &Tensor) -> DType {
        if self.widened && Half::of(tensor.dtype).is_some() { DType::F32 } else { tensor.dtype }
    }

    /// Where an operand stands among inputs, outputs and updates, if the node has it.
    fn place_of_input(&self, operand: Named) -> Option<usize> {
        self.place(&self.signature.inputs, &self.node.inputs, operand)
    }

    fn place_of_output(&self, operand: Named) -> Option<usize> {
        let place = self.place(&self.signature.outputs, &self.node.outputs, operand)?;
        Some(self.node.inputs.len() + place)
    }

    fn place_of_update(&self, operand: Named) -> Option<usize> {
        let place = self.place(&self.signature.updates, &self.node.updates, operand)?;
        Some(self.node.inputs.len() + self.node.outputs.len() + place)
    }

    fn place_of_any(&self, operand: Named) -> usize {
        let Node { inputs, outputs, updates, .. } = self.node;
        if let Some(place) = self.signature.inputs.place(operand, inputs.len()) {
            return place;
        }
        let output = self.signature.outputs.place(operand, outputs.len());
        let update = || Some(outputs.len() + self.signature.updates.place(operand, updates.len())?);
        inputs.len() + output.or_else(update).unwrap_or_else(|| self.has_no(operand))
    }

    fn place(&self, list: &OperandList, tensors: &[TensorId], operand: Named) -> Option<usize> {
        let place = list.place(operand, tensors.len());
        if place.is_none() && !list.has(operand.operand) {
            self.has_no(operand);
        }
        place
    }

    #[cold]
    fn has_no(&self, operand: Named) -> ! {
        panic!("{} has no operand `{operand}`", self.node.op.name())
    }

    fn tensor(&self, place: usize) -> &'a Tensor {
        let Node { inputs, outputs, updates, .. } = self.node;
        let written = || place - inputs.len();
        let id = inputs.get(place).or_else(|| outputs.get(written()));
        let id = id.unwrap_or_else(|| &updates[written() - outputs.len()]);
        &self.graph.tensors[id.0]
    }

    fn check_apart(&self, output: usize) {
        let mut reads = self.args[..self.node.inputs.len()].iter();
        assert!(
            !reads.any(|read| read.overlaps(&self.args[output])),
            "an output in place is written as `Floats`"
        );
    }

    fn take(&self, place: usize) {
        self.take_bit(place - self.node.inputs.len());
    }

    fn take_bit(&self, bit: usize) {
        let bit = 1 << bit;
        let taken = self.taken.fetch_or(bit, Ordering::Relaxed);
        assert!(taken & bit == 0, "a write is handed out once");
    }

    /// Start and number of a tensor's elements at the rows of this micro-batch.
    fn range<T: Element>(&self, slot: Slot, tensor: &Tensor) -> (NonNull<T>, usize) {
        let dtype = self.dtype_in_slot(tensor);
        assert!(T::holds(dtype), "{}: `{}` is {dtype}", self.node.op.name(), tensor.name);
        let start = self.byte_range(slot, tensor).0.cast::<T>();
        assert!(start.is_aligned(), "rows begin at a multiple of their elements' size");
        (start, tensor.shape.elements(self.context.rows))
    }

    /// Start and length of a tensor's bytes at the rows of this micro-batch.
    fn byte_range(&self, slot: Slot, tensor: &Tensor) -> (NonNull<u8>, usize) {
        let bytes = tensor.shape.bytes(self.dtype_in_slot(tensor), self.context.rows);
        // Of a tensor that holds all rows, these ops touch a slice; batches in slices are not split, so rows count from 0.
        let is_part = tensor.slice.is_none() && matches!(self.node.op, Op::TakeRows | Op::PutRows);
        let before = if is_part { self.context.row_start } else { 0 };
        let skipped = tensor.shape.bytes(tensor.dtype, before) * u64::from(is_part);
        assert!(skipped + bytes <= slot.bytes, "{}: `{}` fits its slot", self.node.op.name(), tensor.name);
        // Beside operands that were widened, others are parts of their slots.
        let start = if self.widened { self.arena.pointer_to_part(slot) } else { self.arena.pointer(slot) };
        // SAFETY: what is skipped and what follows lie inside the slot, as was just checked.
        (unsafe { start.add(skipped.to_usize()) }, bytes.to_usize())
    }
}

/// Scratch memory, cut into typed parts. Parts of larger elements are taken first.
pub(crate) struct Workspace<'a> {
    bytes: &'a mut [u8],
}

impl<'a> Workspace<'a> {
    /// Everything, as floats.
    pub(crate) fn floats(mut self) -> &'a mut [f32] {
        let count = self.bytes.len() / size_of::<f32>();
        self.take_floats(count)
    }

    /// The next `count` floats.
    pub(crate) fn take_floats(&mut self, count: usize) -> &'a mut [f32] {
        self.take(count)
    }

    /// The next `count` doubles.
    pub(crate) fn take_doubles(&mut self, count: usize) -> &'a mut [f64] {
        self.take(count)
    }

    fn take<T>(&mut self, count: usize) -> &'a mut [T] {
        let (part, rest) = std::mem::take(&mut self.bytes).split_at_mut(count * size_of::<T>());
        self.bytes = rest;
        let start: *mut T = part.as_mut_ptr().cast();
        assert!(count == 0 || start.is_aligned(), "parts of larger elements are taken first");
        let start = if count == 0 { NonNull::dangling().as_ptr() } else { start };
        // SAFETY: the part is aligned and split off, and any bits are a float.
        unsafe { std::slice::from_raw_parts_mut(start, count) }
    }
}
