//! Products of two tensors: how their matrices are stored, and what they give.

use crate::Shape;

/// A product of two tensors' last two axes, `y = a b`, each of which may be stored transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatMul {
    /// Whether `a` is stored as `[…,k,m]`.
    pub transpose_a: bool,
    /// Whether `b` is stored as `[…,n,k]`.
    pub transpose_b: bool,
}

/// The sizes of one product of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatMulSizes {
    /// Products for each row of the batch.
    pub products: usize,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// The dimension that is summed over.
    pub k: usize,
}

impl MatMul {
    /// The sizes of a product, where two shapes suit each other.
    pub fn sizes(&self, a: &Shape, b: &Shape) -> Option<MatMulSizes> {
        let [before_a @ .., a0, a1] = &a.dims[..] else { return None };
        let [before_b @ .., b0, b1] = &b.dims[..] else { return None };
        let [m, k] = if self.transpose_a { [*a1, *a0] } else { [*a0, *a1] };
        let [depth, n] = if self.transpose_b { [*b1, *b0] } else { [*b0, *b1] };
        let suits = before_a == before_b && a.batched && b.batched && k == depth;
        suits.then(|| MatMulSizes { products: before_a.iter().product(), m, n, k })
    }
}
