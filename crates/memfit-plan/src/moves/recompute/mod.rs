//! Recompute and offload: a value that waits long for its next reader is given up, and computed again right
//! before it, or copied out to offload memory and in again. Exact, bit for bit: a node launched twice reads
//! the same values twice.
//!
//! One search path leads down and up again, whatever the budget. On the downward path, from level to level,
//! the search opens the gap at the peak that costs the least time for the bytes that it frees, until the
//! level is reached; then it drops what turned out needless. Small steps skip large values, which would free
//! more than a step asks for. So the upward path starts at the bottom, where all that is cheap was given up.
//! It drops what costs the most for its bytes as soon as there is room, and tries expensive recomputations in
//! another way. Every level is a schedule; a budget only chooses one of them.
//!
//! Such steps see no farther than one value. Where a network is a chain of segments, `segments` finds which
//! of them are the same, `blocks` solves each kind once and `chain` chooses for all of them at once, at any
//! level, from the first to the last. But the chain knows nothing of values that skip a segment, nor of
//! values that share bytes. So the upward path goes on with the faster of the two schedules.

mod blocks;
mod bound;
mod chain;
mod gap;
mod rewrite;
mod segments;

pub use bound::least_nanos;
pub use gap::Heuristic;

use memfit_ir::TensorId;

use crate::figures::CostTables;
use crate::schedule::{Event, Schedule};
use crate::storage::Storage;
use blocks::Blocks;
use gap::{Gap, State};

/// Tries without a new lowest peak before a path ends.
const PATIENCE: usize = 48;

/// What may be spent on replacing a closed gap, over what that gap cost: a little of it may turn out
/// needless.
const SLACK: f64 = 1.7;

/// The same for small graphs, where there is time to look further.
const SLACK_SMALL: f64 = 3.0;

/// Events of all schedules that are tried at one level.
const TRIED_EVENTS: usize = 40_000;

/// Events of all schedules that are tried to drop what is needless from one.
const DROPPED_EVENTS: usize = 400_000;

/// In schedules of up to this many events, expensive recomputations are improved on the downward path too.
const EVENTS_IMPROVED_TWICE: usize = 600;

/// A schedule of more events is not solved as a chain of blocks: its segments are too many to choose for
/// each.
const EVENTS_CHAINED: usize = 6_000;

/// One of this many repeated events is tried in another way.
const TRIED: usize = 2;

/// The same where the chain of blocks says where to begin, which is mostly near the end.
const TRIED_FEWER: usize = 3;

/// How much is tried. A schedule of many events goes down in larger strides, and each stride costs more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Levels between the unconstrained peak and nothing.
    pub levels: u64,
    /// How many expensive recomputations are tried in another way at each level, besides one for every few
    /// repeated events; 0 for none.
    pub tries: usize,
    /// Gaps that are opened at once.
    pub gaps: usize,
}

impl Effort {
    /// The effort for a schedule of this many events.
    pub fn of(events: usize) -> Effort {
        if events <= 1_200 {
            Effort { levels: 40, tries: 8, gaps: 1 }
        } else if events <= 6_000 {
            Effort { levels: 20, tries: 0, gaps: 3 }
        } else {
            Effort { levels: 12, tries: 0, gaps: events / 400 }
        }
    }

    /// The same where it is one of many schedules that say much the same.
    pub fn of_many(events: usize) -> Effort {
        Effort { levels: 20, tries: 0, gaps: 1 + events / 400 }
    }
}

/// How far a path is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the lowest peak, where only the smallest budget is asked for.
    Down,
    /// And up again, which finds the faster schedules.
    DownAndUp,
}

/// One schedule whose live bytes are no more than a target, where large strides lead to one: found fast, and not the fastest.
pub fn first_within(figures: &CostTables, base: &Schedule, target: u64) -> Option<Schedule> {
    let effort = Effort { levels: 1, tries: 0, gaps: 1 + base.events.len() / 50 };
    let heuristic = Heuristic { shortest_gap: 12, careful: false, chained: false };
    Search { figures, heuristic, effort }.descend(base, target, &[], f64::INFINITY).ok()
}

/// One schedule of a search path.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What happens.
    pub schedule: Schedule,
    /// Most live bytes, persistent tensors left out.
    pub live: u64,
    /// Time of one micro-batch.
    pub nanos: f64,
    /// Whether it was met on the downward or on the upward path.
    pub way: Direction,
}

/// Schedules with lower peaks than that of the one with nothing computed twice: ever lower ones, then ever
/// higher ones where the upward path is searched too.
pub fn path(
    figures: &CostTables,
    base: &Schedule,
    heuristic: Heuristic,
    effort: Effort,
    way: Direction,
) -> Vec<Point> {
    let search = Search { figures, heuristic, effort };
    let high = Storage::new(figures, base).live();
    let mut points: Vec<Point> = Vec::new();
    let mut bottom = 1;
    for level in (1..effort.levels).rev() {
        let target = high * level / effort.levels;
        let from = points.last().map_or(base, |point| &point.schedule);
        match search.descend(from, target, &[], f64::INFINITY) {
            Ok(found) if base.events.len() <= EVENTS_IMPROVED_TWICE => {
                points.push(search.point(search.improve(found, target, TRIED)));
            }
            Ok(found) => points.push(search.point(search.drop_needless(found, target))),
            Err(lowest) => {
                // The lowest peak of the path lies between the last level and this one; it is what a search
                // for the smallest budget asks for.
                let end = search.descend(&lowest, 0, &[], f64::INFINITY).unwrap_or_else(|end| end);
                points.extend([search.point(lowest), search.point(end)]);
                bottom = level + 1;
                break;
            }
        }
    }
    if let (Some(end), true) = (points.last(), 0 < effort.tries) {
        // Expensive recomputations there, tried in another way, may let the search go further down.
        let improved = search.improve(end.schedule.clone(), end.live, TRIED);
        let lower = search.descend(&improved, 0, &[], f64::INFINITY).unwrap_or_else(|end| end);
        points.extend([search.point(improved), search.point(lower)]);
    }
    match (way, points.last()) {
        (Direction::Down, _) | (Direction::DownAndUp, None) => points,
        (Direction::DownAndUp, Some(end)) => {
            let risen = search.rise(base, end, high, bottom);
            points.into_iter().chain(risen).collect()
        }
    }
}

struct Search<'a> {
    figures: &'a CostTables<'a>,
    heuristic: Heuristic,
    effort: Effort,
}

impl Search<'_> {
    fn point(&self, schedule: Schedule) -> Point {
        let live = Storage::new(self.figures, &schedule).live();
        Point { nanos: self.figures.nanos_of_piece(&schedule), live, schedule, way: Direction::Down }
    }

    /// The upward path from the end of the downward path. At each level, the chain of blocks gives one
    /// schedule and the level below another; the faster of both is improved: its expensive recomputations are
    /// tried in another way.
    fn rise(&self, base: &Schedule, end: &Point, high: u64, bottom: u64) -> Vec<Point> {
        let chained = self.heuristic.chained && base.events.len() <= EVENTS_CHAINED;
        let blocks = if !chained { None } else { Blocks::new(self.figures, base) };
        let every = if blocks.is_some() { TRIED_FEWER } else { TRIED };
        let mut risen = end.schedule.clone();
        let mut points = Vec::new();
        for level in bottom..self.effort.levels {
            // A little below the levels of the downward path, so that packing has some room at each.
            let target = high * (4 * level - 1) / (4 * self.effort.levels);
            if target < end.live {
                continue;
            }
            // Where nothing is improved, it is enough to ask the chain at every second level.
            let asks = 0 < self.effort.tries || level.is_multiple_of(2);
            let chained = blocks.as_ref().filter(|_| asks).and_then(|blocks| blocks.below(target));
            let chained = chained.and_then(|found| self.descend(&found, target, &[], f64::INFINITY).ok());
            if let Some(mut chained) = chained.map(|found| self.drop_needless(found, target)) {
                if 0 < self.effort.tries {
                    risen = self.drop_needless(risen, target);
                    let nanos = |schedule: &Schedule| self.figures.nanos_of_piece(schedule);
                    if nanos(&chained) < nanos(&risen) {
                        std::mem::swap(&mut risen, &mut chained);
                    }
                }
                points.push(self.point(chained));
            }
            risen = self.improve(risen, target, every);
            points.push(self.point(risen.clone()));
        }
        points.iter_mut().for_each(|point| point.way = Direction::DownAndUp);
        points
    }

    /// Opens gaps, for at most `most` nanoseconds, until the peak stands at the target or below; else the lowest
    /// that was met.
    fn descend(
        &self,
        from: &Schedule,
        target: u64,
        spared: &[TensorId],
        most: f64,
    ) -> Result<Schedule, Schedule> {
        let mut schedule = from.clone();
        let (mut lowest, mut live, mut tries) = (from.clone(), u64::MAX, 0);
        let mut nanos = 0.0;
        loop {
            let state = State::new(self.figures, &schedule, self.heuristic);
            if state.live() <= target {
                return Ok(schedule);
            }
            tries += 1;
            if state.live() < live {
                (live, tries) = (state.live(), 0);
                lowest.clone_from(&schedule);
            }
            let gaps = state.cheapest_gaps(target, self.effort.gaps, spared);
            nanos += gaps.iter().map(|gap| gap.nanos).sum::<f64>();
            if gaps.is_empty() || PATIENCE < tries || most < nanos {
                return Err(lowest);
            }
            schedule = opened(&schedule, gaps);
        }
    }

    /// The same under the same target, in less time: needless events are dropped, and expensive ones are
    /// tried in another way, a few of them and one of every `every` more.
    fn improve(&self, schedule: Schedule, target: u64, every: usize) -> Schedule {
        let mut best = self.drop_needless(schedule, target);
        if self.effort.tries == 0 {
            return best;
        }
        let mut nanos = self.figures.nanos_of_piece(&best);
        let slack = if best.events.len() <= EVENTS_IMPROVED_TWICE { SLACK_SMALL } else { SLACK };
        // The most expensive come first; those that cannot be improved are skipped.
        let mut passed = 0;
        let tries =
            (self.effort.tries + self.extras(&best).len() / every).min(TRIED_EVENTS / best.events.len());
        for _ in 0..tries {
            let extras = self.extras(&best);
            let Some(extra) = extras.get(passed) else { break };
            let closed = without(&best, &extra.events);
            let other = self.descend(&closed, target, &extra.tensors, extra.nanos * slack);
            let other = other.map(|other| self.drop_needless(other, target));
            match other {
                Ok(other) if self.figures.nanos_of_piece(&other) < nanos * (1.0 - 1e-6) => {
                    nanos = self.figures.nanos_of_piece(&other);
                    best = other;
                }
                Ok(_) | Err(_) => passed += 1,
            }
        }
        best
    }

    /// Drops what was computed again, where the value can just as well wait: what costs the most for its bytes comes first.
    fn drop_needless(&self, schedule: Schedule, target: u64) -> Schedule {
        let mut best = schedule;
        // As many at once as the profile has room for. Where values then share fewer bytes than before, half
        // as many.
        let (mut most, mut passed) = (usize::MAX, 0);
        for _ in 0..4 + DROPPED_EVENTS / best.events.len() {
            let state = State::new(self.figures, &best, self.heuristic);
            let mut profile = state.profile.clone();
            let mut extras = self.extras(&best);
            extras.sort_by(|a, b| b.price().total_cmp(&a.price()).then(a.events.cmp(&b.events)));
            let fitting: Vec<usize> = (passed..extras.len())
                .filter(|index| extras[*index].waits_within(&state, &mut profile, target))
                .take(most)
                .collect();
            let Some(first) = fitting.first() else { break };
            let mut events: Vec<usize> =
                fitting.iter().flat_map(|index| extras[*index].events.iter().copied()).collect();
            events.sort_unstable();
            let without = without(&best, &events);
            if Storage::new(self.figures, &without).live() <= target {
                (best, passed, most) = (without, 0, most.saturating_mul(2));
            } else if fitting.len() == 1 {
                (passed, most) = (first + 1, usize::MAX);
            } else {
                most = fitting.len() / 2;
            }
        }
        best
    }

    /// What happens a second time, the most expensive first.
    fn extras(&self, schedule: &Schedule) -> Vec<Extra> {
        let graph = self.figures.graph();
        let mut seen = vec![false; graph.nodes.len() + graph.tensors.len()];
        let mut out: Vec<usize> = vec![0; graph.tensors.len()];
        // How often what was copied out comes back: the copy goes with the last that brings it back.
        let mut comes_back = vec![0; schedule.events.len()];
        for (time, event) in schedule.events.iter().enumerate() {
            match event {
                Event::Out(tensor) => out[tensor.0] = time,
                Event::In(tensor) => comes_back[out[tensor.0]] += 1,
                Event::Feed(_) | Event::Launch { .. } => {}
            }
        }
        let mut extras = Vec::new();
        for (time, event) in schedule.events.iter().enumerate() {
            let nanos = self.figures.nanos_of(event);
            match event {
                Event::Feed(tensor) => {
                    if std::mem::replace(&mut seen[graph.nodes.len() + tensor.0], true) {
                        extras.push(self.extra(vec![time], vec![*tensor], nanos));
                    }
                }
                Event::Out(tensor) => {
                    out[tensor.0] = time;
                    if comes_back[time] == 0 {
                        extras.push(self.extra(vec![time], vec![], nanos));
                    }
                }
                Event::In(tensor) => extras.push(match comes_back[out[tensor.0]] {
                    1 => self.extra(vec![out[tensor.0], time], vec![*tensor], 2.0 * nanos),
                    _ => self.extra(vec![time], vec![*tensor], nanos),
                }),
                Event::Launch { node, .. } => {
                    if std::mem::replace(&mut seen[node.0], true) {
                        let tensors = graph.nodes[node.0].outputs.clone();
                        extras.push(self.extra(vec![time], tensors, nanos));
                    }
                }
            }
        }
        extras.sort_by(|a, b| b.nanos.total_cmp(&a.nanos).then(a.events.cmp(&b.events)));
        extras
    }

    fn extra(&self, events: Vec<usize>, tensors: Vec<TensorId>, nanos: f64) -> Extra {
        let bytes = tensors.iter().map(|tensor| self.figures.aligned(*tensor)).sum();
        Extra { events, tensors, bytes, nanos }
    }
}

/// Something that happens a second time.
struct Extra {
    /// When.
    events: Vec<usize>,
    /// What it brings back.
    tensors: Vec<TensorId>,
    /// Bytes of these.
    bytes: u64,
    nanos: f64,
}

impl Extra {
    /// When the value is back.
    fn at(&self) -> usize {
        self.events[self.events.len() - 1]
    }

    /// Time for each byte that did not wait.
    fn price(&self) -> f64 {
        self.nanos / self.bytes.max(1) as f64
    }

    /// Whether the values can just as well wait until they are back, below the target; they then do in the profile.
    fn waits_within(&self, state: &State, profile: &mut [u64], target: u64) -> bool {
        let back = self.tensors.iter().filter_map(|tensor| state.lives.before(*tensor, self.at() + 1));
        if back.clone().all(|life| state.lives.reads(life).is_empty()) {
            return true;
        }
        let lives = self.tensors.iter().filter_map(|tensor| state.lives.before(*tensor, self.at()));
        // Where something was written over a value's last place, that stands beside it from then on.
        let begin = lives.map(|life| state.lives.end(life) + usize::from(!state.has_heir(life))).min();
        let wait = begin.unwrap_or(0).min(self.at())..self.at();
        // Mostly there was no room to begin with, which is quickly known.
        if target < state.highest().in_range(wait.clone()) + self.bytes {
            return false;
        }
        let waits = &mut profile[wait];
        let fits = waits.iter().all(|live| live + self.bytes <= target);
        if fits {
            waits.iter_mut().for_each(|live| *live += self.bytes);
        }
        fits
    }
}

/// A schedule with gaps opened.
fn opened(schedule: &Schedule, gaps: Vec<Gap>) -> Schedule {
    let mut insertions: Vec<(usize, Vec<Event>)> = gaps.into_iter().flat_map(|gap| gap.insertions).collect();
    // What is copied out stands before what is computed at the same place.
    insertions.sort_by_key(|(before, _)| *before);
    let mut insertions = insertions.into_iter().peekable();
    let mut events = Vec::with_capacity(schedule.events.len());
    let mut added = 0;
    for (time, event) in schedule.events.iter().enumerate() {
        while let Some((_, more)) = insertions.next_if(|(before, _)| *before == time) {
            added += more.len();
            events.extend(more);
        }
        events.push(*event);
    }
    Schedule { events, body: schedule.body, epilogue: schedule.epilogue + added }
}

/// A schedule without some events, which are in order.
fn without(schedule: &Schedule, gone: &[usize]) -> Schedule {
    let mut left = gone.iter().peekable();
    let stays =
        |(time, event): (usize, &Event)| left.next_if(|gone| **gone == time).is_none().then_some(*event);
    let events = schedule.events.iter().enumerate().filter_map(stays).collect();
    Schedule { events, body: schedule.body, epilogue: schedule.epilogue - gone.len() }
}
