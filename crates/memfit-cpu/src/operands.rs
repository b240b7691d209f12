//! The operands of one launch: typed ranges of the arena, handed out so that no two references share a byte.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use memfit_ir::{DType, Graph, Node, Op, Shape, Slot, Tensor};

use super::half::Half;
use super::lanes::{LANES_MAX, Lanes, load, prefetch_read};
use super::tasks::BLOCK;
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

    /// The shape of an input.
    pub(crate) fn input_shape(&self, index: usize) -> &'a Shape {
        &self.input_tensor(index).shape
    }

    /// The element type of an input.
    pub(crate) fn input_type(&self, index: usize) -> DType {
        self.input_tensor(index).dtype
    }

    /// The shape of an output.
    pub(crate) fn output_shape(&self, index: usize) -> &'a Shape {
        &self.graph.tensors[self.node.outputs[index].0].shape
    }

    /// The shape of what is changed in place.
    pub(crate) fn update_shape(&self, index: usize) -> &'a Shape {
        &self.graph.tensors[self.node.updates[index].0].shape
    }

    /// An input that shares no byte with an output.
    pub(crate) fn input<T: Element>(&self, index: usize) -> &'a [T] {
        let slot = self.args[index];
        let writes = &self.args[self.node.inputs.len()..];
        assert!(!writes.iter().any(|write| write.overlaps(&slot)), "an input in place is read as `Floats`");
        let (start, length) = self.range::<T>(slot, self.input_tensor(index));
        // SAFETY: `range` guarantees the elements, and they are not written during this launch.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// An input that the node may be without.
    pub(crate) fn input_if(&self, present: bool, index: usize) -> Option<&'a [f32]> {
        present.then(|| self.input(index))
    }

    /// An output that shares no byte with an input; can be taken once.
    pub(crate) fn output<T: Element>(&self, index: usize) -> &'a mut [T] {
        let slot = self.args[self.node.inputs.len() + index];
        let reads = &self.args[..self.node.inputs.len()];
        assert!(!reads.iter().any(|read| read.overlaps(&slot)), "an output in place is written as `Floats`");
        self.take(index);
        let (start, length) = self.range::<T>(slot, &self.graph.tensors[self.node.outputs[index].0]);
        // SAFETY: `range` guarantees the elements; no other operand shares them and `take` hands them out
        // once.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    /// A tensor that is changed in place; can be taken once.
    pub(crate) fn update(&self, index: usize) -> &'a mut [f32] {
        let write = self.node.outputs.len() + index;
        self.take(write);
        let slot = self.args[self.node.inputs.len() + write];
        let (start, length) = self.range(slot, &self.graph.tensors[self.node.updates[index].0]);
        // SAFETY: as for an output.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    /// The bytes of a tensor of any type that is changed in place; can be taken once.
    pub(crate) fn update_bytes(&self, index: usize) -> &'a mut [u8] {
        let write = self.node.outputs.len() + index;
        self.take(write);
        let slot = self.args[self.node.inputs.len() + write];
        let (start, length) = self.byte_range(slot, &self.graph.tensors[self.node.updates[index].0]);
        // SAFETY: as for an output.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    /// Whether the first output stands at the bytes of the first input.
    pub(crate) fn is_in_place(&self) -> bool {
        self.args[0] == self.args[self.node.inputs.len()]
    }

    /// The bytes of an input of any type.
    pub(crate) fn input_bytes(&self, index: usize) -> &'a [u8] {
        let writes = &self.args[self.node.inputs.len()..];
        assert!(!writes.iter().any(|write| write.overlaps(&self.args[index])), "an input is not written");
        let (start, length) = self.byte_range(self.args[index], self.input_tensor(index));
        // SAFETY: `byte_range` guarantees the bytes, and they are not written during this launch.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// The bytes of an output of any type; can be taken once.
    pub(crate) fn output_bytes(&self, index: usize) -> &'a mut [u8] {
        self.take(index);
        let slot = self.args[self.node.inputs.len() + index];
        let reads = &self.args[..self.node.inputs.len()];
        assert!(!reads.iter().any(|read| read.overlaps(&slot)), "an output is not read elsewhere");
        let (start, length) = self.byte_range(slot, &self.graph.tensors[self.node.outputs[index].0]);
        // SAFETY: as for an output of elements.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    /// An input of floats of any size that an output may share.
    pub(crate) fn input_floats(&self, index: usize) -> Floats<'a> {
        self.floats(self.args[index], self.input_tensor(index))
    }

    /// An output of floats of any size that may stand where an input stands; can be taken once.
    pub(crate) fn output_floats(&self, index: usize) -> Floats<'a> {
        self.take(index);
        let slot = self.args[self.node.inputs.len() + index];
        self.floats(slot, &self.graph.tensors[self.node.outputs[index].0])
    }

    fn floats(&self, slot: Slot, tensor: &Tensor) -> Floats<'a> {
        let half = Half::of(self.dtype(tensor));
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
        Floats { start, length, half, arena: PhantomData }
    }

    /// The scratch memory; can be taken once.
    pub(crate) fn workspace(&self) -> Workspace<'a> {
        self.take(u64::BITS as usize - 1);
        let start = self.arena.pointer(self.workspace);
        // SAFETY: the arena guarantees the slot, no operand shares it, and `take` hands it out once.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.workspace.bytes.to_usize()) };
        Workspace { bytes }
    }

    /// The element type of a tensor as it stands in its slot.
    fn dtype(&self, tensor: &Tensor) -> DType {
        if self.widened && Half::of(tensor.dtype).is_some() { DType::F32 } else { tensor.dtype }
    }

    fn input_tensor(&self, index: usize) -> &'a Tensor {
        &self.graph.tensors[self.node.inputs[index].0]
    }

    fn take(&self, write: usize) {
        let bit = 1 << write;
        let taken = self.taken.fetch_or(bit, Ordering::Relaxed);
        assert!(taken & bit == 0, "a write is handed out once");
    }

    /// Start and number of a tensor's elements at the rows of this micro-batch.
    fn range<T: Element>(&self, slot: Slot, tensor: &Tensor) -> (NonNull<T>, usize) {
        let dtype = self.dtype(tensor);
        assert!(T::holds(dtype), "{}: `{}` is {dtype}", self.node.op.name(), tensor.name);
        let start = self.byte_range(slot, tensor).0.cast::<T>();
        assert!(start.is_aligned(), "rows begin at a multiple of their elements' size");
        (start, tensor.shape.elements(self.context.rows))
    }

    /// Start and length of a tensor's bytes at the rows of this micro-batch.
    fn byte_range(&self, slot: Slot, tensor: &Tensor) -> (NonNull<u8>, usize) {
        let bytes = tensor.shape.bytes(self.dtype(tensor), self.context.rows);
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

/// Floats that an input and an output may share. It makes references only to parts, while they are not
/// written: a kernel reads a block, computes in a buffer of its own, and writes the block.
#[derive(Clone, Copy)]
pub(crate) struct Floats<'a> {
    start: NonNull<u8>,
    length: usize,
    /// The type of the elements where they are not of single precision.
    half: Option<Half>,
    arena: PhantomData<&'a Arena>,
}

// SAFETY: reading and writing parts is unsafe, and those who do it keep tasks apart.
unsafe impl Send for Floats<'_> {}
// SAFETY: as above.
unsafe impl Sync for Floats<'_> {}

impl<'a> Floats<'a> {
    /// Scratch memory whose parts several tasks write and then read.
    pub(crate) fn over(floats: &'a mut [f32]) -> Floats<'a> {
        let (start, length) = (NonNull::from(&mut *floats).cast(), floats.len());
        Floats { start, length, half: None, arena: PhantomData }
    }

    /// How many floats there are.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Whether the elements are f16 or bf16.
    pub(crate) fn is_half(&self) -> bool {
        self.half.is_some()
    }

    /// A part in single precision: in place, or widened into a buffer.
    ///
    /// # Safety
    /// The part is not written while the slice lives.
    #[inline(always)]
    pub(crate) unsafe fn load<'b>(&self, part: Range<usize>, buffer: &'b mut [f32]) -> &'b [f32]
    where
        'a: 'b,
    {
        match self.half {
            // SAFETY: the caller's promise.
            None => unsafe { self.read(part) },
            Some(half) => {
                let buffer = &mut buffer[..part.len()];
                // SAFETY: the caller's promise.
                half.widen(unsafe { self.halves(part) }, buffer);
                buffer
            }
        }
    }

    /// A vector of neighbours in single precision, or its first `count` and zeros.
    ///
    /// # Safety
    /// `count` elements lie inside, no more than a vector's, and they are not written meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn vector<L: Lanes>(&self, element: usize, count: usize) -> L {
        if self.half.is_none() {
            // SAFETY: the caller's promise.
            return unsafe { load(self.singles().add(element), count) };
        }
        let mut wide = [0.0; LANES_MAX];
        // SAFETY: the caller's promise.
        unsafe { self.load(element..element + count, &mut wide) };
        // SAFETY: there is room for every vector.
        unsafe { L::load(wide.as_ptr()) }
    }

    /// The same, of a kind that is known where the loop is compiled.
    ///
    /// # Safety
    /// As above; unless `HALVES` the elements are of single precision.
    #[inline(always)]
    pub(crate) unsafe fn vector_of<L: Lanes, const HALVES: bool>(&self, element: usize, count: usize) -> L {
        // SAFETY: the caller's promise.
        unsafe {
            match HALVES {
                true => self.vector(element, count),
                false => load(self.start.cast::<f32>().as_ptr().add(element), count),
            }
        }
    }

    /// Prefetches the cache line of an element of single precision; the element need not lie inside.
    #[inline(always)]
    pub(crate) fn prefetch(&self, element: usize) {
        if self.half.is_none() {
            prefetch_read(self.singles().wrapping_add(element));
        }
    }

    /// Hands a part of at most a block to a function, in single precision.
    ///
    /// # Safety
    /// The part is not written while the function runs.
    #[inline(always)]
    pub(crate) unsafe fn with<R>(&self, part: Range<usize>, body: impl FnOnce(&[f32]) -> R) -> R {
        match self.half {
            // SAFETY: the caller's promise.
            None => body(unsafe { self.read(part) }),
            Some(_) => {
                let mut buffer = [0.0; BLOCK];
                // SAFETY: the caller's promise.
                body(unsafe { self.load(part, &mut buffer) })
            }
        }
    }

    /// Writes a part, rounded where the elements are f16 or bf16.
    ///
    /// # Safety
    /// The part is not read or written elsewhere meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn store(&self, part: Range<usize>, values: &[f32]) {
        match self.half {
            // SAFETY: the caller's promise.
            None => unsafe { self.write(part) }.copy_from_slice(values),
            Some(half) => {
                assert!(part.start <= part.end && part.end <= self.length, "a part lies inside its tensor");
                let start = self.start.cast::<u16>().as_ptr();
                // SAFETY: the part lies inside, and the caller guarantees that only this task uses it.
                let to = unsafe { std::slice::from_raw_parts_mut(start.add(part.start), part.len()) };
                half.narrow(values, to);
            }
        }
    }

    /// A part of f16 or bf16 elements, to be read.
    ///
    /// # Safety
    /// The part is not written while the slice lives.
    #[inline(always)]
    unsafe fn halves(&self, part: Range<usize>) -> &'a [u16] {
        assert!(part.start <= part.end && part.end <= self.length, "a part lies inside its tensor");
        // SAFETY: the part lies inside, and the caller guarantees that it is not written.
        unsafe { std::slice::from_raw_parts(self.start.cast::<u16>().as_ptr().add(part.start), part.len()) }
    }

    /// Where the elements begin, which are of single precision.
    #[inline(always)]
    fn singles(&self) -> *mut f32 {
        assert!(self.half.is_none(), "f16 and bf16 are loaded and stored");
        self.start.cast().as_ptr()
    }

    /// A pointer to the first float, for kernels whose parts are not one range. They keep readers and writers apart.
    pub(crate) fn pointer(&self) -> *mut f32 {
        self.singles()
    }

    /// Where a part begins, for loops that read and write the same place in turn.
    #[inline(always)]
    pub(crate) fn place(&self, part: &Range<usize>) -> *mut f32 {
        assert!(part.start <= part.end && part.end <= self.length, "a part lies inside its tensor");
        self.singles().wrapping_add(part.start)
    }

    /// A part, to be read.
    ///
    /// # Safety
    /// The part is not written while the slice lives.
    #[inline(always)]
    pub(crate) unsafe fn read(&self, part: Range<usize>) -> &'a [f32] {
        assert!(part.start <= part.end && part.end <= self.length, "a part lies inside its tensor");
        // SAFETY: the part lies inside, and the caller guarantees that it is not written.
        unsafe { std::slice::from_raw_parts(self.singles().add(part.start), part.end - part.start) }
    }

    /// A part, to be written.
    ///
    /// # Safety
    /// The part is not read or written elsewhere while the slice lives.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, part: Range<usize>) -> &'a mut [f32] {
        assert!(part.start <= part.end && part.end <= self.length, "a part lies inside its tensor");
        // SAFETY: the part lies inside, and the caller guarantees that only this task uses it.
        unsafe { std::slice::from_raw_parts_mut(self.singles().add(part.start), part.end - part.start) }
    }
}
