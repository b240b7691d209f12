//! Products between tensors, by the matrix library.

use memfit_ir::Operand::{A, B, Y};
use memfit_ir::{Bytes, MatMul};

use super::dense::Sizes;
use crate::call::Call;
use crate::work::{Lowered, Product, Work};

/// `y = a b` for every index of the axes before the last two.
pub(super) fn matmul(call: &Call<'_>, matmul: MatMul) -> Lowered {
    let (a, b, y) = (call.input(A), call.input(B), call.output(Y));
    let sizes = matmul.sizes(a.shape(), b.shape());
    let sizes = sizes.expect("the shape rules let only matrices in that suit each other");
    let each = Sizes { m: sizes.m, n: sizes.n, k: sizes.k };
    let product = each.product(a.dtype(), y.dtype(), [a.address(), b.address(), y.address()]);
    let MatMul { transpose_a, transpose_b } = matmul;
    let count = call.rows * sizes.products;
    let product = Product { transpose_a, transpose_b, count, ..product };
    Lowered { work: vec![Work::Product(product)], workspace: Bytes::ZERO }
}
