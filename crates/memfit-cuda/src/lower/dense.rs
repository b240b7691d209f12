//! Dense layers and their gradients: products over the last axis, by the matrix library.
//!
//! Weights are f32 in the graph. Beside f16 or bf16 values, they are rounded into the workspace first, so
//! that the product runs on the tensor cores; sums are f32 in any case.

use memfit_ir::Operand::{Bias, DKernel, Dx, Dy, Kernel, Other, X, Y};
use memfit_ir::{Bytes, DType, Shape};

use super::moves::{convert, convert_both};
use crate::call::{Call, Operand};
use crate::work::{Address, Lowered, Product, Work};

/// `y = x kernel + bias`.
pub(super) fn dense(call: &Call<'_>) -> Lowered {
    dense_of(call, None)
}

/// The same and a further value.
pub(super) fn dense_plus(call: &Call<'_>) -> Lowered {
    dense_of(call, Some(call.input(Other).address()))
}

fn dense_of(call: &Call<'_>, other: Option<Address>) -> Lowered {
    let (x, kernel, y) = (call.input(X), call.input(Kernel), call.output(Y));
    let mut lowered = Lowered::default();
    let k = x.shape().last();
    let n = kernel.elements / k.max(1);
    let (b, bias) = match call.input_if_given(Bias) {
        Some(bias) => {
            let (b, bias) = as_types(&mut lowered, [kernel, bias], x.dtype());
            (b, Some(bias))
        }
        None => (as_type(&mut lowered, kernel, x.dtype()), None),
    };
    let sizes = Sizes { m: positions(x.shape(), call.rows), n, k };
    let product = sizes.product(x.dtype(), y.dtype(), [x.address(), b, y.address()]);
    lowered.work.push(Work::Product(Product { bias, c: other, ..product }));
    lowered
}

/// `dx = dy kernelᵀ`.
pub(super) fn dense_grad_input(call: &Call<'_>) -> Lowered {
    dense_grad_input_of(call, None)
}

/// The same and a further value.
pub(super) fn dense_grad_input_plus(call: &Call<'_>) -> Lowered {
    dense_grad_input_of(call, Some(call.input(Other).address()))
}

fn dense_grad_input_of(call: &Call<'_>, other: Option<Address>) -> Lowered {
    let (dy, kernel, dx) = (call.input(Dy), call.input(Kernel), call.output(Dx));
    let mut lowered = Lowered::default();
    let k = dy.shape().last();
    let n = kernel.elements / k.max(1);
    let b = as_type(&mut lowered, kernel, dy.dtype());
    let sizes = Sizes { m: positions(dy.shape(), call.rows), n, k };
    let product = sizes.product(dy.dtype(), dx.dtype(), [dy.address(), b, dx.address()]);
    lowered.work.push(Work::Product(Product { transpose_b: true, c: other, ..product }));
    lowered
}

/// `dkernel += xᵀ dy`.
pub(super) fn dense_grad_kernel(call: &Call<'_>) -> Lowered {
    let (x, dy, dkernel) = (call.input(X), call.input(Dy), call.update(DKernel));
    let sizes = Sizes { m: x.shape().last(), n: dy.shape().last(), k: positions(x.shape(), call.rows) };
    let product = sizes.product(x.dtype(), dkernel.dtype(), [x.address(), dy.address(), dkernel.address()]);
    let product = Product { transpose_a: true, adds: !call.overwrite, ..product };
    Lowered { work: vec![Work::Product(product)], workspace: Bytes::ZERO }
}

/// The sizes of one product.
pub(super) struct Sizes {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
}

impl Sizes {
    /// The plain product of two matrices into a third.
    pub(super) fn product(&self, dtype: DType, dtype_result: DType, [a, b, d]: [Address; 3]) -> Product {
        let Sizes { m, n, k } = *self;
        let (transpose_a, transpose_b) = (false, false);
        Product {
            m,
            n,
            k,
            transpose_a,
            transpose_b,
            count: 1,
            dtype,
            dtype_result,
            a,
            b,
            d,
            bias: None,
            adds: false,
            c: None,
        }
    }
}

/// A weight in the type of the values beside it: as it stands, or rounded into the workspace.
pub(super) fn as_type(lowered: &mut Lowered, weight: Operand<'_>, dtype: DType) -> Address {
    if weight.dtype() == dtype {
        return weight.address();
    }
    let to = lowered.scratch(Bytes(dtype.size()) * weight.elements as u64);
    lowered.kernel(convert((weight.address(), weight.dtype()), (to, dtype), weight.elements));
    to
}

/// The same of a weight and a short one, by one kernel.
fn as_types(lowered: &mut Lowered, weights: [Operand<'_>; 2], dtype: DType) -> (Address, Address) {
    if weights.iter().any(|weight| weight.dtype() == dtype || weight.dtype() != weights[0].dtype()) {
        let [b, bias] = weights.map(|weight| as_type(lowered, weight, dtype));
        return (b, bias);
    }
    let [b, bias] = weights.map(|weight| lowered.scratch(Bytes(dtype.size()) * weight.elements as u64));
    lowered.kernel(convert_both(weights, [b, bias], dtype));
    (b, bias)
}

/// Everything before the last axis.
fn positions(shape: &Shape, rows: usize) -> usize {
    shape.elements(rows) / shape.last().max(1)
}
