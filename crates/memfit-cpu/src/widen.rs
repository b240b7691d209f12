//! f16 and bf16 for kernels of single precision: a few rows at a time are widened into workspace, the kernel
//! runs on them, and what it wrote is narrowed afterwards.
//!
//! How many rows go at once depends on shapes alone, so that results do not depend on the budget.

use memfit_ir::{ALIGNMENT, Bytes, DType, Graph, Node, Op, Shape, Slot, Tensor};

use super::bands::Bands;
use super::half::Half;
use super::operands::Operands;
use super::threads::Threads;
use super::{fused, launch};
use memfit_device::Arena;
use memfit_device::Context;

/// Floats that are widened at once, unless one row has more: enough to keep threads busy, few enough to stay
/// in the cache.
pub(crate) const AT_ONCE: usize = 1 << 18;
/// The same where a kernel is read again for every part.
const AT_ONCE_MOST: usize = 1 << 20;
/// The most operands of a node whose kernel has no half types.
const OPERANDS: usize = 16;
/// Elements that one task converts.
const TASK: usize = 1 << 14;

/// Whether the kernel of an op reads and writes f16 and bf16 itself, block by block or by copying bytes.
fn has_half_types(op: &Op) -> bool {
    if let Op::Fused(of) = op {
        return fused::has_half_types(of);
    }
    matches!(
        op,
        Op::Elementwise(_)
            | Op::SignBits { .. }
            | Op::MaskBits
            | Op::Dropout { .. }
            | Op::Noise(_)
            | Op::Affine { .. }
            | Op::AffineConstant { .. }
            | Op::Transpose(_)
            | Op::BatchNormStatistics
            | Op::BatchNorm(_)
            | Op::BatchNormGrad(_)
            | Op::BatchNormInference(_)
            | Op::BatchNormInferenceGrad(_)
            | Op::Pad2D(_)
            | Op::Crop2D(_)
            | Op::Concat(_)
            | Op::Slice { .. }
            | Op::PadAxis { .. }
            | Op::Reshape(_)
            | Op::Cast(_)
            | Op::TakeRows
            | Op::PutRows
            | Op::Zero
    )
}

/// What of a node is widened, and where it stands in the workspace.
pub(crate) struct Widening<'a> {
    graph: &'a Graph,
    node: &'a Node,
}

impl<'a> Widening<'a> {
    /// The widening of a node, where it has operands in f16 or bf16 and a kernel without half types.
    pub(crate) fn of(graph: &'a Graph, node: &'a Node) -> Option<Widening<'a>> {
        let tensors = node.inputs.iter().chain(&node.outputs).chain(&node.updates);
        let half = tensors.into_iter().any(|id| Half::of(graph.tensors[id.0].dtype).is_some());
        (half && !has_half_types(&node.op)).then_some(Widening { graph, node })
    }

    /// Runs the node.
    pub(crate) fn launch(
        &self,
        arena: &mut Arena,
        threads: &Threads,
        args: &[Slot],
        workspace: Slot,
        overwrite: bool,
        context: &Context,
    ) {
        let Widening { graph, node } = *self;
        let operands = Operands::new(arena, threads, graph, node, args, workspace, overwrite, context, false);
        if let Some(bands) = Bands::of(graph, node) {
            return bands.launch(&operands);
        }
        let rows_at_once = self.rows_at_once(context.rows);
        let room = workspace.bytes.0.checked_sub(self.bytes(rows_at_once).0);
        let own = room.expect("the workspace has room for what is widened") / ALIGNMENT * ALIGNMENT;
        let own = Slot { offset: workspace.offset, bytes: Bytes(own) };
        for first in (0..context.rows).step_by(rows_at_once.max(1)) {
            let rows = rows_at_once.min(context.rows - first);
            let part = Context { row_start: context.row_start + first, rows, ..*context };
            let mut narrow = [Slot { offset: Bytes::ZERO, bytes: Bytes::ZERO }; OPERANDS];
            let mut wide = narrow;
            let count = args.len();
            for (index, slot) in args.iter().enumerate() {
                narrow[index] = rows_of(*slot, self.tensor(index), first, rows);
                wide[index] = self.place(index, rows_at_once, rows, own.end()).unwrap_or(narrow[index]);
            }
            let convert = Convert { arena, threads };
            for index in (0..node.inputs.len()).filter(|index| narrow[*index] != wide[*index]) {
                convert.widen(self.half(index), narrow[index], wide[index]);
            }
            let opens = overwrite && first == 0;
            let operands =
                Operands::new(arena, threads, graph, node, &wide[..count], own, opens, &part, true);
            launch::launch(&operands);
            let convert = Convert { arena, threads };
            for index in (node.inputs.len()..count).filter(|index| narrow[*index] != wide[*index]) {
                convert.narrow(self.half(index), wide[index], narrow[index]);
            }
        }
    }

    /// How many of `rows` rows are widened together.
    pub(crate) fn rows_at_once(&self, rows: usize) -> usize {
        let per_row: usize = self.owners().map(|index| self.tensor(index).shape.elements_per_row()).sum();
        // A kernel that is read for every part is worth as many floats of values.
        let tensors =
            self.node.inputs.iter().chain(&self.node.updates).map(|id| &self.graph.tensors[id.0].shape);
        let weights = tensors.filter(|shape| !shape.batched).map(Shape::elements_per_row).max().unwrap_or(0);
        (weights.clamp(AT_ONCE, AT_ONCE_MOST) / per_row.max(1)).clamp(1, rows.max(1))
    }

    /// Workspace for `rows` rows.
    pub(crate) fn bytes(&self, rows: usize) -> Bytes {
        self.owners().map(|index| self.bytes_of(index, rows)).sum()
    }

    /// Where a widened operand stands: its place has room for `rows_at_once` rows, of which `rows` are used.
    fn place(&self, index: usize, rows_at_once: usize, rows: usize, start: Bytes) -> Option<Slot> {
        self.half_of(index)?;
        let owner = self.shared_input(index).unwrap_or(index);
        let before = self.owners().take_while(|other| *other < owner);
        let offset = start + before.map(|other| self.bytes_of(other, rows_at_once)).sum::<Bytes>();
        Some(Slot { offset, bytes: self.tensor(index).shape.bytes(DType::F32, rows) })
    }

    /// Operands with a place of their own.
    fn owners(&self) -> impl Iterator<Item = usize> + '_ {
        let Node { inputs, outputs, updates, .. } = self.node;
        let count = inputs.len() + outputs.len() + updates.len();
        (0..count).filter(|index| self.half_of(*index).is_some() && self.shared_input(*index).is_none())
    }

    /// The input in whose place an output is written: the first, for the first.
    fn shared_input(&self, index: usize) -> Option<usize> {
        let shares = index == self.node.inputs.len()
            && self.node.in_place().any(|pair| pair == (0, 0))
            && self.half_of(0).is_some()
            && self.tensor(0).shape == self.tensor(index).shape;
        shares.then_some(0)
    }

    fn bytes_of(&self, index: usize, rows: usize) -> Bytes {
        self.tensor(index).shape.bytes(DType::F32, rows).align_up(ALIGNMENT)
    }

    fn half_of(&self, index: usize) -> Option<Half> {
        Half::of(self.tensor(index).dtype)
    }

    fn half(&self, index: usize) -> Half {
        self.half_of(index).expect("only f16 and bf16 operands have another place")
    }

    fn tensor(&self, index: usize) -> &'a Tensor {
        let Node { inputs, outputs, updates, .. } = self.node;
        let mut operands = inputs.iter().chain(outputs).chain(updates);
        let id = operands.nth(index).expect("a slot for every operand");
        &self.graph.tensors[id.0]
    }
}

/// The part of a slot that holds some rows of its tensor; all of it where the tensor has no batch.
fn rows_of(slot: Slot, tensor: &Tensor, first: usize, rows: usize) -> Slot {
    if !tensor.shape.batched {
        return slot;
    }
    let before = tensor.shape.bytes(tensor.dtype, first);
    let bytes = tensor.shape.bytes(tensor.dtype, rows);
    assert!(before + bytes <= slot.bytes, "`{}` fits its slot", tensor.name);
    Slot { offset: slot.offset + before, bytes }
}

/// Conversions between two parts of the arena that share no byte: an operand, and its place in the workspace.
struct Convert<'a> {
    arena: &'a Arena,
    threads: &'a Threads,
}

impl Convert<'_> {
    fn widen(&self, half: Half, from: Slot, to: Slot) {
        assert!(!from.overlaps(&to), "a workspace shares no byte with an operand");
        let count = to.bytes.to_usize() / size_of::<f32>();
        // SAFETY: the arena guarantees both slots, which hold as many elements, aligned to their size and
        // apart; nothing else works in the arena during a launch.
        let (from, to) = unsafe {
            let from: *const u16 = self.arena.pointer_to_part(from).cast().as_ptr();
            let to: *mut f32 = self.arena.pointer_to_part(to).cast().as_ptr();
            (std::slice::from_raw_parts(from, count), std::slice::from_raw_parts_mut(to, count))
        };
        self.threads.for_each_chunk(to, TASK, |chunk, to| {
            half.widen(&from[chunk * TASK..][..to.len()], to);
        });
    }

    fn narrow(&self, half: Half, from: Slot, to: Slot) {
        assert!(!from.overlaps(&to), "a workspace shares no byte with an operand");
        let count = from.bytes.to_usize() / size_of::<f32>();
        // SAFETY: as above.
        let (from, to) = unsafe {
            let from: *const f32 = self.arena.pointer_to_part(from).cast().as_ptr();
            let to: *mut u16 = self.arena.pointer_to_part(to).cast().as_ptr();
            (std::slice::from_raw_parts(from, count), std::slice::from_raw_parts_mut(to, count))
        };
        self.threads.for_each_chunk(to, TASK, |chunk, to| {
            half.narrow(&from[chunk * TASK..][..to.len()], to);
        });
    }
}
