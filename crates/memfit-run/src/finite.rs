//! When a value that is not finite is found: which was the first, where it came from, and what the step had changed by then.

use std::fmt;

use memfit_device::Kept;
use memfit_ir::Operand::{FoundInf, Gradient, Weight};
use memfit_ir::{DType, Graph, Kind, Node, Op, Slot, TensorId};

/// Finite values above this have a square that is not.
const LARGE: f32 = 1.844_674_2e19;
/// Names in a message before the rest is counted.
const NAMES: usize = 4;

/// A value that was not finite. Nothing that outlives a step was overwritten by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFinite {
    /// The training step, counted from 0.
    pub step: u64,
    /// The layer it belongs to.
    pub layer: String,
    /// The tensor.
    pub tensor: String,
    /// Where it came from.
    pub culprit: Culprit,
    /// Where it was found.
    pub found: Found,
    /// Where an input is the culprit, its row in the data as it is stored, counted from 0; none where the feed does not know it.
    pub row_of_data: Option<u64>,
    /// What outlives the step and was changed by it before it was stopped.
    pub changed: Vec<Changed>,
}

/// Where a value that is not finite was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// In a loss.
    Loss,
    /// In the gradients, though the loss is finite.
    Gradients,
    /// In the new values of a tensor that outlives the step.
    Written {
        /// The tensor, which kept its old values there.
        tensor: String,
    },
}

/// A tensor that a step changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its name.
    pub tensor: String,
    /// Whether all of it was written; blocks that would not have been finite kept their values.
    pub wholly: bool,
}

/// Where a value that is not finite came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// The data: this row of the batch.
    Input {
        /// Counted from the start of the batch.
        row: usize,
    },
    /// The data: this row of the batch holds a finite value whose square is not finite.
    LargeInput {
        /// Counted from the start of the batch.
        row: usize,
    },
    /// A weight that was not finite before the step.
    Weight,
    /// What a layer computed from finite values.
    Output,
    /// The loss itself.
    Loss,
    /// The gradient of a weight, though the loss is finite and gradients are not scaled any more.
    Gradient,
    /// The new value of a weight, of its optimizer state or of a moving statistic, though inputs and loss are finite.
    Update,
}

impl NotFinite {
    /// Whether every layer's output was finite.
    pub(crate) fn is_loss(&self) -> bool {
        self.culprit == Culprit::Loss
    }

    /// The row of an input, in the words of the batch and of the data.
    fn row(&self, row: usize) -> String {
        match self.row_of_data {
            Some(stored) => format!("row {stored} of the data (row {row} of the batch, both counted from 0)"),
            None => format!("row {row} of the batch"),
        }
    }
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotFinite { step, layer, tensor, culprit, found, .. } = self;
        let number = step + 1;
        match found {
            Found::Loss => write!(f, "the loss of step {number} is not finite")?,
            Found::Gradients => write!(f, "gradients overflow f16 at every loss scale down to 1")?,
            Found::Written { tensor } => {
                write!(f, "step {number} computed values for `{tensor}` that are not finite")?;
            }
        }
        match culprit {
            Culprit::Input { row } => write!(
                f,
                ": input `{tensor}` holds NaN or infinity in {}, so that the first layer to see it, and every one \
                 after it, is not finite; clean the data",
                self.row(*row)
            ),
            Culprit::LargeInput { row } => write!(
                f,
                ": input `{tensor}` holds a value in {} that is so large that its square is not finite; rescale the \
                 data",
                self.row(*row)
            ),
            Culprit::Weight => write!(
                f,
                ": weight `{tensor}` of layer `{layer}` is not finite since before this step; lower the learning rate \
                 or clip gradients"
            ),
            Culprit::Output => write!(
                f,
                ": the output of layer `{layer}` is the first that is not; lower the learning rate, clip gradients or \
                 rescale the input"
            ),
            Culprit::Loss => write!(
                f,
                " though every layer's output is; look at the targets (class numbers in range? values finite?)"
            ),
            Culprit::Gradient => write!(
                f,
                ": at step {number}, `{tensor}` of layer `{layer}` is the first that is not finite; use \
                 `mixed_bfloat16`, lower the learning rate or clip gradients"
            ),
            Culprit::Update => write!(
                f,
                ", though loss and inputs are: `{tensor}` of layer `{layer}` is the first; lower the learning rate, \
                 clip gradients or rescale the input"
            ),
        }?;
        self.write_changed(f)
    }
}

impl NotFinite {
    /// What the step changed, and what stands.
    fn write_changed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |wholly: bool| -> Option<String> {
            let of_kind = self.changed.iter().filter(|changed| changed.wholly == wholly);
            let names: Vec<&str> = of_kind.map(|changed| changed.tensor.as_str()).collect();
            let shown = names.iter().take(NAMES).map(|name| format!("`{name}`")).collect::<Vec<_>>();
            let more = match names.len().saturating_sub(NAMES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            (!names.is_empty()).then(|| format!("{}{more}", shown.join(", ")))
        };
        match (names(true), names(false)) {
            (None, None) => write!(f, "; this step changed nothing")?,
            (Some(wholly), None) => write!(f, "; this step changed {wholly} wholly")?,
            (None, Some(in_part)) => write!(f, "; this step changed {in_part} in part")?,
            (Some(wholly), Some(in_part)) => {
                write!(f, "; this step changed {wholly} wholly, and {in_part} in part")?;
            }
        }
        write!(
            f,
            "; nothing that is not finite was written, no model is saved, and the last whole checkpoint stands"
        )
    }
}

/// What a graph with `guard = "step"` says when a step is over: whether anything that it would have written is not finite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    /// Holds the number of the first check that found something, or 0.
    pub(crate) found_inf: TensorId,
}

impl Guard {
    /// The guard of a graph; none for a graph without.
    pub(crate) fn of(graph: &Graph) -> Option<Guard> {
        let mut checks = graph.nodes.iter().filter(|node| matches!(node.op, Op::CheckUpdate(_)));
        checks.next().map(|node| Guard { found_inf: node.tensor(FoundInf) })
    }

    /// The tensor that the check of a number tests: a gradient, a statistic, or the weight of an update.
    pub(crate) fn looked_at(graph: &Graph, number: f32) -> Option<TensorId> {
        graph.nodes.iter().find_map(|node| {
            let (known, operand) = if let Op::CheckUpdate(check) = &node.op {
                (check.number, Weight)
            } else if let Op::CheckFinite(known) = node.op {
                (known, Gradient)
            } else {
                return None;
            };
            (known as f32 == number).then(|| node.input(operand))
        })
    }
}

/// The kinds of tensors that outlive a step.
pub(crate) fn outlives(graph: &Graph, tensor: TensorId) -> bool {
    match graph.tensors[tensor.0].kind {
        Kind::Weight { .. } | Kind::Optimizer => true,
        Kind::Input | Kind::Gradient | Kind::Flow | Kind::Activation | Kind::Statistic => false,
    }
}

/// Notes what a launch changed of what outlives the step, where it kept this much.
pub(crate) fn note_changes(graph: &Graph, node: &Node, kept: Kept, changed: &mut Vec<Changed>) {
    let Some(first) = node.updates.iter().find(|id| outlives(graph, **id)) else { return };
    let elements = graph.tensors[first.0].shape.elements_per_row() as u64;
    if elements <= kept.elements && !kept.state_written {
        return;
    }
    for id in node.updates.iter().filter(|id| outlives(graph, **id)) {
        let (tensor, wholly) = (&graph.tensors[id.0].name, kept == Kept::default());
        match changed.iter_mut().find(|known| known.tensor == *tensor) {
            Some(known) => known.wholly &= wholly,
            None => changed.push(Changed { tensor: tensor.clone(), wholly }),
        }
    }
}

/// The first row of an input with a finite value so large that its square is not.
pub(crate) fn first_large_row(graph: &Graph, tensor: TensorId, bytes: &[u8], rows: usize) -> Option<usize> {
    let tensor = &graph.tensors[tensor.0];
    if tensor.dtype != DType::F32 {
        return None;
    }
    let mut floats = bytes[..tensor.bytes(rows).to_usize()].as_chunks().0.iter();
    let bad = floats.position(|four| LARGE < f32::from_ne_bytes(*four).abs())?;
    Some(bad / tensor.shape.elements_per_row().max(1))
}

/// The first row of a tensor that holds a value that is not finite.
pub fn first_bad_row(graph: &Graph, tensor: TensorId, bytes: &[u8], rows: usize) -> Option<usize> {
    let tensor = &graph.tensors[tensor.0];
    let bytes = &bytes[..tensor.bytes(rows).to_usize()];
    let patterns = || bytes.as_chunks().0.iter().map(|two| u16::from_ne_bytes(*two));
    // All bits of the exponent are set in infinity and NaN alone.
    let bad = match tensor.dtype {
        DType::F32 => bytes.as_chunks().0.iter().position(|four| !f32::from_ne_bytes(*four).is_finite()),
        DType::F16 => patterns().position(|bits| bits & 0x7c00 == 0x7c00),
        DType::BF16 => patterns().position(|bits| bits & 0x7f80 == 0x7f80),
        DType::I32 | DType::I64 | DType::U8 | DType::Bool => None,
    }?;
    Some(if tensor.shape.batched { bad / tensor.shape.elements_per_row().max(1) } else { 0 })
}

/// A tensor and where it stands.
type Placed = (TensorId, Slot);

/// The operands of a node that are worth looking at: weights it reads, then what it writes.
pub fn suspects(graph: &Graph, node: &Node, args: &[Slot]) -> (Vec<Placed>, Vec<Placed>) {
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
