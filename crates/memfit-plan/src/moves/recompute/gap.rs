//! Gaps: where a value waits at the peak, what brings it back if it is given up there, and what that costs.

use std::cell::OnceCell;

use memfit_ir::{ALIGNMENT, Kind, TensorId};

use crate::figures::CostTables;
use crate::lives::{Life, Lives};
use crate::schedule::{Event, Schedule};
use crate::storage::Storage;

/// The most levels of given-up values through which a value may be computed.
const DEPTH: usize = 12;

/// Moments of a range that are considered.
const MOMENTS: usize = 512;

/// What a search may do. No heuristic is best for every network, so several are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristic {
    /// A gap of fewer events is left alone: two values that one reader needs would else be given up
    /// alternately.
    pub shortest_gap: usize,
    /// Count every value that is computed on the path as if it lived as long as the value that needs it.
    pub careful: bool,
    /// Begin at each upward level with the result of the chain of blocks, where that is faster than the
    /// result from below.
    pub chained: bool,
}

/// A gap that can be opened.
pub struct Gap {
    /// Events to insert, each list before the event of this index.
    pub insertions: Vec<(usize, Vec<Event>)>,
    /// Whose.
    pub tensor: TensorId,
    /// Time that the events take.
    pub nanos: f64,
    /// Time for what the gap gives.
    price: f64,
}

/// A schedule with everything that must be known to find its cheapest gap.
pub struct State<'a> {
    figures: &'a CostTables<'a>,
    schedule: &'a Schedule,
    heuristic: Heuristic,
    /// Live bytes at each event.
    pub profile: Vec<u64>,
    host_profile: Vec<u64>,
    /// The last of the highest moments.
    pub peak: usize,
    /// Lives of the schedule.
    pub lives: Lives,
    /// Lives in each buffer at the peak.
    crowd: Vec<u32>,
    /// Bytes of the buffers that begin at each event.
    begun: Vec<u64>,
    /// The last event that begins a life in each buffer.
    youngest: Vec<usize>,
    /// Built when it is first asked.
    highest: OnceCell<Highest>,
}

/// The highest point of any range of a profile, by two lookups.
pub struct Highest {
    /// Row `k` holds the highest of the `2^k` moments from each on.
    rows: Vec<Vec<u64>>,
}

impl Highest {
    fn new(profile: &[u64]) -> Highest {
        let mut rows = vec![profile.to_vec()];
        let mut wide = 1;
        while 2 * wide <= profile.len() {
            let last = &rows[rows.len() - 1];
            rows.push((0..=profile.len() - 2 * wide).map(|at| last[at].max(last[at + wide])).collect());
            wide *= 2;
        }
        Highest { rows }
    }

    /// The highest point of a range; 0 where it has no moments.
    pub fn in_range(&self, range: std::ops::Range<usize>) -> u64 {
        let Some(power) = range.len().checked_ilog2() else { return 0 };
        let row = &self.rows[power as usize];
        row[range.start].max(row[range.end - (1 << power)])
    }
}

impl<'a> State<'a> {
    /// Looks at a schedule.
    pub fn new(figures: &'a CostTables<'a>, schedule: &'a Schedule, heuristic: Heuristic) -> State<'a> {
        let storage = Storage::new(figures, schedule);
        let profile = storage.profile();
        let body = schedule.body..schedule.epilogue;
        let peak = body.rev().max_by_key(|time| profile[*time]).unwrap_or(0);
        let lives = Lives::new(figures, schedule, &storage);
        let mut crowd = vec![0; storage.transient.len()];
        let mut youngest = vec![0; storage.transient.len()];
        for life in &lives.all {
            youngest[life.stretch] = life.from;
            if life.from <= peak && lives.reads(life).last().is_some_and(|last| peak <= *last) {
                crowd[life.stretch] += 1;
            }
        }
        let mut begun = vec![0; schedule.events.len()];
        for buffer in &storage.transient {
            begun[buffer.lower] += buffer.bytes.align_up(ALIGNMENT).0;
        }
        let host_profile = storage.host_profile();
        State {
            figures,
            schedule,
            heuristic,
            profile,
            host_profile,
            peak,
            lives,
            crowd,
            begun,
            youngest,
            highest: OnceCell::new(),
        }
    }

    /// The highest point of any range of the profile.
    pub fn highest(&self) -> &Highest {
        self.highest.get_or_init(|| Highest::new(&self.profile))
    }

    /// Whether another value is written where a life stood.
    pub fn has_heir(&self, life: &Life) -> bool {
        self.lives.end(life) <= self.youngest[life.stretch] && life.from < self.youngest[life.stretch]
    }

    /// Live bytes at the peak.
    pub fn live(&self) -> u64 {
        self.profile.get(self.peak).copied().unwrap_or(0)
    }

    /// The cheapest gaps at the peak, at most `count`. Left out are gaps of `spared` tensors, and gaps that
    /// bring a value back from another's value that is given up: both would gain nothing.
    pub fn cheapest_gaps(&self, target: u64, count: usize, spared: &[TensorId]) -> Vec<Gap> {
        let above = Above { profile: &self.profile, target };
        let order = |a: &Gap, b: &Gap| a.price.total_cmp(&b.price).then(a.tensor.cmp(&b.tensor));
        let lives = self.lives.all.iter().filter(|life| !spared.contains(&life.tensor));
        if count == 1 {
            let mut best: Option<Gap> = None;
            for life in lives {
                let most = best.as_ref().map_or(f64::INFINITY, |best| best.price);
                let gap = self.gap(life, &above, most);
                best = best.into_iter().chain(gap).min_by(order);
            }
            return best.into_iter().collect();
        }
        let mut gaps: Vec<Gap> = lives.filter_map(|life| self.gap(life, &above, f64::INFINITY)).collect();
        gaps.sort_by(order);
        let tensors = self.figures.bytes.len();
        let (mut read, mut given_up) = (vec![false; tensors], vec![false; tensors]);
        gaps.retain(|gap| {
            let reads = || {
                let events = gap.insertions.iter().flat_map(|(_, events)| events);
                events.flat_map(|event| self.inputs(event))
            };
            let apart = !read[gap.tensor.0] && !reads().any(|input| given_up[input.0]);
            if apart {
                given_up[gap.tensor.0] = true;
                reads().for_each(|input| read[input.0] = true);
            }
            apart
        });
        gaps.truncate(count);
        gaps
    }

    fn inputs(&self, event: &Event) -> &[TensorId] {
        match event {
            Event::Launch { node, .. } => &self.figures.graph().nodes[node.0].inputs,
            Event::Feed(_) | Event::Out(_) | Event::In(_) => &[],
        }
    }

    /// The readers of a life around the peak: the event after which it waits, and the event for which.
    pub fn wait(&self, life: &Life) -> Option<(usize, usize)> {
        let reads = self.lives.reads(life);
        let next = reads.partition_point(|read| *read <= self.peak);
        let before = *reads.get(next)?;
        let last = if next == 0 { life.from } else { reads[next - 1] };
        (last < self.peak).then_some((last, before))
    }

    /// The gap of a life around the peak, if it can be opened with a gain at no more than a price.
    fn gap(&self, life: &Life, above: &Above, most: f64) -> Option<Gap> {
        if self.peak <= life.from {
            return None;
        }
        let figures = self.figures;
        let (last, before) = self.wait(life)?;
        let gain = figures.aligned(life.tensor);
        // What is fed again takes nothing else's place.
        let shortest_gap = if figures.is_input(life.tensor) { 2 } else { self.heuristic.shortest_gap };
        if gain == 0
            || self.schedule.epilogue <= before
            || self.crowd[life.stretch] != 1
            || before - last < shortest_gap
            || figures.graph().keep.contains(&life.tensor)
        {
            return None;
        }
        let wait = Wait { last, before, gain };
        // A cheap look at what it costs at least: mostly that is too much already.
        let least = figures.least_nanos(life.tensor);
        if most < least / (gain as f64 * (before - last) as f64) {
            return None;
        }
        let worth = above.worth(last + 1..before, gain);
        if worth == 0.0 || most < least / worth {
            return None;
        }
        let ways = [
            self.computed_again(life.tensor, wait, worth, above.target, most * worth),
            self.copied_out(life.tensor, wait, worth),
        ];
        ways.into_iter().flatten().min_by(|a, b| a.price.total_cmp(&b.price))
    }

    fn copied_out(&self, tensor: TensorId, Wait { last, before, gain }: Wait, worth: f64) -> Option<Gap> {
        // Sums are added to while they wait, inputs are fed again for less, and slices are put into a region's boundary.
        let is_boundary = self.figures.graph().region().is_some_and(|region| region.boundary == tensor);
        let suits = match self.figures.graph().tensors[tensor.0].kind {
            Kind::Activation | Kind::Flow => !is_boundary,
            Kind::Input | Kind::Weight { .. } | Kind::Optimizer | Kind::Gradient | Kind::Statistic => false,
        };
        let room = self.figures.problem.budget.host.0.checked_sub(gain)?;
        if !suits || self.host_profile[last..before].iter().any(|held| room < *held) {
            return None;
        }
        let nanos = 2.0 * self.figures.moved(tensor);
        let insertions = vec![(before, vec![Event::In(tensor)]), (last + 1, vec![Event::Out(tensor)])];
        Some(Gap { insertions, nanos, price: nanos / worth, tensor })
    }

    fn computed_again(
        &self,
        tensor: TensorId,
        Wait { before, gain, .. }: Wait,
        worth: f64,
        target: u64,
        most_nanos: f64,
    ) -> Option<Gap> {
        let mut again =
            Again { state: self, before, gain, most_nanos, events: Vec::new(), nanos: 0.0, extra: 0 };
        again.compute(tensor, DEPTH)?;
        // Values that are computed on the path must not raise a peak of their own.
        let on_the_way = if self.heuristic.careful {
            self.profile[before] + again.extra
        } else {
            (self.profile[before] - self.begun[before]).saturating_sub(gain) + again.highest(tensor)
        };
        if self.live() <= on_the_way.max(self.profile[before]) {
            return None;
        }
        let Again { events, nanos, .. } = again;
        // On the path, live bytes may exceed the target itself.
        let risen = on_the_way.saturating_sub(target.max(self.profile[before]));
        let worth = (worth - risen as f64 * events.len() as f64).max(gain as f64 * 0.01);
        Some(Gap { insertions: vec![(before, events)], nanos, price: nanos / worth, tensor })
    }
}

/// Where a value waits: after an event, for another, with its bytes.
#[derive(Clone, Copy)]
struct Wait {
    last: usize,
    before: usize,
    gain: u64,
}

/// How far a schedule stands above a target.
struct Above<'a> {
    profile: &'a [u64],
    target: u64,
}

impl Above<'_> {
    /// The worth of `gain` fewer bytes over a range of events: at each moment, no more than the excess there.
    fn worth(&self, events: std::ops::Range<usize>, gain: u64) -> f64 {
        let step = (events.len() / MOMENTS).max(1);
        let above = |live: &u64| live.saturating_sub(self.target).min(gain);
        let moments = self.profile[events].iter();
        // Said apart, since looking at every moment is what is done most and vectors do it.
        let sum: u64 =
            if step == 1 { moments.map(above).sum() } else { moments.step_by(step).map(above).sum() };
        sum as f64 * step as f64
    }
}

/// What has to run so that a value is there again.
struct Again<'a, 'b> {
    state: &'b State<'a>,
    before: usize,
    /// Bytes that the gap gives back at the peak.
    gain: u64,
    /// Beyond this time the gap is too expensive.
    most_nanos: f64,
    events: Vec<Event>,
    nanos: f64,
    /// Bytes of values that are computed on the path.
    extra: u64,
}

impl Again<'_, '_> {
    /// Adds what computes a tensor; none where it cannot be computed.
    fn compute(&mut self, tensor: TensorId, depth: usize) -> Option<()> {
        let figures = self.state.figures;
        if figures.is_input(tensor) {
            self.push(Event::Feed(tensor));
            return Some(());
        }
        let id = figures.producers[tensor.0]?;
        let event = Event::Launch { node: id, fresh: false };
        if self.events.contains(&event) {
            return Some(());
        }
        let depth = depth.checked_sub(1)?;
        if self.most_nanos < self.nanos {
            return None;
        }
        let in_place = &figures.in_place[id.0];
        for (index, input) in figures.graph().nodes[id.0].inputs.iter().enumerate() {
            if figures.persistent[input.0] {
                if self.state.lives.updated[input.0] < self.before {
                    return None;
                }
            } else if !self.is_there(*input) {
                // The value takes the place of an input that is computed for it alone; what several read is there once.
                let beside = self.state.heuristic.careful || !in_place.contains(&(0, index));
                if beside && !self.is_computed(*input) {
                    self.extra += figures.aligned(*input);
                }
                self.compute(*input, depth)?;
            }
        }
        self.push(event);
        Some(())
    }

    /// Most bytes of the values computed on the path to a value, each for as long as another value on the
    /// path reads it.
    fn highest(&self, tensor: TensorId) -> u64 {
        let figures = self.state.figures;
        let nodes = &figures.graph().nodes;
        // What is alive on the path: bytes, and the last event that reads it.
        let mut alive: Vec<(TensorId, u64, usize)> = Vec::new();
        let mut highest = 0;
        for (time, event) in self.events.iter().enumerate() {
            let end = |written: TensorId| {
                let readers = self.events.iter().enumerate().rev();
                let last = readers.take_while(|(other, _)| time < *other).find(|(_, other)| match other {
                    Event::Launch { node, .. } => nodes[node.0].inputs.contains(&written),
                    Event::Feed(_) | Event::Out(_) | Event::In(_) => false,
                });
                if written == tensor { usize::MAX } else { last.map_or(time, |(last, _)| last) }
            };
            match event {
                Event::Feed(fed) | Event::In(fed) | Event::Out(fed) => {
                    alive.push((*fed, figures.aligned(*fed), end(*fed)));
                    highest = highest.max(alive.iter().map(|(_, bytes, _)| bytes).sum());
                }
                Event::Launch { node: id, .. } => {
                    let node = &nodes[id.0];
                    let mut bytes = figures.workspace[id.0].align_up(ALIGNMENT).0;
                    bytes += alive.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
                    for (index, output) in node.outputs.iter().enumerate() {
                        let dies = |(_, input): &&(usize, usize)| {
                            alive.contains(&(node.inputs[*input], figures.aligned(*output), time))
                        };
                        let mut pairs =
                            figures.in_place[id.0].iter().filter(|(written, _)| *written == index);
                        if !pairs.any(|pair| dies(&pair)) {
                            bytes += figures.aligned(*output);
                        }
                    }
                    highest = highest.max(bytes);
                    alive.extend(node.outputs.iter().map(|out| (*out, figures.aligned(*out), end(*out))));
                }
            }
            alive.retain(|(_, _, last)| time < *last);
        }
        highest
    }

    /// Whether a value is computed on the path already.
    fn is_computed(&self, tensor: TensorId) -> bool {
        self.events.iter().any(|event| match event {
            Event::Feed(fed) => *fed == tensor,
            Event::Launch { node, .. } => self.state.figures.producers[tensor.0] == Some(*node),
            Event::Out(_) | Event::In(_) => false,
        })
    }

    fn push(&mut self, event: Event) {
        if !self.events.contains(&event) {
            self.nanos += self.state.figures.nanos_of(&event);
            self.events.push(event);
        }
    }

    /// Whether a value still lives at the gap's end, or can be kept until then without harm: it died after
    /// the peak, and there is room until then.
    fn is_there(&self, tensor: TensorId) -> bool {
        let state = self.state;
        let Some(life) = state.lives.before(tensor, self.before) else { return false };
        let end = state.lives.end(life);
        if self.before <= end {
            return true;
        }
        let room = state.live().saturating_sub(self.gain + state.figures.aligned(tensor));
        state.peak < end && state.highest().in_range(end..self.before) <= room
    }
}
