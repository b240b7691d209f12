//! Cost tables: what a search for plans asks of a graph again and again, computed once for one micro-batch
//! size.

use memfit_ir::{ALIGNMENT, Bytes, Cost, Graph, Kind, NodeId, Op, Problem, TensorId};

use crate::schedule::{Event, Schedule};
use crate::wiring::Wiring;

/// Sizes and times of a problem over micro-batches of `rows` rows.
pub struct CostTables<'a> {
    /// What they are about.
    pub problem: &'a Problem,
    /// Rows of a micro-batch.
    pub rows: usize,
    /// Bytes of each tensor.
    pub bytes: Vec<Bytes>,
    /// Whether each tensor keeps its bytes from step to step.
    pub persistent: Vec<bool>,
    /// Bytes of all persistent tensors, each aligned.
    pub persistent_bytes: Bytes,
    /// The node that writes each tensor, where it may run again.
    pub producers: Vec<Option<NodeId>>,
    /// Time of each node: measured where it was, or estimated.
    pub nanos: Vec<f64>,
    /// Scratch memory of each node, by the algorithm that needs least.
    pub workspace: Vec<Bytes>,
    /// Which output of each node may stand where which input stood.
    pub in_place: Vec<Vec<(usize, usize)>>,
    /// What each node reads, writes and changes.
    pub wiring: Wiring,
}

impl<'a> CostTables<'a> {
    /// Looks everything up.
    pub fn new(problem: &'a Problem, rows: usize) -> CostTables<'a> {
        let graph = &problem.graph;
        let bytes: Vec<Bytes> = graph.tensors.iter().map(|tensor| tensor.bytes(rows)).collect();
        let persistent: Vec<bool> = graph.tensors.iter().map(|tensor| tensor.kind.is_persistent()).collect();
        let mut producers = vec![None; graph.tensors.len()];
        for (index, node) in graph.nodes.iter().enumerate() {
            if node.updates.is_empty() && node.op != Op::Zero {
                for output in &node.outputs {
                    producers[output.0] = Some(NodeId(index));
                }
            }
        }
        CostTables {
            problem,
            rows,
            persistent_bytes: persistent_tensors(graph).map(|id| bytes[id.0].align_up(ALIGNMENT)).sum(),
            bytes,
            persistent,
            producers,
            nanos: of_nodes(problem, rows, Cost::nanos),
            workspace: of_nodes(problem, rows, Cost::workspace_least),
            in_place: graph.nodes.iter().map(|node| node.in_place().collect()).collect(),
            wiring: Wiring::new(graph),
        }
    }

    /// The same with estimated times, whatever was measured.
    pub fn estimated(problem: &'a Problem, rows: usize) -> CostTables<'a> {
        let nanos = of_nodes(problem, rows, Cost::nanos_estimated);
        CostTables { nanos, ..CostTables::new(problem, rows) }
    }

    /// Whether some node has several algorithms.
    pub fn has_ways(&self) -> bool {
        self.problem.costs.iter().any(|cost| cost.leaner[0].is_some())
    }

    /// The graph.
    pub fn graph(&self) -> &'a Graph {
        &self.problem.graph
    }

    /// Bytes of a tensor as it stands in the arena.
    pub fn aligned(&self, tensor: TensorId) -> u64 {
        self.bytes[tensor.0].align_up(ALIGNMENT).0
    }

    /// Time of one event.
    pub fn nanos_of(&self, event: &Event) -> f64 {
        match event {
            Event::Launch { node, .. } => self.nanos[node.0],
            Event::Feed(tensor) => self.fed(*tensor),
            Event::Out(tensor) | Event::In(tensor) => self.moved(*tensor),
        }
    }

    /// Time to feed a tensor.
    pub fn fed(&self, tensor: TensorId) -> f64 {
        self.bytes[tensor.0].0 as f64 * self.problem.transfers.nanos_per_byte_fed
    }

    /// Time to copy a tensor out, or in.
    pub fn moved(&self, tensor: TensorId) -> f64 {
        self.bytes[tensor.0].0 as f64 * self.problem.transfers.nanos_per_byte_moved
    }

    /// The least time in which a value is brought back: by its node alone, or by copies to offload memory and
    /// back.
    pub fn least_nanos(&self, tensor: TensorId) -> f64 {
        let again = match self.producers[tensor.0] {
            Some(node) => self.nanos[node.0],
            None if self.is_input(tensor) => self.nanos_of(&Event::Feed(tensor)),
            None => f64::INFINITY,
        };
        if self.problem.budget.host.0 > 0 { again.min(2.0 * self.moved(tensor)) } else { again }
    }

    /// Time of one micro-batch.
    pub fn nanos_of_piece(&self, schedule: &Schedule) -> f64 {
        schedule.events[schedule.body..schedule.epilogue].iter().map(|event| self.nanos_of(event)).sum()
    }

    /// Whether a tensor is fed.
    pub fn is_input(&self, tensor: TensorId) -> bool {
        self.graph().tensors[tensor.0].kind == Kind::Input
    }
}

/// A figure of each node at the rows it works on.
fn of_nodes<T>(problem: &Problem, rows: usize, figure: impl Fn(&Cost, usize) -> T) -> Vec<T> {
    let nodes = problem.costs.iter().enumerate();
    nodes.map(|(index, cost)| figure(cost, problem.graph.rows_of(NodeId(index), rows))).collect()
}

/// Tensors that keep their bytes from step to step.
pub fn persistent_tensors(graph: &Graph) -> impl Iterator<Item = TensorId> + '_ {
    (0..graph.tensors.len()).map(TensorId).filter(|id| graph.tensors[id.0].kind.is_persistent())
}
