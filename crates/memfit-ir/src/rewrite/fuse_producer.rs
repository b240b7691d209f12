//! A producer fused into its readers: a value is not kept for backward. Its readers there recompute it inside
//! their own kernels, in the cache, from values that are kept in any case.
//!
//! ```text
//! z ─▶ normalise ─▶ x ─▶ convolution …            z ─▶ normalise ─▶ x ─▶ convolution …
//! │                 └▶ gradient of the kernel  ═▶  ├▶ normalise and gradient of the kernel
//! └▶ gradient of the normalisation                 └▶ gradient of the normalisation
//! ```
//!
//! It is a rewrite of one training graph into another, node by node: ids of nodes and tensors stay, and so do
//! all bits.

use super::{Rewrite, Rewritten};
use crate::{Cost, DType, Fused, Graph, Node, NodeId, Op, Phase, Plan, Problem, Producer, TensorId};

/// A value, its producer, and the readers that then recompute it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerFusion {
    /// What is no longer kept.
    pub value: TensorId,
    /// The node that writes it.
    pub producer: NodeId,
    /// The nodes that read it in backward.
    pub readers: Vec<NodeId>,
}

impl Plan {
    /// Values whose producer is fused into the nodes of backward that read them.
    pub fn producers_fused(&self) -> impl Iterator<Item = TensorId> {
        self.rewrites.iter().filter_map(value_of)
    }
}

/// The value whose producer a rewrite fuses.
fn value_of(rewrite: &Rewrite) -> Option<TensorId> {
    match rewrite {
        Rewrite::FuseProducer(value) => Some(*value),
        Rewrite::FuseUpdate(_) | Rewrite::Slice(_) => None,
    }
}

/// Applies all of the first rewrites that are of this kind, and returns how many; fails with the one whose
/// value its readers cannot recompute.
pub(super) fn apply(problem: &mut Problem, rewrites: &[Rewrite]) -> Result<Option<usize>, Rewrite> {
    let mut fusions = ProducerFusions::new(&problem.graph);
    let mut count = 0;
    for value in rewrites.iter().map_while(value_of) {
        let refused = Rewrite::FuseProducer(value);
        let fusion = fusions.find(value).ok_or(refused)?;
        for reader in &fusion.readers {
            let cost = problem.costs_rewritten.get(&Rewritten::Reader(*reader)).ok_or(refused)?;
            problem.costs[reader.0] = cost.no_faster_than(&problem.costs[reader.0]);
        }
        fusions.apply(&fusion);
        count += 1;
    }
    problem.graph = fusions.graph;
    problem.costs_rewritten.retain(|key, _| matches!(key, Rewritten::Update(_)));
    Ok(Some(count))
}

/// A graph in which producers are fused into their readers, one after the other.
pub struct ProducerFusions {
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

impl ProducerFusions {
    /// A graph without fused producers.
    pub fn new(graph: &Graph) -> ProducerFusions {
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
        ProducerFusions { graph: graph.clone(), producers, readers, changers, kept }
    }

    /// A graph with every possible fusion, and the nodes that then recompute an operand.
    pub fn all(graph: &Graph) -> (Graph, Vec<NodeId>) {
        let (mut fusions, mut readers) = (ProducerFusions::new(graph), Vec::new());
        for value in fusions.values() {
            if let Some(fusion) = fusions.find(value) {
                fusions.apply(&fusion);
                readers.extend(fusion.readers);
            }
        }
        readers.sort_unstable();
        (fusions.graph, readers)
    }

    /// Values whose producer might be fused into their readers, in the order of nodes.
    pub fn values(&self) -> Vec<TensorId> {
        let made = self.graph.nodes.iter().filter(|node| Producer::of(&node.op).is_some());
        made.flat_map(|node| node.outputs.iter().copied()).collect()
    }

    /// The fusion of a value's producer: none where that would change a bit, or keep something else for longer.
    pub fn find(&self, value: TensorId) -> Option<ProducerFusion> {
        let producer = (*self.producers.get(value.0)?)?;
        let node = &self.graph.nodes[producer];
        Producer::of(&node.op)?;
        if node.phase != Phase::Piece || self.kept[value.0] || !self.changers[value.0].is_empty() {
            return None;
        }
        let readers = &self.readers[value.0];
        let reads = |index: usize| read_by(&self.graph.nodes[index], value);
        let last_other = readers.iter().rev().find(|index| reads(**index).is_none());
        let fused: Vec<usize> =
            readers.iter().copied().filter(|index| last_other.is_none_or(|other| other < index)).collect();
        let (first, last) = (*fused.first()?, *fused.last()?);
        let any_gradient = fused.iter().any(|index| matches!(reads(*index), Some(Reader::GradKernel(_))));
        let waits = readers.first().is_some_and(|reader| *reader < first);
        let kept_anyway = |id: &TensorId| {
            let unchanged = !self.changers[id.0].iter().any(|index| (producer..=last).contains(index));
            let lives_on = self.graph.tensors[id.0].kind.is_persistent()
                || self.readers[id.0].last().is_some_and(|reader| last < *reader);
            unchanged && lives_on && self.graph.tensors[id.0].dtype == DType::F32
        };
        let suits = any_gradient && waits && node.inputs.iter().all(kept_anyway);
        let readers = fused.into_iter().map(NodeId).collect();
        suits.then_some(ProducerFusion { value, producer: NodeId(producer), readers })
    }

    /// Applies a fusion that was found.
    pub fn apply(&mut self, fusion: &ProducerFusion) {
        let made = self.graph.nodes[fusion.producer.0].clone();
        for reader in &fusion.readers {
            let node = &mut self.graph.nodes[reader.0];
            let (Some(producer), Some(reads)) = (Producer::of(&made.op), read_by(node, fusion.value)) else {
                continue;
            };
            node.op = match reads {
                Reader::GradKernel(conv) => Op::Fused(Fused::Conv2DGradKernelOf(producer, conv)),
                Reader::SignBits(below) => Op::Fused(Fused::SignBitsOf(producer, below)),
            };
            node.inputs.splice(..1, made.inputs.iter().copied());
            self.readers[fusion.value.0].retain(|index| *index != reader.0);
            for id in &made.inputs {
                let place = self.readers[id.0].partition_point(|index| *index < reader.0);
                self.readers[id.0].insert(place, reader.0);
            }
        }
        self.graph.rewrites.push(Rewrite::FuseProducer(fusion.value));
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
