//! A region: the network up to one tensor runs in slices of the batch, and what comes after it sees the whole
//! batch.
//!
//! ```text
//! slice 0 ─▶ forward ─▶ put ┐                                        ┌ take ─▶ forward again, backward  slice 0
//! slice 1 ─▶ forward ─▶ put ┼▶ boundary ─▶ … loss … ─▶ its gradient ─┼ take ─▶ forward again, backward  slice 1
//! slice 2 ─▶ forward ─▶ put ┘                                        └ take ─▶ forward again, backward  slice 2
//! ```
//!
//! Or it is the other end, as `tail` draws it. Which of the two is a matter of what leaves it: a value, or a gradient.
//!
//! It is a rewrite of one training graph into another. Planning, checking and running only see that some
//! tensors hold fewer rows. Ids of tensors stay; new tensors come after them.

use std::collections::BTreeMap;

use super::{Rewrite, Tail};
use crate::{Bytes, Cost, Graph, Kind, LayerId, Node, NodeId, Op, Phase, Problem, TensorId};

/// A prefix of the network that runs in slices, or its tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The one value that leaves it, which the rest of the network reads whole; of a tail, the gradient.
    pub boundary: TensorId,
    /// How many slices.
    pub slices: usize,
    /// Values of the region wait for backward, as those of a tail always do; where not, each slice's forward is launched again right
    /// before it.
    pub keeps: bool,
}

/// Some of the rows of a micro-batch: the first slices have one more where they do not divide evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Which, counted from 0.
    pub index: usize,
    /// Of how many.
    pub count: usize,
    /// The tensor whose rows these are.
    pub of: TensorId,
}

impl Slice {
    /// Its first row in a micro-batch of `rows`.
    pub fn start(&self, rows: usize) -> usize {
        self.index * (rows / self.count) + self.index.min(rows % self.count)
    }

    /// Its rows in a micro-batch of `rows`.
    pub fn rows(&self, rows: usize) -> usize {
        rows / self.count + usize::from(self.index < rows % self.count)
    }
}

/// Applies the first rewrite; none where rows meet in the region, or the graph has a rewrite that does not go
/// together with slices.
pub(super) fn apply(problem: &mut Problem, region: &Region) -> Option<usize> {
    *problem = region.applied(problem)?;
    Some(1)
}

impl Region {
    /// The same problem with this region in slices; none where rows meet in it, or its graph has a rewrite of
    /// the whole batch already.
    pub fn applied(&self, problem: &Problem) -> Option<Problem> {
        let is_taken = problem.graph.rewrites.iter().any(Rewrite::needs_whole_batch);
        if self.slices < 2 || problem.batch < self.slices || is_taken {
            return None;
        }
        let mut rewrites = problem.graph.rewrites.clone();
        rewrites.push(Rewrite::Slice(*self));
        let mut writer = Writer {
            region: *self,
            kept: Vec::new(),
            from: problem,
            graph: Graph { nodes: Vec::new(), rewrites, ..problem.graph.clone() },
            costs: Vec::new(),
        };
        if self.is_tail(&problem.graph) {
            writer.tail(&Tail::at(&problem.graph, self.boundary)?);
        } else {
            writer.write(&Cut::at(&problem.graph, self.boundary)?);
        }
        let Writer { graph, costs, .. } = writer;
        Some(Problem { graph, costs, costs_rewritten: BTreeMap::new(), ..problem.clone() })
    }
}

impl Region {
    /// Whether it is the end of the network: a gradient leaves it.
    pub fn is_tail(&self, graph: &Graph) -> bool {
        graph.tensors[self.boundary.0].kind == Kind::Flow
    }

    /// The layers that run in slices, in order.
    pub fn layers(&self, graph: &Graph) -> Option<Vec<String>> {
        match self.is_tail(graph) {
            true => Tail::at(graph, self.boundary).map(|tail| tail.layers(graph)),
            false => Cut::at(graph, self.boundary).map(|cut| cut.layers(graph)),
        }
    }
}

/// Where a network is cut, and which of its nodes then run in slices.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The value that leaves the region.
    pub boundary: TensorId,
    /// Nodes that compute it.
    pub forward: Vec<NodeId>,
    /// Those of them that backward needs again.
    pub again: Vec<NodeId>,
    /// Nodes of the backward pass.
    pub backward: Vec<NodeId>,
}

impl Cut {
    /// The cut after a tensor; none where rows mix before it, or where more than this tensor leaves the
    /// region.
    pub fn at(graph: &Graph, boundary: TensorId) -> Option<Cut> {
        let forward = ancestors(graph, boundary)?;
        let last = *forward.last()?;
        // Values of a slice.
        let mut inside = vec![false; graph.tensors.len()];
        let mut layers = vec![false; graph.layers.len()];
        for node in forward.iter().map(|id| &graph.nodes[id.0]) {
            layers[node.layer.0] = true;
            node.outputs.iter().for_each(|id| inside[id.0] = true);
        }
        inside[boundary.0] = false;
        let mut backward = Vec::new();
        for (index, node) in graph.nodes.iter().enumerate() {
            let id = NodeId(index);
            let is_flow = |id: &TensorId| graph.tensors[id.0].kind == Kind::Flow;
            let touches = node.inputs.iter().any(|id| inside[id.0]);
            // A gradient that needs no value of its layer: without this it would stand whole before it is sliced.
            let flows = last < id && layers[node.layer.0] && node.outputs.iter().any(is_flow);
            if forward.binary_search(&id).is_ok() || !(touches || flows) {
                continue;
            }
            if !node.op.is_sum_of_step() && graph.has_own_rows(node) {
                node.outputs.iter().for_each(|id| inside[id.0] = true);
                backward.push(id);
            } else if touches {
                return None;
            }
        }
        if *backward.last()? < last || graph.keep.iter().chain(&graph.outputs).any(|id| inside[id.0]) {
            return None;
        }
        let again = needed_again(graph, &forward, &backward, boundary);
        Some(Cut { boundary, forward, again, backward })
    }

    /// The layers of the region, in order.
    pub fn layers(&self, graph: &Graph) -> Vec<String> {
        let mut layers: Vec<LayerId> = Vec::new();
        for node in &self.forward {
            let layer = graph.nodes[node.0].layer;
            if !layers.contains(&layer) {
                layers.push(layer);
            }
        }
        layers.iter().map(|layer| graph.layers[layer.0].clone()).collect()
    }

    /// Bytes of a row that would wait from forward to backward were the region not sliced.
    pub fn bytes_waiting(&self, graph: &Graph) -> Bytes {
        let written = |id: &TensorId| {
            self.forward.iter().any(|node| graph.nodes[node.0].outputs.contains(id)) && *id != self.boundary
        };
        let read = self.backward.iter().flat_map(|node| &graph.nodes[node.0].inputs);
        let mut waiting: Vec<TensorId> =
            read.copied().filter(|id| graph.tensors[id.0].kind == Kind::Input || written(id)).collect();
        waiting.sort_unstable();
        waiting.dedup();
        waiting.iter().map(|id| graph.tensors[id.0].bytes(1)).sum()
    }
}

/// Nodes that a value depends on, row by row, up to the inputs.
fn ancestors(graph: &Graph, boundary: TensorId) -> Option<Vec<NodeId>> {
    let mut producers = vec![None; graph.tensors.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        node.outputs.iter().for_each(|id| producers[id.0] = Some(NodeId(index)));
    }
    let mut found = vec![false; graph.nodes.len()];
    let mut open = vec![boundary];
    while let Some(tensor) = open.pop() {
        let id: NodeId = producers[tensor.0]?;
        let node = &graph.nodes[id.0];
        if std::mem::replace(&mut found[id.0], true) {
            continue;
        }
        if node.op.is_sum_of_step() || !graph.has_own_rows(node) || !node.updates.is_empty() {
            return None;
        }
        let known =
            |id: &&TensorId| graph.tensors[id.0].shape.batched && graph.tensors[id.0].kind != Kind::Input;
        open.extend(node.inputs.iter().filter(known));
    }
    Some((0..found.len()).filter(|index| found[*index]).map(NodeId).collect())
}

fn needed_again(graph: &Graph, forward: &[NodeId], backward: &[NodeId], boundary: TensorId) -> Vec<NodeId> {
    let mut needed = vec![false; graph.tensors.len()];
    let mut read = |node: NodeId| {
        graph.nodes[node.0].inputs.iter().filter(|id| **id != boundary).for_each(|id| needed[id.0] = true);
    };
    backward.iter().for_each(|node| read(*node));
    let mut again = Vec::new();
    for id in forward.iter().rev() {
        let outputs = &graph.nodes[id.0].outputs;
        if outputs.iter().any(|output| needed[output.0]) {
            graph.nodes[id.0].inputs.iter().for_each(|input| needed[input.0] = true);
            again.push(*id);
        }
    }
    again.reverse();
    again
}

/// Writes the graph in slices.
struct Writer<'a> {
    region: Region,
    from: &'a Problem,
    /// What the forward pass of each slice wrote or was fed, where it is kept.
    kept: Vec<BTreeMap<TensorId, TensorId>>,
    graph: Graph,
    costs: Vec<Cost>,
}

impl Writer<'_> {
    fn write(&mut self, cut: &Cut) {
        let nodes = &self.from.graph.nodes;
        let in_slices =
            |id: &NodeId| cut.forward.binary_search(id).is_ok() || cut.backward.binary_search(id).is_ok();
        for id in (0..nodes.len()).map(NodeId) {
            if Some(&id) == cut.forward.last() {
                self.forward(cut);
            }
            if !in_slices(&id) {
                self.push(nodes[id.0].clone(), self.from.costs[id.0]);
            }
            if Some(&id) == cut.backward.last() {
                self.backward(cut);
            }
        }
    }

    fn forward(&mut self, cut: &Cut) {
        self.kept = self.put_together(&cut.forward);
    }

    /// Runs the tail slice by slice where its last node stood.
    fn tail(&mut self, tail: &Tail) {
        let nodes = &self.from.graph.nodes;
        for id in (0..nodes.len()).map(NodeId) {
            if tail.nodes.binary_search(&id).is_err() {
                self.push(nodes[id.0].clone(), self.from.costs[id.0]);
            } else if tail.nodes.last() == Some(&id) {
                self.put_together(&tail.nodes);
            }
        }
    }

    /// Nodes slice by slice, each of which is put into the boundary; returns the other tensors that each
    /// slice has written or was fed.
    fn put_together(&mut self, nodes: &[NodeId]) -> Vec<BTreeMap<TensorId, TensorId>> {
        let boundary = self.region.boundary;
        let layer = self.graph.tensors[boundary.0].layer;
        let copy = Cost::of_copy(self.graph.tensors[boundary.0].bytes(1), &self.from.transfers);
        let node =
            |op: Op, inputs: Vec<TensorId>, outputs: Vec<TensorId>, updates: Vec<TensorId>, phase: Phase| {
                Node { op, inputs, outputs, updates, layer, phase }
            };
        self.push(node(Op::Zero, vec![], vec![boundary], vec![], Phase::Begin), copy);
        let mut written = Vec::new();
        for index in 0..self.region.slices {
            let mut known = BTreeMap::new();
            nodes.iter().for_each(|id| self.sliced(*id, index, &mut known));
            self.push(node(Op::PutRows, vec![known[&boundary]], vec![], vec![boundary], Phase::Piece), copy);
            known.remove(&boundary);
            written.push(known);
        }
        written
    }

    fn backward(&mut self, cut: &Cut) {
        for index in 0..self.region.slices {
            let (mut known, again) = match self.region.keeps {
                true => (std::mem::take(&mut self.kept[index]), &cut.again[..0]),
                false => (BTreeMap::new(), &cut.again[..]),
            };
            for id in again.iter().chain(&cut.backward) {
                self.sliced(*id, index, &mut known);
            }
        }
    }

    /// A node on a slice. `known` are the slices of tensors that were written, fed or taken.
    fn sliced(&mut self, id: NodeId, index: usize, known: &mut BTreeMap<TensorId, TensorId>) {
        let mut node = self.from.graph.nodes[id.0].clone();
        for input in &mut node.inputs {
            let tensor = &self.graph.tensors[input.0];
            if !tensor.shape.batched {
                continue;
            }
            if !known.contains_key(input) {
                let slice = self.slice(*input, index);
                if self.graph.tensors[input.0].kind != Kind::Input {
                    let take = Node {
                        op: Op::TakeRows,
                        inputs: vec![*input],
                        outputs: vec![slice],
                        updates: vec![],
                        layer: node.layer,
                        phase: Phase::Piece,
                    };
                    let bytes = self.graph.tensors[input.0].bytes(1);
                    let cost = Cost::of_copy(bytes, &self.from.transfers);
                    self.push(take, cost);
                }
                known.insert(*input, slice);
            }
            *input = known[input];
        }
        for output in &mut node.outputs {
            let slice = self.slice(*output, index);
            known.insert(*output, slice);
            *output = slice;
        }
        self.push(node, self.from.costs[id.0]);
    }

    fn slice(&mut self, of: TensorId, index: usize) -> TensorId {
        let mut tensor = self.graph.tensors[of.0].clone();
        tensor.name = format!("{} rows {}/{}", tensor.name, index + 1, self.region.slices);
        tensor.slice = Some(Slice { index, count: self.region.slices, of });
        self.graph.tensors.push(tensor);
        TensorId(self.graph.tensors.len() - 1)
    }

    fn push(&mut self, node: Node, cost: Cost) {
        self.graph.nodes.push(node);
        self.costs.push(cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_every_row_once() {
        for (rows, count) in [(64, 4), (7, 3), (7, 7), (3, 4), (1, 16), (100, 32)] {
            let mut next = 0;
            for index in 0..count {
                let slice = Slice { index, count, of: TensorId(0) };
                assert_eq!(slice.start(rows), next);
                next += slice.rows(rows);
            }
            assert_eq!(next, rows);
        }
    }
}
