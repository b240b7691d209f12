//! An update fused into the op that computes its gradient: the gradient exists block by block, in the cache,
//! and never whole.
//!
//! ```text
//! x, dy ─▶ gradient of the kernel ⇒ dkernel          x, dy ─▶ applied ⇒ kernel, state
//!                         dkernel ─▶ update ⇒ …  ═▶
//! ```
//!
//! It is a rewrite of one training graph into another, for a batch of one micro-batch: ids of tensors stay,
//! ids of nodes close up, and all bits are the same.

use std::collections::BTreeMap;

use super::{Rewrite, Rewritten};
use crate::{
    Cost, Fused, Graph, Kind, Nanos, Node, NodeId, Op, Phase, Plan, Problem, Tensor, TensorId, Update, infer,
};

/// A gradient op and the update that reads the first of its sums, as one op.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedUpdate {
    /// The op that computes the gradient.
    pub gradient: Box<Op>,
    /// The place of the weight among what it reads, where it reads it: the joined op finds it among what it changes.
    pub weight_at: Option<usize>,
    /// What it is for.
    pub update: Update,
}

/// A gradient that need not exist whole, and the node that replaces its producer and its reader.
#[derive(Clone, Debug)]
pub struct UpdateFusion {
    /// The gradient.
    pub gradient: TensorId,
    /// The node that replaces the producer and the update.
    pub node: Node,
    zero: usize,
    producer: usize,
    update: usize,
    /// The fused node stands right after this one: the producer, or the last reader of the old weight.
    after: usize,
}

impl FusedUpdate {
    /// How many sums the gradient op adds to besides the one that the update reads.
    pub(crate) fn others(&self) -> usize {
        self.gradient.operands().updates.counts().start().saturating_sub(1)
    }
}

impl Plan {
    /// Gradients whose update is fused into the node that computes them.
    pub fn updates_fused(&self) -> impl Iterator<Item = TensorId> {
        self.rewrites.iter().filter_map(|rewrite| match rewrite {
            Rewrite::FuseUpdate(gradient) => Some(*gradient),
            Rewrite::FuseProducer(_) | Rewrite::Slice(_) => None,
        })
    }
}

/// Applies the first rewrite, at the cost that the device offers; none where the gradient must exist whole.
pub(super) fn apply(
    problem: &mut Problem,
    gradient: TensorId,
    costs: &BTreeMap<Rewritten, Cost>,
) -> Option<usize> {
    let fusion = UpdateFusion::of(&problem.graph, gradient)?;
    fusion.apply(problem, costs.get(&Rewritten::Update(gradient))?);
    problem.graph.rewrites.push(Rewrite::FuseUpdate(gradient));
    Some(1)
}

impl UpdateFusion {
    /// Every gradient that need not exist whole, in the order of their updates.
    pub fn all(graph: &Graph) -> Vec<UpdateFusion> {
        let users = users(graph);
        let updates = graph.nodes.iter().filter(|node| matches!(node.op, Op::Update(_)));
        updates.filter_map(|node| find(graph, &users, *node.inputs.first()?)).collect()
    }

    /// The fused update of a gradient; none where the gradient must exist whole.
    pub fn of(graph: &Graph, gradient: TensorId) -> Option<UpdateFusion> {
        find(graph, &users(graph), gradient)
    }

    fn apply(self, problem: &mut Problem, cost: &Cost) {
        let bytes = problem.graph.tensors[self.gradient.0].bytes(1).0 as f64;
        let spared = bytes * problem.transfers.nanos_per_byte_copied;
        let cost = cost.spared(&problem.costs[self.producer], &problem.costs[self.update], spared);
        let gone = [self.zero, self.producer, self.update];
        let mut places = BTreeMap::new();
        let nodes = std::mem::take(&mut problem.graph.nodes);
        let costs = std::mem::take(&mut problem.costs);
        for (index, known) in nodes.into_iter().zip(costs).enumerate() {
            if !gone.contains(&index) {
                places.insert(index, problem.graph.nodes.len());
                problem.graph.nodes.push(known.0);
                problem.costs.push(known.1);
            }
            if index == self.after {
                problem.graph.nodes.push(self.node.clone());
                problem.costs.push(cost);
            }
        }
        // Ids of nodes close up; the cost of each further update is known to the caller.
        let offered = std::mem::take(&mut problem.costs_rewritten).into_iter();
        problem.costs_rewritten = offered
            .filter_map(|(key, cost)| match key {
                Rewritten::Reader(id) => Some((Rewritten::Reader(NodeId(*places.get(&id.0)?)), cost)),
                Rewritten::Update(_) => None,
            })
            .collect();
    }
}

impl Update {
    /// Whether each element of the weight changes by its own gradient alone, in every step.
    fn sees_own_gradient(&self) -> bool {
        self.rule.is_elementwise() && !self.clips_by_norm() && !self.guarded && self.steps == 1
    }
}

impl Cost {
    /// The cost of the fused node: the time of both nodes, less the time that the fusion saves.
    fn spared(&self, producer: &Cost, update: &Cost, nanos: f64) -> Cost {
        let both = producer.measured.zip(update.measured);
        let measured = both.map(|(producer, update)| Nanos {
            fixed: (producer.fixed + update.fixed - nanos).max(0.0),
            per_row: producer.per_row + update.per_row,
        });
        Cost { measured, ..*self }
    }
}

/// For each tensor the nodes that read, write or change it, in order.
fn users(graph: &Graph) -> Vec<Vec<usize>> {
    let mut users = vec![Vec::new(); graph.tensors.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        for id in node.inputs.iter().chain(&node.outputs).chain(&node.updates) {
            if users[id.0].last() != Some(&index) {
                users[id.0].push(index);
            }
        }
    }
    users
}

fn find(graph: &Graph, users: &[Vec<usize>], gradient: TensorId) -> Option<UpdateFusion> {
    let [zero, producer, update] = users.get(gradient.0)?[..] else { return None };
    let nodes = [zero, producer, update].map(|index| &graph.nodes[index]);
    let tensor = |id: &TensorId| &graph.tensors[id.0];
    let is_kept = graph.keep.contains(&gradient) || graph.outputs.contains(&gradient);
    if graph.region().is_some() || is_kept || tensor(&gradient).kind != Kind::Gradient {
        return None;
    }
    let Op::Update(rule) = &nodes[2].op else { return None };
    let reads_it_alone = nodes[2].inputs == [gradient] && nodes[2].phase == Phase::End;
    let opens_it = nodes[0].op == Op::Zero && nodes[0].outputs == [gradient];
    let makes_it = nodes[1].phase == Phase::Piece
        && nodes[1].outputs.is_empty()
        && nodes[1].updates.first() == Some(&gradient)
        && makes_blocks(nodes[1])
        // f16 and bf16 operands are widened a few rows at a time, but all rows contribute to one gradient.
        && !nodes[1].inputs.iter().any(|id| tensor(id).dtype.is_half());
    if !(reads_it_alone && opens_it && makes_it && rule.sees_own_gradient()) {
        return None;
    }
    let changed = &nodes[2].updates;
    let mut after = producer;
    for index in changed.iter().flat_map(|id| &users[id.0]).filter(|index| **index != update) {
        let node = &graph.nodes[*index];
        let changes = node.updates.iter().chain(&node.outputs).any(|id| changed.contains(id));
        match node.phase {
            Phase::Begin | Phase::Piece if changes => return None,
            Phase::Begin => {}
            Phase::Piece => after = after.max(*index),
            // At the end, what stands before the update sees the old weight.
            Phase::End if *index < update => return None,
            Phase::End => {}
        }
    }
    let (weight, others) = (nodes[2].updates[0], &nodes[1].updates[1..]);
    let is_changed = |index: usize, id: &TensorId| {
        graph.nodes[index].updates.contains(id) || graph.nodes[index].outputs.contains(id)
    };
    let later = || producer + 1..=after;
    let moves_past = nodes[1].inputs.iter().any(|id| later().any(|index| is_changed(index, id)))
        || others.iter().any(|id| users[id.0].iter().any(|index| later().contains(index)));
    let weight_at = nodes[1].inputs.iter().position(|id| *id == weight);
    let inputs: Vec<TensorId> = nodes[1].inputs.iter().copied().filter(|id| *id != weight).collect();
    let op = FusedUpdate { gradient: Box::new(nodes[1].op.clone()), weight_at, update: rule.clone() };
    let op = Op::Fused(Fused::Applied(op));
    let read: Vec<&Tensor> = inputs.iter().map(tensor).collect();
    if moves_past || infer(&op, &read).is_err() {
        return None;
    }
    let updates = others.iter().chain(changed).copied().collect();
    let (layer, phase) = (nodes[1].layer, Phase::Piece);
    let node = Node { op, inputs, outputs: Vec::new(), updates, layer, phase };
    Some(UpdateFusion { gradient, node, zero, producer, update, after })
}

/// Whether a gradient op can compute the first of its sums block by block.
fn makes_blocks(node: &Node) -> bool {
    if let Op::Fused(fused) = &node.op { fused.makes_blocks() } else { node.op == Op::DenseGradKernel }
}
