//! What nodes cost, measured: every distinct op and shape is timed once, in memory that is given back.

mod scratch;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Instant;

use memfit_ir::{Bytes, Cost, CostClass, Graph, Nanos, NodeId};

use crate::{Backend, process};
use scratch::{RUNS, Scratch};

/// Times by [`Graph::signature`]. What is in it is not timed again.
pub type Table = BTreeMap<String, Line>;

/// The time of a node over the rows of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Time whatever the rows.
    pub nanos_fixed: f64,
    /// Time for each row.
    pub nanos_per_row: f64,
}

/// What measuring may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// Memory, all of it given back.
    pub bytes: Bytes,
    /// Time. A launch that has begun is waited for.
    pub seconds: f64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// One cost a node. What was not timed has its estimate, scaled as those were that were timed.
    pub costs: Vec<Cost>,
    /// How many distinct nodes were timed now.
    pub timed: usize,
    /// How long that took.
    pub seconds: f64,
    /// How much of the graph is measured, now or earlier.
    pub coverage: Coverage,
}

/// How much of a graph was measured; the rest is estimated in proportion.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coverage {
    /// Distinct nodes that were timed.
    pub kinds_measured: usize,
    /// Distinct nodes that take time.
    pub kinds: usize,
    /// The share of a step's time that the timed ones take.
    pub share: f64,
}

/// The longest launch worth waiting for.
const NANOS_LAUNCH: f64 = 30e6;

/// A line through two points needs them apart; below this many rows the estimate is better at splitting a
/// time into its parts.
const ROWS_APART: usize = 4;

/// Nodes that are alike.
struct Kind {
    signature: String,
    /// One of them.
    node: NodeId,
    /// Their time in a step, by the estimate.
    nanos: f64,
}

pub(crate) fn measure(
    backend: &(dyn Backend + '_),
    graph: &Graph,
    estimates: Vec<Cost>,
    batch: usize,
    allowance: Allowance,
    known: &mut Table,
) -> Measured {
    let start = Instant::now();
    let mut kinds = kinds(graph, &estimates, batch);
    let capabilities = backend.capabilities();
    let free = match backend.memory() {
        Ok(None) => process::limits().available.saturating_sub(process::resident()),
        Ok(Some(memory)) => memory.free,
        Err(_) => Bytes::ZERO,
    };
    let room = allowance.bytes.min(free).0;
    let room = Bytes(room - room % capabilities.granule.0);
    let bytes = |kind: &Kind, rows: usize| {
        scratch::bytes(graph, &graph.nodes[kind.node.0], &estimates[kind.node.0], rows)
    };
    kinds.retain(|kind| !known.contains_key(&kind.signature) && bytes(kind, 1) <= room);
    most_telling_first(graph, &mut kinds);
    let wanted = kinds.iter().map(|kind| bytes(kind, batch)).max().unwrap_or_default() * RUNS as u64;
    let mut timed = 0;
    if !kinds.is_empty()
        && let Ok(mut device) = backend.scratch(wanted.min(room))
    {
        device.enter();
        let scratch = Scratch::new(&mut *device, graph, batch, capabilities.steps_ahead == 0);
        timed = Timing { scratch, estimates: &estimates, batch, start, seconds: allowance.seconds }
            .run(&kinds, known);
    }
    let costs = costs(graph, estimates, batch, known);
    let coverage = coverage(graph, &costs, batch, known);
    Measured { costs, timed, seconds: start.elapsed().as_secs_f64(), coverage }
}

/// Sorts by the share of a step, the longest first. Before all others comes the longest of each class, by
/// which the rest of the class is scaled, so that even a short measurement says something about every node.
fn most_telling_first(graph: &Graph, kinds: &mut [Kind]) {
    kinds.sort_by(|a, b| b.nanos.total_cmp(&a.nanos).then(a.signature.cmp(&b.signature)));
    let mut seen = [false; 3];
    kinds.sort_by_cached_key(|kind| {
        std::mem::replace(&mut seen[graph.nodes[kind.node.0].op.cost_class() as usize], true)
    });
}

/// Which nodes' times are known.
fn coverage(graph: &Graph, costs: &[Cost], batch: usize, known: &Table) -> Coverage {
    let kinds = kinds(graph, costs, batch);
    let (measured, rest): (Vec<Kind>, Vec<Kind>) =
        kinds.into_iter().partition(|kind| known.contains_key(&kind.signature));
    let nanos = |kinds: &[Kind]| kinds.iter().map(|kind| kind.nanos).sum::<f64>();
    let (of_measured, of_rest) = (nanos(&measured), nanos(&rest));
    Coverage {
        kinds_measured: measured.len(),
        kinds: measured.len() + rest.len(),
        share: of_measured / (of_measured + of_rest).max(1.0),
    }
}

/// The distinct nodes of a graph, but for views, which do nothing.
fn kinds(graph: &Graph, estimates: &[Cost], batch: usize) -> Vec<Kind> {
    let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
    for (index, (node, cost)) in graph.nodes.iter().zip(estimates).enumerate() {
        if !node.op.is_view() {
            let signature = graph.signature(node);
            let kind = || Kind { signature: signature.clone(), node: NodeId(index), nanos: 0.0 };
            kinds.entry(signature.clone()).or_insert_with(kind).nanos += cost.nanos(batch);
        }
    }
    kinds.into_values().collect()
}

/// A measurement in progress.
struct Timing<'a> {
    scratch: Scratch<'a>,
    estimates: &'a [Cost],
    batch: usize,
    start: Instant,
    seconds: f64,
}

impl Timing<'_> {
    /// Times one kind after the other until the time is up; how many there were.
    fn run(&mut self, kinds: &[Kind], known: &mut Table) -> usize {
        let mut slowness = 1.0;
        for (index, kind) in kinds.iter().enumerate() {
            let left = self.seconds - self.start.elapsed().as_secs_f64();
            if left <= 0.0 {
                return index;
            }
            let ahead = kinds[index..].iter().map(|kind| self.estimates[kind.node.0].nanos(self.batch));
            let nanos = level(ahead.map(|nanos| nanos * slowness).collect(), left * 1e9 / (RUNS + 1) as f64);
            let line = self.line(kind.node, nanos.min(NANOS_LAUNCH));
            let ratio = line.nanos(self.batch) / self.estimates[kind.node.0].nanos(self.batch);
            slowness += (ratio - slowness) / (index + 1).min(8) as f64;
            known.insert(kind.signature.clone(), line);
        }
        kinds.len()
    }

    /// The time of a node over its rows, from launches of about `nanos` nanoseconds.
    fn line(&mut self, node: NodeId, nanos: f64) -> Line {
        let cost = &self.estimates[node.0];
        let one = self.scratch.nanos(node, cost, 1);
        if self.scratch.is_fixed(node) {
            return Line { nanos_fixed: one, nanos_per_row: 0.0 }.rounded();
        }
        // No launch takes longer than one of a single row for each of its rows.
        let affordable = (nanos / one) as usize;
        let rows = self.scratch.rows_with_room(node, cost, affordable.min(self.batch));
        if rows < 2 {
            return Line::like(cost, 1, one);
        }
        let many = self.scratch.nanos(node, cost, rows);
        if rows < ROWS_APART { Line::like(cost, rows, many) } else { Line::through(one, rows, many) }
    }
}

impl Line {
    /// Time for a micro-batch of `rows`.
    pub fn nanos(&self, rows: usize) -> f64 {
        self.nanos_fixed + self.nanos_per_row * rows as f64
    }

    /// Whether these can be times.
    pub fn is_sane(&self) -> bool {
        let numbers = [self.nanos_fixed, self.nanos_per_row];
        numbers.iter().all(|nanos| nanos.is_finite() && 0.0 <= *nanos) && 0.0 < self.nanos(1)
    }

    /// The line through a time for 1 row and one for more, which neither falls nor begins below 0.
    fn through(one: f64, rows: usize, many: f64) -> Line {
        let per_row = (many - one).max(0.0) / (rows - 1) as f64;
        let nanos_fixed = (many - per_row * rows as f64).clamp(0.0, one.min(many));
        Line { nanos_fixed, nanos_per_row: (many - nanos_fixed) / rows as f64 }.rounded()
    }

    /// The line through one time, split into its parts as the estimate is.
    fn like(estimate: &Cost, rows: usize, nanos: f64) -> Line {
        let factor = nanos / estimate.nanos(rows);
        let Cost { nanos_fixed, nanos_per_row, .. } = estimate;
        Line { nanos_fixed: nanos_fixed * factor, nanos_per_row: nanos_per_row * factor }.rounded()
    }

    /// To a sixteenth of a nanosecond, so that it is the same number when it has been written down and read.
    fn rounded(self) -> Line {
        let round = |nanos: f64| (nanos * 16.0).round() / 16.0;
        Line { nanos_fixed: round(self.nanos_fixed), nanos_per_row: round(self.nanos_per_row) }
    }
}

/// How long the longest launches may last so that all together last so long: what short ones do not use, long
/// ones have.
fn level(mut nanos: Vec<f64>, total: f64) -> f64 {
    nanos.sort_by(f64::total_cmp);
    let (mut left, count) = (total, nanos.len());
    for (index, nanos) in nanos.into_iter().enumerate() {
        let share = left / (count - index) as f64;
        if share < nanos {
            return share;
        }
        left -= nanos;
    }
    f64::INFINITY
}

/// One cost a node: a view does nothing, a timed node costs its time, and the others their estimate, scaled
/// as the timed nodes of their class are.
fn costs(graph: &Graph, estimates: Vec<Cost>, batch: usize, known: &Table) -> Vec<Cost> {
    let lines: Vec<Option<Line>> =
        graph.nodes.iter().map(|node| known.get(&graph.signature(node)).copied()).collect();
    let mut ratios: [Vec<f64>; CostClass::COUNT] = Default::default();
    for ((node, line), estimate) in graph.nodes.iter().zip(&lines).zip(&estimates) {
        if let Some(line) = line {
            ratios[node.op.cost_class() as usize].push(line.nanos(batch) / estimate.nanos(batch));
        }
    }
    let overall = median(ratios.concat()).unwrap_or(1.0);
    let ratios = ratios.map(|ratios| median(ratios).unwrap_or(overall));
    let cost = |((node, line), estimate): ((&memfit_ir::Node, &Option<Line>), Cost)| {
        let ratio = ratios[node.op.cost_class() as usize];
        let Line { nanos_fixed, nanos_per_row } = match line {
            _ if node.op.is_view() => Line { nanos_fixed: 0.0, nanos_per_row: 0.0 },
            Some(line) => *line,
            None => Line {
                nanos_fixed: estimate.nanos_fixed * ratio,
                nanos_per_row: estimate.nanos_per_row * ratio,
            },
        };
        Cost { measured: Some(Nanos { fixed: nanos_fixed, per_row: nanos_per_row }), ..estimate }
    };
    graph.nodes.iter().zip(&lines).zip(estimates).map(cost).collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
