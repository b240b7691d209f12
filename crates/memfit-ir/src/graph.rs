//! The graph: tensors, and nodes in an order that is valid to run.

use crate::{Bytes, Constraint, DType, Op, Regularizer, Rewrite, Shape, ShapeError, Slice, infer};

/// Index of a tensor in [`Graph::tensors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorId(pub usize);

/// Index of a node in [`Graph::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// Index of a layer's name in [`Graph::layers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerId(pub usize);

/// What to compute: forward alone, or forward, backward and optimizer in one list of nodes.
///
/// The order of `nodes` is the meaning: where a tensor is updated in place, a node before the update reads
/// the old value and a node after it the new.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Names of the user's layers, as the user knows them.
    pub layers: Vec<String>,
    /// Every value.
    pub tensors: Vec<Tensor>,
    /// Every computation.
    pub nodes: Vec<Node>,
    /// Tensors that are fed, row by row: inputs, then targets and weights of rows.
    pub inputs: Vec<TensorId>,
    /// Predictions.
    pub outputs: Vec<TensorId>,
    /// Tensors that must still be there when the step ends.
    pub keep: Vec<TensorId>,
    /// How weights begin. Other persistent tensors begin at zero.
    pub initial: Vec<(TensorId, Initializer)>,
    /// How it was rewritten, in this order.
    pub rewrites: Vec<Rewrite>,
    /// What weights add to the loss.
    pub penalties: Vec<(TensorId, Regularizer)>,
    /// What values add to the loss.
    pub activities: Vec<(TensorId, Regularizer)>,
    /// Predictions, each with the mask that says which of its places count.
    pub masks: Vec<(TensorId, TensorId)>,
    /// Where weights must stay.
    pub constraints: Vec<(TensorId, Constraint)>,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// A name to show; weights have Keras's path, `layer/kernel`.
    pub name: String,
    /// Dimensions.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
    /// What it is for.
    pub kind: Kind,
    /// The layer it belongs to.
    pub layer: LayerId,
    /// The rows it holds, where these are not all rows of a micro-batch.
    pub slice: Option<Slice>,
}

impl Tensor {
    /// Bytes for a micro-batch of `rows`.
    pub fn bytes(&self, rows: usize) -> Bytes {
        self.shape.bytes(self.dtype, self.slice.map_or(rows, |slice| slice.rows(rows)))
    }
}

/// What a tensor is for; decides how long it lives and under which head its bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Fed for every micro-batch.
    Input,
    /// A weight; stays from step to step. Only trainable ones get a gradient.
    Weight {
        /// Whether the optimizer changes it.
        trainable: bool,
    },
    /// Optimizer state; stays from step to step.
    Optimizer,
    /// The gradient of a weight, summed over the micro-batches of a batch.
    Gradient,
    /// The gradient of an activation.
    Flow,
    /// A value between nodes.
    Activation,
    /// A sum over the step that is read when it ends: losses and metrics.
    Statistic,
}

impl Kind {
    /// Whether the tensor keeps its bytes from step to step.
    pub fn is_persistent(self) -> bool {
        match self {
            Kind::Weight { .. } | Kind::Optimizer | Kind::Statistic => true,
            Kind::Input | Kind::Gradient | Kind::Flow | Kind::Activation => false,
        }
    }
}

/// One computation.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it computes.
    pub op: Op,
    /// Tensors it reads.
    pub inputs: Vec<TensorId>,
    /// Tensors it writes whole.
    pub outputs: Vec<TensorId>,
    /// Tensors it changes in place.
    pub updates: Vec<TensorId>,
    /// The layer it belongs to.
    pub layer: LayerId,
    /// When it runs.
    pub phase: Phase,
}

/// When a node runs, if the batch is cut into micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Once, before the first micro-batch.
    Begin,
    /// Once for every micro-batch.
    Piece,
    /// Once, after the last micro-batch.
    End,
}

/// How a weight begins; random ones are drawn by [`crate::random`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initializer {
    /// One value everywhere.
    Constant(f32),
    /// Uniform in `[low, high)`.
    Uniform {
        /// Lower end.
        low: f32,
        /// Upper end.
        high: f32,
        /// Seed of the draws.
        seed: u64,
    },
    /// Normal.
    Normal {
        /// Mean.
        mean: f32,
        /// Standard deviation.
        stddev: f32,
        /// Seed of the draws.
        seed: u64,
    },
    /// Ones from an index to before another, zeros elsewhere.
    Ones {
        /// The first one.
        start: usize,
        /// One past the last one.
        end: usize,
    },
    /// A matrix whose rows are at right angles and of one length, or its columns where these are fewer.
    Orthogonal {
        /// The length.
        gain: f32,
        /// How many elements a row has.
        columns: usize,
        /// Seed of the draws.
        seed: u64,
    },
    /// Normal, drawn again beyond two standard deviations.
    TruncatedNormal {
        /// Mean.
        mean: f32,
        /// Standard deviation before truncation.
        stddev: f32,
        /// Seed of the draws.
        seed: u64,
    },
}

impl Graph {
    /// The id of a layer's name, added where it is new.
    pub fn layer(&mut self, name: &str) -> LayerId {
        // Layers arrive one after the other, so the newest is the likeliest.
        if let Some(index) = self.layers.iter().rposition(|known| known == name) {
            return LayerId(index);
        }
        self.layers.push(name.to_owned());
        LayerId(self.layers.len() - 1)
    }

    /// Adds a tensor.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        shape: Shape,
        dtype: DType,
        kind: Kind,
        layer: LayerId,
    ) -> TensorId {
        self.tensors.push(Tensor { name: name.into(), shape, dtype, kind, layer, slice: None });
        TensorId(self.tensors.len() - 1)
    }

    /// Adds a forward node and the activations it writes, named after the layer and the op.
    pub fn push(&mut self, op: Op, inputs: &[TensorId], layer: LayerId) -> Result<Vec<TensorId>, ShapeError> {
        self.push_updating(op, inputs, &[], Kind::Activation, layer)
    }

    /// Adds a node that also changes tensors in place; its outputs are of `kind`.
    pub fn push_updating(
        &mut self,
        op: Op,
        inputs: &[TensorId],
        updates: &[TensorId],
        kind: Kind,
        layer: LayerId,
    ) -> Result<Vec<TensorId>, ShapeError> {
        let operands: Vec<&Tensor> = inputs.iter().map(|id| &self.tensors[id.0]).collect();
        let types = infer(&op, &operands)?;
        let names = output_names(&op, &self.layers[layer.0], kind);
        let outputs = types
            .into_iter()
            .zip(names)
            .map(|(written, name)| self.tensor(name, written.shape, written.dtype, kind, layer))
            .collect::<Vec<_>>();
        self.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            updates: updates.to_vec(),
            layer,
            phase: Phase::Piece,
        });
        Ok(outputs)
    }

    /// The rows that a node works on, where these are not all rows of a micro-batch.
    pub fn slice_of(&self, node: &Node) -> Option<Slice> {
        node.inputs.iter().chain(&node.outputs).find_map(|id| self.tensors[id.0].slice)
    }

    /// How many rows a node works on in a micro-batch of `rows`.
    pub fn rows_of(&self, node: NodeId, rows: usize) -> usize {
        self.slice_of(&self.nodes[node.0]).map_or(rows, |slice| slice.rows(rows))
    }

    /// Whether a node runs for every micro-batch and gives the same for each row, whatever other rows are there, but for sums that it
    /// adds to: so that it may run on a slice of the rows. A sum of the step is such a sum too; where it must see all rows at once, ask
    /// [`Op::is_sum_of_step`] besides.
    pub fn has_own_rows(&self, node: &Node) -> bool {
        let batched = |id: &TensorId| self.tensors[id.0].shape.batched;
        node.phase == Phase::Piece
            && !node.op.mixes_rows()
            && node.inputs.iter().any(batched)
            && node.outputs.iter().all(batched)
    }

    /// The node that writes a tensor, where there is one.
    pub fn producer(&self, tensor: TensorId) -> Option<NodeId> {
        self.nodes.iter().position(|node| node.outputs.contains(&tensor)).map(NodeId)
    }
}

fn output_names(op: &Op, layer: &str, kind: Kind) -> Vec<String> {
    let prefix = if kind == Kind::Flow { "d " } else { "" };
    op.operands().labels().map(|label| format!("{prefix}{layer}:{label}")).collect()
}
