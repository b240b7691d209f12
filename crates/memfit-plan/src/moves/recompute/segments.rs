//! Segments: a network cut where one value alone leads on, and which of them are the same.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use memfit_ir::{Kind, TensorId};

use crate::figures::CostTables;
use crate::lives::{Life, Lives};
use crate::schedule::{Event, Schedule};
use crate::storage::Storage;

/// Values of less than this part of the largest beside them are not worth giving up, and do not keep a network from being cut.
const SMALL: u64 = 64;

/// No segment.
pub const NONE: u32 = u32::MAX;

/// A schedule, cut into segments.
pub struct Segments {
    /// In the order of forward.
    pub all: Vec<Segment>,
    /// The first event of backward.
    pub turn: usize,
    /// The segment that writes each tensor in forward, or none.
    pub owner: Vec<u32>,
    /// Whether each tensor leads from one segment to the next.
    pub leads_on: Vec<bool>,
    /// The last event that reads each tensor.
    pub last_read: Vec<usize>,
    /// The first event that updates each tensor.
    pub updated: Vec<usize>,
}

/// One segment.
pub struct Segment {
    /// Its events in forward.
    pub forward: Range<usize>,
    /// Its events in backward.
    pub backward: Range<usize>,
    /// The value that leads on; none from the last.
    pub output: Option<TensorId>,
    /// What waits for backward.
    pub waits: Vec<Waiting>,
    /// The first segment that is the same.
    pub same_as: usize,
}

/// Values in the same bytes that wait for backward.
pub struct Waiting {
    /// Which.
    pub tensors: Vec<TensorId>,
    /// Bytes of them all.
    pub bytes: u64,
}

impl Segments {
    /// Cuts a schedule with nothing computed twice; none where it has no backward.
    pub fn new(figures: &CostTables, schedule: &Schedule) -> Option<Segments> {
        let graph = figures.graph();
        let body = schedule.body..schedule.epilogue;
        let is_backward = |event: &Event| match event {
            Event::Launch { node, .. } => {
                let written = figures.wiring.outputs(*node).iter().chain(figures.wiring.updates(*node));
                written.into_iter().any(|tensor| match graph.tensors[tensor.0].kind {
                    Kind::Flow | Kind::Gradient => true,
                    Kind::Input
                    | Kind::Weight { .. }
                    | Kind::Optimizer
                    | Kind::Activation
                    | Kind::Statistic => false,
                })
            }
            Event::Feed(_) | Event::Out(_) | Event::In(_) => false,
        };
        let turn = body.clone().find(|time| is_backward(&schedule.events[*time]))?;
        let storage = Storage::new(figures, schedule);
        let lives = Lives::new(figures, schedule, &storage);
        let tensors = graph.tensors.len();
        let mut last_read = vec![0; tensors];
        for life in &lives.all {
            last_read[life.tensor.0] = lives.end(life);
        }
        let ends = cuts(figures, &lives, body.start..turn);
        let mut segments = Segments {
            all: Vec::new(),
            turn,
            owner: vec![NONE; tensors],
            leads_on: vec![false; tensors],
            last_read,
            updated: lives.updated.clone(),
        };
        let waits = waits(figures, &lives, turn, schedule.epilogue);
        let mut waits = waits.into_iter().peekable();
        let mut from = body.start;
        let mut held: Vec<Waiting> = Vec::new();
        for (end, output) in ends {
            while let Some((_, waiting)) = waits.next_if(|(written, _)| *written < end) {
                held.push(waiting);
            }
            // Where nothing waits there is nothing to choose.
            if output.is_some() && held.is_empty() {
                continue;
            }
            if let Some(output) = output {
                segments.leads_on[output.0] = true;
            }
            let index = segments.all.len();
            let waits = std::mem::take(&mut held);
            segments.all.push(Segment { forward: from..end, backward: 0..0, output, waits, same_as: index });
            from = end;
        }
        segments.find_owners(&lives);
        segments.find_backward(&lives, schedule.epilogue);
        segments.find_same(figures, schedule);
        Some(segments)
    }

    fn find_owners(&mut self, lives: &Lives) {
        let mut segment = 0;
        for life in lives.all.iter().take_while(|life| life.from < self.turn) {
            while self.all.get(segment).is_some_and(|held| held.forward.end <= life.from) {
                segment += 1;
            }
            if self.all.get(segment).is_some_and(|held| held.forward.contains(&life.from)) {
                self.owner[life.tensor.0] = segment as u32;
            }
        }
    }

    /// A segment's backward begins where something of its own is first read, and ends where the next one's does.
    fn find_backward(&mut self, lives: &Lives, end: usize) {
        let mut first = vec![usize::MAX; self.all.len()];
        for life in &lives.all {
            let owner = self.owner[life.tensor.0];
            if owner != NONE && !self.leads_on[life.tensor.0] {
                let reads = lives.reads(life);
                let read = reads.get(reads.partition_point(|read| *read < self.turn));
                first[owner as usize] = first[owner as usize].min(read.copied().unwrap_or(usize::MAX));
            }
        }
        // A segment without events of its own begins with the last to read its output.
        for (segment, first) in self.all.iter().zip(&mut first) {
            if *first == usize::MAX {
                *first = segment.output.map_or(end, |output| self.last_read[output.0]);
            }
        }
        let last = self.all.len() - 1;
        let mut begin = self.turn;
        for index in (0..=last).rev() {
            begin = if index == last { self.turn } else { first[index].min(end).max(begin) };
            self.all[index].backward.start = begin;
        }
        for index in 0..=last {
            self.all[index].backward.end = if index == 0 { end } else { self.all[index - 1].backward.start };
        }
    }

    /// Segments are the same if their events cost the same, on values of the same sizes and with the same
    /// wiring.
    fn find_same(&mut self, figures: &CostTables, schedule: &Schedule) {
        let mut seen: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
        for index in 0..self.all.len() {
            let described = self.describe(figures, schedule, index);
            self.all[index].same_as = *seen.entry(described).or_insert(index);
        }
    }

    fn describe(&self, figures: &CostTables, schedule: &Schedule, index: usize) -> Vec<u64> {
        let segment = &self.all[index];
        let mut names: BTreeMap<TensorId, u64> = BTreeMap::new();
        let mut words = vec![segment.forward.len() as u64, segment.backward.len() as u64];
        let mut tell = |words: &mut Vec<u64>, tensor: &TensorId| {
            let next = names.len() as u64;
            let name = *names.entry(*tensor).or_insert(next);
            words.push(name);
            if name == next {
                let last = self.last_read[tensor.0];
                let facts = [
                    figures.persistent[tensor.0],
                    figures.is_input(*tensor),
                    figures.producers[tensor.0].is_some(),
                    self.owner[tensor.0] == index as u32,
                    self.leads_on[tensor.0],
                    segment.output == Some(*tensor),
                    segment.backward.start <= last,
                    segment.backward.end <= last,
                ];
                words.push(
                    facts
                        .into_iter()
                        .fold(figures.aligned(*tensor), |word, fact| word << 1 | u64::from(fact)),
                );
            }
        };
        let events = [segment.forward.clone(), segment.backward.clone()];
        for event in events.into_iter().flat_map(|events| &schedule.events[events]) {
            match event {
                Event::Feed(tensor) | Event::In(tensor) | Event::Out(tensor) => {
                    words.push(u64::MAX);
                    tell(&mut words, tensor);
                }
                Event::Launch { node, .. } => {
                    words.extend([figures.nanos[node.0].to_bits(), figures.workspace[node.0].0]);
                    words.push(u64::from(figures.graph().nodes[node.0].op.is_view()));
                    let pairs = &figures.in_place[node.0];
                    words.extend(pairs.iter().map(|(output, input)| (*output as u64) << 32 | *input as u64));
                    let wiring = &figures.wiring;
                    for part in [wiring.inputs(*node), wiring.outputs(*node), wiring.updates(*node)] {
                        words.push(u64::MAX - part.len() as u64);
                        part.iter().for_each(|tensor| tell(&mut words, tensor));
                    }
                }
            }
        }
        words
    }
}

/// The ends of the segments that forward can be cut into, each with the one value that leads on; the last with none.
fn cuts(figures: &CostTables, lives: &Lives, forward: Range<usize>) -> Vec<(usize, Option<TensorId>)> {
    // Of each life that is read on in forward: its first and its last event there.
    let reach = |life: &Life| {
        let reads = lives.reads(life);
        let last = reads[..reads.partition_point(|read| *read < forward.end)].last()?;
        Some((life.from, *last))
    };
    let within = |life: &&Life| forward.contains(&life.from);
    let largest = lives.all.iter().filter(within).map(|life| figures.aligned(life.tensor)).max().unwrap_or(0);
    // How many large values lead over the end of each event, and the sum of their numbers: of one, its own.
    let mut count = vec![0i64; forward.len() + 1];
    let mut names = vec![0i64; forward.len() + 1];
    let large = |life: &&Life| largest <= figures.aligned(life.tensor) * SMALL;
    for life in lives.all.iter().filter(within).filter(large) {
        let Some((from, last)) = reach(life) else { continue };
        for (event, sign) in [(from, 1), (last, -1)] {
            count[event - forward.start] += sign;
            names[event - forward.start] += sign * life.tensor.0 as i64;
        }
    }
    let mut ends = Vec::new();
    let (mut over, mut name) = (0, 0);
    for event in 0..forward.len() {
        over += count[event];
        name += names[event];
        if over == 1 {
            ends.push((forward.start + event + 1, Some(TensorId(name as usize))));
        }
    }
    // The segment after the last cut ends with forward.
    ends.retain(|(end, _)| *end < forward.end);
    ends.push((forward.end, None));
    ends
}

/// What waits from forward to backward and may be given up, with the event that writes it, in the order of these.
fn waits(figures: &CostTables, lives: &Lives, turn: usize, epilogue: usize) -> Vec<(usize, Waiting)> {
    let keep = &figures.graph().keep;
    let mut waits: BTreeMap<(usize, usize), Waiting> = BTreeMap::new();
    let mut of_buffer: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let mut held: BTreeSet<usize> = BTreeSet::new();
    for life in lives.all.iter().take_while(|life| life.from < turn) {
        let read = lives.end(life);
        if read < turn {
            continue;
        }
        let key = *of_buffer.entry(life.stretch).or_insert((life.from, life.stretch));
        let bytes = figures.aligned(life.tensor);
        let waiting = waits.entry(key).or_insert(Waiting { tensors: Vec::new(), bytes });
        waiting.tensors.push(life.tensor);
        let comes_back = figures.is_input(life.tensor) || figures.producers[life.tensor.0].is_some();
        if !comes_back || epilogue <= read || keep.contains(&life.tensor) {
            held.insert(life.stretch);
        }
    }
    let largest = waits.values().map(|waiting| waiting.bytes).max().unwrap_or(0);
    waits.retain(|(_, buffer), waiting| !held.contains(buffer) && largest <= waiting.bytes * SMALL);
    waits.into_iter().map(|((from, _), waiting)| (from, waiting)).collect()
}
