//! One bit an element, and softmax: kernels over the rows of a piece or the positions of a tensor.

use crate::cuda::call::{Call, Operand, THREADS, blocks_for, int, long};
use crate::cuda::work::{Argument, Kernel, Lowered, Source};

const BITS: &str = include_str!("../kernels/bits.cu");
const SOFTMAX: &str = include_str!("../kernels/softmax.cu");

/// Sets the bits of elements above 0 and below a bound.
pub(super) fn sign_bits(call: &Call<'_>, below: f32) -> Lowered {
    let (y, bits) = (call.input(0), call.output(0));
    let mut arguments = vec![y.pointer(), bits.pointer()];
    arguments.extend(row_bytes(call, y));
    arguments.push(Argument::Float(below));
    over(BITS, "sign_bits", y, bytes(call, y), arguments)
}

/// Keeps elements whose bit is set.
pub(super) fn mask_bits(call: &Call<'_>) -> Lowered {
    let (dy, bits, dx) = (call.input(0), call.input(1), call.output(0));
    let mut arguments = vec![dy.pointer(), bits.pointer(), dx.pointer()];
    arguments.extend(row_bytes(call, dy));
    over(BITS, "mask_bits", dy, bytes(call, dy), arguments)
}

fn bytes(call: &Call<'_>, values: Operand<'_>) -> usize {
    let rows = if values.shape().batched { call.rows } else { 1 };
    rows * values.shape().elements_per_row().div_ceil(8)
}

fn row_bytes(call: &Call<'_>, values: Operand<'_>) -> [Argument; 4] {
    let elements = values.shape().elements_per_row();
    let whole = Argument::Int(i32::from(elements.is_multiple_of(8)));
    [long(bytes(call, values)), long(elements), long(elements.div_ceil(8)), whole]
}

/// Softmax over the last axis.
pub(super) fn softmax(call: &Call<'_>) -> Lowered {
    let (x, y) = (call.input(0), call.output(0));
    positions("softmax", x, vec![x.pointer(), y.pointer()])
}

/// `dx = y (dy − Σ dy y)`.
pub(super) fn softmax_grad(call: &Call<'_>) -> Lowered {
    let (dy, y, dx) = (call.input(0), call.input(1), call.output(0));
    positions("softmax_grad", dy, vec![dy.pointer(), y.pointer(), dx.pointer()])
}

fn positions(entry: &'static str, x: Operand<'_>, mut arguments: Vec<Argument>) -> Lowered {
    let classes = x.shape().last().max(1);
    let count = x.elements / classes;
    arguments.extend([long(count), int(classes)]);
    over(SOFTMAX, entry, x, count * 32, arguments)
}

fn over(
    text: &'static str,
    entry: &'static str,
    x: Operand<'_>,
    items: usize,
    arguments: Vec<Argument>,
) -> Lowered {
    let source = Source { text, defines: format!("typedef {} X;\n", x.c_type()) };
    Kernel { source, entry, blocks: blocks_for(items), threads: THREADS, arguments }.into()
}
