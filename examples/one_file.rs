//! memfit's idea in one file: a graph, a plan in bytes, one allocation, and training that stays under the line.
//!
//! A network of dense layers learns the sign of a sum. Everything memfit does at scale happens here in small: forward, backward
//! and update as one list of nodes; lifetimes; offsets; a batch cut into pieces when the line is too low; the peak predicted,
//! measured and equal; the same losses under every budget. Only the standard library is used.
//!
//! Run it with `cargo run --release -p memfit --example one_file`.
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::ops::Range;

/// What a node computes. Operands stand in `Node::reads` and `Node::writes`.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// The next rows arrive: `→ x, target`.
    Feed,
    /// `x, weight → y = max(x · weight, 0)`.
    Layer,
    /// `y, target ⇒ loss → dy`: half the mean squared error with its gradient.
    Loss,
    /// `x, y, dy ⇒ dweight += xᵀ · (dy where y > 0)`.
    GradWeight,
    /// `y, dy, weight → dx = (dy where y > 0) · weightᵀ`.
    GradInput,
    /// `→ dweight = 0`.
    Zero,
    /// `dweight ⇒ weight -= rate · dweight`.
    Update,
}

struct Node {
    op: Op,
    reads: Vec<usize>,
    writes: Vec<usize>,
}

/// A value: so many floats, or so many for each row of the piece.
#[derive(Clone, Copy)]
struct Tensor {
    width: usize,
    height: Height,
    persistent: bool,
}

#[derive(Clone, Copy)]
enum Height {
    Fixed(usize),
    Rows,
}

/// Forward, backward and optimizer: what happens once before, for every piece, and once behind.
struct Graph {
    tensors: Vec<Tensor>,
    before: Vec<Node>,
    piece: Vec<Node>,
    behind: Vec<Node>,
}

impl Graph {
    fn tensor(&mut self, width: usize, height: Height, persistent: bool) -> usize {
        self.tensors.push(Tensor { width, height, persistent });
        self.tensors.len() - 1
    }

    fn floats(&self, tensor: usize, rows: usize) -> usize {
        let Tensor { width, height, .. } = self.tensors[tensor];
        width
            * match height {
                Height::Fixed(height) => height,
                Height::Rows => rows,
            }
    }
}

/// The training graph of dense layers of the given widths.
fn training_graph(widths: &[usize]) -> Graph {
    let mut graph = Graph { tensors: vec![], before: vec![], piece: vec![], behind: vec![] };
    let x = graph.tensor(widths[0], Height::Rows, false);
    let target = graph.tensor(widths[widths.len() - 1], Height::Rows, false);
    let loss = graph.tensor(1, Height::Fixed(1), true);
    graph.before.push(Node { op: Op::Zero, reads: vec![], writes: vec![loss] });
    graph.piece.push(Node { op: Op::Feed, reads: vec![], writes: vec![x, target] });
    let mut values = vec![x];
    let mut weights = vec![];
    for pair in widths.windows(2) {
        let weight = graph.tensor(pair[1], Height::Fixed(pair[0]), true);
        let y = graph.tensor(pair[1], Height::Rows, false);
        graph.piece.push(Node {
            op: Op::Layer,
            reads: vec![values[values.len() - 1], weight],
            writes: vec![y],
        });
        weights.push(weight);
        values.push(y);
    }
    let last = values[values.len() - 1];
    let mut dy = graph.tensor(widths[widths.len() - 1], Height::Rows, false);
    graph.piece.push(Node { op: Op::Loss, reads: vec![last, target], writes: vec![dy, loss] });
    for layer in (0..weights.len()).rev() {
        let (x, y, weight) = (values[layer], values[layer + 1], weights[layer]);
        let dweight = graph.tensor(widths[layer + 1], Height::Fixed(widths[layer]), false);
        graph.before.push(Node { op: Op::Zero, reads: vec![], writes: vec![dweight] });
        graph.piece.push(Node { op: Op::GradWeight, reads: vec![x, y, dy], writes: vec![dweight] });
        graph.behind.push(Node { op: Op::Update, reads: vec![dweight], writes: vec![weight] });
        if layer > 0 {
            let dx = graph.tensor(widths[layer], Height::Rows, false);
            graph.piece.push(Node { op: Op::GradInput, reads: vec![y, dy, weight], writes: vec![dx] });
            dy = dx;
        }
    }
    graph
}

/// Exactly what happens: an offset for every tensor (in floats), and how many rows a piece has.
struct Plan {
    offsets: Vec<usize>,
    rows: usize,
    peak: usize,
}

/// The plan with the largest pieces that fits, or the smallest budget that would.
fn plan(graph: &Graph, batch: usize, budget: usize) -> Result<Plan, usize> {
    let mut smallest = usize::MAX;
    for pieces in 1..=batch {
        let plan = place(graph, batch.div_ceil(pieces));
        smallest = smallest.min(plan.peak);
        if plan.peak <= budget {
            return Ok(plan);
        }
    }
    Err(smallest)
}

/// First fit, longest life first: each tensor at the lowest offset that is free while it lives.
fn place(graph: &Graph, rows: usize) -> Plan {
    let lives = lifetimes(graph);
    let mut order: Vec<usize> = (0..graph.tensors.len()).collect();
    order.sort_by_key(|tensor| (std::cmp::Reverse(lives[*tensor].len()), *tensor));
    let mut offsets = vec![0; graph.tensors.len()];
    let mut placed: Vec<usize> = vec![];
    let mut peak = 0;
    for tensor in order {
        let size = graph.floats(tensor, rows);
        let mut taken: Vec<Range<usize>> = placed
            .iter()
            .filter(|other| {
                lives[**other].start < lives[tensor].end && lives[tensor].start < lives[**other].end
            })
            .map(|other| offsets[*other]..offsets[*other] + graph.floats(*other, rows))
            .collect();
        taken.sort_by_key(|range| range.start);
        let mut offset = 0;
        for range in taken {
            if offset + size <= range.start {
                break;
            }
            offset = offset.max(range.end);
        }
        offsets[tensor] = offset;
        peak = peak.max(offset + size);
        placed.push(tensor);
    }
    Plan { offsets, rows, peak }
}

/// From the first node that touches a tensor to the last, on one time axis: before, one piece, behind.
fn lifetimes(graph: &Graph) -> Vec<Range<usize>> {
    let nodes: Vec<&Node> = graph.before.iter().chain(&graph.piece).chain(&graph.behind).collect();
    (0..graph.tensors.len())
        .map(|tensor| {
            let touches = |node: &&Node| node.reads.contains(&tensor) || node.writes.contains(&tensor);
            let first = nodes.iter().position(touches).unwrap_or(0);
            let last = nodes.iter().rposition(touches).unwrap_or(0);
            if graph.tensors[tensor].persistent { 0..nodes.len() } else { first..last + 1 }
        })
        .collect()
}

/// One allocation, and behind it nobody allocates.
struct Runner<'a> {
    graph: &'a Graph,
    plan: Plan,
    arena: Vec<f32>,
    measured: usize,
}

impl Runner<'_> {
    fn step(&mut self, number: usize, batch: usize, rate: f32) -> f32 {
        let graph = self.graph;
        let mut scalars = Scalars { first: 0, rows: 0, batch, number, rate };
        for node in &graph.before {
            self.launch(node, &scalars);
        }
        for first in (0..batch).step_by(self.plan.rows) {
            scalars.first = first;
            scalars.rows = self.plan.rows.min(batch - first);
            for node in &graph.piece {
                self.launch(node, &scalars);
            }
        }
        for node in &graph.behind {
            self.launch(node, &scalars);
        }
        assert_eq!(self.measured, self.plan.peak, "predicted = measured");
        self.arena[self.plan.offsets[2]]
    }

    fn at(&mut self, tensor: usize) -> usize {
        let offset = self.plan.offsets[tensor];
        self.measured = self.measured.max(offset + self.graph.floats(tensor, self.plan.rows));
        offset
    }

    fn launch(&mut self, node: &Node, now: &Scalars) {
        let reads: Vec<usize> = node.reads.iter().map(|tensor| self.at(*tensor)).collect();
        let writes: Vec<usize> = node.writes.iter().map(|tensor| self.at(*tensor)).collect();
        let width = |tensor: usize| self.graph.tensors[tensor].width;
        let memory = &mut self.arena;
        match node.op {
            Op::Zero => {
                let count = self.graph.floats(node.writes[0], now.rows);
                memory[writes[0]..writes[0] + count].fill(0.0);
            }
            Op::Feed => {
                let (inputs, outputs) = (width(node.writes[0]), width(node.writes[1]));
                for row in 0..now.rows {
                    let mut sum = 0.0;
                    for i in 0..inputs {
                        let value = draw(now.number * now.batch + now.first + row, i);
                        memory[writes[0] + row * inputs + i] = value;
                        sum += value;
                    }
                    memory[writes[1] + row * outputs..][..outputs].fill(if sum > 0.0 { 1.0 } else { 0.0 });
                }
            }
            Op::Layer => {
                let (inputs, outputs) = (width(node.reads[0]), width(node.writes[0]));
                for (row, o) in grid(now.rows, outputs) {
                    let terms = (0..inputs)
                        .map(|i| memory[reads[0] + row * inputs + i] * memory[reads[1] + i * outputs + o]);
                    memory[writes[0] + row * outputs + o] = terms.sum::<f32>().max(0.0);
                }
            }
            Op::Loss => {
                // Divided by the whole batch, so that the gradients of pieces add up to those of the batch.
                for i in 0..now.rows * width(node.reads[0]) {
                    let gap = memory[reads[0] + i] - memory[reads[1] + i];
                    memory[writes[0] + i] = gap / now.batch as f32;
                    memory[writes[1]] += 0.5 * gap * gap / now.batch as f32;
                }
            }
            Op::GradWeight => {
                let (inputs, outputs) = (width(node.reads[0]), width(node.reads[1]));
                for (i, o) in grid(inputs, outputs) {
                    for row in 0..now.rows {
                        if memory[reads[1] + row * outputs + o] > 0.0 {
                            memory[writes[0] + i * outputs + o] +=
                                memory[reads[0] + row * inputs + i] * memory[reads[2] + row * outputs + o];
                        }
                    }
                }
            }
            Op::GradInput => {
                let (outputs, inputs) = (width(node.reads[0]), width(node.writes[0]));
                for (row, i) in grid(now.rows, inputs) {
                    let passes = (0..outputs).filter(|o| memory[reads[0] + row * outputs + o] > 0.0);
                    let terms = passes
                        .map(|o| memory[reads[1] + row * outputs + o] * memory[reads[2] + i * outputs + o]);
                    memory[writes[0] + row * inputs + i] = terms.sum();
                }
            }
            Op::Update => {
                for i in 0..self.graph.floats(node.writes[0], now.rows) {
                    memory[writes[0] + i] -= now.rate * memory[reads[0] + i];
                }
            }
        }
    }
}

/// What is decided anew for each piece.
struct Scalars {
    first: usize,
    rows: usize,
    batch: usize,
    number: usize,
    rate: f32,
}

fn grid(rows: usize, columns: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rows * columns).map(move |i| (i / columns, i % columns))
}

/// A number in `[-1, 1)` that depends on nothing but where it is asked for.
fn draw(row: usize, column: usize) -> f32 {
    let mut z = (row as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ (column as u64).wrapping_mul(0xD134_2543_DE82_EF95);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// Trains under four budgets and compares.
pub fn main() {
    let (batch, steps) = (256, 30);
    let graph = training_graph(&[32, 64, 64, 1]);
    let whole = place(&graph, batch).peak;
    println!("a batch of {batch} in one piece needs {} bytes", 4 * whole);
    let mut curves: Vec<Vec<f32>> = vec![];
    for budget in [whole, whole / 2, whole / 3, whole / 8] {
        let plan = match plan(&graph, batch, budget) {
            Ok(plan) => plan,
            Err(smallest) => {
                println!("budget {:>7}  does not fit: {} bytes would", 4 * budget, 4 * smallest);
                continue;
            }
        };
        let (rows, peak) = (plan.rows, plan.peak);
        let arena = vec![0.0; peak];
        let mut runner = Runner { graph: &graph, plan, arena, measured: 0 };
        for (tensor, weight) in graph.tensors.iter().enumerate().filter(|(_, tensor)| tensor.persistent) {
            let offset = runner.plan.offsets[tensor];
            for i in 0..graph.floats(tensor, rows) {
                runner.arena[offset + i] =
                    draw(tensor + 1_000_000, i) / (weight.width as f32).sqrt().max(4.0);
            }
        }
        let losses: Vec<f32> = (0..steps).map(|number| runner.step(number, batch, 0.2)).collect();
        println!(
            "budget {:>7}  pieces of {rows:>3}  peak {:>7} predicted = measured  loss {:.4} -> {:.4}",
            4 * budget,
            4 * peak,
            losses[0],
            losses[steps - 1]
        );
        curves.push(losses);
    }
    for curve in &curves[1..] {
        let same = curve.iter().zip(&curves[0]).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(same, "the same losses under every budget");
    }
    assert!(curves[0][steps - 1] < 0.8 * curves[0][0], "it learns");
    println!("the same losses under every budget that fits");
}
