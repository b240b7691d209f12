//! A lower bound: what giving values up must cost, whatever is given up.

use crate::figures::CostTables;
use crate::lives::Life;
use crate::moves::recompute::gap::{Heuristic, State};
use crate::schedule::{Event, Schedule};

/// Moments that the bound considers; more could only raise it.
const MOMENTS: usize = 64;

/// The least time that any plan in this order spends on giving values up, if it holds at most `room` live
/// bytes besides persistent tensors. At each of the highest moments, the cheapest part of what waits there
/// must go, be it a fraction of a value. A value costs at least its share of one launch of its node, or of
/// the copies to offload memory and back, or its time in `fused`.
pub fn least_nanos(figures: &CostTables, schedule: &Schedule, room: u64, fused: &[f64]) -> f64 {
    let heuristic = Heuristic { shortest_gap: 0, careful: false, chained: false };
    let mut state = State::new(figures, schedule, heuristic);
    let mut moments: Vec<usize> = (schedule.body..schedule.epilogue).collect();
    moments.sort_by_key(|time| (std::cmp::Reverse(state.profile[*time]), *time));
    let mut most: f64 = 0.0;
    for moment in moments.into_iter().take(MOMENTS) {
        state.peak = moment;
        most = most.max(least_at_peak(figures, schedule, &state, room, fused));
    }
    most
}

/// The least time in which the peak can be brought down to `room`.
fn least_at_peak(figures: &CostTables, schedule: &Schedule, state: &State, room: u64, fused: &[f64]) -> f64 {
    let mut missing = state.live().saturating_sub(room) as f64;
    let waits = |life: &&Life| state.wait(life).is_some() || gives_way(figures, schedule, state, life);
    let waiting = state.lives.all.iter().filter(waits);
    let mut waiting: Vec<(f64, f64)> =
        waiting.filter_map(|life| least_price(figures, state, life, fused)).collect();
    waiting.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let mut nanos = 0.0;
    for (price, bytes) in waiting {
        let share = (missing / bytes).clamp(0.0, 1.0);
        nanos += share * price;
        missing -= share * bytes;
    }
    nanos
}

/// The least that giving up a life at the peak costs, and the bytes it gives back.
fn least_price(figures: &CostTables, state: &State, life: &Life, fused: &[f64]) -> Option<(f64, f64)> {
    let bytes = figures.aligned(life.tensor);
    if state.peak <= life.from || bytes == 0 {
        return None;
    }
    let again = match figures.producers[life.tensor.0] {
        // One launch brings back everything its node writes.
        Some(node) => figures.nanos[node.0] / figures.graph().nodes[node.0].outputs.len() as f64,
        None if figures.is_input(life.tensor) => figures.fed(life.tensor),
        None => f64::INFINITY,
    };
    let again = again.min(fused[life.tensor.0]);
    let out = 2.0 * figures.moved(life.tensor);
    let least = if figures.problem.budget.host.0 > 0 { again.min(out) } else { again };
    least.is_finite().then_some((least, bytes as f64))
}

/// Whether a value that is read at the peak and again later would, given up after the peak, leave its place
/// to a value that is written there.
fn gives_way(figures: &CostTables, schedule: &Schedule, state: &State, life: &Life) -> bool {
    let Event::Launch { node: id, .. } = schedule.events[state.peak] else { return false };
    let node = &figures.graph().nodes[id.0];
    let reads = state.lives.reads(life);
    reads.contains(&state.peak)
        && reads.last().is_some_and(|last| state.peak < *last)
        && figures.in_place[id.0].iter().any(|(_, input)| node.inputs[*input] == life.tensor)
}
