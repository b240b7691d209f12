//! The oracle: the least time in which an order of events can run below a line of live bytes, found exactly.
//!
//! It shares no code with the planner. The events of a plan with nothing computed twice are given; between them, any node
//! that changes nothing in place may run again, any input may be fed again, and any value may be given up at any moment for
//! nothing. At an event are alive: what is kept, what the event reads, what it writes, and its scratch memory, each rounded up
//! to the arena's alignment. An output may stand where an input stood that is given up there, wherever the op allows it. A node
//! may not run again behind a change of what it reads.
//!
//! That is a shortest path: a place is how many of the given events are done and which values are alive, a step runs
//! something or gives a value up. What must run again at least, because somebody waits for it and it is gone, is
//! the distance that every path still has to go, and leads the search (A*).
//!
//! Left out: offsets (so an arena may need more), the second store, views, pieces, another order. All but the last two can only
//! make the oracle's answer smaller than what a planner can reach.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use memfit_ir::{ALIGNMENT, Bytes, Graph, Op, Place, Plan, Problem, Step, TensorId};

/// Times are counted in these, so that sums are exact.
const PER_NANO: f64 = 1000.0;

/// What the oracle says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// The least time that is spent on running things again, in seconds.
    Least(f64),
    /// No way of running things again stays below the line.
    Impossible,
    /// The search met more places than it may.
    TooLarge,
}

/// Values that are alive, a bit each.
type Values = u128;

/// A graph's order with all that is asked of it again and again.
pub struct Oracle {
    /// The given events in order.
    events: Vec<Run>,
    /// What may run again.
    again: Vec<Again>,
    /// Bytes of each value in the arena.
    bytes: Vec<u64>,
    /// Which of `again` brings each value back.
    producers: Vec<Option<usize>>,
    /// Behind so many events, values that are written and still have a reader among the given events.
    needed: Vec<Values>,
    /// The same, and values from which such a value may be computed again.
    useful: Vec<Values>,
    persistent: u64,
}

/// Something that runs.
#[derive(Clone)]
struct Run {
    reads: Values,
    writes: Values,
    /// Sums it adds to: alive already, or opened by it.
    adds: Values,
    workspace: u64,
    time: u64,
    /// Which written value may stand where which read one stood.
    in_place: Vec<(usize, usize)>,
}

/// Something that may run again.
struct Again {
    run: Run,
    /// Only when the given event of this number is done,
    behind: usize,
    /// and before this one is.
    until: usize,
}

impl Oracle {
    /// Reads the order off a plan in one piece with nothing computed twice.
    pub fn new(problem: &Problem, plan: &Plan) -> Oracle {
        assert!(plan.prologue.is_empty() && plan.epilogue.is_empty(), "the batch is in one piece");
        let graph = &problem.graph;
        let index = Index::new(graph, plan);
        let events: Vec<Run> = plan.body.iter().map(|step| index.run(problem, plan, step)).collect();
        let mut producers = vec![None; index.tensors.len()];
        let mut again = Vec::new();
        for (time, (step, run)) in plan.body.iter().zip(&events).enumerate() {
            let Some(until) = last_chance(graph, plan, time, step) else { continue };
            for value in bits(run.writes) {
                producers[value] = Some(again.len());
            }
            again.push(Again { run: run.clone(), behind: time, until });
        }
        let aligned = |id: &TensorId| {
            let tensor = &graph.tensors[id.0];
            tensor.shape.bytes(tensor.dtype, plan.micro_batch).align_up(ALIGNMENT).0
        };
        let persistent = (0..graph.tensors.len()).map(TensorId).filter(|id| is_persistent(graph, *id));
        let mut oracle = Oracle {
            bytes: index.tensors.iter().map(aligned).collect(),
            persistent: persistent.map(|id| aligned(&id)).sum(),
            needed: needed(&events, index.kept(graph)),
            useful: Vec::new(),
            events,
            again,
            producers,
        };
        oracle.useful = (0..oracle.needed.len()).map(|done| oracle.useful_behind(done)).collect();
        oracle
    }

    /// The least time that must be spent on running things again below a line, which is an arena's size in bytes.
    pub fn least(&self, line: Bytes, most_places: usize) -> Answer {
        let Some(room) = line.align_up(ALIGNMENT).0.checked_sub(self.persistent) else {
            return Answer::Impossible;
        };
        let mut search = Search { oracle: self, best: HashMap::new(), open: BinaryHeap::new() };
        search.reach(0, 0, 0);
        while let Some(Reverse((_, left, values, spent))) = search.open.pop() {
            let done = self.events.len() - left;
            if search.best.get(&(done, values)).is_some_and(|best| *best < spent) {
                continue;
            }
            if left == 0 {
                return Answer::Least(spent as f64 / PER_NANO / 1e9);
            }
            if most_places < search.best.len() {
                return Answer::TooLarge;
            }
            search.expand(done, values, spent, room);
        }
        Answer::Impossible
    }

    /// How many values there are.
    pub fn values(&self) -> usize {
        self.bytes.len()
    }

    fn bytes_of(&self, values: Values) -> u64 {
        bits(values).map(|value| self.bytes[value]).sum()
    }

    /// Time that any way from here still has to spend; none where there is no way.
    fn distance(&self, done: usize, values: Values) -> Option<u64> {
        let mut missing = self.needed[done] & !values;
        let (mut seen, mut time) = (0, 0);
        while missing != 0 {
            let value = missing.trailing_zeros() as usize;
            let again = &self.again[self.producers[value]?];
            if again.until < done {
                return None;
            }
            seen |= again.run.writes;
            time += again.run.time;
            missing = (missing | again.run.reads) & !values & !seen;
        }
        Some(time)
    }

    fn useful_behind(&self, done: usize) -> Values {
        let mut useful = self.needed[done];
        // Nodes read what stands before them, so one walk from the back meets every reader first.
        for again in self.again.iter().rev() {
            if again.behind < done && done <= again.until && again.run.writes & useful != 0 {
                useful |= again.run.reads;
            }
        }
        useful
    }
}

struct Search<'a> {
    oracle: &'a Oracle,
    /// The least time in which each place was reached.
    best: HashMap<(usize, Values), u64>,
    /// Places to go on from: by the time of the whole way, then by events left.
    open: BinaryHeap<Reverse<(u64, usize, Values, u64)>>,
}

impl Search<'_> {
    fn reach(&mut self, done: usize, values: Values, spent: u64) {
        let values = values & self.oracle.useful[done];
        let Some(distance) = self.oracle.distance(done, values) else { return };
        let best = self.best.entry((done, values)).or_insert(u64::MAX);
        if spent < *best {
            *best = spent;
            self.open.push(Reverse((spent + distance, self.oracle.events.len() - done, values, spent)));
        }
    }

    fn expand(&mut self, done: usize, values: Values, spent: u64, room: u64) {
        let oracle = self.oracle;
        let mut blocked = self.run(&oracle.events[done], done + 1, values, spent, room);
        for again in &oracle.again {
            let wanted = again.run.writes & oracle.useful[done] & !values != 0;
            if again.behind < done && done <= again.until && wanted {
                let spent = spent + again.run.time;
                // What it writes a second time need not have waited for it.
                blocked |= self.run(&again.run, done, values & !again.run.writes, spent, room);
            }
        }
        // Giving up can wait until there is somebody who wants the room.
        if blocked {
            for value in bits(values) {
                self.reach(done, values & !(1 << value), spent);
            }
        }
    }

    /// Runs something in all ways of giving up what it may stand on; whether one did not fit.
    fn run(&mut self, run: &Run, done: usize, values: Values, spent: u64, room: u64) -> bool {
        let oracle = self.oracle;
        if run.reads & !values != 0 {
            return false;
        }
        let written = run.writes | (run.adds & !values);
        let wanted = oracle.bytes_of(values) + oracle.bytes_of(written) + run.workspace;
        let useful = oracle.useful[done];
        let mut under: Vec<usize> = run.in_place.iter().map(|(_, input)| *input).collect();
        under.sort_unstable();
        under.dedup();
        let mut blocked = false;
        for choice in 0..1usize << under.len() {
            let chosen = under.iter().enumerate().filter(|(index, _)| choice >> index & 1 == 1);
            let given_up: Values = chosen.fold(0, |all, (_, value)| all | 1 << value);
            // What nobody wants any more is given up in any case.
            let given_up = given_up | under.iter().fold(0, |all, value| all | (1 << value & !useful));
            let stands: Values = run
                .in_place
                .iter()
                .filter(|(_, input)| given_up >> input & 1 == 1)
                .fold(0, |all, (output, _)| all | 1 << output);
            if wanted - oracle.bytes_of(stands) <= room {
                self.reach(done, (values & !given_up) | written, spent);
            } else {
                blocked = true;
            }
        }
        blocked
    }
}

/// Which bit each tensor is.
struct Index {
    tensors: Vec<TensorId>,
    bits: HashMap<TensorId, usize>,
}

impl Index {
    fn new(graph: &Graph, plan: &Plan) -> Index {
        let mut tensors: Vec<TensorId> = plan.body.iter().flat_map(|step| operands(graph, step)).collect();
        tensors.sort_unstable();
        tensors.dedup();
        tensors.retain(|id| !is_persistent(graph, *id));
        assert!(tensors.len() <= Values::BITS as usize, "{} values are too many", tensors.len());
        let bits = tensors.iter().enumerate().map(|(bit, id)| (*id, bit)).collect();
        Index { tensors, bits }
    }

    fn mask(&self, tensors: &[TensorId]) -> Values {
        tensors.iter().filter_map(|id| self.bits.get(id)).fold(0, |all, bit| all | 1 << bit)
    }

    fn kept(&self, graph: &Graph) -> Values {
        self.mask(&graph.keep)
    }

    fn run(&self, problem: &Problem, plan: &Plan, step: &Step) -> Run {
        let time = |nanos: f64| (nanos * PER_NANO).round() as u64;
        match step {
            Step::Launch { node: id, .. } => {
                let node = &problem.graph.nodes[id.0];
                assert!(!node.op.is_view(), "the oracle knows no views");
                let cost = &problem.costs[id.0];
                let bit = |id: &TensorId| self.bits.get(id).copied();
                let pairs = node.op.in_place();
                let size = |id: TensorId| {
                    let tensor = &problem.graph.tensors[id.0];
                    tensor.shape.bytes(tensor.dtype, plan.micro_batch)
                };
                // One tensor may be several inputs; the output must be allowed over all of them.
                let pair = |(output, input): (usize, usize)| {
                    let (to, from) = (node.outputs[output], node.inputs[input]);
                    let mut places = (0..node.inputs.len()).filter(|place| node.inputs[*place] == from);
                    let over_all = places.all(|place| pairs.contains(&(output, place)));
                    (over_all && size(to) == size(from)).then_some((bit(&to)?, bit(&from)?))
                };
                Run {
                    reads: self.mask(&node.inputs),
                    writes: self.mask(&node.outputs),
                    adds: self.mask(&node.updates),
                    workspace: cost.workspace(plan.micro_batch).align_up(ALIGNMENT).0,
                    time: time(cost.nanos(plan.micro_batch)),
                    in_place: pairs.iter().copied().filter_map(pair).collect(),
                }
            }
            Step::Copy { from, to } => {
                let (Place::Feed(tensor), Place::Arena(slot)) = (from, to) else {
                    panic!("a plan with nothing computed twice copies nothing but what is fed")
                };
                Run {
                    reads: 0,
                    writes: self.mask(&[*tensor]),
                    adds: 0,
                    workspace: 0,
                    time: time(slot.bytes.0 as f64 * problem.transfers.nanos_per_byte_fed),
                    in_place: Vec::new(),
                }
            }
            Step::Wait(_) => panic!("a plan that copies nothing out waits for nothing"),
        }
    }
}

/// How many events may be done at most when the event of a number runs again; none where it never may.
fn last_chance(graph: &Graph, plan: &Plan, time: usize, step: &Step) -> Option<usize> {
    let Step::Launch { node, .. } = step else { return Some(plan.body.len()) };
    let node = &graph.nodes[node.0];
    if !node.updates.is_empty() || node.op == Op::Zero {
        return None;
    }
    let changes = |step: &Step| match step {
        Step::Launch { node: other, .. } => {
            graph.nodes[other.0].updates.iter().any(|tensor| node.inputs.contains(tensor))
        }
        Step::Copy { .. } | Step::Wait(_) => false,
    };
    let change = plan.body[time + 1..].iter().position(changes);
    Some(change.map_or(plan.body.len(), |after| time + 1 + after))
}

/// Behind so many events, what is written and has a reader yet to come.
fn needed(events: &[Run], kept: Values) -> Vec<Values> {
    let mut read = vec![kept];
    for event in events.iter().rev() {
        read.push(read[read.len() - 1] | event.reads | event.adds);
    }
    read.reverse();
    let mut written = 0;
    for (done, event) in events.iter().enumerate() {
        read[done] &= written;
        written |= event.writes | event.adds;
    }
    read
}

fn operands(graph: &Graph, step: &Step) -> Vec<TensorId> {
    match step {
        Step::Launch { node, .. } => {
            let node = &graph.nodes[node.0];
            node.inputs.iter().chain(&node.outputs).chain(&node.updates).copied().collect()
        }
        Step::Copy { from: Place::Feed(tensor), .. } => vec![*tensor],
        Step::Copy { .. } | Step::Wait(_) => Vec::new(),
    }
}

fn is_persistent(graph: &Graph, id: TensorId) -> bool {
    graph.tensors[id.0].kind.is_persistent()
}

fn bits(mut values: Values) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (values != 0).then(|| {
            let value = values.trailing_zeros() as usize;
            values &= values - 1;
            value
        })
    })
}
