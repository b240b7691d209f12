//! The derivative of an elementwise chain, as another chain.

use memfit_ir::{Binary, Chain, Link, Saves, Unary};

/// The gradient with respect to one input of a chain.
#[derive(Clone, Debug, PartialEq)]
pub enum InputGradient {
    /// The input does not influence the result.
    Zero,
    /// The gradient of the result, unchanged.
    Same,
    /// A chain over these operands.
    Chain(Chain, Vec<Operand>),
}

/// What a gradient chain reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The gradient of the result.
    Gradient,
    /// An input of the forward chain.
    Input(usize),
    /// The result of the forward chain.
    Result,
}

/// The gradient of `chain` with respect to its input number `input`.
///
/// Inner values are recomputed from the inputs, in registers. Only the result, where a derivative is a
/// function of it, is read instead, because the next layer often keeps it too.
pub fn gradient(chain: &Chain, input: usize) -> InputGradient {
    let mut tape = Tape::new(chain);
    let mut adjoints: Vec<Option<usize>> = vec![None; chain.inputs + chain.links.len()];
    *adjoints.last_mut().expect("a chain has a value") = Some(Tape::GRADIENT);
    for (index, link) in chain.links.iter().enumerate().rev() {
        let value = chain.inputs + index;
        let Some(adjoint) = adjoints[value] else { continue };
        for (operand, contribution) in tape.pull_back(link, value, adjoint) {
            adjoints[operand] = Some(match adjoints[operand] {
                None => contribution,
                Some(other) => tape.push(Link::Binary(Binary::Add, other, contribution)),
            });
        }
    }
    match adjoints[input] {
        None => InputGradient::Zero,
        Some(Tape::GRADIENT) => InputGradient::Same,
        Some(value) => {
            let (chain, operands) = tape.prune(value);
            InputGradient::Chain(chain, operands)
        }
    }
}

/// Values: the gradient, the result, the inputs, the forward links, then what the derivative adds.
struct Tape<'a> {
    forward: &'a Chain,
    links: Vec<Link>,
}

impl<'a> Tape<'a> {
    const GRADIENT: usize = 0;
    const RESULT: usize = 1;

    fn new(forward: &'a Chain) -> Tape<'a> {
        let shift = |value: usize| value + 2;
        let links = forward
            .links
            .iter()
            .map(|link| match *link {
                Link::Unary(function, a) => Link::Unary(function, shift(a)),
                Link::Binary(function, a, b) => Link::Binary(function, shift(a), shift(b)),
            })
            .collect();
        Tape { forward, links }
    }

    fn push(&mut self, link: Link) -> usize {
        self.links.push(link);
        2 + self.forward.inputs + self.links.len() - 1
    }

    /// A forward value: the result is read, others are computed again.
    fn value(&self, forward: usize) -> usize {
        let last = self.forward.inputs + self.forward.links.len() - 1;
        if forward == last { Tape::RESULT } else { forward + 2 }
    }

    fn pull_back(&mut self, link: &Link, value: usize, adjoint: usize) -> Vec<(usize, usize)> {
        match *link {
            Link::Unary(function, a) => {
                let derivative = match (function, function.saves()) {
                    (Unary::Scale(factor), _) => self.push(Link::Unary(Unary::Scale(factor), adjoint)),
                    (_, Saves::Nothing) => adjoint,
                    (_, Saves::Input) => {
                        let saved = self.value(a);
                        self.push(Link::Binary(Binary::Derivative(function), adjoint, saved))
                    }
                    (_, Saves::Output) => {
                        let saved = self.value(value);
                        self.push(Link::Binary(Binary::Derivative(function), adjoint, saved))
                    }
                };
                vec![(a, derivative)]
            }
            Link::Binary(function, a, b) => match function {
                Binary::Add => vec![(a, adjoint), (b, adjoint)],
                Binary::Subtract => {
                    let negative = self.push(Link::Unary(Unary::Scale(-1.0), adjoint));
                    vec![(a, adjoint), (b, negative)]
                }
                Binary::Multiply => {
                    let (left, right) = (self.value(a), self.value(b));
                    let for_a = self.push(Link::Binary(Binary::Multiply, adjoint, right));
                    let for_b = self.push(Link::Binary(Binary::Multiply, adjoint, left));
                    vec![(a, for_a), (b, for_b)]
                }
                Binary::Divide => {
                    // dy/b for a, and −(dy/b)·(a/b) for b.
                    let (left, right) = (self.value(a), self.value(b));
                    let for_a = self.push(Link::Binary(Binary::Divide, adjoint, right));
                    let ratio = self.push(Link::Binary(Binary::Divide, left, right));
                    let product = self.push(Link::Binary(Binary::Multiply, for_a, ratio));
                    let for_b = self.push(Link::Unary(Unary::Scale(-1.0), product));
                    vec![(a, for_a), (b, for_b)]
                }
                Binary::Minimum => {
                    let (left, right) = (self.value(a), self.value(b));
                    let wins = self.push(Link::Binary(Binary::GreaterEqual, right, left));
                    let for_a = self.push(Link::Binary(Binary::Multiply, adjoint, wins));
                    let for_b = self.push(Link::Binary(Binary::Subtract, adjoint, for_a));
                    vec![(a, for_a), (b, for_b)]
                }
                Binary::Maximum => {
                    let (left, right) = (self.value(a), self.value(b));
                    let wins = self.push(Link::Binary(Binary::GreaterEqual, left, right));
                    let for_a = self.push(Link::Binary(Binary::Multiply, adjoint, wins));
                    let for_b = self.push(Link::Binary(Binary::Subtract, adjoint, for_a));
                    vec![(a, for_a), (b, for_b)]
                }
                // Both only occur in gradients; their own gradients are never needed.
                Binary::GreaterEqual | Binary::Derivative(_) => vec![],
            },
        }
    }

    /// The chain that ends at `result`, without what it does not need.
    fn prune(&self, result: usize) -> (Chain, Vec<Operand>) {
        let sources = 2 + self.forward.inputs;
        let mut needed = vec![false; result + 1];
        needed[result] = true;
        for value in (sources..=result).rev().filter(|value| *value >= sources) {
            if needed[value] {
                for operand in operands(&self.links[value - sources]) {
                    needed[operand] = true;
                }
            }
        }
        let mut renamed = vec![usize::MAX; result + 1];
        let mut reads = Vec::new();
        for source in (0..sources).filter(|source| needed[*source]) {
            renamed[source] = reads.len();
            reads.push(match source {
                Tape::GRADIENT => Operand::Gradient,
                Tape::RESULT => Operand::Result,
                input => Operand::Input(input - 2),
            });
        }
        let mut links = Vec::new();
        for value in (sources..=result).filter(|value| needed[*value]) {
            renamed[value] = reads.len() + links.len();
            links.push(match self.links[value - sources] {
                Link::Unary(function, a) => Link::Unary(function, renamed[a]),
                Link::Binary(function, a, b) => Link::Binary(function, renamed[a], renamed[b]),
            });
        }
        (Chain { inputs: reads.len(), links }, reads)
    }
}

fn operands(link: &Link) -> Vec<usize> {
    match *link {
        Link::Unary(_, a) => vec![a],
        Link::Binary(_, a, b) => vec![a, b],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relu_reads_its_result_and_nothing_else() {
        let InputGradient::Chain(chain, operands) = gradient(&Chain::unary(Unary::Relu), 0) else {
            panic!("a relu has a gradient");
        };
        assert_eq!(operands, [Operand::Gradient, Operand::Result]);
        assert_eq!(chain, Chain::binary(Binary::Derivative(Unary::Relu)));
    }

    #[test]
    fn a_sum_hands_its_gradient_on() {
        for input in 0..3 {
            assert_eq!(gradient(&Chain::fold(Binary::Add, 3), input), InputGradient::Same);
        }
    }

    #[test]
    fn an_unused_input_has_no_gradient() {
        let chain = Chain { inputs: 2, links: vec![Link::Unary(Unary::Tanh, 0)] };
        assert_eq!(gradient(&chain, 1), InputGradient::Zero);
    }
}
