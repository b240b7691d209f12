//! A fused producer: readers in backward recompute an activation in the cache instead of keeping it. Exact, bit for bit,
//! and nothing is written: it costs far less than computing a value again, where its operands are kept in any
//! case.

use std::borrow::Cow;

use memfit_ir::{Bytes, Cost, NodeId, Problem, ProducerFusion, ProducerFusions, Rewrite, Rewritten};

use crate::choose::is_large;
use crate::moves::region::bytes_waiting;

/// A graph with fused producers is worth its plans where it saves at least one part in `PARTS` of all bytes that wait
/// for backward.
const PARTS: u64 = 7;

/// The same problem with every producer fused whose readers take less time for it than its node does. That is
/// decided by estimates, so that no clock decides what fits; none where there is no such value, or the graph
/// is so large that one search is enough.
pub fn fused(problem: &Problem) -> Option<Problem> {
    if !is_offered(problem) || problem.graph.region().is_some() || is_large(problem) {
        return None;
    }
    let mut fusions = ProducerFusions::new(&problem.graph);
    let mut rewrites: Vec<Rewrite> = Vec::new();
    let mut spared = Bytes::ZERO;
    for value in fusions.values() {
        if let Some(fusion) = fusions.find(value)
            && added(problem, &fusion).is_some_and(|nanos| nanos < again(problem, &fusion))
        {
            fusions.apply(&fusion);
            rewrites.push(Rewrite::FuseProducer(value));
            spared += problem.graph.tensors[value.0].bytes(1);
        }
    }
    if spared.0 * PARTS < bytes_waiting(&problem.graph)?.0 {
        return None;
    }
    problem.rewritten(&rewrites).ok().map(Cow::into_owned)
}

/// Whether the device has kernels that recompute an operand.
fn is_offered(problem: &Problem) -> bool {
    problem.costs_rewritten.keys().any(|key| matches!(key, Rewritten::Reader(_)))
}

/// What a reader costs that recomputes its operand.
fn cost<'a>(problem: &'a Problem, reader: &NodeId) -> Option<&'a Cost> {
    problem.costs_rewritten.get(&Rewritten::Reader(*reader))
}

/// The least time that each tensor takes whose producer is fused into its readers, over micro-batches of `rows`
/// rows; infinite where that cannot be.
pub fn nanos(problem: &Problem, rows: usize) -> Vec<f64> {
    let mut nanos = vec![f64::INFINITY; problem.graph.tensors.len()];
    if !is_offered(problem) {
        return nanos;
    }
    let mut fusions = ProducerFusions::new(&problem.graph);
    for value in fusions.values() {
        if let Some(fusion) = fusions.find(value) {
            let added = |id: &NodeId| {
                let cost = cost(problem, id)?;
                Some((cost.nanos(rows) - problem.costs[id.0].nanos(rows)).max(0.0))
            };
            nanos[value.0] = fusion.readers.iter().map(added).sum::<Option<f64>>().unwrap_or(f64::INFINITY);
            fusions.apply(&fusion);
        }
    }
    nanos
}

/// Time that the readers of a value add, by estimates; none where one of them cannot make it.
fn added(problem: &Problem, fusion: &ProducerFusion) -> Option<f64> {
    let rows = problem.batch;
    let nanos = |id: &NodeId| {
        let cost = cost(problem, id)?;
        Some(cost.nanos_estimated(rows) - problem.costs[id.0].nanos_estimated(rows))
    };
    fusion.readers.iter().map(nanos).sum()
}

/// Time of the node that computes it.
fn again(problem: &Problem, fusion: &ProducerFusion) -> f64 {
    problem.costs[fusion.producer.0].nanos_estimated(problem.batch)
}
