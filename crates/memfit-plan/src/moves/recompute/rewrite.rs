//! Rewriting: a schedule without the wait of some values from forward to backward, each brought back where it is read again.

use memfit_ir::{NodeId, TensorId};

use crate::figures::CostTables;
use crate::moves::recompute::segments::Segments;
use crate::schedule::{Event, Schedule};

/// The most levels of given-up values through which a value is computed.
const DEPTH: usize = 256;

/// The events of a schedule as they are rewritten.
pub struct Rewrite<'a> {
    figures: &'a CostTables<'a>,
    segments: &'a Segments,
    /// What does not wait.
    given_up: Vec<bool>,
    /// Of these, what was brought back and stands there.
    is_back: Vec<bool>,
    /// Segments whose values stay once they were brought back, also those that were only needed to compute
    /// the output.
    pub stays: Vec<bool>,
    /// What was brought back for the event that is written.
    on_the_way: Vec<TensorId>,
    /// What happens.
    pub events: Vec<Event>,
    /// Time of what was added.
    pub nanos: f64,
}

/// A whole schedule without the wait of some values; none where one cannot be brought back.
pub fn without_waits(
    figures: &CostTables,
    segments: &Segments,
    schedule: &Schedule,
    given_up: impl Iterator<Item = TensorId>,
    stays: Vec<bool>,
) -> Option<Schedule> {
    let mut rewrite = Rewrite { stays, ..Rewrite::new(figures, segments) };
    rewrite.give_up(given_up);
    let mut segment = segments.all.len();
    for (time, event) in schedule.events.iter().enumerate() {
        while 0 < segment && segments.all[segment - 1].backward.start <= time {
            segment -= 1;
        }
        rewrite.write(time, event, segment)?;
    }
    let added = rewrite.events.len() - schedule.events.len();
    Some(Schedule { events: rewrite.events, body: schedule.body, epilogue: schedule.epilogue + added })
}

impl<'a> Rewrite<'a> {
    /// Nothing written, nothing given up.
    pub fn new(figures: &'a CostTables<'a>, segments: &'a Segments) -> Rewrite<'a> {
        let tensors = figures.bytes.len();
        Rewrite {
            figures,
            segments,
            given_up: vec![false; tensors],
            is_back: vec![false; tensors],
            stays: vec![false; segments.all.len()],
            on_the_way: Vec::new(),
            events: Vec::new(),
            nanos: 0.0,
        }
    }

    /// These do not wait.
    pub fn give_up(&mut self, tensors: impl Iterator<Item = TensorId>) {
        tensors.for_each(|tensor| self.given_up[tensor.0] = true);
    }

    /// Forgets the written events and that these values were given up.
    pub fn clear(&mut self, tensors: impl Iterator<Item = TensorId>) {
        for tensor in tensors {
            self.given_up[tensor.0] = false;
            self.is_back[tensor.0] = false;
        }
        self.events.clear();
        self.nanos = 0.0;
    }

    /// One event of the schedule, and before it what brings back whatever it reads, for a segment that is at work.
    pub fn write(&mut self, time: usize, event: &Event, segment: usize) -> Option<()> {
        if let (true, Event::Launch { node, .. }) = (self.segments.turn <= time, event) {
            let wiring = &self.figures.wiring;
            for input in wiring.inputs(*node) {
                if self.given_up[input.0] && !self.is_back[input.0] {
                    self.bring(*input, time, DEPTH)?;
                }
            }
            self.settle(segment);
        }
        self.events.push(*event);
        Some(())
    }

    /// Brings a value back for a segment that is at work from an event on.
    pub fn bring_for(&mut self, tensor: TensorId, time: usize, segment: usize) -> Option<()> {
        self.bring(tensor, time, DEPTH)?;
        self.settle(segment);
        Some(())
    }

    /// What leads from segment to segment stays, and what the segment at work will read. What earlier ones own was only passed,
    /// unless they keep it.
    fn settle(&mut self, segment: usize) {
        for tensor in self.on_the_way.drain(..) {
            let owner = self.segments.owner[tensor.0];
            let stays =
                segment as u32 <= owner || self.segments.leads_on[tensor.0] || self.stays[owner as usize];
            self.is_back[tensor.0] = self.given_up[tensor.0] && stays;
        }
    }

    /// Whether a value was given up and stands there again.
    pub fn is_back(&self, tensor: TensorId) -> bool {
        self.is_back[tensor.0]
    }

    fn bring(&mut self, tensor: TensorId, time: usize, depth: usize) -> Option<()> {
        if self.figures.is_input(tensor) {
            self.add(Event::Feed(tensor));
            self.on_the_way.push(tensor);
            return Some(());
        }
        let node: NodeId = self.figures.producers[tensor.0]?;
        let depth = depth.checked_sub(1)?;
        let figures = self.figures;
        for input in figures.wiring.inputs(node) {
            if figures.persistent[input.0] {
                if self.segments.updated[input.0] < time {
                    return None;
                }
            } else if !self.is_there(*input, time) {
                self.bring(*input, time, depth)?;
            }
        }
        self.add(Event::Launch { node, fresh: false });
        self.on_the_way.extend(figures.wiring.outputs(node));
        Some(())
    }

    fn add(&mut self, event: Event) {
        self.nanos += self.figures.nanos_of(&event);
        self.events.push(event);
    }

    /// Whether a value stands there already: it was brought back before, or waits for another reader.
    fn is_there(&self, tensor: TensorId, time: usize) -> bool {
        let waits = time <= self.segments.last_read[tensor.0];
        self.on_the_way.contains(&tensor) || waits && (self.is_back[tensor.0] || !self.given_up[tensor.0])
    }
}
