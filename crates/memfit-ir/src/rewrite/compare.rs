//! Whether a rewritten graph computes the same as the graph that it was made from, compared without knowing
//! how a rewrite is made.
//!
//! Every value gets a number. Fused ops are taken apart into their parts; a part that computes what is known
//! already gets the number that is known (value numbering), so that computing a value twice, in another place
//! or inside another kernel changes nothing. Two graphs compute the same where all that outlives the step, or
//! is kept until it ends, ends with the same number in both.
//!
//! Slices have one rule of coverage. What an op computes of slice `i` of `n` is slice `i` of `n` of what it
//! computes of all rows, provided that its rows are independent; and a sum over rows, or a tensor that is
//! put together, is whole when each of the `n` slices has come exactly once.

use std::collections::BTreeMap;

use crate::{Along, Graph, Kind, Node, NodeId, Op, Phase, Tensor, TensorId, Type, infer};

/// What a rewritten graph computes otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// It has other layers, inputs, outputs or rules for weights, or a tensor of another type.
    Declared,
    /// A node reads what is not there, writes a tensor of another type, or runs on slices that do not go
    /// together or that it may not be given.
    Node(NodeId),
    /// A tensor ends with another value.
    Value(TensorId),
}

/// Compares a graph with what it was rewritten to. In a `split` batch, nodes may not move between the sections
/// of a step.
pub fn compare(graph: &Graph, rewritten: &Graph, split: bool) -> Result<(), Difference> {
    if !declares_the_same(graph, rewritten) {
        return Err(Difference::Declared);
    }
    let is_sliced = rewritten.tensors.iter().any(|tensor| tensor.slice.is_some());
    let (known, sums, next) = (BTreeMap::new(), BTreeMap::new(), rewritten.tensors.len());
    let mut numbering = Numbering { known, sums, next, split, is_sliced };
    let ends = numbering.run(graph)?;
    let others = numbering.run(rewritten)?;
    let is_needed = |id: usize| graph.tensors[id].kind.is_persistent() || graph.keep.contains(&TensorId(id));
    let differs = |id: &usize| is_needed(*id) && ends[*id] != others[*id];
    match (0..graph.tensors.len()).find(differs) {
        Some(id) => Err(Difference::Value(TensorId(id))),
        None => Ok(()),
    }
}

/// Whether all but nodes, and slices of tensors, is equal.
fn declares_the_same(graph: &Graph, rewritten: &Graph) -> bool {
    let count = graph.tensors.len();
    let is_slice = |tensor: &Tensor| {
        let whole = tensor.slice.and_then(|slice| graph.tensors.get(slice.of.0));
        whole.is_some_and(|whole| {
            let Tensor { shape, dtype, kind, layer, .. } = whole;
            (shape, dtype, kind, layer) == (&tensor.shape, &tensor.dtype, &tensor.kind, &tensor.layer)
        })
    };
    let (tensors, slices) = rewritten.tensors.split_at(count.min(rewritten.tensors.len()));
    let rest = |graph: &Graph| Graph {
        tensors: Vec::new(),
        nodes: Vec::new(),
        rewrites: Vec::new(),
        ..graph.clone()
    };
    tensors == graph.tensors && slices.iter().all(is_slice) && rest(graph) == rest(rewritten)
}

/// A value's number.
type Number = usize;

/// Some rows of a value: which part, of how many.
type Part = Option<(usize, usize)>;

/// What a tensor holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Held {
    /// A value, or some rows of it.
    Value(Number, Part),
    /// What was added to a value. Rows of different slices may come in any order.
    Sum(Number, Vec<Term>),
}

/// One term of a sum.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    /// What is added of all rows, or put in their place.
    number: Number,
    /// Whether it is put in the place of zeros.
    is_put: bool,
    /// The slices that have come, each with how many there are; none where all rows have come.
    slices: Vec<(usize, usize)>,
}

/// What decides a value, besides the op: numbers of operands, and the section where that matters.
type Key = (Vec<Number>, Option<Phase>);

/// Numbers of all values of both graphs.
struct Numbering {
    /// The first result of each op on these operands; the others follow it.
    known: BTreeMap<Key, Vec<(Op, Number)>>,
    /// Sums by what they began with and their terms.
    sums: BTreeMap<(Number, Vec<Term>), Number>,
    next: Number,
    split: bool,
    /// Whether terms of sums may come in another order.
    is_sliced: bool,
}

impl Numbering {
    /// Runs all nodes in the graph's own order; returns the number that each tensor ends with.
    fn run(&mut self, graph: &Graph) -> Result<Vec<Option<Number>>, Difference> {
        let mut held: Vec<Option<Held>> = graph.tensors.iter().enumerate().map(begin).collect();
        let mut order: Vec<usize> = (0..graph.nodes.len()).collect();
        order.sort_by_key(|index| graph.nodes[*index].phase);
        for index in order {
            let done = self.node(graph, &graph.nodes[index], &mut held);
            done.ok_or(Difference::Node(NodeId(index)))?;
        }
        Ok(held.into_iter().map(|held| Some(self.number(&held?))).collect())
    }

    /// Runs one node; nothing where it cannot be.
    fn node(&mut self, graph: &Graph, node: &Node, held: &mut [Option<Held>]) -> Option<()> {
        if !has_types(graph, node) {
            return None;
        }
        let part = graph.slice_of(node).map(|slice| (slice.index, slice.count));
        if let Op::Fused(_) = &node.op {
            self.fused(graph, node, part, held)
        } else if node.op == Op::TakeRows {
            let whole = self.read(held, *node.inputs.first()?)?;
            put(held, *node.outputs.first()?, Held::Value(whole, part));
            Some(())
        } else if node.op == Op::PutRows {
            let number = self.read(held, *node.inputs.first()?)?;
            let term = Term { number, is_put: true, slices: part.into_iter().collect() };
            self.add(held, *node.updates.first()?, term)
        } else {
            self.primitive(graph, node, part, held)
        }
    }

    /// Runs the parts of a fused op.
    fn fused(&mut self, graph: &Graph, node: &Node, part: Part, held: &mut [Option<Held>]) -> Option<()> {
        let Op::Fused(fused) = &node.op else { return None };
        let types: Vec<&Tensor> = node.inputs.iter().map(|id| &graph.tensors[id.0]).collect();
        let mut small = fused.decompose(&types, node.updates.len()).ok()?.graph(graph, node).ok()?;
        let slice = graph.slice_of(node).filter(|_| part.is_some());
        let operands: Vec<TensorId> =
            [&node.inputs, &node.outputs, &node.updates].into_iter().flatten().copied().collect();
        // What is between the parts has the rows of the node.
        for tensor in small.tensors.iter_mut().skip(operands.len()).filter(|tensor| tensor.shape.batched) {
            tensor.slice = slice;
        }
        let mut inner: Vec<Option<Held>> = operands.iter().map(|id| held[id.0].clone()).collect();
        inner.resize(small.tensors.len(), None);
        for part in &small.nodes {
            self.node(&small, part, &mut inner)?;
        }
        let written = node.inputs.len()..operands.len();
        operands.into_iter().zip(inner).skip(written.start).for_each(|(id, value)| held[id.0] = value);
        Some(())
    }

    fn primitive(&mut self, graph: &Graph, node: &Node, part: Part, held: &mut [Option<Held>]) -> Option<()> {
        let along_rows = node.op.signature().facts.axes.batch;
        let adds = along_rows == Some(Along::Summed);
        if part.is_some() {
            let has_part = |id: &TensorId| {
                let Tensor { shape, slice, .. } = &graph.tensors[id.0];
                !shape.batched || slice.map(|slice| (slice.index, slice.count)) == part
            };
            let is_whole = |id: &TensorId| graph.tensors[id.0].shape.batched;
            let is_independent = adds || along_rows == Some(Along::Independent) && node.updates.is_empty();
            let all_parts = node.inputs.iter().chain(&node.outputs).all(has_part);
            if !is_independent || !all_parts || !node.outputs.iter().all(is_whole) {
                return None;
            }
        }
        if node.op == Op::Zero {
            let zero = self.intern(&node.op, (Vec::new(), None), 1);
            node.outputs.iter().for_each(|id| put(held, *id, Held::Value(zero, None)));
            return Some(());
        }
        let read = if adds { &node.updates[..0] } else { &node.updates[..] };
        let operands = node.inputs.iter().chain(read);
        let numbers = operands.map(|id| self.read(held, *id)).collect::<Option<Vec<Number>>>()?;
        let section = (self.split && !node.updates.is_empty()).then_some(node.phase);
        let count = node.outputs.len() + node.updates.len();
        let first = self.intern(&node.op, (numbers, section), count);
        for (number, id) in (first..).zip(&node.outputs) {
            put(held, *id, Held::Value(number, part));
        }
        for (number, id) in (first + node.outputs.len()..).zip(&node.updates) {
            if adds {
                self.add(held, *id, Term { number, is_put: false, slices: part.into_iter().collect() })?;
            } else {
                put(held, *id, Held::Value(number, None));
            }
        }
        Some(())
    }

    /// The number of the first of `count` results of an op.
    fn intern(&mut self, op: &Op, key: Key, count: usize) -> Number {
        let known = self.known.entry(key).or_default();
        if let Some((_, number)) = known.iter().find(|(other, _)| other == op) {
            return *number;
        }
        known.push((op.clone(), self.next));
        self.next += count;
        self.next - count
    }

    /// The number of all rows of what a tensor holds, where it holds something.
    fn read(&mut self, held: &[Option<Held>], id: TensorId) -> Option<Number> {
        let held = held[id.0].as_ref()?;
        Some(self.number(held))
    }

    fn number(&mut self, held: &Held) -> Number {
        match held {
            Held::Value(number, _) => *number,
            Held::Sum(base, terms) => {
                let mut terms = terms.clone();
                if self.is_sliced {
                    terms.sort_unstable();
                }
                let next = self.next;
                let number = *self.sums.entry((*base, terms)).or_insert(next);
                self.next += usize::from(number == next);
                number
            }
        }
    }

    /// Adds a term to what a tensor holds, or a slice to a term of which others have come.
    fn add(&mut self, held: &mut [Option<Held>], id: TensorId, term: Term) -> Option<()> {
        let (base, mut terms) = match held[id.0].take()? {
            Held::Value(number, None) => (number, Vec::new()),
            Held::Value(_, Some(_)) => return None,
            Held::Sum(base, terms) => (base, terms),
        };
        let waits = |known: &&mut Term| {
            let count = |term: &Term| term.slices.first().map(|(_, count)| *count);
            (known.number, known.is_put, count(known)) == (term.number, term.is_put, count(&term))
                && term.slices.iter().all(|slice| !known.slices.contains(slice))
        };
        match terms.iter_mut().filter(|known| !known.slices.is_empty()).find(waits) {
            Some(known) => {
                known.slices.extend(&term.slices);
                if known.slices[0].1 == known.slices.len() {
                    known.slices.clear();
                }
            }
            None => terms.push(term),
        }
        let zero = self.intern(&Op::Zero, (Vec::new(), None), 1);
        held[id.0] = Some(match &terms[..] {
            // Put into zeros, and every slice has come.
            [Term { number, is_put: true, slices }] if slices.is_empty() && base == zero => {
                Held::Value(*number, None)
            }
            _ => Held::Sum(base, terms),
        });
        Some(())
    }
}

fn put(held: &mut [Option<Held>], id: TensorId, value: Held) {
    held[id.0] = Some(value);
}

/// What a tensor holds before a step: a value of its own, of which a slice that is fed has some rows.
fn begin((id, tensor): (usize, &Tensor)) -> Option<Held> {
    let is_there = tensor.kind.is_persistent() || tensor.kind == Kind::Input;
    let value = match tensor.slice {
        Some(slice) => Held::Value(slice.of.0, Some((slice.index, slice.count))),
        None => Held::Value(id, None),
    };
    is_there.then_some(value)
}

/// Whether what a node writes has the types that follow from what it reads.
fn has_types(graph: &Graph, node: &Node) -> bool {
    if node.op == Op::Zero {
        return true;
    }
    let read: Vec<&Tensor> = node.inputs.iter().map(|id| &graph.tensors[id.0]).collect();
    let written = node.outputs.iter().map(|id| &graph.tensors[id.0]);
    let written = written.map(|tensor| Type { shape: tensor.shape.clone(), dtype: tensor.dtype });
    infer(&node.op, &read).is_ok_and(|types| types.into_iter().eq(written))
}
