//! The choice: of all schedules the moves can make, the fastest whose packed peak fits.
//!
//! What can be chosen from does not depend on the budget, and the fastest that fits is taken. So a larger budget, which
//! leaves more to choose from, never gives a slower plan.

use memfit_ir::{Bytes, NANOS_PER_BYTE_FED, NANOS_PER_BYTE_MOVED, Plan, Problem, TensorId};

use crate::moves::recompute::{Path, Point, Taste, least_nanos};
use crate::moves::split;
use crate::place::place;
use crate::schedule::{Event, Schedule, in_pieces, whole};
use crate::storage::{Storage, tensor_bytes};

/// Beyond so many nodes, recomputing is looked at for one size of pieces only, the one with the lowest peak.
const NODES_FOR_EVERY_SIZE: usize = 4_000;

/// Everything the moves can make of a problem.
pub struct Choices<'a> {
    problem: &'a Problem,
    sizes: Vec<Size>,
}

/// All schedules over pieces of one size.
struct Size {
    rows: usize,
    paths: Vec<Path>,
    /// Time of a whole step without recomputing.
    nanos: f64,
}

/// One schedule.
#[derive(Clone, Copy)]
struct Choice {
    size: usize,
    path: usize,
    point: Point,
    nanos: f64,
    /// No packing is lower.
    bound: Bytes,
}

/// The fastest plan that fits the budget.
pub fn fastest(problem: &Problem) -> Option<Plan> {
    let arena = problem.budget.arena();
    let fits = |plan: &Plan| {
        problem.budget.arena_for(plan.bytes_peak) <= arena && plan.bytes_host <= problem.budget.host
    };
    // The whole batch with nothing computed twice is the fastest there is, and mostly it fits.
    let unsplit = place(problem, &whole(&problem.graph), problem.batch);
    if fits(&unsplit) {
        return Some(unsplit);
    }
    if is_large(problem)
        && let Some(plan) = split::largest_pieces(problem)
    {
        return Some(plan);
    }
    let choices = Choices::new(problem);
    let mut all = choices.all();
    all.sort_by(|a, b| a.nanos.total_cmp(&b.nanos).then(b.size.cmp(&a.size)));
    all.iter().filter(|choice| choice.bound <= arena).map(|choice| choices.place(choice)).find(fits)
}

/// The plan with the lowest peak, whatever the budget.
pub fn smallest(problem: &Problem) -> Plan {
    let choices = Choices::new(problem);
    let mut all = choices.all();
    all.sort_by(|a, b| a.bound.cmp(&b.bound).then(a.nanos.total_cmp(&b.nanos)));
    let mut lowest: Option<Plan> = None;
    for choice in all {
        if lowest.as_ref().is_some_and(|plan| plan.bytes_peak < choice.bound) {
            break;
        }
        let plan = choices.place(&choice);
        if problem.budget.host < plan.bytes_host {
            continue;
        }
        if lowest.as_ref().is_none_or(|lowest| plan.bytes_peak < lowest.bytes_peak) {
            lowest = Some(plan);
        }
    }
    lowest.expect("there is always the whole batch")
}

/// Plans from the fastest to the smallest, each at least a hundredth smaller than the one before it: what a budget can buy.
pub fn curve(problem: &Problem) -> Vec<Plan> {
    let choices = Choices::new(problem);
    let mut all = choices.all();
    all.sort_by(|a, b| a.nanos.total_cmp(&b.nanos).then(b.size.cmp(&a.size)));
    let mut curve: Vec<Plan> = Vec::new();
    let lowest = all.iter().map(|choice| choice.bound).min();
    for choice in all {
        let smaller = |bytes: Bytes, last: &Plan| bytes.0 + last.bytes_peak.0 / 100 < last.bytes_peak.0;
        let is_end = Some(choice.bound) == lowest;
        if is_end || curve.last().is_none_or(|last| smaller(choice.bound, last)) {
            let plan = choices.place(&choice);
            if problem.budget.host < plan.bytes_host {
                continue;
            }
            if curve.last().is_none_or(|last| {
                smaller(plan.bytes_peak, last) || is_end && plan.bytes_peak < last.bytes_peak
            }) {
                curve.push(plan);
            }
        }
    }
    curve
}

/// Whether a graph is too large to go down a path for every size of pieces.
pub fn is_large(problem: &Problem) -> bool {
    NODES_FOR_EVERY_SIZE < problem.graph.nodes.len()
}

impl<'a> Choices<'a> {
    /// Goes down every path once.
    pub fn new(problem: &'a Problem) -> Choices<'a> {
        let mut sizes = vec![problem.batch];
        if split::may_split(problem) {
            sizes.extend(split::pieces(problem.batch));
        }
        let last = sizes.len() - 1;
        let large = is_large(problem);
        let sizes = sizes
            .iter()
            .enumerate()
            .map(|(index, rows)| {
                let schedule = schedule(problem, *rows);
                let pieces = problem.batch.div_ceil(*rows);
                // Between the powers of two, splitting alone is dense enough.
                let recomputes = index == last || (!large && pieces.is_power_of_two());
                let nanos = nanos(problem, &schedule, *rows);
                let tastes = match (recomputes, large) {
                    (false, _) => &Taste::ALL[..0],
                    (true, true) => &Taste::ALL[..1],
                    (true, false) => &Taste::ALL[..],
                };
                let down = tastes.iter().map(|taste| Path::new(problem, schedule.clone(), *rows, *taste));
                let plain = Path::plain(problem, schedule.clone(), *rows);
                Size { rows: *rows, paths: std::iter::once(plain).chain(down).collect(), nanos }
            })
            .collect();
        Choices { problem, sizes }
    }

    fn all(&self) -> Vec<Choice> {
        let mut all = Vec::new();
        for (index, size) in self.sizes.iter().enumerate() {
            let pieces = self.problem.batch.div_ceil(size.rows) as f64;
            let persistent = Storage::new(self.problem, &Schedule::default(), size.rows).persistent_bytes;
            for (path, points) in size.paths.iter().map(|path| &path.points).enumerate() {
                all.extend(points.iter().map(|point| Choice {
                    size: index,
                    path,
                    point: *point,
                    nanos: size.nanos + point.nanos * pieces,
                    bound: persistent + Bytes(point.live.saturating_sub(memfit_ir::ALIGNMENT)),
                }));
            }
        }
        all
    }

    fn place(&self, choice: &Choice) -> Plan {
        let size = &self.sizes[choice.size];
        place(self.problem, &size.paths[choice.path].schedule(&choice.point), size.rows)
    }
}

/// No plan with pieces of the same size and the same order is faster and as small: its least time in seconds.
pub fn least_seconds(problem: &Problem, plan: &Plan) -> f64 {
    let schedule = schedule(problem, plan.micro_batch);
    let persistent = Storage::new(problem, &Schedule::default(), plan.micro_batch).persistent_bytes;
    let room = plan.bytes_peak.align_up(memfit_ir::ALIGNMENT).saturating_sub(persistent).0;
    let extra = least_nanos(problem, &schedule, plan.micro_batch, room) * plan.micro_batches() as f64;
    (nanos(problem, &schedule, plan.micro_batch) + extra) / 1e9
}

/// Time to feed a tensor.
pub fn fed(problem: &Problem, tensor: TensorId, rows: usize) -> f64 {
    tensor_bytes(&problem.graph, tensor, rows).0 as f64 * NANOS_PER_BYTE_FED
}

/// Time to copy a tensor out, or in.
pub fn moved(problem: &Problem, tensor: TensorId, rows: usize) -> f64 {
    tensor_bytes(&problem.graph, tensor, rows).0 as f64 * NANOS_PER_BYTE_MOVED
}

fn schedule(problem: &Problem, rows: usize) -> Schedule {
    if rows < problem.batch { in_pieces(&problem.graph) } else { whole(&problem.graph) }
}

fn nanos(problem: &Problem, schedule: &Schedule, rows: usize) -> f64 {
    let pieces = problem.batch.div_ceil(rows);
    let last = problem.batch - (pieces - 1) * rows;
    let sum = |events: &[Event], rows: usize| -> f64 {
        events
            .iter()
            .map(|event| match event {
                Event::Launch { node, .. } => problem.costs[node.0].nanos(rows),
                Event::Feed(tensor) => fed(problem, *tensor, rows),
                Event::Out(tensor) | Event::In(tensor) => moved(problem, *tensor, rows),
            })
            .sum()
    };
    let body = &schedule.events[schedule.body..schedule.epilogue];
    sum(&schedule.events[..schedule.body], 0)
        + sum(&schedule.events[schedule.epilogue..], 0)
        + sum(body, rows) * (pieces - 1) as f64
        + sum(body, last)
}
