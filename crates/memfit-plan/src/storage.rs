//! Storage: which values share bytes, and how long each stretch of bytes lives.

use memfit_ir::{ALIGNMENT, Bytes, Graph, Problem, TensorId};
use memfit_pack::Item;

use crate::schedule::{Event, Schedule};

/// Stretches of bytes with their lives, before they have offsets.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The stretch that holds each tensor; none for a tensor that never appears.
    pub of_tensor: Vec<Option<usize>>,
    /// Stretches that live from step to step, in the order of their tensors.
    pub persistent: Vec<Stretch>,
    /// Stretches that live within a step: values first, then one workspace for each event that wants one.
    pub transient: Vec<Stretch>,
    /// The stretch of each event's workspace, as an index into `transient`.
    pub workspace: Vec<Option<usize>>,
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
        let last_use = last_uses(graph, schedule);
        let mut builder =
            Builder { graph, rows, last_use, of_tensor: vec![None; graph.tensors.len()], values: vec![] };
        for (time, event) in schedule.events.iter().enumerate() {
            builder.event(time, event);
        }
        let Builder { of_tensor, values, .. } = builder;
        let persistent = persistent_tensors(graph)
            .map(|id| Stretch {
                lower: 0,
                upper: schedule.events.len(),
                bytes: tensor_bytes(graph, id, rows),
            })
            .collect();
        let mut storage = Storage {
            of_tensor,
            persistent,
            transient: values,
            workspace: vec![None; schedule.events.len()],
        };
        storage.add_workspaces(problem, schedule, rows);
        storage
    }

    /// No packing can be lower than this.
    pub fn bound(&self) -> Bytes {
        self.persistent_bytes() + Bytes(memfit_pack::bound(&self.items()))
    }

    /// Bytes of what lives from step to step.
    pub fn persistent_bytes(&self) -> Bytes {
        self.persistent.iter().map(|stretch| stretch.bytes.align_up(ALIGNMENT)).sum()
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
    /// One past the last event that touches each tensor.
    last_use: Vec<usize>,
    of_tensor: Vec<Option<usize>>,
    values: Vec<Stretch>,
}

impl Builder<'_> {
    fn event(&mut self, time: usize, event: &Event) {
        match event {
            Event::Feed(tensor) => self.open(time, *tensor),
            Event::Launch { node, .. } => {
                let node = &self.graph.nodes[node.0];
                for (index, output) in node.outputs.iter().enumerate() {
                    match self.shared_input(time, node, index) {
                        Some(stretch) => self.join(*output, stretch),
                        None => self.open(time, *output),
                    }
                }
                // A fresh launch is the first to touch what it adds to.
                for tensor in &node.updates {
                    self.open(time, *tensor);
                }
            }
        }
    }

    /// The stretch of an input that an output may take over: any input's for a view, a dying one's otherwise.
    fn shared_input(&self, time: usize, node: &memfit_ir::Node, output: usize) -> Option<usize> {
        let bytes = |id: TensorId| tensor_bytes(self.graph, id, self.rows);
        node.op.in_place().iter().filter(|(out, _)| *out == output).find_map(|(_, input)| {
            let stretch = self.of_tensor[node.inputs[*input].0]?;
            let dies = self.values[stretch].upper == time + 1;
            let same_size = bytes(node.inputs[*input]) == bytes(node.outputs[output]);
            (same_size && (dies || node.op.is_view())).then_some(stretch)
        })
    }

    fn open(&mut self, time: usize, tensor: TensorId) {
        let persistent = self.graph.tensors[tensor.0].kind.is_persistent();
        if persistent || self.of_tensor[tensor.0].is_some() {
            return;
        }
        self.of_tensor[tensor.0] = Some(self.values.len());
        let upper = self.last_use[tensor.0].max(time + 1);
        let bytes = tensor_bytes(self.graph, tensor, self.rows);
        self.values.push(Stretch { lower: time, upper, bytes });
    }

    fn join(&mut self, tensor: TensorId, stretch: usize) {
        self.of_tensor[tensor.0] = Some(stretch);
        let upper = &mut self.values[stretch].upper;
        *upper = (*upper).max(self.last_use[tensor.0]);
    }
}

fn last_uses(graph: &Graph, schedule: &Schedule) -> Vec<usize> {
    let mut last = vec![0; graph.tensors.len()];
    for (time, event) in schedule.events.iter().enumerate() {
        match event {
            Event::Feed(tensor) => last[tensor.0] = time + 1,
            Event::Launch { node, .. } => {
                let node = &graph.nodes[node.0];
                for tensor in node.inputs.iter().chain(&node.outputs).chain(&node.updates) {
                    last[tensor.0] = time + 1;
                }
            }
        }
    }
    // One past the end, so that not even the last event may overwrite them.
    for tensor in &graph.keep {
        last[tensor.0] = schedule.events.len() + 1;
    }
    last
}
