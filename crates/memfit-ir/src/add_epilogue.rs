//! Sums whose one term is computed by the same node: what a residual network adds to a branch's result, and to its gradient.

use crate::{Norm, Op};

/// What computes a term that another value is added to while it is written.
#[derive(Clone, Debug, PartialEq)]
pub enum AddEpilogue {
    /// As [`Op::Dense`].
    Dense,
    /// As [`Op::DenseGradInput`].
    DenseGradInput,
    /// As [`Op::LayerNormGrad`].
    LayerNormGrad(Norm, usize),
}

impl AddEpilogue {
    /// The term of an op, where a value can be added to what it writes.
    pub fn of(op: &Op) -> Option<AddEpilogue> {
        if let Op::Dense = op {
            Some(AddEpilogue::Dense)
        } else if let Op::DenseGradInput = op {
            Some(AddEpilogue::DenseGradInput)
        } else if let Op::LayerNormGrad(norm, axes) = op {
            Some(AddEpilogue::LayerNormGrad(norm.clone(), *axes))
        } else {
            None
        }
    }

    /// The op that computes the term alone.
    pub fn op(&self) -> Op {
        match self {
            AddEpilogue::Dense => Op::Dense,
            AddEpilogue::DenseGradInput => Op::DenseGradInput,
            AddEpilogue::LayerNormGrad(norm, axes) => Op::LayerNormGrad(norm.clone(), *axes),
        }
    }
}
