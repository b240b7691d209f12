//! Products of two tensors.

use memfit_ir::MatMul;

use super::call::Call;

/// One product of matrices for each index of the axes before the last two.
pub(crate) fn forward(call: &Call, kind: MatMul) -> Vec<f64> {
    let sizes = kind.sizes(call.shape(0), call.shape(1)).expect("the shape rules looked at them");
    let (m, n, k) = (sizes.m, sizes.n, sizes.k);
    let mut y = Vec::new();
    for (a, b) in call.input(0).chunks(m * k).zip(call.input(1).chunks(k * n)) {
        for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
            let left = |at: usize| if kind.transpose_a { a[at * m + row] } else { a[row * k + at] };
            let right = |at: usize| if kind.transpose_b { b[column * k + at] } else { b[at * n + column] };
            y.push((0..k).map(|at| left(at) * right(at)).sum());
        }
    }
    y
}
