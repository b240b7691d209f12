//! Softmax: a warp for each position of a tensor.

use memfit_ir::Operand::{Dx, Dy, X, Y};

use crate::call::{Call, Operand, THREADS, blocks_for, int, long};
use crate::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/softmax.cu");

/// Softmax over the last axis.
pub(super) fn softmax(call: &Call<'_>) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    positions("softmax", x, vec![x.pointer(), y.pointer()])
}

/// `dx = y (dy − Σ dy y)`.
pub(super) fn softmax_grad(call: &Call<'_>) -> Lowered {
    let (dy, y, dx) = (call.input(Dy), call.input(Y), call.output(Dx));
    positions("softmax_grad", dy, vec![dy.pointer(), y.pointer(), dx.pointer()])
}

fn positions(entry: &'static str, x: Operand<'_>, mut arguments: Vec<Argument>) -> Lowered {
    let classes = x.shape().last().max(1);
    let count = x.elements / classes;
    arguments.extend([long(count), int(classes)]);
    let source = Source { text: TEXT, defines: format!("typedef {} X;\n", x.c_type()) };
    Kernel { source, entry, blocks: blocks_for(count * 32), threads: THREADS, arguments }.into()
}
