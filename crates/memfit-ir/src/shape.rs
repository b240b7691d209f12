//! Shapes with one symbolic dimension, the batch, which always stands first.

use std::fmt;

use crate::{Bytes, DType};

/// The shape of a tensor: fixed dimensions, after the batch where there is one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Shape {
    /// Whether the rows of the batch stand before `dims`.
    pub batched: bool,
    /// The dimensions that do not depend on the batch.
    pub dims: Vec<usize>,
}

impl Shape {
    /// A shape with the batch in front: `[batch, dims…]`.
    pub fn rows(dims: impl Into<Vec<usize>>) -> Shape {
        Shape { batched: true, dims: dims.into() }
    }

    /// A shape that does not depend on the batch.
    pub fn fixed(dims: impl Into<Vec<usize>>) -> Shape {
        Shape { batched: false, dims: dims.into() }
    }

    /// Elements of one row (of the whole tensor where it has no batch).
    pub fn elements_per_row(&self) -> usize {
        self.dims.iter().product()
    }

    /// Elements at a batch of `rows`.
    pub fn elements(&self, rows: usize) -> usize {
        if self.batched { rows * self.elements_per_row() } else { self.elements_per_row() }
    }

    /// Bytes at a batch of `rows`.
    pub fn bytes(&self, dtype: DType, rows: usize) -> Bytes {
        Bytes(dtype.size()) * self.elements(rows) as u64
    }

    /// The last dimension; 1 for a scalar row.
    pub fn last(&self) -> usize {
        self.dims.last().copied().unwrap_or(1)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batch = self.batched.then(|| "batch".to_owned());
        let parts: Vec<String> = batch.into_iter().chain(self.dims.iter().map(usize::to_string)).collect();
        f.pad(&format!("[{}]", parts.join(",")))
    }
}
