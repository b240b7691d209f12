//! Storage: which values share bytes, and how long each stretch of bytes lives.
//!
//! A tensor that is computed twice has two lives, and each life its own stretch.

use memfit_ir::{ALIGNMENT, Bytes, Graph, Node, Problem, TensorId};
use memfit_pack::Item;

use crate::schedule::{Event, Schedule};

/// Stretches of bytes with their lives, before they have offsets.
#[derive(Clone, Debug)]
pub struct Storage {
    /// For each event, the stretch of each operand (inputs, outputs, updates); none for persistent tensors.
    pub operands: Vec<Vec<Option<usize>>>,
    /// The stretch each tensor stands in when the schedule ends.
    pub last: Vec<Option<usize>>,
    /// Stretches that live within a step: values first, then one workspace for each event that wants one.
    pub transient: Vec<Stretch>,
    /// The stretch of each event's workspace, as an index into `transient`.
    pub workspace: Vec<Option<usize>>,
    /// Bytes of what lives from step to step, each tensor aligned.
    pub persistent_bytes: Bytes,
    /// Stretches of the second store, from the copy out to the copy in.
    pub host: Vec<Stretch>,
    /// The stretch of the second store that each event copies to or from.
    pub host_of: Vec<Option<usize>>,
}

/// One stretch of bytes; alive in the half-open stretch of events `lower..upper`.
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
    /// Decides who shares bytes with whom in a schedule over pieces of `rows`.
    pub fn new(problem: &Problem, schedule: &Schedule, rows: usize) -> Storage {
        let graph = &problem.graph;
        let mut builder = Builder {
            graph,
            rows,
            ends: ends_of_lives(graph, schedule),
            lives: vec![0; graph.tensors.len()],
            now: vec![None; graph.tensors.len()],
            values: vec![],
        };
        let (host, host_of) = host_stretches(graph, schedule, rows);
        let operands =
            schedule.events.iter().enumerate().map(|(time, event)| builder.event(time, event)).collect();
        let persistent_bytes =
            persistent_tensors(graph).map(|id| tensor_bytes(graph, id, rows).align_up(ALIGNMENT)).sum();
        let Builder { now: last, values: transient, .. } = builder;
        let workspace = vec![None; schedule.events.len()];
        let mut storage = Storage { operands, last, transient, workspace, persistent_bytes, host, host_of };
        storage.add_workspaces(problem, schedule, rows);
        storage
    }

    /// No packing can be lower than this.
    pub fn bound(&self) -> Bytes {
        self.persistent_bytes + Bytes(memfit_pack::bound(&self.items()))
    }

    /// The transient stretches, as the packer knows them.
    pub fn items(&self) -> Vec<Item> {
        self.transient
            .iter()
            .map(|stretch| {
                Item::new(stretch.lower, stretch.upper, stretch.bytes.align_up(ALIGNMENT).0)
                    .aligned(ALIGNMENT)
            })
            .collect()
    }

    /// Live bytes at each event, persistent tensors left out.
    pub fn profile(&self, events: usize) -> Vec<u64> {
        profile(&self.transient, events)
    }

    /// Bytes in the second store at each event.
    pub fn host_profile(&self, events: usize) -> Vec<u64> {
        profile(&self.host, events)
    }

    fn add_workspaces(&mut self, problem: &Problem, schedule: &Schedule, rows: usize) {
        for (time, event) in schedule.events.iter().enumerate() {
            let Event::Launch { node, .. } = event else { continue };
            let bytes = problem.costs[node.0].workspace(rows);
            if bytes != Bytes::ZERO {
                self.workspace[time] = Some(self.transient.len());
                self.transient.push(Stretch { lower: time, upper: time + 1, bytes });
            }
        }
    }
}

fn profile(stretches: &[Stretch], events: usize) -> Vec<u64> {
    let mut changes = vec![0i64; events + 2];
    for stretch in stretches {
        let bytes = stretch.bytes.align_up(ALIGNMENT).0 as i64;
        changes[stretch.lower] += bytes;
        changes[stretch.upper.min(events + 1)] -= bytes;
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

/// Tensors that keep their bytes from step to step.
pub fn persistent_tensors(graph: &Graph) -> impl Iterator<Item = TensorId> + '_ {
    (0..graph.tensors.len()).map(TensorId).filter(|id| graph.tensors[id.0].kind.is_persistent())
}

/// Bytes of a tensor in a piece of `rows`.
pub fn tensor_bytes(graph: &Graph, id: TensorId, rows: usize) -> Bytes {
    let tensor = &graph.tensors[id.0];
    tensor.shape.bytes(tensor.dtype, rows)
}

struct Builder<'a> {
    graph: &'a Graph,
    rows: usize,
    /// For each tensor, one past the last event of each of its lives.
    ends: Vec<Vec<usize>>,
    /// How many lives of each tensor have begun.
    lives: Vec<usize>,
    /// The stretch each tensor stands in.
    now: Vec<Option<usize>>,
    values: Vec<Stretch>,
}

impl Builder<'_> {
    fn event(&mut self, time: usize, event: &Event) -> Vec<Option<usize>> {
        match event {
            Event::Feed(tensor) | Event::In(tensor) => {
                self.begin(time, *tensor, None);
                vec![self.now[tensor.0]]
            }
            Event::Out(tensor) => vec![self.now[tensor.0]],
            Event::Launch { node, .. } => {
                let node = &self.graph.nodes[node.0];
                let inputs: Vec<Option<usize>> = node.inputs.iter().map(|id| self.now[id.0]).collect();
                for (index, output) in node.outputs.iter().enumerate() {
                    let shared = self.shared_input(time, node, &inputs, index);
                    self.begin(time, *output, shared);
                }
                // A fresh launch is the first to touch what it adds to.
                for tensor in &node.updates {
                    if self.now[tensor.0].is_none() {
                        self.begin(time, *tensor, None);
                    }
                }
                let written = node.outputs.iter().chain(&node.updates).map(|id| self.now[id.0]);
                inputs.iter().copied().chain(written).collect()
            }
        }
    }

    /// The stretch of an input that an output may take over: any input's for a view, a dying one's otherwise.
    fn shared_input(
        &self,
        time: usize,
        node: &Node,
        inputs: &[Option<usize>],
        output: usize,
    ) -> Option<usize> {
        let bytes = |id: TensorId| tensor_bytes(self.graph, id, self.rows);
        let pairs = node.op.in_place();
        pairs.iter().filter(|(out, _)| *out == output).find_map(|(_, input)| {
            let stretch = inputs[*input]?;
            // One tensor may be several inputs, of which this output may replace some and not others.
            let readers = (0..inputs.len()).filter(|index| inputs[*index] == Some(stretch));
            let taken = node.outputs[..output].iter().any(|id| self.now[id.0] == Some(stretch));
            if taken || readers.into_iter().any(|index| !pairs.contains(&(output, index))) {
                return None;
            }
            let dies = self.values[stretch].upper == time + 1;
            let same_size = bytes(node.inputs[*input]) == bytes(node.outputs[output]);
            (same_size && (dies || node.op.is_view())).then_some(stretch)
        })
    }

    /// A life begins: in a stretch that exists, or in a new one.
    fn begin(&mut self, time: usize, tensor: TensorId, shared: Option<usize>) {
        if self.graph.tensors[tensor.0].kind.is_persistent() {
            return;
        }
        let end = self.ends[tensor.0][self.lives[tensor.0]].max(time + 1);
        self.lives[tensor.0] += 1;
        let stretch = shared.unwrap_or_else(|| {
            let bytes = tensor_bytes(self.graph, tensor, self.rows);
            self.values.push(Stretch { lower: time, upper: end, bytes });
            self.values.len() - 1
        });
        self.values[stretch].upper = self.values[stretch].upper.max(end);
        self.now[tensor.0] = Some(stretch);
    }
}

/// What is copied out lives in the second store until it is copied in.
fn host_stretches(graph: &Graph, schedule: &Schedule, rows: usize) -> (Vec<Stretch>, Vec<Option<usize>>) {
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut out: Vec<Option<usize>> = vec![None; graph.tensors.len()];
    let of = schedule.events.iter().enumerate().map(|(time, event)| match event {
        Event::Out(tensor) => {
            out[tensor.0] = Some(stretches.len());
            let bytes = tensor_bytes(graph, *tensor, rows);
            stretches.push(Stretch { lower: time, upper: time + 1, bytes });
            out[tensor.0]
        }
        Event::In(tensor) => {
            let stretch = out[tensor.0]?;
            stretches[stretch].upper = time + 1;
            Some(stretch)
        }
        Event::Feed(_) | Event::Launch { .. } => None,
    });
    let of = of.collect();
    (stretches, of)
}

/// One past the last event of each life of each tensor. A life begins where a tensor is written whole.
fn ends_of_lives(graph: &Graph, schedule: &Schedule) -> Vec<Vec<usize>> {
    let mut ends: Vec<Vec<usize>> = vec![Vec::new(); graph.tensors.len()];
    for (time, event) in schedule.events.iter().enumerate() {
        match event {
            Event::Feed(tensor) | Event::In(tensor) => ends[tensor.0].push(time + 1),
            Event::Out(tensor) => {
                if let Some(end) = ends[tensor.0].last_mut() {
                    *end = time + 1;
                }
            }
            Event::Launch { node, .. } => {
                let node = &graph.nodes[node.0];
                for tensor in &node.outputs {
                    ends[tensor.0].push(time + 1);
                }
                for tensor in node.inputs.iter().chain(&node.updates) {
                    match ends[tensor.0].last_mut() {
                        Some(end) => *end = time + 1,
                        None => ends[tensor.0].push(time + 1),
                    }
                }
            }
        }
    }
    // One past the end, so that not even the last event may overwrite them.
    for tensor in &graph.keep {
        if let Some(end) = ends[tensor.0].last_mut() {
            *end = schedule.events.len() + 1;
        }
    }
    ends
}
