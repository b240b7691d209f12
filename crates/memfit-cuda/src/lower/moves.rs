//! Bytes that move, zeros, and numbers as another type.

use memfit_ir::Operand::{Sum, X, Y};
use memfit_ir::{Bytes, DType};

use crate::call::{Call, Operand, THREADS, blocks_for, long};
use crate::work::{Address, Argument, Kernel, Lowered, Source, Work, c_type};

/// Filters, weights and images between layouts and types.
pub(super) const TEXT: &str = include_str!("../kernels/moves.cu");

/// The same bytes, which mostly stand there already: the device skips a copy onto itself.
pub(super) fn reshape(call: &Call<'_>) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    copy(x.address(), y.address(), y.tensor.shape.bytes(y.dtype(), call.rows))
}

/// A slice out of all rows of a micro-batch.
pub(super) fn take_rows(call: &Call<'_>) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    let before = x.tensor.shape.bytes(x.dtype(), call.row_start);
    let bytes = y.tensor.shape.bytes(y.dtype(), call.rows);
    copy(Address::Operand(x.index, before), y.address(), bytes)
}

/// A slice to its place among all rows of a micro-batch.
pub(super) fn put_rows(call: &Call<'_>) -> Lowered {
    let (x, y) = (call.input(X), call.update(Y));
    let before = y.tensor.shape.bytes(y.dtype(), call.row_start);
    let bytes = x.tensor.shape.bytes(x.dtype(), call.rows);
    copy(x.address(), Address::Operand(y.index, before), bytes)
}

/// Zeros.
pub(super) fn zero(call: &Call<'_>) -> Lowered {
    let x = call.output(X);
    let bytes = x.tensor.shape.bytes(x.dtype(), call.rows);
    Lowered { work: vec![Work::Zero { to: x.address(), bytes }], workspace: Bytes::ZERO }
}

/// Zeros where a sum begins, and nothing else.
pub(super) fn add_zero(call: &Call<'_>) -> Lowered {
    let sum = call.update(Sum);
    let bytes = sum.tensor.shape.bytes(sum.dtype(), call.rows);
    let work = if call.overwrite { vec![Work::Zero { to: sum.address(), bytes }] } else { vec![] };
    Lowered { work, workspace: Bytes::ZERO }
}

/// Weights as f16 or bf16, many in one launch.
const ROUNDED: &str = include_str!("../kernels/rounded.cu");

/// Numbers as another type. Weights share their launch with others.
pub(super) fn cast(call: &Call<'_>) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    if !x.shape().batched {
        let none = Argument::Null;
        let kernel = Kernel {
            source: Source { text: ROUNDED, ..source(x.dtype(), y.dtype()) },
            entry: "update_many",
            blocks: [0; 3],
            threads: THREADS,
            arguments: vec![x.pointer(), none, none, y.pointer(), none, none, none, none, long(x.elements)],
        };
        return Lowered { work: vec![Work::Update(kernel)], workspace: Bytes::ZERO };
    }
    convert((x.address(), x.dtype()), (y.address(), y.dtype()), x.elements).into()
}

/// A kernel that converts `count` numbers.
pub(super) fn convert(from: (Address, DType), to: (Address, DType), count: usize) -> Kernel {
    Kernel {
        source: source(from.1, to.1),
        entry: "convert",
        blocks: blocks_for(count.div_ceil(4)),
        threads: THREADS,
        arguments: vec![Argument::At(from.0), Argument::At(to.0), long(count)],
    }
}

/// A kernel that converts two weights of one type, of which the second is short.
pub(super) fn convert_both(weights: [Operand<'_>; 2], to: [Address; 2], dtype: DType) -> Kernel {
    let part = |weight: Operand<'_>, to: Address| [weight.pointer(), Argument::At(to), long(weight.elements)];
    Kernel {
        source: source(weights[0].dtype(), dtype),
        entry: "convert_both",
        blocks: blocks_for(weights[0].elements.div_ceil(4)),
        threads: THREADS,
        arguments: [part(weights[0], to[0]), part(weights[1], to[1])].concat(),
    }
}

/// The text of this file's kernels between two types.
pub(super) fn source(from: DType, to: DType) -> Source {
    let defines = format!("typedef {} F;\ntypedef {} T;\n", c_type(from), c_type(to));
    Source { text: TEXT, defines }
}

fn copy(from: Address, to: Address, bytes: Bytes) -> Lowered {
    Lowered { work: vec![Work::Copy { from, to, bytes }], workspace: Bytes::ZERO }
}
