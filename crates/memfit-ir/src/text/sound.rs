//! What must hold of a graph that was read before anything computes with it: values are written before they are read, and no sum of
//! bytes overflows.

use std::collections::BTreeMap;

use super::TextError;
use crate::{Budget, Bytes, Cost, Graph, Kind, Op, Phase, Problem, TensorId};

/// Where a number of bytes, or a sum of all of them, ends.
const BYTES_END: u128 = 1 << 60;

/// The largest budget.
const BUDGET_MOST: Bytes = Bytes(1 << 62);

/// Checks a graph whose first tensor and first node stand in these lines.
pub(super) fn check_graph(graph: &Graph, tensors: usize, nodes: usize) -> Result<(), TextError> {
    for (index, tensor) in graph.tensors.iter().enumerate() {
        let is_sound =
            tensor.slice.is_none_or(|slice| slice.index < slice.count && slice.of.0 < graph.tensors.len());
        if !is_sound {
            return Err(error(tensors + index, "a slice that does not exist"));
        }
    }
    // When each value is there first: persistent and fed ones always are, others from their node on.
    let is_there = |kind: Kind| kind.is_persistent() || kind == Kind::Input;
    let mut there: Vec<Option<Phase>> =
        graph.tensors.iter().map(|tensor| is_there(tensor.kind).then_some(Phase::Begin)).collect();
    let mut written = vec![false; graph.tensors.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        let is_early = |id: &&TensorId| there[id.0].is_none_or(|phase| node.phase < phase);
        if let Some(id) = node.inputs.iter().chain(&node.updates).find(is_early) {
            return Err(error(nodes + index, &format!("tensor {} is read before it is written", id.0)));
        }
        if node.op.chain().is_some_and(|chain| !(1..=node.inputs.len()).contains(&chain.inputs)) {
            return Err(error(nodes + index, "a chain that reads more than its node"));
        }
        for id in &node.outputs {
            if std::mem::replace(&mut written[id.0], true) {
                return Err(error(nodes + index, &format!("tensor {} is written twice", id.0)));
            }
            there[id.0] = there[id.0].or(Some(node.phase));
        }
    }
    Ok(())
}

/// Checks the sizes of a problem; `line` is the last that was read.
pub(super) fn check_problem(problem: &Problem, line: usize) -> Result<(), TextError> {
    let Problem { graph, costs, costs_rewritten, budget, batch, transfers, .. } = problem;
    if *batch == 0 {
        return Err(error(2, "a batch of no rows"));
    }
    if let Some(id) = not_summed(graph) {
        return Err(error(
            line,
            &format!("tensor {} is changed in place, or read, and is no whole sum", id.0),
        ));
    }
    if let Some(id) = unknown(graph) {
        return Err(error(line, &format!("tensor {} is read, or kept, and neither fed nor written", id.0)));
    }
    let Budget { total, runtime, granule, host } = budget;
    if [total, runtime, granule, host].into_iter().any(|bytes| BUDGET_MOST < *bytes) {
        return Err(error(3, "a budget above 2^62 bytes"));
    }
    let mut bytes: u128 = 0;
    for tensor in &graph.tensors {
        let rows = if tensor.shape.batched { *batch } else { 1 };
        let sizes = tensor.shape.dims.iter().chain([&rows]).map(|size| *size as u128);
        let size = sizes.fold(u128::from(tensor.dtype.size()), u128::saturating_mul);
        bytes = bytes.saturating_add(size);
    }
    let costs = || costs.iter().chain(costs_rewritten.values());
    for cost in costs() {
        let per_row = u128::from(cost.workspace_per_row.0) * *batch as u128;
        let fixed = cost.leaner.iter().flatten().map(|way| way.workspace_fixed).max().unwrap_or_default();
        bytes = bytes.saturating_add(u128::from(fixed.max(cost.workspace_fixed).0) + per_row);
    }
    if BYTES_END <= bytes {
        return Err(error(line, "sizes that overflow: all of them together must be below 2^60 bytes"));
    }
    let times =
        [transfers.nanos_per_byte_fed, transfers.nanos_per_byte_moved, transfers.nanos_per_byte_copied];
    if !costs().flat_map(times_of).chain(times).all(f64::is_finite) {
        return Err(error(line, "a time that is no number"));
    }
    Ok(())
}

/// A tensor within a step that is changed in place and not opened by a `Zero`, or opened by one and read before anything is added.
fn not_summed(graph: &Graph) -> Option<TensorId> {
    let is_within = |id: &&TensorId| !graph.tensors[id.0].kind.is_persistent();
    // Whether something was added to what a `Zero` opened.
    let mut sums: BTreeMap<TensorId, bool> = BTreeMap::new();
    for node in &graph.nodes {
        if node.op == Op::Zero {
            sums.extend(node.outputs.iter().filter(is_within).map(|id| (*id, false)));
        }
        if let Some(id) = node.inputs.iter().find(|id| sums.get(id) == Some(&false)) {
            return Some(*id);
        }
        for id in node.updates.iter().filter(is_within) {
            match sums.get_mut(id) {
                Some(added) => *added = true,
                None => return Some(*id),
            }
        }
    }
    sums.into_iter().find(|(_, added)| !added).map(|(id, _)| id)
}

/// A tensor that is needed and has no value.
fn unknown(graph: &Graph) -> Option<TensorId> {
    let mut there: Vec<bool> = graph.tensors.iter().map(|tensor| tensor.kind.is_persistent()).collect();
    for id in graph.inputs.iter().chain(graph.nodes.iter().flat_map(|node| &node.outputs)) {
        there[id.0] = true;
    }
    let read = graph.nodes.iter().flat_map(|node| &node.inputs);
    read.chain(&graph.keep).find(|id| !there[id.0]).copied()
}

fn times_of(cost: &Cost) -> impl Iterator<Item = f64> {
    let more = cost.measured.into_iter().chain(cost.leaner.into_iter().flatten().map(|way| way.nanos));
    [cost.nanos_fixed, cost.nanos_per_row]
        .into_iter()
        .chain(more.flat_map(|nanos| [nanos.fixed, nanos.per_row]))
}

fn error(line: usize, problem: &str) -> TextError {
    TextError { line, problem: problem.to_owned() }
}
