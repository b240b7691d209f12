//! Sums whose one term is computed by the same node: what a residual network adds to a branch's result, and to its gradient.

use crate::{Norm, Op};

/// What computes a term that another value is added to while it is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Summand {
    /// As [`Op::Dense`].
    Dense,
    /// As [`Op::DenseGradInput`].
    DenseGradInput,
    /// As [`Op::LayerNormGrad`].
    LayerNormGrad(Norm, usize),
}

impl Summand {
    /// The term of an op, where a value can be added to what it writes.
    pub fn of(op: &Op) -> Option<Summand> {
        if let Op::Dense = op {
            Some(Summand::Dense)
        } else if let Op::DenseGradInput = op {
            Some(Summand::DenseGradInput)
        } else if let Op::LayerNormGrad(norm, axes) = op {
            Some(Summand::LayerNormGrad(norm.clone(), *axes))
        } else {
            None
        }
    }

    /// The op that computes the term alone.
    pub fn op(&self) -> Op {
        match self {
            Summand::Dense => Op::Dense,
            Summand::DenseGradInput => Op::DenseGradInput,
            Summand::LayerNormGrad(norm, axes) => Op::LayerNormGrad(norm.clone(), *axes),
        }
    }
}
