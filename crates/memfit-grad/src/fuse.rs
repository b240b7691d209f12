//! Fusing: elementwise work runs in the node before it, so that a value in between is never written and read back.
//!
//! Only neighbours are joined, so nothing lives longer than it did. The arithmetic stays what it was, link by link.

use memfit_ir::Operand::{Dx, Dy, Other, X};
use memfit_ir::{AddEpilogue, Binary, Chain, Fused, Graph, Link, Node, NodeId, Op, Pool2D, TensorId, Unary};

use crate::training::single_link;

/// Chains are kept short: every link but the last needs a block of scratch memory for each thread.
const LINKS: usize = 8;

/// Stands for a value that has no tensor.
const NO_TENSOR: TensorId = TensorId(usize::MAX);

/// Lets convolutions pad by themselves what a node before them pads with zeros, so that the padded image need not exist.
pub fn pad_inside(graph: &mut Graph) {
    let mut padded = vec![None; graph.tensors.len()];
    for node in &mut graph.nodes {
        if let (Op::Pad2D(pads), [image], [output]) = (&node.op, &node.inputs[..], &node.outputs[..]) {
            padded[output.0] = Some((*pads, *image));
        }
        if let Op::Conv2D(convolution) = &mut node.op
            && let [x, ..] = &mut node.inputs[..]
            && let Some((pads, image)) = padded[x.0]
        {
            convolution.pads = convolution.pads.and(&pads);
            *x = image;
        }
    }
}

/// A max pool pads its input itself where a node before it pads with zeros and no value is below 0: a padded
/// zero that becomes an argmax passes no gradient on. A pool leaves its own margins out, so every window must
/// have some of the image under it.
pub fn pad_inside_pools(graph: &mut Graph) {
    for index in 0..graph.nodes.len() {
        let Op::MaxPool2D(pool) = &graph.nodes[index].op else { continue };
        let produced = |tensor: TensorId| graph.producer(tensor).map(|NodeId(index)| &graph.nodes[index]);
        let Some(padding) = produced(graph.nodes[index].input(X)) else { continue };
        let Op::Pad2D(pads) = &padding.op else { continue };
        let image = padding.input(X);
        let is_relu = |node: &Node| matches!(single_link(&node.op), Some(Link::Unary(Unary::Relu, 0)));
        let pool = Pool2D { pads: pool.pads.and(pads), ..pool.clone() };
        if pool.is_inside() && produced(image).is_some_and(is_relu) {
            (graph.nodes[index].op, graph.nodes[index].inputs) = (Op::MaxPool2D(pool), vec![image]);
        }
    }
}

/// Joins every elementwise node with the node before it, where it alone reads that node's output.
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
        let fused = before.and_then(|index| {
            let first = &graph.nodes[index];
            let fused = joined(first, &node, &readers)
                .or_else(|| masked_sum(graph, first, &node, &readers))
                .or_else(|| summed_norm(first, &node).filter(|_| index + 1 == graph.nodes.len()))?;
            Some((index, fused))
        });
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
    if reads == 0 || reads != readers[between.0] || first.phase != second.phase {
        return None;
    }
    if let Some(sum) = added(first, second, last, between) {
        return Some(sum);
    }
    if !first.updates.is_empty() {
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
        let place = |value: usize| place(&operands, second.input((X, value)));
        let chain = Chain { inputs: operands.len(), links: moved(last, place, operands.len())? };
        (Op::Fused(Fused::BatchNormThen(norm.clone(), chain)), [&first.inputs[..], &others].concat())
    } else if let Op::Fused(Fused::BatchNormThen(norm, chain)) = &first.op {
        // The first value of the chain is the normalised one, which has no tensor.
        let mut operands = vec![NO_TENSOR];
        operands.extend((1..chain.inputs).map(|input| first.input((Other, input - 1))));
        let others = others(&operands);
        operands.extend(&others);
        let chain = followed(chain, &operands, last, &second.inputs, between)?;
        (Op::Fused(Fused::BatchNormThen(norm.clone(), chain)), [&first.inputs[..], &others].concat())
    } else if let (Op::Conv2D(conv), [Link::Unary(Unary::Relu, 0)]) = (&first.op, &last.links[..]) {
        (Op::Fused(Fused::Conv2DRelu(conv.clone())), first.inputs.clone())
    } else {
        return None;
    };
    Some(Node { op, inputs, ..second.clone() })
}

/// Two gradients that are added and masked as one node.
fn masked_sum(graph: &Graph, first: &Node, second: &Node, readers: &[usize]) -> Option<Node> {
    let Link::Binary(Binary::Add, 0, 1) = single_link(&first.op)? else { return None };
    let [between] = first.outputs[..] else { return None };
    let dtype = |tensor: &TensorId| graph.tensors[tensor.0].dtype;
    let alike = first.inputs.iter().chain(&second.outputs).all(|tensor| dtype(tensor) == dtype(&between));
    if second.op != Op::MaskBits || second.input(Dy) != between || readers[between.0] != 1 || !alike {
        return None;
    }
    let inputs = [&first.inputs[..], &second.inputs[1..]].concat();
    (first.phase == second.phase).then(|| Node {
        op: Op::Fused(Fused::MaskBitsOfSum),
        inputs,
        ..second.clone()
    })
}

/// A masked sum and the gradient of a normalisation that reads it as one node, which writes both.
fn summed_norm(first: &Node, second: &Node) -> Option<Node> {
    let Op::BatchNormGrad(norm) = &second.op else { return None };
    if first.op != Op::Fused(Fused::MaskBitsOfSum)
        || second.input(Dy) != first.output(Dx)
        || first.phase != second.phase
    {
        return None;
    }
    let inputs = [&first.inputs[..], &second.inputs[1..]].concat();
    let outputs = [&second.outputs[..], &first.outputs].concat();
    Some(Node { op: Op::Fused(Fused::BatchNormGradOfSum(norm.clone())), inputs, outputs, ..second.clone() })
}

/// A term and the value that is added to it, where the second node is that sum.
fn added(first: &Node, second: &Node, chain: &Chain, between: TensorId) -> Option<Node> {
    let [Link::Binary(Binary::Add, 0, 1) | Link::Binary(Binary::Add, 1, 0)] = chain.links[..] else {
        return None;
    };
    let others: Vec<TensorId> = second.inputs.iter().copied().filter(|input| *input != between).collect();
    let [other] = others[..] else { return None };
    let op = Op::Fused(Fused::Plus(AddEpilogue::of(&first.op)?));
    let inputs = [&first.inputs[..], &[other]].concat();
    Some(Node { op, inputs, outputs: second.outputs.clone(), ..first.clone() })
}

/// A chain over the first of `operands`, and after it another that reads its result as `between`.
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use memfit_ir::{Conv2D, DType, Kind, Pads, Shape};

    use super::*;

    #[test]
    fn a_convolution_pads_by_itself() {
        let mut graph = Graph::default();
        let layer = graph.layer("padded");
        let image = graph.tensor("image", Shape::rows([5, 6, 3]), DType::F32, Kind::Input, layer);
        let kernel = graph.tensor(
            "kernel",
            Shape::fixed([3, 3, 3, 4]),
            DType::F32,
            Kind::Weight { trainable: true },
            layer,
        );
        let padded =
            graph.push(Op::Pad2D(Pads { top: 1, bottom: 2, left: 0, right: 3 }), &[image], layer).unwrap();
        let pads = Pads { top: 1, bottom: 1, left: 1, right: 1 };
        let convolution = Conv2D { kernel: [3, 3], strides: [1, 1], dilation: [1, 1], groups: 1, pads };
        graph.push(Op::Conv2D(convolution), &[padded[0], kernel], layer).unwrap();
        pad_inside(&mut graph);
        let Op::Conv2D(convolution) = &graph.nodes[1].op else {
            panic!("the convolution stays where it was")
        };
        assert_eq!(convolution.pads, Pads { top: 2, bottom: 3, left: 1, right: 4 });
        assert_eq!(graph.nodes[1].inputs, [image, kernel]);
    }
}
