//! When a loss is not finite: which value was the first.

use std::fmt;

use memfit_ir::{DType, Graph, Kind, Slot, TensorId};

/// The first value that was not finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFinite {
    /// The training step, counted from 0.
    pub step: u64,
    /// The layer it belongs to.
    pub layer: String,
    /// The tensor.
    pub tensor: String,
    /// What kind of value.
    pub culprit: Culprit,
}

/// Where a value that is not finite came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// The data: this row of the batch.
    Input {
        /// Counted from the start of the batch.
        row: usize,
    },
    /// A weight, spoiled by an earlier step.
    Weight,
    /// What a layer computed from finite values.
    Output,
    /// The loss itself.
    Loss,
    /// The gradient of a weight, though the loss is finite and gradients are not scaled any more.
    Gradient,
}

impl NotFinite {
    /// Whether every layer's output was finite.
    pub(crate) fn is_loss(&self) -> bool {
        self.culprit == Culprit::Loss
    }
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotFinite { step, layer, tensor, culprit } = self;
        let number = step + 1;
        match culprit {
            Culprit::Input { row } => write!(
                f,
                "the loss of step {number} is not finite: input `{tensor}` holds NaN or infinity in row {row} of the \
                 batch, so that the first layer to see it, and every one behind it, is not finite; clean the data"
            ),
            Culprit::Weight => write!(
                f,
                "the loss of step {number} is not finite: weight `{tensor}` of layer `{layer}` is not finite since an \
                 earlier step; lower the learning rate or clip gradients"
            ),
            Culprit::Output => write!(
                f,
                "the loss of step {number} is not finite: the output of layer `{layer}` is the first that is not; \
                 lower the learning rate, clip gradients or rescale the input"
            ),
            Culprit::Loss => write!(
                f,
                "the loss of step {number} is not finite though every layer's output is; look at the targets \
                 (class numbers in range? values finite?)"
            ),
            Culprit::Gradient => write!(
                f,
                "gradients overflow f16 at every loss scale down to 1: at step {number}, `{tensor}` of layer `{layer}` is \
                 the first that is not finite; use `mixed_bfloat16`, lower the learning rate or clip gradients"
            ),
        }
    }
}

/// The first row of a tensor that holds a value that is not finite.
pub fn first_bad_row(graph: &Graph, tensor: TensorId, bytes: &[u8], rows: usize) -> Option<usize> {
    let tensor = &graph.tensors[tensor.0];
    let bytes = &bytes[..tensor.bytes(rows).to_usize()];
    let halves = || bytes.as_chunks().0.iter().map(|two| u16::from_ne_bytes(*two));
    // All bits of the exponent are set in infinity and NaN alone.
    let bad = match tensor.dtype {
        DType::F32 => bytes.as_chunks().0.iter().position(|four| !f32::from_ne_bytes(*four).is_finite()),
        DType::F16 => halves().position(|half| half & 0x7c00 == 0x7c00),
        DType::BF16 => halves().position(|half| half & 0x7f80 == 0x7f80),
        DType::I32 | DType::I64 | DType::U8 | DType::Bool => None,
    }?;
    Some(if tensor.shape.batched { bad / tensor.shape.elements_per_row().max(1) } else { 0 })
}

/// A tensor and where it stands.
type Placed = (TensorId, Slot);

/// The operands of a node that are worth looking at: weights it reads, then what it writes.
pub fn suspects(graph: &Graph, node: &memfit_ir::Node, args: &[Slot]) -> (Vec<Placed>, Vec<Placed>) {
    let is_weight = |id: &TensorId| match graph.tensors[id.0].kind {
        Kind::Weight { .. } => true,
        Kind::Input | Kind::Optimizer | Kind::Gradient | Kind::Flow | Kind::Activation | Kind::Statistic => {
            false
        }
    };
    let pairs = |ids: &[TensorId], slots: &[Slot]| -> Vec<Placed> {
        ids.iter().copied().zip(slots.iter().copied()).collect()
    };
    let (inputs, rest) = args.split_at(node.inputs.len());
    let weights = pairs(&node.inputs, inputs).into_iter().filter(|(id, _)| is_weight(id)).collect();
    (weights, pairs(&node.outputs, &rest[..node.outputs.len()]))
}
