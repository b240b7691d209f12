//! Region: a prefix of the network, or its last layer with its loss and gradients, runs in slices of the
//! batch, while the rest sees the whole batch. The values of a prefix's slices wait for backward or are
//! computed again right before it. Exact up to rounding, as a split is, also where a layer after the region
//! mixes rows.

use memfit_ir::{Bytes, Cut, Graph, Kind, Op, Problem, Region, Tail, TensorId};

use crate::choose::is_large;
use crate::moves::{fuse_producer, fuse_update, split};

/// A graph in slices has at most this many nodes: more of them would take longer to plan than they save.
const NODES: usize = 1_500;

/// Slices of a tail: each reads the last layer's weights again, and a quarter of its predictions is little
/// beside all else.
const TAIL_SLICES: [usize; 2] = [2, 4];

/// A region is worth its plans where it saves at least one part in `PARTS` of all bytes that wait for
/// backward.
const PARTS: u64 = 8;

/// A problem, and the same with fused updates, fused producers or a part of its network in slices. None of it
/// depends on the budget.
pub struct Candidates<'a> {
    /// As it was given.
    pub problem: &'a Problem,
    /// With fused updates, where there are some.
    update_fused: Option<Problem>,
    /// With fused producers, where there are some.
    producer_fused: Option<Problem>,
    /// A prefix with 2, 4, 8 … slices, kept or computed again: none where the batch may be split as it is, which saves more and costs
    /// less. Or the tail, where it is large beside all else.
    in_slices: Vec<Problem>,
}

impl<'a> Candidates<'a> {
    /// All problems that are planned for one.
    pub fn of(problem: &'a Problem) -> Candidates<'a> {
        let producer_fused = fuse_producer::fused(problem);
        if problem.pinned.micro_batch.is_some_and(|rows| rows < problem.batch) {
            // A split batch has neither slices nor fused updates.
            return Candidates { problem, update_fused: None, producer_fused, in_slices: Vec::new() };
        }
        let update_fused = fuse_update::fused(problem);
        if let Some(pinned) = problem.pinned.region {
            let in_slices = pinned.map_or_else(Vec::new, |region| pinned_slices(problem, region));
            return Candidates { problem, update_fused, producer_fused, in_slices };
        }
        let fixed = is_large(problem) || problem.graph.region().is_some();
        let cut = if fixed || split::may_split(problem) { None } else { best_cut(&problem.graph) };
        let mut in_slices = cut.map_or_else(Vec::new, |cut| {
            let extra = cut.forward.len() + cut.again.len() + cut.backward.len() + 2;
            let counts = std::iter::successors(Some(2), |slices| Some(slices * 2));
            counts
                .take_while(|slices| {
                    *slices <= problem.batch && problem.graph.nodes.len() + slices * extra <= NODES
                })
                .flat_map(|slices| {
                    [true, false].map(|keeps| Region { boundary: cut.boundary, slices, keeps })
                })
                .filter_map(|region| region.applied(problem))
                .collect()
        });
        if !fixed {
            in_slices.extend(tails(problem));
        }
        Candidates { problem, update_fused, producer_fused, in_slices }
    }
}

/// The problem in the slices that were decided beforehand: its values kept, or computed again.
fn pinned_slices(problem: &Problem, region: Region) -> Vec<Problem> {
    [true, false]
        .map(|keeps| Region { keeps, ..region })
        .into_iter()
        .filter(|region| problem.pinned.allows_region(Some(*region)))
        .filter_map(|region| region.applied(problem))
        .filter_map(|mut sliced| sliced.pinned.clone().restrict(&mut sliced).ok().map(|()| sliced))
        .collect()
}

/// The problem with its last layer in slices, where that predicts as much as waits for backward in many other layers.
fn tails(problem: &Problem) -> Vec<Problem> {
    let tail = Tail::all(&problem.graph).into_iter().max_by_key(|tail| tail.bytes_predicted(&problem.graph));
    let (Some(tail), Some(all)) = (tail, bytes_waiting(&problem.graph)) else { return Vec::new() };
    if tail.bytes_predicted(&problem.graph).0 * PARTS < all.0 {
        return Vec::new();
    }
    let region = |slices: usize| Region { boundary: tail.boundary, slices, keeps: true };
    TAIL_SLICES.iter().filter_map(|slices| region(*slices).applied(problem)).collect()
}

impl Candidates<'_> {
    /// The problems among which one may choose, each with whether its plans decide how low one can go: those
    /// with fused producers do not, since which of them pay is a matter of time.
    pub fn members(&self) -> impl Iterator<Item = (&Problem, bool)> {
        let whole = std::iter::once(self.problem).chain(&self.update_fused).map(|problem| (problem, true));
        let allowed = |(problem, _): &(&Problem, bool)| problem.pinned.allows_region(problem.graph.region());
        whole
            .chain(self.producer_fused.iter().map(|problem| (problem, false)))
            .chain(self.in_slices.iter().map(|problem| (problem, true)))
            .filter(allowed)
    }
}

/// The cut that saves the most bytes of a row between forward and backward.
fn best_cut(graph: &Graph) -> Option<Cut> {
    let loss = graph.nodes.iter().position(|node| matches!(node.op, Op::Loss(_)))?;
    let outputs = graph.nodes[..loss].iter().flat_map(|node| node.outputs.first());
    let is_activation = |id: &&TensorId| {
        let tensor = &graph.tensors[id.0];
        tensor.kind == Kind::Activation && tensor.shape.batched
    };
    let all = bytes_waiting(graph)?.0;
    let cuts = outputs.filter(is_activation).filter_map(|id| Cut::at(graph, *id));
    let spared = |cut: &Cut| {
        let reads = |node: &memfit_ir::Node| node.inputs.contains(&cut.boundary);
        let waits_anyway = graph.nodes[loss..].iter().any(reads);
        let boundary = if waits_anyway { Bytes::ZERO } else { graph.tensors[cut.boundary.0].bytes(1) };
        cut.bytes_waiting(graph).0.checked_sub(boundary.0).filter(|bytes| all < *bytes * PARTS)
    };
    // Of equals the last, which leaves the least to the rest of the network.
    let worth = cuts.filter_map(|cut| spared(&cut).map(|bytes| (bytes, cut)));
    worth.max_by_key(|(bytes, _)| *bytes).map(|(_, cut)| cut)
}

/// Bytes of a row that wait from before the loss until after it.
pub fn bytes_waiting(graph: &Graph) -> Option<Bytes> {
    let loss = graph.nodes.iter().position(|node| matches!(node.op, Op::Loss(_)))?;
    let mut waits = vec![false; graph.tensors.len()];
    graph.nodes[loss..].iter().flat_map(|node| &node.inputs).for_each(|id| waits[id.0] = true);
    let is_value = |kind: Kind| matches!(kind, Kind::Input | Kind::Activation);
    let tensors = graph.tensors.iter().zip(waits);
    let waiting = tensors
        .filter(|(tensor, waits)| *waits && tensor.shape.batched && is_value(tensor.kind))
        .map(|(tensor, _)| tensor.bytes(1));
    Some(waiting.sum())
}
