//! Elementwise work that is kept back for a moment, since what comes next may read the same values: sums over the columns of its
//! result, and a function of one of its operands that is computed again. All of them then are one launch.

use std::collections::BTreeMap;

use memfit_ir::Operand::{Dy, X, Y};
use memfit_ir::{Graph, Node, NodeId, Op, Slot};

use super::call::Call;
use super::work::{Lowered, Work};
use super::{call_of, lower};

/// Work that waits.
pub(crate) struct Joined {
    /// What runs if nothing else comes, and on what.
    pub(crate) lowered: Lowered,
    pub(crate) args: Vec<Slot>,
    pub(crate) workspace: Slot,
    /// Operands of the chain: those that it reads, and its result.
    inputs: Vec<Slot>,
    result: Slot,
    /// What sums that join have defined, and the type and elements of the result.
    made: String,
    c_type: &'static str,
    elements: usize,
    has_sums: bool,
}

impl Joined {
    /// A node that waits for others, where it may.
    pub(crate) fn begin(call: &Call<'_>, args: &[Slot], workspace: Slot) -> Option<Joined> {
        let chain = lower::joined::chain(call)?;
        let y = call.output(Y);
        Some(Joined {
            lowered: lower::lower(call),
            args: args.to_vec(),
            workspace,
            inputs: args[..chain.inputs].to_vec(),
            result: args[chain.inputs],
            made: lower::joined::made(call, chain),
            c_type: y.c_type(),
            elements: y.elements,
            has_sums: false,
        })
    }

    /// Takes the next node along, where that changes no bit.
    pub(crate) fn take(&mut self, call: &Call<'_>, args: &[Slot], workspace: Slot) -> bool {
        let is_sums = call.node.op == Op::BiasGrad;
        if is_sums { self.take_sums(call, args, workspace) } else { self.take_again(call, args) }
    }

    fn take_sums(&mut self, call: &Call<'_>, args: &[Slot], workspace: Slot) -> bool {
        let apart = |slot: &Slot| !slot.overlaps(&workspace) && !slot.overlaps(&args[1]);
        let suits = args[0] == self.result && call.input(Dy).elements == self.elements;
        if self.has_sums || !suits || !self.inputs.iter().chain([&self.result]).all(apart) {
            return false;
        }
        self.lowered = lower::joined::sums(call, &self.made, self.inputs.len());
        self.args = [args, &self.inputs[..]].concat();
        self.workspace = workspace;
        self.has_sums = true;
        true
    }

    /// After the sums, a function of one operand.
    fn take_again(&mut self, call: &Call<'_>, args: &[Slot]) -> bool {
        let Some(chain) = lower::joined::chain(call) else { return false };
        let (y, waits) = (call.output(Y), self.has_sums && self.args.len() == self.inputs.len() + 2);
        let Some(read) = self.inputs.iter().position(|slot| *slot == args[0]) else { return false };
        let to = args[chain.inputs];
        // A thread reads all operands of its places before it writes any: what is read may be written over, but by one alone.
        let mut others = self.inputs.iter().filter(|slot| **slot != to);
        let apart = others.all(|slot| !slot.overlaps(&to))
            && [self.result, self.workspace, self.args[1]].iter().all(|slot| !slot.overlaps(&to))
            && !self.result.overlaps(&args[0]);
        let alike = y.c_type() == self.c_type && y.elements == self.elements;
        if !waits || chain.inputs != 1 || !alike || !apart {
            return false;
        }
        lower::joined::compute_again(&mut self.lowered, chain, read, self.args.len());
        self.args.push(to);
        true
    }
}

/// The work of all launches that may be joined in a graph, so that none is compiled when memory is counted.
pub(crate) fn all(graph: &Graph, rows: usize, tf32: bool) -> Vec<Work> {
    // Sums by what they add up, and functions by what they read.
    let (mut sums, mut functions): (BTreeMap<_, Vec<&Node>>, BTreeMap<_, Vec<&Node>>) = Default::default();
    for node in &graph.nodes {
        if node.op == Op::BiasGrad {
            sums.entry(node.input(Dy)).or_default().push(node);
        } else if matches!(node.op, Op::Elementwise(_)) && node.inputs.len() == 1 {
            functions.entry(node.input(X)).or_default().push(node);
        }
    }
    let call = |node| call_of(graph, node, rows, false, tf32);
    let dtype = |node: &Node| graph.tensors[node.output(Y).0].dtype;
    let mut work = Vec::new();
    for made in &graph.nodes {
        let Some(chain) = lower::joined::chain(&call(made)) else { continue };
        for node in sums.get(&made.output(Y)).into_iter().flatten() {
            let text = lower::joined::made(&call(made), chain);
            let plain = lower::joined::sums(&call(node), &text, chain.inputs);
            for (read, input) in made.inputs.iter().enumerate() {
                for other in functions.get(input).into_iter().flatten() {
                    let again = lower::joined::chain(&call(other)).filter(|_| dtype(other) == dtype(made));
                    if let Some(again) = again {
                        let mut joined = plain.clone();
                        lower::joined::compute_again(&mut joined, again, read, 0);
                        work.extend(joined.work);
                    }
                }
            }
            work.extend(plain.work);
        }
    }
    work
}

/// For tests of the texts without a device: a chain, the sums over its result and what is computed again as one, over the operands of
/// the sums, the chain's inputs, and what is computed again.
pub fn joined(graph: &Graph, [made, sums, again]: [NodeId; 3], rows: usize) -> Option<Lowered> {
    let call = |id: NodeId| call_of(graph, &graph.nodes[id.0], rows, true, false);
    let (made, sums, again) = (call(made), call(sums), call(again));
    let (chain, function) = (lower::joined::chain(&made)?, lower::joined::chain(&again)?);
    let mut lowered = lower::joined::sums(&sums, &lower::joined::made(&made, chain), chain.inputs);
    let read = made.node.inputs.iter().position(|input| *input == again.node.input(X))?;
    lower::joined::compute_again(&mut lowered, function, read, 2 + chain.inputs);
    Some(lowered)
}
