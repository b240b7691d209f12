//! Fold: readers in backward recompute an activation in the cache instead of keeping it. Exact, bit for bit,
//! and nothing is written: it costs far less than computing a value again, where its operands are kept in any
//! case.

use memfit_ir::{Bytes, Fold, Folding, NodeId, Problem, TensorId};

use crate::choose::is_large;
use crate::moves::region::bytes_waiting;

/// A graph with folds is worth its plans where it saves at least one part in `PARTS` of all bytes that wait
/// for backward.
const PARTS: u64 = 7;

/// The same problem with every value folded whose readers take less time for it than its node does. That is
/// decided by estimates, so that no clock decides what fits; none where there is no such value, or the graph
/// is so large that one search is enough.
pub fn folded(problem: &Problem) -> Option<Problem> {
    if problem.costs_folded.is_empty() || problem.graph.region.is_some() || is_large(problem) {
        return None;
    }
    let mut folding = Folding::new(&problem.graph);
    let mut values: Vec<TensorId> = Vec::new();
    for value in folding.values() {
        if let Some(fold) = folding.find(value)
            && added(problem, &fold).is_some_and(|nanos| nanos < again(problem, &fold))
        {
            folding.apply(&fold);
            values.push(value);
        }
    }
    let bytes = |id: &TensorId| problem.graph.tensors[id.0].bytes(1);
    let spared: Bytes = values.iter().map(bytes).sum();
    let worth = bytes_waiting(&problem.graph)?.0 <= spared.0 * PARTS;
    if worth { Fold::applied(problem, &values).ok() } else { None }
}

/// The least time that folding each tensor takes, over micro-batches of `rows` rows; infinite where it cannot
/// be folded.
pub fn nanos(problem: &Problem, rows: usize) -> Vec<f64> {
    let mut nanos = vec![f64::INFINITY; problem.graph.tensors.len()];
    if problem.costs_folded.is_empty() {
        return nanos;
    }
    let mut folding = Folding::new(&problem.graph);
    for value in folding.values() {
        if let Some(fold) = folding.find(value) {
            let added = |id: &NodeId| {
                let cost = problem.costs_folded.get(id)?;
                Some((cost.nanos(rows) - problem.costs[id.0].nanos(rows)).max(0.0))
            };
            nanos[value.0] = fold.readers.iter().map(added).sum::<Option<f64>>().unwrap_or(f64::INFINITY);
            folding.apply(&fold);
        }
    }
    nanos
}

/// Time that the readers of a value add, by estimates; none where one of them cannot make it.
fn added(problem: &Problem, fold: &Fold) -> Option<f64> {
    let rows = problem.batch;
    let nanos = |id: &NodeId| {
        let cost = problem.costs_folded.get(id)?;
        Some(cost.nanos_estimated(rows) - problem.costs[id.0].nanos_estimated(rows))
    };
    fold.readers.iter().map(nanos).sum()
}

/// Time of the node that computes it.
fn again(problem: &Problem, fold: &Fold) -> f64 {
    problem.costs[fold.producer.0].nanos_estimated(problem.batch)
}
