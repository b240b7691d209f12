//! Memory in which a node is timed: what it reads grows up from the start, what it writes down from the end.

use std::time::Instant;

use memfit_ir::Operand::{DTable, Table};
use memfit_ir::{ALIGNMENT, Bytes, Cost, DType, Graph, Node, NodeId, Op, Slot, TensorId, random};

use crate::{Context, Device};

/// How often a launch is timed; the fastest counts, since others were disturbed.
pub(super) const RUNS: usize = 3;

/// Values that are written again and again: small, positive and never alike, so that nothing overflows, no
/// root is taken of less than 0 and no arithmetic is spared.
const PATTERN: usize = 4093;

/// A device for timing.
pub(super) struct Scratch<'a> {
    device: &'a mut dyn Device,
    graph: &'a Graph,
    batch: usize,
    /// Whether operands are given values to compute with.
    fills: bool,
    pattern: Vec<f32>,
    /// From the start up to here the values have not been overwritten.
    bytes_clean: Bytes,
}

/// Where the operands of a launch stand.
struct Layout {
    args: Vec<Slot>,
    workspace: Slot,
    /// The end of what is only read.
    bytes_read: Bytes,
    /// The start of what is written.
    written_from: Bytes,
}

impl<'a> Scratch<'a> {
    pub(super) fn new(
        device: &'a mut dyn Device,
        graph: &'a Graph,
        batch: usize,
        fills: bool,
    ) -> Scratch<'a> {
        let pattern = (0..PATTERN as u64).map(|index| random::uniform(1, index, 0.01, 1.0)).collect();
        Scratch { device, graph, batch, fills, pattern, bytes_clean: Bytes::ZERO }
    }

    /// The shortest time in nanoseconds of a node at `rows` rows, which must have room.
    ///
    /// Every run has operands of its own where there is room: while it trains, a node finds its operands
    /// where the nodes before it have left them, and rarely in the caches near the processor.
    pub(super) fn nanos(&mut self, id: NodeId, cost: &Cost, rows: usize) -> f64 {
        let (graph, node) = (self.graph, &self.graph.nodes[id.0]);
        let room = self.device.bytes_arena();
        let copies = (room.0 / bytes(graph, node, cost, rows).0.max(1)).clamp(1, RUNS as u64);
        let layouts: Vec<Layout> =
            (0..copies).map(|copy| layout(graph, node, cost, rows, room, copy)).collect();
        for layout in &layouts {
            self.fill(node, layout);
        }
        let context = Context {
            step: 0,
            row_start: 0,
            rows,
            rows_total: self.batch,
            learning_rate: 1e-3,
            seed: 1,
            iteration: 1,
            loss_scale: 1.0,
        };
        let runs = (0..RUNS).map(|run| {
            let Layout { args, workspace, .. } = &layouts[run % layouts.len()];
            let start = Instant::now();
            self.device.launch(graph, id, args, *workspace, false, &context);
            self.device.synchronise();
            start.elapsed().as_nanos() as f64
        });
        runs.fold(f64::INFINITY, f64::min).max(1.0)
    }

    /// Whether a node takes the same time whatever the rows.
    pub(super) fn is_fixed(&self, id: NodeId) -> bool {
        let Node { inputs, outputs, updates, .. } = &self.graph.nodes[id.0];
        let mut operands = inputs.iter().chain(outputs).chain(updates);
        !operands.any(|id| self.graph.tensors[id.0].shape.batched)
    }

    /// The most rows of a node that have room, at least 1 and at most `most`.
    pub(super) fn rows_with_room(&self, id: NodeId, cost: &Cost, most: usize) -> usize {
        let node = &self.graph.nodes[id.0];
        let fits = |rows: usize| bytes(self.graph, node, cost, rows) <= self.device.bytes_arena();
        let (mut low, mut high) = (1, most.max(1) + 1);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        low
    }

    /// Gives operands values to compute with, unless they have some.
    fn fill(&mut self, node: &Node, layout: &Layout) {
        if !self.fills {
            return;
        }
        let kept = self.bytes_clean.min(layout.bytes_read);
        self.write_pattern(Slot { offset: kept, bytes: layout.bytes_read - kept });
        self.bytes_clean = self.bytes_clean.max(layout.bytes_read).min(layout.written_from);
        let updates = node.inputs.len() + node.outputs.len();
        for (index, slot) in layout.args.iter().enumerate() {
            if index < node.inputs.len() {
                if !is_pattern(self.graph, node, index) {
                    self.write_numbers(node, index, *slot);
                }
            } else if updates <= index {
                self.write_pattern(*slot);
            }
        }
    }

    fn write_pattern(&mut self, slot: Slot) {
        for chunk in self.device.floats_mut(slot).chunks_mut(PATTERN) {
            chunk.copy_from_slice(&self.pattern[..chunk.len()]);
        }
    }

    /// Whole numbers: entries all over a table for an embedding, and else 0, which every class and place can
    /// be.
    fn write_numbers(&mut self, node: &Node, input: usize, slot: Slot) {
        let Some(entries) = entries(self.graph, node).filter(|_| input == 0) else {
            return self.device.bytes_mut(slot).fill(0);
        };
        let spread = (0..).map(|index: usize| index * PATTERN % entries.max(1));
        if self.graph.tensors[node.inputs[input].0].dtype == DType::F32 {
            let floats = self.device.floats_mut(slot);
            floats.iter_mut().zip(spread).for_each(|(float, entry)| *float = entry as f32);
        } else {
            let words = self.device.bytes_mut(slot).as_chunks_mut().0.iter_mut();
            words.zip(spread).for_each(|(word, entry)| *word = (entry as i32).to_ne_bytes());
        }
    }
}

/// The bytes of a launch of `rows` rows.
pub(super) fn bytes(graph: &Graph, node: &Node, cost: &Cost, rows: usize) -> Bytes {
    let Node { inputs, outputs, updates, .. } = node;
    let operands = inputs.iter().chain(outputs).chain(updates);
    let aligned = |bytes: Bytes| bytes.align_up(ALIGNMENT);
    operands.map(|id| aligned(operand(graph, *id, rows))).sum::<Bytes>() + aligned(cost.workspace(rows))
}

/// Operands of their own for one of several copies.
fn layout(graph: &Graph, node: &Node, cost: &Cost, rows: usize, room: Bytes, copy: u64) -> Layout {
    let is_read = |index: usize| index < node.inputs.len() && is_pattern(graph, node, index);
    let ids: Vec<TensorId> = [&node.inputs[..], &node.outputs, &node.updates].concat();
    let reads: Bytes = ids
        .iter()
        .enumerate()
        .filter(|(index, _)| is_read(*index))
        .map(|(_, id)| operand(graph, *id, rows).align_up(ALIGNMENT))
        .sum();
    let writes = bytes(graph, node, cost, rows) - reads;
    let (mut up, mut down) = (reads * copy, room - writes * copy);
    let mut below = |bytes: Bytes| {
        down = down - bytes.align_up(ALIGNMENT);
        Slot { offset: down, bytes }
    };
    let mut args = Vec::with_capacity(ids.len());
    for (index, id) in ids.iter().enumerate() {
        let bytes = operand(graph, *id, rows);
        if is_read(index) {
            args.push(Slot { offset: up, bytes });
            up += bytes.align_up(ALIGNMENT);
        } else {
            args.push(below(bytes));
        }
    }
    let workspace = below(cost.workspace(rows));
    Layout { args, workspace, bytes_read: up, written_from: down }
}

fn operand(graph: &Graph, id: TensorId, rows: usize) -> Bytes {
    let tensor = &graph.tensors[id.0];
    tensor.shape.bytes(tensor.dtype, rows)
}

/// Whether an input is of floats that mean nothing.
fn is_pattern(graph: &Graph, node: &Node, input: usize) -> bool {
    let is_float = graph.tensors[node.inputs[input].0].dtype == DType::F32;
    is_float && !(input == 0 && entries(graph, node).is_some())
}

/// Entries of the table that the first input has numbers of.
fn entries(graph: &Graph, node: &Node) -> Option<usize> {
    let entries = |id: TensorId| graph.tensors[id.0].shape.dims[0];
    if node.op == Op::Embedding {
        Some(entries(node.input(Table)))
    } else if node.op == Op::EmbeddingGrad {
        Some(entries(node.tensor(DTable)))
    } else {
        None
    }
}
