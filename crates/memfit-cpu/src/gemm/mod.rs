//! Matrix products, `c = a b + bias`: the shapes of dense layers and their gradients.

pub(crate) mod driver;
mod few_rows;
pub(crate) mod operand;

use super::threads::Threads;
use driver::{Product, Strided};
use operand::{Matrix, MatrixRight};

/// The shape of a product of an m x k and a k x n matrix, both row-major as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gemm {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// The dimension that is summed over.
    pub k: usize,
    /// Whether `a` is stored as k x m.
    pub transpose_a: bool,
    /// Whether `b` is stored as n x k.
    pub transpose_b: bool,
}

impl Gemm {
    /// The same product, without a transposition that does not change how an operand is stored.
    fn simplest(&self) -> Gemm {
        Gemm { transpose_b: self.transpose_b && self.n > 1, ..*self }
    }
}

/// Whether the driver computes a product of `m` rows whatever its depth, if its right operand is stored as it
/// is read: then [`Product::rows`] gives the same bits.
pub(crate) fn is_by_rows(m: usize) -> bool {
    few_rows::ROWS_FEW_NARROW < m
}

/// A product that is made by the driver.
pub(crate) fn product<'a>(
    shape: &Gemm,
    a: &'a [f32],
    b: &'a [f32],
) -> Product<'a, Matrix<'a>, MatrixRight<'a>, Strided> {
    let Gemm { m, n, k, transpose_a, transpose_b } = *shape;
    Product {
        m,
        n,
        k,
        left: Matrix { values: a, stride: if transpose_a { m } else { k }, transposed: transpose_a },
        right: MatrixRight(Matrix {
            values: b,
            stride: if transpose_b { k } else { n },
            transposed: transpose_b,
        }),
        target: Strided { start: 0, stride: n },
        bias: None,
        accumulate: false,
        splits: driver::splits(m, n, k),
    }
}

/// How many floats of workspace `gemm` needs: never more for a smaller `m` or `k`.
pub fn workspace(shape: &Gemm, threads: usize) -> usize {
    let shape = &shape.simplest();
    let driver =
        driver::workspace(shape.n, shape.k, threads) + driver::partials_max(shape.m, shape.n, shape.k);
    // A product with fewer rows may take the other path, which may need more.
    driver.max(few_rows::partials_max(shape))
}

/// Computes `c = a b`, or `c += a b` where `accumulate`, and adds `bias` (n values) to every row.
pub fn gemm(
    threads: &Threads,
    shape: &Gemm,
    a: &[f32],
    b: &[f32],
    bias: Option<&[f32]>,
    c: &mut [f32],
    accumulate: bool,
    workspace: &mut [f32],
) {
    let shape = &shape.simplest();
    let Gemm { m, n, k, .. } = *shape;
    assert!(
        a.len() == m * k && b.len() == k * n && c.len() == m * n,
        "operands have the sizes of their shape"
    );
    assert!(bias.is_none_or(|bias| bias.len() == n), "the bias has a value for every column");
    if m == 0 || n == 0 {
        return;
    }
    if few_rows::applies(shape, threads.level()) {
        return few_rows::run(threads, shape, a, b, bias, c, accumulate, workspace);
    }
    Product { bias, accumulate, ..product(shape, a, b) }.run(threads, c, workspace);
}

#[cfg(test)]
pub(crate) mod tests;
