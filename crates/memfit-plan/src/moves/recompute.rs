//! Recompute and offload: a value that waits long for its next reader is given up, and computed again right before it, or
//! copied out to the second store and in again. Exact, bit for bit: a node launched twice reads the same values twice.
//!
//! The way down is one path, whatever the budget: while there is something to gain, the gap at the peak that costs the
//! least time for its bytes is opened. Every point of the path is a schedule; a budget only chooses how far to go.

use memfit_ir::{ALIGNMENT, Graph, Kind, NodeId, Op, Problem, TensorId};

use crate::choose::{fed, moved};
use crate::schedule::{Event, Schedule};
use crate::storage::{Storage, tensor_bytes};

/// How deep a value may be computed from values that are gone as well.
const DEPTH: usize = 12;

/// A schedule of more events goes down in larger strides, and gives up sooner.
const LONG: usize = 4_000;

/// Events of a long schedule for each gap that is opened at once.
const EVENTS_PER_GAP: usize = 2_000;

/// How often a long schedule is looked at again.
const ROUNDS_LONG: usize = 40;

/// Tries without a new lowest peak before a path ends.
const PATIENCE: usize = 48;

/// The same for a long schedule.
const PATIENCE_LONG: usize = 6;

/// What a path may do. No taste is best for every network, so several paths are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taste {
    /// A gap of fewer events is left alone: two values that one reader needs would take turns in giving way.
    pub shortest_gap: usize,
    /// Count every value that is computed on the way as if it lived beside the one it is for.
    pub careful: bool,
}

impl Taste {
    /// The tastes that are tried, from the one that mostly does best.
    pub const ALL: [Taste; 4] = [
        Taste { shortest_gap: 12, careful: false },
        Taste { shortest_gap: 2, careful: true },
        Taste { shortest_gap: 12, careful: true },
        Taste { shortest_gap: 40, careful: false },
    ];
}

/// Schedules with ever lower peaks, each with more work than the one before.
pub struct Path {
    base: Schedule,
    /// What was inserted, in order: behind so many events, these.
    insertions: Vec<(usize, Vec<Event>)>,
    /// The points worth stopping at.
    pub points: Vec<Point>,
}

/// One point of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// How many insertions lead here.
    pub insertions: usize,
    /// Most live bytes, persistent tensors left out.
    pub live: u64,
    /// Time that is spent on computing again, for one piece.
    pub nanos: f64,
}

impl Path {
    /// Goes down from a schedule over pieces of `rows`, as far as there is something to gain.
    pub fn new(problem: &Problem, base: Schedule, rows: usize, taste: Taste) -> Path {
        let mut path = Path { base: base.clone(), insertions: Vec::new(), points: Vec::new() };
        let mut schedule = base;
        let (mut nanos, mut lowest, mut tries) = (0.0, u64::MAX, 0);
        for round in 0.. {
            let state = State::new(problem, &schedule, rows, taste);
            let live = state.profile.get(state.peak).copied().unwrap_or(0);
            if live < lowest {
                lowest = live;
                tries = 0;
                path.points.push(Point { insertions: path.insertions.len(), live, nanos });
            }
            tries += 1;
            let long = LONG < schedule.events.len();
            let (stride, patience) =
                if long { (schedule.events.len() / EVENTS_PER_GAP, PATIENCE_LONG) } else { (1, PATIENCE) };
            let gaps = state.cheapest_gaps(stride);
            if gaps.is_empty() || patience < tries || (long && ROUNDS_LONG < round) {
                break;
            }
            let mut insertions: Vec<(usize, Vec<Event>)> = Vec::new();
            for gap in gaps {
                nanos += gap.nanos;
                insertions.extend(gap.insertions);
            }
            // From the back, so that no insertion moves another's place.
            insertions.sort_by_key(|(before, _)| std::cmp::Reverse(*before));
            for (before, events) in insertions {
                insert(&mut schedule, before, &events);
                path.insertions.push((before, events));
            }
        }
        path
    }

    /// The schedule alone, with nothing computed twice.
    pub fn plain(problem: &Problem, base: Schedule, rows: usize) -> Path {
        let profile = Storage::new(problem, &base, rows).profile(base.events.len());
        let live = profile.into_iter().max().unwrap_or(0);
        Path { base, insertions: Vec::new(), points: vec![Point { insertions: 0, live, nanos: 0.0 }] }
    }

    /// The schedule at a point.
    pub fn schedule(&self, point: &Point) -> Schedule {
        let mut schedule = self.base.clone();
        for (before, events) in &self.insertions[..point.insertions] {
            insert(&mut schedule, *before, events);
        }
        schedule
    }
}

fn insert(schedule: &mut Schedule, before: usize, events: &[Event]) {
    schedule.events.splice(before..before, events.iter().copied());
    schedule.epilogue += events.len();
}

/// The least time that any plan in this order spends on giving values up, if it holds at most `room` live bytes besides
/// persistent tensors: at each of the highest moments, the cheapest part of what waits there must go, be it a fraction of a
/// value, and a value costs at least its share of one launch of its node, or its way to the second store and back.
pub fn least_nanos(problem: &Problem, schedule: &Schedule, rows: usize, room: u64) -> f64 {
    let taste = Taste { shortest_gap: 0, careful: false };
    let mut state = State::new(problem, schedule, rows, taste);
    let mut moments: Vec<usize> = (schedule.body..schedule.epilogue).collect();
    moments.sort_by_key(|time| (std::cmp::Reverse(state.profile[*time]), *time));
    let mut most: f64 = 0.0;
    for moment in moments.into_iter().take(MOMENTS_FOR_BOUND) {
        state.peak = moment;
        most = most.max(state.least_nanos(room));
    }
    most
}

/// Moments looked at for the bound; more could only raise it.
const MOMENTS_FOR_BOUND: usize = 64;

/// A gap that can be opened: what to run before an event, and what that costs.
struct Gap {
    /// Before so many events, these.
    insertions: Vec<(usize, Vec<Event>)>,
    nanos: f64,
    /// Nanoseconds for a byte at the peak.
    price: f64,
    tensor: TensorId,
}

/// One life of a tensor: where it is written, and who reads it.
struct Life {
    tensor: TensorId,
    from: usize,
    reads: Vec<usize>,
    stretch: usize,
}

/// What must be known of a schedule to find its cheapest gap.
struct State<'a> {
    problem: &'a Problem,
    graph: &'a Graph,
    schedule: &'a Schedule,
    rows: usize,
    taste: Taste,
    profile: Vec<u64>,
    host_profile: Vec<u64>,
    peak: usize,
    lives: Vec<Life>,
    /// Indices into `lives` for each tensor, in order.
    lives_of: Vec<Vec<usize>>,
    /// The node that writes each tensor, where it may run again.
    producers: Vec<Option<NodeId>>,
    /// The first event that updates each persistent tensor.
    updated: Vec<usize>,
    /// Lives in each stretch at the peak.
    crowd: Vec<usize>,
}

impl<'a> State<'a> {
    fn new(problem: &'a Problem, schedule: &'a Schedule, rows: usize, taste: Taste) -> State<'a> {
        let graph = &problem.graph;
        let storage = Storage::new(problem, schedule, rows);
        let profile = storage.profile(schedule.events.len());
        let body = schedule.body..schedule.epilogue;
        let peak = body.rev().max_by_key(|time| profile[*time]).unwrap_or(0);
        let tensors = graph.tensors.len();
        let mut state = State {
            problem,
            graph,
            schedule,
            rows,
            taste,
            profile,
            host_profile: storage.host_profile(schedule.events.len()),
            peak,
            lives: Vec::new(),
            lives_of: vec![Vec::new(); tensors],
            producers: vec![None; tensors],
            updated: vec![usize::MAX; tensors],
            crowd: vec![0; storage.transient.len()],
        };
        state.read_lives(&storage);
        for (index, node) in graph.nodes.iter().enumerate() {
            if node.updates.is_empty() && node.op != Op::Zero {
                for output in &node.outputs {
                    state.producers[output.0] = Some(NodeId(index));
                }
            }
        }
        for life in &state.lives {
            if life.from <= peak && life.reads.last().is_some_and(|last| peak <= *last) {
                state.crowd[life.stretch] += 1;
            }
        }
        state
    }

    fn read_lives(&mut self, storage: &Storage) {
        for (time, event) in self.schedule.events.iter().enumerate() {
            let operands = &storage.operands[time];
            match event {
                Event::Feed(tensor) | Event::In(tensor) => self.begin(*tensor, time, operands[0]),
                Event::Out(tensor) => {
                    if let Some(life) = self.lives_of[tensor.0].last() {
                        self.lives[*life].reads.push(time);
                    }
                }
                Event::Launch { node, .. } => {
                    let graph = self.graph;
                    let node = &graph.nodes[node.0];
                    for tensor in &node.inputs {
                        if let Some(life) = self.lives_of[tensor.0].last() {
                            self.lives[*life].reads.push(time);
                        }
                    }
                    for (tensor, stretch) in node.outputs.iter().zip(&operands[node.inputs.len()..]) {
                        self.begin(*tensor, time, *stretch);
                    }
                    for tensor in &node.updates {
                        self.updated[tensor.0] = self.updated[tensor.0].min(time);
                    }
                }
            }
        }
    }

    fn begin(&mut self, tensor: TensorId, from: usize, stretch: Option<usize>) {
        if let Some(stretch) = stretch {
            self.lives_of[tensor.0].push(self.lives.len());
            self.lives.push(Life { tensor, from, reads: Vec::new(), stretch });
        }
    }

    /// The gaps at the peak with the lowest price, at most so many.
    fn cheapest_gaps(&self, count: usize) -> Vec<Gap> {
        let mut gaps: Vec<Gap> = self.lives.iter().filter_map(|life| self.gap(life)).collect();
        gaps.sort_by(|a, b| a.price.total_cmp(&b.price).then(a.tensor.cmp(&b.tensor)));
        gaps.truncate(count);
        gaps
    }

    /// The gap of a life around the peak, if it can be opened with a gain.
    fn gap(&self, life: &Life) -> Option<Gap> {
        let next = life.reads.partition_point(|read| *read <= self.peak);
        let before = *life.reads.get(next)?;
        let waits = life.from < self.peak && (next == 0 || life.reads[next - 1] < self.peak);
        let kept = self.graph.keep.contains(&life.tensor);
        if !waits || kept || before >= self.schedule.epilogue || self.crowd[life.stretch] != 1 {
            return None;
        }
        let gain = self.bytes(life.tensor);
        if gain == 0 {
            return None;
        }
        let last = if next == 0 { life.from } else { life.reads[next - 1] };
        if before - last < self.taste.shortest_gap {
            return None;
        }
        let ways = [self.computed_again(life, before, gain), self.copied_out(life, last + 1, before, gain)];
        ways.into_iter().flatten().min_by(|a, b| a.price.total_cmp(&b.price))
    }

    fn copied_out(&self, life: &Life, after: usize, before: usize, gain: u64) -> Option<Gap> {
        // Sums are added to while they wait, and inputs are fed again for less.
        let suits = match self.graph.tensors[life.tensor.0].kind {
            Kind::Activation | Kind::Flow => true,
            Kind::Input | Kind::Weight { .. } | Kind::Optimizer | Kind::Gradient | Kind::Statistic => false,
        };
        let room = self.problem.budget.host.0.checked_sub(gain)?;
        if !suits || self.host_profile[after - 1..before].iter().any(|held| room < *held) {
            return None;
        }
        let nanos = 2.0 * moved(self.problem, life.tensor, self.rows);
        let insertions = vec![(before, vec![Event::In(life.tensor)]), (after, vec![Event::Out(life.tensor)])];
        Some(Gap { insertions, nanos, price: nanos / gain as f64, tensor: life.tensor })
    }

    fn computed_again(&self, life: &Life, before: usize, gain: u64) -> Option<Gap> {
        let mut again = Again { state: self, before, gain, events: Vec::new(), nanos: 0.0, extra: 0 };
        again.compute(life.tensor, DEPTH)?;
        // What is computed on the way must not raise a peak of its own.
        if self.profile[self.peak] <= self.profile[before] + again.extra {
            return None;
        }
        let Again { events, nanos, .. } = again;
        let insertions = vec![(before, events)];
        Some(Gap { insertions, nanos, price: nanos / gain as f64, tensor: life.tensor })
    }

    /// The least time in which the peak can be brought down to `room`.
    fn least_nanos(&self, room: u64) -> f64 {
        let mut missing = self.profile[self.peak].saturating_sub(room) as f64;
        let mut waiting: Vec<(f64, f64)> =
            self.lives.iter().filter_map(|life| self.least_price(life)).collect();
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
    fn least_price(&self, life: &Life) -> Option<(f64, f64)> {
        let next = life.reads.partition_point(|read| *read <= self.peak);
        let waits = life.from < self.peak && (next == 0 || life.reads[next - 1] < self.peak);
        let bytes = self.bytes(life.tensor);
        if !waits || next == life.reads.len() || bytes == 0 {
            return None;
        }
        let again = match self.producers[life.tensor.0] {
            // One launch brings back everything its node writes.
            Some(node) => {
                self.problem.costs[node.0].nanos(self.rows) / self.graph.nodes[node.0].outputs.len() as f64
            }
            None if self.graph.tensors[life.tensor.0].kind == Kind::Input => {
                fed(self.problem, life.tensor, self.rows)
            }
            None => f64::INFINITY,
        };
        let out = 2.0 * moved(self.problem, life.tensor, self.rows);
        let least = if self.problem.budget.host.0 > 0 { again.min(out) } else { again };
        least.is_finite().then_some((least, bytes as f64))
    }

    fn bytes(&self, tensor: TensorId) -> u64 {
        tensor_bytes(self.graph, tensor, self.rows).align_up(ALIGNMENT).0
    }

    /// The life of a tensor that a reader at an event would meet.
    fn life_before(&self, tensor: TensorId, time: usize) -> Option<&Life> {
        let lives = &self.lives_of[tensor.0];
        let count = lives.partition_point(|life| self.lives[*life].from < time);
        count.checked_sub(1).map(|index| &self.lives[lives[index]])
    }
}

/// What has to run so that a value is there again.
struct Again<'a, 'b> {
    state: &'b State<'a>,
    before: usize,
    /// Bytes that the gap gives back at the peak.
    gain: u64,
    events: Vec<Event>,
    nanos: f64,
    /// Bytes of values that are computed on the way.
    extra: u64,
}

impl Again<'_, '_> {
    /// Adds what computes a tensor; none where it cannot be computed.
    fn compute(&mut self, tensor: TensorId, depth: usize) -> Option<()> {
        let state = self.state;
        if state.graph.tensors[tensor.0].kind == Kind::Input {
            self.nanos += fed(state.problem, tensor, state.rows);
            self.push(Event::Feed(tensor));
            return Some(());
        }
        let id = state.producers[tensor.0]?;
        let event = Event::Launch { node: id, fresh: false };
        if self.events.contains(&event) {
            return Some(());
        }
        let depth = depth.checked_sub(1)?;
        let node = &state.graph.nodes[id.0];
        let in_place = node.op.in_place();
        for (index, input) in node.inputs.iter().enumerate() {
            if state.graph.tensors[input.0].kind.is_persistent() {
                if state.updated[input.0] < self.before {
                    return None;
                }
            } else if !self.is_there(*input) {
                // The value takes the place of an input that is computed for it alone.
                if state.taste.careful || !in_place.contains(&(0, index)) {
                    self.extra += state.bytes(*input);
                }
                self.compute(*input, depth)?;
            }
        }
        self.nanos += state.problem.costs[id.0].nanos(state.rows);
        self.push(event);
        Some(())
    }

    fn push(&mut self, event: Event) {
        if !self.events.contains(&event) {
            self.events.push(event);
        }
    }

    /// Whether a value still lives at the gap's end, or can be made to without harm: it died behind the peak, and there
    /// is room until then.
    fn is_there(&self, tensor: TensorId) -> bool {
        let state = self.state;
        let Some(life) = state.life_before(tensor, self.before) else { return false };
        let end = life.reads.last().copied().unwrap_or(life.from);
        if self.before <= end {
            return true;
        }
        let room = state.profile[state.peak].saturating_sub(self.gain + state.bytes(tensor));
        state.peak < end && state.profile[end..self.before].iter().all(|live| *live <= room)
    }
}
