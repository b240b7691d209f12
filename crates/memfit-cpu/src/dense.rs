//! Dense layers: products over the last axis, their gradients, and the gradient of a bias.

use memfit_ir::Operand::{Argmax, Bias, DBias, DKernel, Dx, Dy, Kernel, X, Y};
use memfit_ir::{Pool2D, Shape};

use super::floats::Floats;
use super::gemm::{self, Gemm};
use super::lanes::{Lanes, load};
use super::operands::Operands;
use super::sums::{Columns, Terms, add_or_overwrite};

/// The product of a dense layer: positions are everything before the last axis.
pub(crate) fn forward_product(x: &Shape, kernel: &Shape, rows: usize) -> Gemm {
    let k = x.last();
    let n = kernel.elements_per_row() / k.max(1);
    Gemm { m: positions(x, rows), n, k, transpose_a: false, transpose_b: false }
}

/// `y = x kernel + bias`, which is handed back.
pub(crate) fn forward<'a>(operands: &Operands<'a>) -> &'a mut [f32] {
    let shape = forward_product(operands.shape(X), operands.shape(Kernel), operands.context.rows);
    let bias = operands.input_if_given(Bias);
    let (x, kernel, y) = (operands.input(X), operands.input(Kernel), operands.output(Y));
    gemm::gemm(operands.threads, &shape, x, kernel, bias, y, false, operands.workspace().floats());
    y
}

/// The product that gives the gradient of a dense layer's input.
pub(crate) fn grad_input_product(dy: &Shape, kernel: &Shape, rows: usize) -> Gemm {
    let k = dy.last();
    let n = kernel.elements_per_row() / k.max(1);
    Gemm { m: positions(dy, rows), n, k, transpose_a: false, transpose_b: true }
}

/// `dx = dy kernelᵀ`, which is handed back.
pub(crate) fn grad_input<'a>(operands: &Operands<'a>) -> &'a mut [f32] {
    let shape = grad_input_product(operands.shape(Dy), operands.shape(Kernel), operands.context.rows);
    let (dy, kernel, dx) = (operands.input(Dy), operands.input(Kernel), operands.output(Dx));
    gemm::gemm(operands.threads, &shape, dy, kernel, None, dx, false, operands.workspace().floats());
    dx
}

/// The product that gives the gradient of a dense layer's kernel.
pub(crate) fn grad_kernel_product(x: &Shape, dy: &Shape, rows: usize) -> Gemm {
    Gemm { m: x.last(), n: dy.last(), k: positions(x, rows), transpose_a: true, transpose_b: false }
}

/// `dkernel += xᵀ dy`.
pub(crate) fn grad_kernel(operands: &Operands) {
    let shape = grad_kernel_product(operands.shape(X), operands.shape(Dy), operands.context.rows);
    let (x, dy, dkernel) = (operands.input(X), operands.input(Dy), operands.update(DKernel));
    let workspace = operands.workspace().floats();
    gemm::gemm(operands.threads, &shape, x, dy, None, dkernel, !operands.fresh, workspace);
}

/// Doubles of workspace that the sums for a bias need.
pub(crate) fn bias_grad_workspace(dy: &Shape) -> usize {
    Columns::workspace(Columns::width(dy.last()), 1)
}

/// `dbias += Σ dy` over every axis but the last.
pub(crate) fn sum_for_bias(operands: &Operands, dy: &[f32]) {
    sum_terms(operands, dy.len(), &Values(dy));
}

/// The same for a gradient that this launch has written.
pub(crate) fn sum_masked_for_bias(operands: &Operands, dx: Floats<'_>) {
    sum_terms(operands, dx.len(), &Written(dx));
}

/// The same for a gradient that counts only where there is an argmax.
pub(crate) fn argmax_bias_grad(operands: &Operands) {
    let terms = WithArgmax { dy: operands.input(Dy), argmax: operands.input(Argmax) };
    sum_terms(operands, terms.dy.len(), &terms);
}

fn sum_terms(operands: &Operands, count: usize, terms: &impl Terms<1>) {
    let dbias = operands.update(DBias);
    let columns = Columns::folded(count, dbias.len());
    let workspace = operands.workspace().take_doubles(bias_grad_workspace(operands.shape(Dy)));
    columns.sum(operands.threads, terms, workspace, |column, [sum]| {
        add_or_overwrite(&mut dbias[column], sum, operands.fresh);
    });
}

struct Values<'a>(&'a [f32]);

impl Terms<1> for Values<'_> {
    #[inline(always)]
    unsafe fn terms<L: Lanes>(&self, _row: usize, element: usize, _column: usize, count: usize) -> [L; 1] {
        // SAFETY: the elements lie inside.
        [unsafe { load(self.0[element..].as_ptr(), count) }]
    }
}

struct Written<'a>(Floats<'a>);

impl Terms<1> for Written<'_> {
    #[inline(always)]
    unsafe fn terms<L: Lanes>(&self, _row: usize, element: usize, _column: usize, count: usize) -> [L; 1] {
        // SAFETY: the elements lie inside, and they are not written any more.
        [unsafe { self.0.vector(element, count) }]
    }
}

struct WithArgmax<'a> {
    dy: &'a [f32],
    argmax: &'a [u8],
}

impl Terms<1> for WithArgmax<'_> {
    #[inline(always)]
    unsafe fn terms<L: Lanes>(&self, _row: usize, element: usize, _column: usize, count: usize) -> [L; 1] {
        // SAFETY: the elements lie inside, and there is a byte for each.
        let none = unsafe { L::bytes_equal(self.argmax[element..].as_ptr(), Pool2D::NO_ARGMAX, count) };
        // SAFETY: as above.
        [unsafe { load::<L>(self.dy[element..].as_ptr(), count) }.keep(!none)]
    }
}

/// How many products one tensor stands for: all its elements but the last axis.
fn positions(shape: &Shape, rows: usize) -> usize {
    shape.elements(rows) / shape.last().max(1)
}
