//! Fusing: elementwise work runs in the node before it, so that a value in between is never written and read back.
//!
//! Only neighbours are joined, so nothing lives longer than it did. The arithmetic stays what it was, link by link.

use memfit_ir::{Chain, Graph, Link, Node, Op, TensorId};

/// Chains are kept short: every link but the last needs a block of scratch memory for each thread.
const LINKS: usize = 8;

/// Stands for a value that has no tensor.
const NO_TENSOR: TensorId = TensorId(usize::MAX);

/// Joins every elementwise node with the node before it, where that alone writes what nobody else reads.
pub fn fuse(graph: &mut Graph) {
    let mut readers = vec![0usize; graph.tensors.len()];
    for node in &graph.nodes {
        for input in &node.inputs {
            readers[input.0] += 1;
        }
    }
    for tensor in graph.keep.iter().chain(&graph.outputs) {
        readers[tensor.0] += graph.nodes.len();
    }
    let nodes = std::mem::take(&mut graph.nodes);
    for node in nodes {
        // What changes sums only, such as moving averages, may stand in between.
        let before = graph.nodes.iter().rposition(|node| !node.outputs.is_empty());
        let fused = before.and_then(|index| Some((index, joined(&graph.nodes[index], &node, &readers)?)));
        match fused {
            Some((index, fused)) => {
                graph.nodes.remove(index);
                graph.nodes.push(fused);
            }
            None => graph.nodes.push(node),
        }
    }
}

/// Two nodes as one, if they can be.
fn joined(first: &Node, second: &Node, readers: &[usize]) -> Option<Node> {
    let Op::Elementwise(last) = &second.op else { return None };
    let [between] = first.outputs[..] else { return None };
    let reads = second.inputs.iter().filter(|input| **input == between).count();
    if reads == 0 || reads != readers[between.0] || first.phase != second.phase || !first.updates.is_empty() {
        return None;
    }
    let others = |known: &[TensorId]| -> Vec<TensorId> {
        let mut others: Vec<TensorId> = Vec::new();
        for input in second.inputs.iter().filter(|input| **input != between && !known.contains(input)) {
            if !others.contains(input) {
                others.push(*input);
            }
        }
        others
    };
    let (op, inputs) = if let Op::Elementwise(chain) = &first.op {
        let mut operands = first.inputs.clone();
        operands.extend(others(&operands));
        (Op::Elementwise(followed(chain, &operands, last, &second.inputs, between)?), operands)
    } else if let Op::BatchNorm(norm) = &first.op {
        let others = others(&[]);
        let operands: Vec<TensorId> = std::iter::once(between).chain(others.iter().copied()).collect();
        let place = |value: usize| place(&operands, second.inputs[value]);
        let chain = Chain { inputs: operands.len(), links: moved(last, place, operands.len())? };
        (Op::BatchNormThen(norm.clone(), chain), [&first.inputs[..], &others].concat())
    } else if let Op::BatchNormThen(norm, chain) = &first.op {
        let own = first.inputs.len() - (chain.inputs - 1);
        // The first value of the chain is the normalised one, which has no tensor.
        let mut operands = vec![NO_TENSOR];
        operands.extend(&first.inputs[own..]);
        let others = others(&operands);
        operands.extend(&others);
        let chain = followed(chain, &operands, last, &second.inputs, between)?;
        (Op::BatchNormThen(norm.clone(), chain), [&first.inputs[..], &others].concat())
    } else {
        return None;
    };
    Some(Node { op, inputs, ..second.clone() })
}

/// A chain over the first of `operands`, and behind it another that reads its result as `between`.
fn followed(
    first: &Chain,
    operands: &[TensorId],
    second: &Chain,
    reads: &[TensorId],
    between: TensorId,
) -> Option<Chain> {
    let inputs = operands.len();
    let mut links: Vec<Link> = moved(first, Some, inputs)?;
    let result = inputs + links.len() - 1;
    let offset = inputs + links.len();
    let read =
        |value: usize| if reads[value] == between { Some(result) } else { place(operands, reads[value]) };
    links.extend(moved(second, read, offset)?);
    (links.len() <= LINKS).then_some(Chain { inputs, links })
}

/// The links of a chain whose inputs stand elsewhere, and whose own values begin at `offset`.
fn moved(chain: &Chain, input: impl Fn(usize) -> Option<usize>, offset: usize) -> Option<Vec<Link>> {
    let value = |value: usize| match value.checked_sub(chain.inputs) {
        None => input(value),
        Some(link) => Some(offset + link),
    };
    chain
        .links
        .iter()
        .map(|link| {
            Some(match *link {
                Link::Unary(function, a) => Link::Unary(function, value(a)?),
                Link::Binary(function, a, b) => Link::Binary(function, value(a)?, value(b)?),
            })
        })
        .collect()
}

fn place(operands: &[TensorId], tensor: TensorId) -> Option<usize> {
    operands.iter().position(|operand| *operand == tensor)
}
