//! The oracle: the exact least time in which an order of events can run within a budget of live bytes.
//!
//! It shares no code with the planner. The events of a plan with no recomputation are given. Between them,
//! any node that changes nothing in place may run again, any input may be fed again, and any value may be
//! discarded at any moment without cost. At an event, these are alive: what is kept, what the event reads,
//! what it writes, and its workspace, each rounded up to the arena's alignment. An output may take the place
//! of an input that is discarded there, if the op allows it. A node may not run again after a change of what
//! it reads.
//!
//! That is a shortest path. A state is the number of given events that are done and the set of live values;
//! an edge runs something or discards a value. The values that are needed and not alive must at least run
//! again. Their time is a lower bound of the remaining distance, and leads the search (A*).
//!
//! Left out: offsets (so an arena may need more), offload memory, views, micro-batches, another order. All
//! but the last two can only make the oracle's answer smaller than what a planner can reach.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use memfit_ir::{ALIGNMENT, Bytes, Graph, Op, Place, Plan, Problem, Step, TensorId};

/// Times are counted in these, so that sums are exact.
const PER_NANO: f64 = 1000.0;

/// What the oracle says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// The least time that is spent on recomputation, in seconds.
    Least(f64),
    /// No recomputation stays within the budget.
    Impossible,
    /// The search met more states than it may.
    TooLarge,
}

/// Values that are alive, a bit each.
type Values = u128;

/// A graph's order, with tables for what the search asks repeatedly.
pub struct Oracle {
    /// The given events in order.
    events: Vec<Run>,
    /// What may be recomputed.
    again: Vec<Again>,
    /// Bytes of each value in the arena.
    bytes: Vec<u64>,
    /// Which of `again` recomputes each value.
    producers: Vec<Option<usize>>,
    /// For each number of finished events, the values that are written and still have a reader among the
    /// given events.
    needed: Vec<Values>,
    /// The same, and values from which such a value may be recomputed.
    useful: Vec<Values>,
    persistent: u64,
}

/// Something that runs.
#[derive(Clone)]
struct Run {
    reads: Values,
    writes: Values,
    /// Sums it adds to: alive already, or first written by it.
    adds: Values,
    workspace: u64,
    time: u64,
    /// Which written value may take the place of which read one.
    in_place: Vec<(usize, usize)>,
}

/// Something that may be recomputed.
struct Again {
    run: Run,
    /// Only after the given event of this number is done,
    after: usize,
    /// and before this one is done.
    until: usize,
}

impl Oracle {
    /// Takes the order from a plan with one micro-batch and no recomputation.
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
            again.push(Again { run: run.clone(), after: time, until });
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

    /// The least time that must be spent on recomputation within a budget, which is an arena's size in bytes.
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

    /// Time that any path from here still has to spend; none where there is no path.
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
        // Nodes read the results of earlier nodes, so one walk in reverse meets every reader first.
        for again in self.again.iter().rev() {
            if again.after < done && done <= again.until && again.run.writes & useful != 0 {
                useful |= again.run.reads;
            }
        }
        useful
    }
}

struct Search<'a> {
    oracle: &'a Oracle,
    /// The least time in which each state was reached.
    best: HashMap<(usize, Values), u64>,
    /// States to go on from: by the time of the whole path, then by events left.
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
            if again.after < done && done <= again.until && wanted {
                let spent = spent + again.run.time;
                // The values that it writes a second time need not be alive before it.
                blocked |= self.run(&again.run, done, values & !again.run.writes, spent, room);
            }
        }
        // A value is discarded only when its room is needed.
        if blocked {
            for value in bits(values) {
                self.reach(done, values & !(1 << value), spent);
            }
        }
    }

    /// Runs something with every choice of discarded inputs whose place its outputs may take. Returns whether
    /// one choice did not fit.
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
            // What is no longer needed is discarded in any case.
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
                let pairs: Vec<(usize, usize)> = node.in_place().collect();
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

/// The most events that may be done when the event of this number is recomputed; none where it never may be.
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

/// For each number of finished events, the values that are written and have a later reader.
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
