//! Reorder: events in another order hold fewer bytes at once. Exact and free: each reader or writer of a
//! value comes after the same writers of it as before.
//!
//! There are two methods. The first builds an order from scratch: what frees the most is always done next.
//! The second moves one event at a time, at the peak, to a later or an earlier place.

use memfit_ir::{Plan, Problem, TensorId};

use crate::figures::CostTables;
use crate::lives::Lives;
use crate::place::{Packing, place};
use crate::schedule::{Event, Schedule, whole};
use crate::storage::Storage;
use crate::ways::FASTEST;

/// A schedule of more events is left in its order: looking costs more than it gives.
const EVENTS: usize = 20_000;

/// Another order is taken where it saves at least one part in `WORTH`: events side by side in the graph may
/// share a launch.
const WORTH: u64 = 256;

/// How often an event is moved at most.
const MOVES: usize = 200;

/// Events on either side of the peak that may be moved over it.
const WINDOW: usize = 96;

/// The plan of the whole batch in the graph's own order, to compare with.
pub fn as_written(problem: &Problem) -> Plan {
    place(&CostTables::new(problem, problem.batch), &whole(&problem.graph), Packing::Well, FASTEST)
}

/// The same schedule in an order with a lower peak, if one is found.
pub fn reorder(figures: &CostTables, schedule: Schedule) -> Schedule {
    if EVENTS < schedule.events.len() {
        return schedule;
    }
    let mut best = (Storage::new(figures, &schedule).live(), schedule);
    let listed = most_freed_first(figures, &best.1);
    let live = Storage::new(figures, &listed).live();
    if live + best.0 / WORTH < best.0 {
        best = (live, listed);
    }
    for _ in 0..MOVES {
        match moved_at_peak(figures, &best.1, best.0) {
            Some(better) => best = better,
            None => break,
        }
    }
    best.1
}

/// What an event touches: tensors it reads, tensors it changes.
fn touched(figures: &CostTables, event: &Event) -> (Vec<TensorId>, Vec<TensorId>) {
    match event {
        Event::Feed(tensor) | Event::In(tensor) => (vec![], vec![*tensor]),
        Event::Out(tensor) => (vec![*tensor], vec![]),
        Event::Launch { node, .. } => {
            let node = &figures.graph().nodes[node.0];
            (node.inputs.clone(), node.outputs.iter().chain(&node.updates).copied().collect())
        }
    }
}

/// Whether two events may not change places.
fn conflict(figures: &CostTables, a: &Event, b: &Event) -> bool {
    let ((a_reads, a_changes), (b_reads, b_changes)) = (touched(figures, a), touched(figures, b));
    a_changes.iter().any(|tensor| b_reads.contains(tensor) || b_changes.contains(tensor))
        || b_changes.iter().any(|tensor| a_reads.contains(tensor))
}

/// The body by the rule that, of all events that may come next, the one goes first that frees the most.
fn most_freed_first(figures: &CostTables, schedule: &Schedule) -> Schedule {
    let body = &schedule.events[schedule.body..schedule.epilogue];
    let tensors = figures.bytes.len();
    let touched: Vec<_> = body.iter().map(|event| touched(figures, event)).collect();
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); body.len()];
    let mut waits_for = vec![0usize; body.len()];
    // The last event that changed each tensor, and its readers since.
    let mut changed: Vec<Option<usize>> = vec![None; tensors];
    let mut read: Vec<Vec<usize>> = vec![Vec::new(); tensors];
    let mut readers_left = vec![0usize; tensors];
    for (index, (reads, changes)) in touched.iter().enumerate() {
        let mut before: Vec<usize> = reads.iter().filter_map(|tensor| changed[tensor.0]).collect();
        for tensor in changes {
            before.extend(changed[tensor.0]);
            before.append(&mut read[tensor.0]);
        }
        before.sort_unstable();
        before.dedup();
        for earlier in before.into_iter().filter(|earlier| *earlier != index) {
            followers[earlier].push(index);
            waits_for[index] += 1;
        }
        for tensor in reads {
            read[tensor.0].push(index);
            readers_left[tensor.0] += 1;
        }
        for tensor in changes {
            changed[tensor.0] = Some(index);
        }
    }
    for tensor in &figures.graph().keep {
        readers_left[tensor.0] += 1;
    }
    let mut there = vec![false; tensors];
    let mut ready: Vec<usize> = (0..body.len()).filter(|index| waits_for[*index] == 0).collect();
    let mut events = schedule.events[..schedule.body].to_vec();
    while !ready.is_empty() {
        let gain = |index: &usize| {
            let (reads, changes) = &touched[*index];
            let bytes = |tensor: &TensorId| figures.aligned(*tensor) as i64;
            let transient = |tensor: &&TensorId| !figures.persistent[tensor.0];
            let freed: i64 =
                reads.iter().filter(transient).filter(|tensor| readers_left[tensor.0] == 1).map(bytes).sum();
            let taken: i64 =
                changes.iter().filter(transient).filter(|tensor| !there[tensor.0]).map(bytes).sum();
            freed - taken
        };
        let (place, index) = ready
            .iter()
            .copied()
            .enumerate()
            .max_by_key(|(_, index)| (gain(index), std::cmp::Reverse(*index)))
            .expect("somebody is ready");
        ready.swap_remove(place);
        events.push(body[index]);
        let (reads, changes) = &touched[index];
        reads.iter().for_each(|tensor| readers_left[tensor.0] -= 1);
        changes.iter().for_each(|tensor| there[tensor.0] = true);
        for follower in &followers[index] {
            waits_for[*follower] -= 1;
            if waits_for[*follower] == 0 {
                ready.push(*follower);
            }
        }
    }
    events.extend(&schedule.events[schedule.epilogue..]);
    Schedule { events, ..*schedule }
}

/// One event moved after the peak or before it, where that lowers the peak.
fn moved_at_peak(figures: &CostTables, schedule: &Schedule, live: u64) -> Option<(u64, Schedule)> {
    let storage = Storage::new(figures, schedule);
    let profile = storage.profile();
    let lives = Lives::new(figures, schedule, &storage);
    let body = schedule.body..schedule.epilogue;
    // One moment of the highest: the others are met when this one is lower.
    let peak = body.clone().find(|time| profile[*time] == live)?;
    let dies_at = |tensor: &TensorId, time: usize| {
        lives.before(*tensor, time).is_some_and(|life| lives.end(life) == time)
    };
    let bytes = |tensor: &TensorId| if figures.persistent[tensor.0] { 0 } else { figures.aligned(*tensor) };
    let mut candidates: Vec<(usize, usize)> = Vec::new();
    for from in peak.saturating_sub(WINDOW).max(body.start)..peak {
        let (reads, changes) = touched(figures, &schedule.events[from]);
        let taken: u64 = changes.iter().map(bytes).sum();
        let freed: u64 = reads.iter().filter(|tensor| dies_at(tensor, from)).map(bytes).sum();
        let apart = || {
            schedule.events[from + 1..=peak]
                .iter()
                .all(|event| !conflict(figures, &schedule.events[from], event))
        };
        if freed < taken && apart() {
            candidates.push((from, peak));
        }
    }
    for from in peak + 1..(peak + WINDOW).min(body.end) {
        let (reads, changes) = touched(figures, &schedule.events[from]);
        let taken: u64 = changes.iter().map(bytes).sum();
        let freed: u64 = reads.iter().filter(|tensor| dies_at(tensor, from)).map(bytes).sum();
        let apart = || {
            schedule.events[peak..from].iter().all(|event| !conflict(figures, &schedule.events[from], event))
        };
        if taken < freed && apart() {
            candidates.push((from, peak));
        }
    }
    candidates
        .into_iter()
        .map(|(from, to)| {
            let mut other = schedule.clone();
            let event = other.events.remove(from);
            other.events.insert(to, event);
            (Storage::new(figures, &other).live(), other)
        })
        .filter(|(other, _)| *other < live)
        .min_by_key(|(other, _)| *other)
}
