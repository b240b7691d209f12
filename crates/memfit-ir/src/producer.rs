//! The producer of a value that is not stored: its readers recompute it, part by part, in the cache.

use crate::{Chain, Fused, Link, Norm, Op, Unary};

/// What computes a value from one of the same shape: a normalisation by the batch's statistics, a function,
/// or both.
#[derive(Clone, Debug, PartialEq)]
pub struct Producer {
    /// The normalisation, where there is one: its operands come after the value, as in [`Op::BatchNorm`].
    pub norm: Option<Norm>,
    /// The function after it, or of the value itself.
    pub function: Option<Unary>,
}

impl Producer {
    /// The producer of an op's output, where the op reads one value for each that it writes.
    pub fn of(op: &Op) -> Option<Producer> {
        let single = |chain: &Chain| match chain.links[..] {
            [Link::Unary(function, 0)] if chain.inputs == 1 => Some(function),
            _ => None,
        };
        if let Op::BatchNorm(norm) = op {
            Some(Producer { norm: Some(norm.clone()), function: None })
        } else if let Op::Fused(fused) = op {
            let (norm, chain) = fused.as_norm_then()?;
            Some(Producer { norm: Some(norm.clone()), function: Some(single(chain)?) })
        } else if let Op::Elementwise(chain) = op {
            Some(Producer { norm: None, function: Some(single(chain)?) })
        } else {
            None
        }
    }

    /// The op of this producer; none where it computes nothing.
    pub fn op(&self) -> Option<Op> {
        let chain = self.function.map(Chain::unary);
        match (self.norm.clone(), chain) {
            (Some(norm), Some(chain)) => Some(Op::Fused(Fused::norm_then(norm, chain))),
            (Some(norm), None) => Some(Op::BatchNorm(norm)),
            (None, Some(chain)) => Some(Op::Elementwise(chain)),
            (None, None) => None,
        }
    }

    /// How many inputs it reads: the value, weights and statistics.
    pub fn inputs(&self) -> usize {
        1 + self.norm.as_ref().map_or(0, |norm| 2 + usize::from(norm.scale) + usize::from(norm.center))
    }
}
