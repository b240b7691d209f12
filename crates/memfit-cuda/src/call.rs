//! A node as the functions in `lower` see it: its operands with their sizes at the rows of a micro-batch.

use memfit_ir::{DType, Graph, Named, Node, OperandList, Shape, Tensor, TensorId};

/// What a tensor is to the node's op.
pub(crate) use memfit_ir::Operand as Name;

use super::work::{Address, Argument, c_type};

/// Threads of most blocks.
pub(crate) const THREADS: u32 = 256;

/// Blocks of a kernel that goes through its elements in strides: enough to fill any device several times.
const BLOCKS_MOST: usize = 4096;

/// A node that is to run.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) node: &'a Node,
    /// Rows that the node works on: of its slice, where it has one.
    pub(crate) rows: usize,
    /// The first of them in the micro-batch.
    pub(crate) row_start: usize,
    /// Whether updates count as zero before the node adds to them.
    pub(crate) overwrite: bool,
    /// Whether factors of f32 products may be rounded to TF32, and the device has tensor cores for them.
    pub(crate) tf32: bool,
}

/// An operand of a node.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    /// Its place among inputs, outputs and updates.
    pub(crate) index: usize,
    pub(crate) tensor: &'a Tensor,
    /// Elements at the rows of this call.
    pub(crate) elements: usize,
}

impl<'a> Call<'a> {
    /// An input.
    pub(crate) fn input(&self, operand: impl Into<Named>) -> Operand<'a> {
        let operand = operand.into();
        self.input_if_given(operand).unwrap_or_else(|| self.has_no(operand))
    }

    /// An input that the node may be without.
    pub(crate) fn input_if_given(&self, operand: impl Into<Named>) -> Option<Operand<'a>> {
        self.named(self.node.op.operands().inputs, &self.node.inputs, 0, operand.into())
    }

    /// A pointer to an input that the node may be without.
    pub(crate) fn pointer_if_given(&self, operand: impl Into<Named>) -> Argument {
        self.input_if_given(operand).map_or(Argument::Null, |operand| operand.pointer())
    }

    /// How many inputs there are by a name.
    pub(crate) fn inputs(&self, operand: Name) -> usize {
        let inputs = self.node.op.operands().inputs;
        inputs.find(operand, self.node.inputs.len()).map_or(0, |(_, times)| times)
    }

    /// An output.
    pub(crate) fn output(&self, operand: impl Into<Named>) -> Operand<'a> {
        let operand = operand.into();
        self.output_if_given(operand).unwrap_or_else(|| self.has_no(operand))
    }

    /// An output that the node may be without.
    pub(crate) fn output_if_given(&self, operand: impl Into<Named>) -> Option<Operand<'a>> {
        let before = self.node.inputs.len();
        self.named(self.node.op.operands().outputs, &self.node.outputs, before, operand.into())
    }

    /// A tensor that is changed in place.
    pub(crate) fn update(&self, operand: impl Into<Named>) -> Operand<'a> {
        let operand = operand.into();
        self.update_if_given(operand).unwrap_or_else(|| self.has_no(operand))
    }

    /// A tensor that is changed in place, and that the node may be without.
    pub(crate) fn update_if_given(&self, operand: impl Into<Named>) -> Option<Operand<'a>> {
        let before = self.node.inputs.len() + self.node.outputs.len();
        self.named(self.node.op.operands().updates, &self.node.updates, before, operand.into())
    }

    /// An operand of a list before which `before` others stand.
    fn named(
        &self,
        list: OperandList,
        tensors: &[TensorId],
        before: usize,
        operand: Named,
    ) -> Option<Operand<'a>> {
        assert!(list.has(operand.operand), "{} has no operand `{operand}`", self.node.op.name());
        let place = list.place(operand, tensors.len())?;
        let tensor = &self.graph.tensors[tensors[place].0];
        Some(Operand { index: before + place, tensor, elements: tensor.shape.elements(self.rows) })
    }

    fn has_no(&self, operand: Named) -> ! {
        panic!("this {} has no operand `{operand}`", self.node.op.name())
    }

    /// The first argument of a kernel that adds: 1 where it overwrites instead.
    pub(crate) fn overwrite(&self) -> Argument {
        Argument::Int(i32::from(self.overwrite))
    }
}

impl<'a> Operand<'a> {
    /// Where it stands.
    pub(crate) fn address(&self) -> Address {
        Address::operand(self.index)
    }

    /// A pointer to it.
    pub(crate) fn pointer(&self) -> Argument {
        Argument::At(self.address())
    }

    /// Its dimensions after the batch.
    pub(crate) fn dims(&self) -> &'a [usize] {
        &self.tensor.shape.dims
    }

    /// Its shape.
    pub(crate) fn shape(&self) -> &'a Shape {
        &self.tensor.shape
    }

    /// Its element type.
    pub(crate) fn dtype(&self) -> DType {
        self.tensor.dtype
    }

    /// Its element type in kernels.
    pub(crate) fn c_type(&self) -> &'static str {
        c_type(self.tensor.dtype)
    }
}

/// How many neighbours of a line of `line` elements a thread takes at once: sixteen bytes, or less where the
/// line is no multiple of them.
pub(crate) fn pack_width(line: usize, dtype: DType) -> usize {
    let most = if dtype.size() == 2 { 8 } else { 4 };
    [most, 4, 2, 1].into_iter().find(|width| line.is_multiple_of(*width)).unwrap_or(1)
}

/// Blocks for a kernel whose threads go through `items` items in strides of the whole grid.
pub(crate) fn blocks_for(items: usize) -> [u32; 3] {
    let blocks = items.div_ceil(THREADS as usize).clamp(1, BLOCKS_MOST);
    [u32::try_from(blocks).expect("there are at most a few thousand blocks"), 1, 1]
}

/// A count as a kernel takes it.
pub(crate) fn long(count: usize) -> Argument {
    Argument::Long(i64::try_from(count).expect("no tensor has more elements than an i64 counts"))
}

/// A count below two billion as a kernel takes it.
pub(crate) fn int(count: usize) -> Argument {
    Argument::Int(i32::try_from(count).expect("a dimension has fewer indices"))
}
