//! Storage: which values share bytes, and how long each buffer lives.
//!
//! A tensor that is computed twice has two lives, and each life its own buffer.

use memfit_ir::{ALIGNMENT, Bytes, NodeId, TensorId};
use memfit_pack::Item;

use crate::figures::CostTables;
use crate::schedule::{Event, Schedule};

/// Buffers with their lives, before they have offsets.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The buffer of each operand of each event, in the order of the events; none for persistent tensors.
    operands: Vec<Within>,
    /// Where each event's operands begin, and the end of the last.
    first: Vec<u32>,
    /// The buffer each tensor stands in when the schedule ends.
    pub last: Vec<Within>,
    /// Buffers that live within a step: values first, then one workspace for each event that needs one.
    pub transient: Vec<Stretch>,
    /// The buffer of each event's workspace, as an index into `transient`.
    pub workspace: Vec<Within>,
    /// Buffers of offload memory, from the copy out to the copy in.
    pub host: Vec<Stretch>,
    /// The buffer of offload memory that each event copies to or from.
    pub host_of: Vec<Within>,
}

/// The buffer that something stands in, if in any; in four bytes, since there are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within(u32);

impl Within {
    const NONE: Within = Within(u32::MAX);

    fn stretch(index: usize) -> Within {
        Within(index as u32)
    }

    /// The index of the buffer.
    pub fn index(self) -> Option<usize> {
        (self != Within::NONE).then_some(self.0 as usize)
    }
}

/// One buffer; alive in the half-open range of events `lower..upper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// First event.
    pub lower: usize,
    /// One past the last event.
    pub upper: usize,
    /// Size, before alignment.
    pub bytes: Bytes,
}

impl Storage {
    /// Decides which values share bytes in a schedule.
    pub fn new(figures: &CostTables, schedule: &Schedule) -> Storage {
        let tensors = figures.bytes.len();
        let first = first_operands(figures, schedule);
        let (ends, untouched) = ends_of_lives(figures, schedule, &first);
        let (host, host_of) = host_stretches(figures, schedule);
        let mut builder = Builder {
            figures,
            ends,
            untouched,
            now: vec![Within::NONE; tensors],
            operands: Vec::with_capacity(first.last().map_or(0, |end| *end as usize)),
            values: Vec::with_capacity(schedule.events.len()),
        };
        for (time, event) in schedule.events.iter().enumerate() {
            builder.event(time, event);
        }
        let Builder { now: last, values: transient, operands, .. } = builder;
        let workspace = vec![Within::NONE; schedule.events.len()];
        let mut storage = Storage { operands, first, last, transient, workspace, host, host_of };
        storage.add_workspaces(figures, schedule);
        storage
    }

    /// The buffer of each operand of an event (inputs, outputs, updates); none for persistent tensors.
    pub fn operands(&self, time: usize) -> &[Within] {
        &self.operands[self.first[time] as usize..self.first[time + 1] as usize]
    }

    /// The transient buffers, as the packer knows them.
    pub fn items(&self) -> Vec<Item> {
        self.transient
            .iter()
            .map(|buffer| {
                Item::new(buffer.lower, buffer.upper, buffer.bytes.align_up(ALIGNMENT).0).aligned(ALIGNMENT)
            })
            .collect()
    }

    /// Live bytes at each event, persistent tensors left out.
    pub fn profile(&self) -> Vec<u64> {
        profile(&self.transient, self.workspace.len())
    }

    /// Most live bytes, persistent tensors left out: no packing can be lower.
    pub fn live(&self) -> u64 {
        self.profile().into_iter().max().unwrap_or(0)
    }

    /// Bytes in offload memory at each event.
    pub fn host_profile(&self) -> Vec<u64> {
        profile(&self.host, self.workspace.len())
    }

    fn add_workspaces(&mut self, figures: &CostTables, schedule: &Schedule) {
        for (time, event) in schedule.events.iter().enumerate() {
            let Event::Launch { node, .. } = event else { continue };
            self.set_workspace(time, figures.workspace[node.0]);
        }
    }

    /// Sets the size of an event's workspace, which must not shrink.
    pub fn set_workspace(&mut self, time: usize, bytes: Bytes) {
        match self.workspace[time].index() {
            Some(buffer) => self.transient[buffer].bytes = bytes,
            None if bytes == Bytes::ZERO => {}
            None => {
                self.workspace[time] = Within::stretch(self.transient.len());
                self.transient.push(Stretch { lower: time, upper: time + 1, bytes });
            }
        }
    }
}

fn profile(buffers: &[Stretch], events: usize) -> Vec<u64> {
    if buffers.is_empty() {
        return vec![0; events];
    }
    let mut changes = vec![0i64; events + 2];
    for buffer in buffers {
        let bytes = buffer.bytes.align_up(ALIGNMENT).0 as i64;
        changes[buffer.lower] += bytes;
        changes[buffer.upper.min(events + 1)] -= bytes;
    }
    let mut live = 0;
    changes[..events]
        .iter()
        .map(|change| {
            live += change;
            live as u64
        })
        .collect()
}

/// Where each event's operands begin, and the end of the last.
fn first_operands(figures: &CostTables, schedule: &Schedule) -> Vec<u32> {
    let mut first = Vec::with_capacity(schedule.events.len() + 1);
    let mut next = 0;
    for event in &schedule.events {
        first.push(next);
        next += match event {
            Event::Feed(_) | Event::In(_) | Event::Out(_) => 1,
            Event::Launch { node, .. } => figures.wiring.count(*node) as u32,
        };
    }
    first.push(next);
    first
}

struct Builder<'a> {
    figures: &'a CostTables<'a>,
    /// For each operand that begins a life, one past that life's last event.
    ends: Vec<u32>,
    /// The same for each tensor whose first life no event begins: sums that are opened by what adds to them.
    untouched: Vec<u32>,
    /// The buffer each tensor stands in.
    now: Vec<Within>,
    operands: Vec<Within>,
    values: Vec<Stretch>,
}

impl Builder<'_> {
    fn event(&mut self, time: usize, event: &Event) {
        match event {
            Event::Feed(tensor) | Event::In(tensor) => {
                let end = self.ends[self.operands.len()];
                self.begin(time, end, *tensor, None);
                self.operands.push(self.now[tensor.0]);
            }
            Event::Out(tensor) => self.operands.push(self.now[tensor.0]),
            Event::Launch { node, .. } => {
                let wiring = &self.figures.wiring;
                let first = self.operands.len();
                for input in wiring.inputs(*node) {
                    self.operands.push(self.now[input.0]);
                }
                for (index, output) in wiring.outputs(*node).iter().enumerate() {
                    let shared = self.shared_input(time, *node, first, index);
                    let end = self.ends[self.operands.len()];
                    self.begin(time, end, *output, shared);
                    self.operands.push(self.now[output.0]);
                }
                // A launch that overwrites is the first to touch the tensors that it updates.
                for tensor in wiring.updates(*node) {
                    if self.now[tensor.0] == Within::NONE {
                        self.begin(time, self.untouched[tensor.0], *tensor, None);
                    }
                    self.operands.push(self.now[tensor.0]);
                }
            }
        }
    }

    /// The buffer of an input that an output may take over: any input's for a view, a dying one's otherwise.
    fn shared_input(&self, time: usize, node: NodeId, first: usize, output: usize) -> Option<usize> {
        let pairs = &self.figures.in_place[node.0];
        if pairs.is_empty() {
            return None;
        }
        let bytes = |id: TensorId| self.figures.bytes[id.0];
        let (inputs, outputs) = (self.figures.wiring.inputs(node), self.figures.wiring.outputs(node));
        let reads = &self.operands[first..first + inputs.len()];
        pairs.iter().filter(|(out, _)| *out == output).find_map(|(_, input)| {
            let within = reads[*input];
            let buffer = within.index()?;
            // One tensor may be several inputs, of which this output may replace some and not others.
            let mut readers = (0..reads.len()).filter(|index| reads[*index] == within);
            let taken = outputs[..output].iter().any(|id| self.now[id.0] == within);
            if taken || readers.any(|index| !pairs.contains(&(output, index))) {
                return None;
            }
            let dies = self.values[buffer].upper == time + 1;
            let same_size = bytes(inputs[*input]) == bytes(outputs[output]);
            let is_view = || self.figures.graph().nodes[node.0].op.is_view();
            (same_size && (dies || is_view())).then_some(buffer)
        })
    }

    /// A life begins: in a buffer that exists, or in a new one.
    fn begin(&mut self, time: usize, end: u32, tensor: TensorId, shared: Option<usize>) {
        if self.figures.persistent[tensor.0] {
            return;
        }
        let end = (end as usize).max(time + 1);
        let buffer = shared.unwrap_or_else(|| {
            self.values.push(Stretch { lower: time, upper: end, bytes: self.figures.bytes[tensor.0] });
            self.values.len() - 1
        });
        self.values[buffer].upper = self.values[buffer].upper.max(end);
        self.now[tensor.0] = Within::stretch(buffer);
    }
}

/// What is copied out lives in offload memory until it is copied in.
fn host_stretches(figures: &CostTables, schedule: &Schedule) -> (Vec<Stretch>, Vec<Within>) {
    let mut buffers: Vec<Stretch> = Vec::new();
    if figures.problem.budget.host == Bytes::ZERO {
        return (buffers, Vec::new());
    }
    let mut out = vec![Within::NONE; figures.bytes.len()];
    let of = schedule.events.iter().enumerate().map(|(time, event)| match event {
        Event::Out(tensor) => {
            out[tensor.0] = Within::stretch(buffers.len());
            buffers.push(Stretch { lower: time, upper: time + 1, bytes: figures.bytes[tensor.0] });
            out[tensor.0]
        }
        Event::In(tensor) => {
            if let Some(buffer) = out[tensor.0].index() {
                buffers[buffer].upper = time + 1;
            }
            out[tensor.0]
        }
        Event::Feed(_) | Event::Launch { .. } => Within::NONE,
    });
    let of = of.collect();
    (buffers, of)
}

/// One past the last event of each life, at the operand that begins it, and of the life of each tensor that none begins.
///
/// Read from the back: the first reader that is met is the last of its life.
fn ends_of_lives(figures: &CostTables, schedule: &Schedule, first: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let graph = figures.graph();
    let mut ends = vec![0; first.last().map_or(0, |end| *end as usize)];
    let mut end = vec![0; graph.tensors.len()];
    // One past the end, so that not even the last event may overwrite them.
    for tensor in &graph.keep {
        end[tensor.0] = schedule.events.len() as u32 + 1;
    }
    for (time, event) in schedule.events.iter().enumerate().rev() {
        let (begin, after) = (first[time] as usize, time as u32 + 1);
        match event {
            Event::Feed(tensor) | Event::In(tensor) => ends[begin] = std::mem::take(&mut end[tensor.0]),
            Event::Out(tensor) => end[tensor.0] = end[tensor.0].max(after),
            Event::Launch { node, .. } => {
                let inputs = figures.wiring.inputs(*node);
                for (index, tensor) in figures.wiring.outputs(*node).iter().enumerate() {
                    ends[begin + inputs.len() + index] = std::mem::take(&mut end[tensor.0]);
                }
                for tensor in inputs.iter().chain(figures.wiring.updates(*node)) {
                    end[tensor.0] = end[tensor.0].max(after);
                }
            }
        }
    }
    (ends, end)
}
