//! A fold: a value is not kept for backward. Its readers there recompute it inside their own kernels, in the
//! cache, from values that are kept in any case.
//!
//! ```text
//! z ─▶ normalise ─▶ x ─▶ convolution …            z ─▶ normalise ─▶ x ─▶ convolution …
//! │                 └▶ gradient of the kernel  ═▶  ├▶ normalise and gradient of the kernel
//! └▶ gradient of the normalisation                 └▶ gradient of the normalisation
//! ```
//!
//! It is a rewrite of one training graph into another, node by node: ids of nodes and tensors stay, and so do all bits.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::{Cost, DType, Fused, Graph, Node, NodeId, Op, Phase, Plan, Problem, Producer, TensorId};

/// A value, its producer, and the readers that then recompute it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// What is no longer kept.
    pub value: TensorId,
    /// The node that writes it.
    pub producer: NodeId,
    /// The nodes that read it in backward.
    pub readers: Vec<NodeId>,
}

impl Fold {
    /// The problem whose nodes a plan refers to, before its region; a value that cannot be folded is
    /// rejected.
    pub fn of_plan<'a>(problem: &'a Problem, plan: &Plan) -> Result<Cow<'a, Problem>, TensorId> {
        if plan.folds.is_empty() || problem.graph.folds == plan.folds {
            return Ok(Cow::Borrowed(problem));
        }
        Fold::applied(problem, &plan.folds).map(Cow::Owned)
    }

    /// The same problem with these values folded, one after the other.
    pub fn applied(problem: &Problem, values: &[TensorId]) -> Result<Problem, TensorId> {
        let mut folding = Folding::new(&problem.graph);
        let mut costs = problem.costs.clone();
        for value in values {
            let fold = folding.find(*value).ok_or(*value)?;
            for reader in &fold.readers {
                let cost = problem.costs_folded.get(reader).ok_or(*value)?;
                costs[reader.0] = cost.no_faster_than(&costs[reader.0]);
            }
            folding.apply(&fold);
        }
        let (graph, costs_folded) = (folding.graph, BTreeMap::new());
        Ok(Problem { graph, costs, costs_folded, ..problem.clone() })
    }
}

/// A graph in which values are folded one after the other.
pub struct Folding {
    /// As far as it is rewritten.
    pub graph: Graph,
    /// The node that writes each tensor.
    producers: Vec<Option<usize>>,
    /// Nodes that read each tensor, and those that change it, in order.
    readers: Vec<Vec<usize>>,
    changers: Vec<Vec<usize>>,
    /// Tensors that must be there when the step ends.
    kept: Vec<bool>,
}

impl Folding {
    /// A graph without folds.
    pub fn new(graph: &Graph) -> Folding {
        let count = graph.tensors.len();
        let (mut producers, mut readers, mut changers) =
            (vec![None; count], vec![Vec::new(); count], vec![Vec::new(); count]);
        for (index, node) in graph.nodes.iter().enumerate() {
            node.outputs.iter().for_each(|id| producers[id.0] = Some(index));
            node.inputs.iter().for_each(|id| readers[id.0].push(index));
            node.updates.iter().for_each(|id| changers[id.0].push(index));
        }
        let mut kept = vec![false; count];
        graph.keep.iter().chain(&graph.outputs).for_each(|id| kept[id.0] = true);
        Folding { graph: graph.clone(), producers, readers, changers, kept }
    }

    /// A graph with every possible fold, and the nodes that then recompute an operand.
    pub fn all(graph: &Graph) -> (Graph, Vec<NodeId>) {
        let (mut folding, mut readers) = (Folding::new(graph), Vec::new());
        for value in folding.values() {
            if let Some(fold) = folding.find(value) {
                folding.apply(&fold);
                readers.extend(fold.readers);
            }
        }
        readers.sort_unstable();
        (folding.graph, readers)
    }

    /// Values that a node writes and that might be folded, in the order of nodes.
    pub fn values(&self) -> Vec<TensorId> {
        let made = self.graph.nodes.iter().filter(|node| Producer::of(&node.op).is_some());
        made.flat_map(|node| node.outputs.iter().copied()).collect()
    }

    /// The fold of a value: none where that would change a bit, or keep something else for longer.
    pub fn find(&self, value: TensorId) -> Option<Fold> {
        let producer = (*self.producers.get(value.0)?)?;
        let node = &self.graph.nodes[producer];
        Producer::of(&node.op)?;
        if node.phase != Phase::Piece || self.kept[value.0] || !self.changers[value.0].is_empty() {
            return None;
        }
        let readers = &self.readers[value.0];
        let reads = |index: usize| read_by(&self.graph.nodes[index], value);
        let last_other = readers.iter().rev().find(|index| reads(**index).is_none());
        let folded: Vec<usize> =
            readers.iter().copied().filter(|index| last_other.is_none_or(|other| other < index)).collect();
        let (first, last) = (*folded.first()?, *folded.last()?);
        let any_gradient = folded.iter().any(|index| matches!(reads(*index), Some(Reader::GradKernel(_))));
        let waits = readers.first().is_some_and(|reader| *reader < first);
        let kept_anyway = |id: &TensorId| {
            let unchanged = !self.changers[id.0].iter().any(|index| (producer..=last).contains(index));
            let lives_on = self.graph.tensors[id.0].kind.is_persistent()
                || self.readers[id.0].last().is_some_and(|reader| last < *reader);
            unchanged && lives_on && self.graph.tensors[id.0].dtype == DType::F32
        };
        let suits = any_gradient && waits && node.inputs.iter().all(kept_anyway);
        let readers = folded.into_iter().map(NodeId).collect();
        suits.then_some(Fold { value, producer: NodeId(producer), readers })
    }

    /// Folds a value that was found.
    pub fn apply(&mut self, fold: &Fold) {
        let made = self.graph.nodes[fold.producer.0].clone();
        for reader in &fold.readers {
            let node = &mut self.graph.nodes[reader.0];
            let (Some(producer), Some(reads)) = (Producer::of(&made.op), read_by(node, fold.value)) else {
                continue;
            };
            node.op = match reads {
                Reader::GradKernel(conv) => Op::Fused(Fused::Conv2DGradKernelOf(producer, conv)),
                Reader::SignBits(below) => Op::Fused(Fused::SignBitsOf(producer, below)),
            };
            node.inputs.splice(..1, made.inputs.iter().copied());
            self.readers[fold.value.0].retain(|index| *index != reader.0);
            for id in &made.inputs {
                let place = self.readers[id.0].partition_point(|index| *index < reader.0);
                self.readers[id.0].insert(place, reader.0);
            }
        }
        self.graph.folds.push(fold.value);
    }
}

/// An op that can recompute the first of its inputs.
enum Reader {
    GradKernel(crate::Conv2D),
    SignBits(f32),
}

/// How a node reads a value, if it could make it itself.
fn read_by(node: &Node, value: TensorId) -> Option<Reader> {
    let first_alone = node.inputs.first() == Some(&value) && !node.inputs[1..].contains(&value);
    if node.phase != Phase::Piece || !first_alone {
        return None;
    }
    if let Op::Conv2DGradKernel(conv) = &node.op {
        Some(Reader::GradKernel(conv.clone()))
    } else if let Op::SignBits { below } = node.op {
        Some(Reader::SignBits(below))
    } else {
        None
    }
}

impl Cost {
    /// The same, but no faster than another cost: a consumer that recomputes its operand does more work.
    fn no_faster_than(&self, other: &Cost) -> Cost {
        let measured = match (self.measured, other.measured) {
            (Some(own), Some(other)) => Some(crate::Nanos {
                fixed: own.fixed.max(other.fixed),
                per_row: own.per_row.max(other.per_row),
            }),
            (own, None) => own,
            (None, other) => other,
        };
        Cost {
            nanos_fixed: self.nanos_fixed.max(other.nanos_fixed),
            nanos_per_row: self.nanos_per_row.max(other.nanos_per_row),
            measured,
            ..*self
        }
    }
}
