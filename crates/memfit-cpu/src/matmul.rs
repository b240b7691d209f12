//! Products of two tensors, many at once: small ones side by side, a thread each, and large ones one after
//! the other by all.

use memfit_ir::Operand::{A, B, Y};
use memfit_ir::{MatMul, Shape};

use super::gemm::{self, Gemm};
use super::operands::Operands;
use super::threads::{Shared, Threads};

/// Multiplications from which on all threads share one product.
const LARGE: usize = 1 << 22;

/// What one launch multiplies.
struct Products {
    count: usize,
    each: Gemm,
}

impl Products {
    fn of(product: MatMul, [a, b]: [&Shape; 2], rows: usize) -> Products {
        let sizes = product.sizes(a, b).expect("the shape rules let only matrices in that suit each other");
        let MatMul { transpose_a, transpose_b } = product;
        let each = Gemm { m: sizes.m, n: sizes.n, k: sizes.k, transpose_a, transpose_b };
        Products { count: rows * sizes.products, each }
    }

    /// Whether all threads share each product; by shape alone, so that rows do not change it.
    fn is_shared(&self) -> bool {
        LARGE <= self.each.m * self.each.n * self.each.k
    }

    /// Floats of workspace of one product.
    fn workspace(&self, threads: usize) -> usize {
        gemm::workspace(&self.each, if self.is_shared() { threads } else { 1 })
    }
}

/// Operations, and floats of workspace.
pub(crate) fn demand(product: MatMul, shapes: [&Shape; 2], rows: usize, threads: usize) -> (f64, usize) {
    let products = Products::of(product, shapes, rows);
    let Gemm { m, n, k, .. } = products.each;
    let flops = 2.0 * products.count as f64 * m as f64 * n as f64 * k as f64;
    let at_once = if products.is_shared() { 1 } else { threads };
    (flops, at_once * products.workspace(threads))
}

/// `y = a b`.
pub(crate) fn launch(operands: &Operands, product: MatMul) {
    let shapes = [operands.shape(A), operands.shape(B)];
    let products = Products::of(product, shapes, operands.context.rows);
    let (a, b, y) = (operands.input(A), operands.input(B), operands.output(Y));
    let Gemm { m, n, k, .. } = products.each;
    let workspace = operands.workspace().floats();
    if products.is_shared() {
        for index in 0..products.count {
            let (a, b) = (&a[index * m * k..][..m * k], &b[index * k * n..][..k * n]);
            let y = &mut y[index * m * n..][..m * n];
            gemm::gemm(operands.threads, &products.each, a, b, None, y, false, workspace);
        }
        return;
    }
    let alone = Threads::alone(operands.threads.level());
    let own = products.workspace(1);
    let (y, workspace) = (Shared::new(y), Shared::new(workspace));
    operands.threads.for_each(products.count, |index, worker| {
        let (a, b) = (&a[index * m * k..][..m * k], &b[index * k * n..][..k * n]);
        // SAFETY: every product has its own part of the result, and every worker its own part of the
        // workspace.
        let (y, workspace) = unsafe {
            (y.slice(index * m * n..(index + 1) * m * n), workspace.slice(worker * own..(worker + 1) * own))
        };
        gemm::gemm(&alone, &products.each, a, b, None, y, false, workspace);
    });
}
