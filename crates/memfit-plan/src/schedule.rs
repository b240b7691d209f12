//! The order of things: feeds and launches of one training step, before their bytes have offsets.

use memfit_ir::{Graph, Kind, NodeId, Op, Phase, TensorId};

use crate::moves::release;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The next rows of an input arrive.
    Feed(TensorId),
    /// A value is copied out to offload memory.
    Out(TensorId),
    /// A value comes back from there.
    In(TensorId),
    /// A node runs; `fresh` says that it overwrites its updates, as if they were zero before.
    Launch { node: NodeId, fresh: bool },
}

/// What happens, in order, in three sections on one time axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// All events: prologue, then one micro-batch, then epilogue.
    pub events: Vec<Event>,
    /// Where the body begins.
    pub body: usize,
    /// Where the epilogue begins.
    pub epilogue: usize,
}

/// The whole batch at once: one section, every update as early as it can be.
pub fn whole(graph: &Graph) -> Schedule {
    let mut writer = Writer::new(graph);
    for node in release::early_updates(graph) {
        writer.launch(node);
    }
    let epilogue = writer.events.len();
    Schedule { events: writer.events, body: 0, epilogue }
}

/// The batch in micro-batches: sums are opened before the first and applied after the last.
pub fn in_pieces(graph: &Graph) -> Schedule {
    let phase = |wanted: Phase| {
        (0..graph.nodes.len()).map(NodeId).filter(move |id| graph.nodes[id.0].phase == wanted)
    };
    let mut writer = Writer::new(graph);
    for node in phase(Phase::Begin) {
        writer.launch_as_it_is(node);
    }
    let body = writer.events.len();
    for node in phase(Phase::Piece) {
        writer.launch(node);
    }
    let epilogue = writer.events.len();
    for node in phase(Phase::End) {
        writer.launch(node);
    }
    Schedule { events: writer.events, body, epilogue }
}

/// Writes launches in order, each input fed right before its first reader and each zero joined into its first
/// adder.
struct Writer<'a> {
    graph: &'a Graph,
    events: Vec<Event>,
    fed: Vec<bool>,
    /// The `Zero` that has yet to open each tensor.
    zeros: Vec<Option<NodeId>>,
}

impl<'a> Writer<'a> {
    fn new(graph: &'a Graph) -> Writer<'a> {
        let mut zeros = vec![None; graph.tensors.len()];
        for (index, node) in graph.nodes.iter().enumerate().filter(|(_, node)| node.op == Op::Zero) {
            zeros[node.outputs[0].0] = Some(NodeId(index));
        }
        Writer { graph, events: Vec::new(), fed: vec![false; graph.tensors.len()], zeros }
    }

    fn launch(&mut self, id: NodeId) {
        let node = &self.graph.nodes[id.0];
        if node.op == Op::Zero {
            return;
        }
        for input in &node.inputs {
            if self.graph.tensors[input.0].kind == Kind::Input && !self.fed[input.0] {
                self.fed[input.0] = true;
                self.events.push(Event::Feed(*input));
            }
        }
        let opened: Vec<Option<NodeId>> =
            node.updates.iter().map(|tensor| self.zeros[tensor.0].take()).collect();
        let fresh = !opened.is_empty() && opened.iter().all(Option::is_some);
        if !fresh {
            for zero in opened.into_iter().flatten() {
                self.events.push(Event::Launch { node: zero, fresh: false });
            }
        }
        self.events.push(Event::Launch { node: id, fresh });
    }

    fn launch_as_it_is(&mut self, id: NodeId) {
        if let Some(tensor) = self.graph.nodes[id.0].outputs.first() {
            self.zeros[tensor.0] = None;
        }
        self.events.push(Event::Launch { node: id, fresh: false });
    }
}
