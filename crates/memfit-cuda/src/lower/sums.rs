//! Sums over everything: parts of every block first, then their sum in a fixed order.

use memfit_ir::Operand::{FoundInf, Gradient, Sum};
use memfit_ir::{Bytes, Op};

use crate::call::{Call, THREADS, blocks_for, long};
use crate::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/sums.cu");

/// Blocks that a sum over everything is cut in, at most.
pub(super) const PARTS: usize = 1024;

/// Sums of terms of one gradient: squares, or elements that are not finite.
pub(super) fn of_gradient(call: &Call<'_>) -> Lowered {
    let (to, term, write, number) = if let Op::CheckFinite(number) = call.node.op {
        (
            FoundInf,
            "(isfinite((float)x) ? 0.0 : 1.0)",
            "float before = overwrite ? 0.0f : *to; *to = total > 0.0 && (before == 0.0f || number < before) ? number : before;",
            number as f32,
        )
    } else {
        (Sum, "x * x", "*to = (float)((overwrite ? 0.0 : (double)*to) + total);", 0.0)
    };
    let (gradient, to) = (call.input(Gradient), call.update(to));
    let source = Source { text: TEXT, defines: format!("#define TERM {term}\n#define WRITE_SUM {write}\n") };
    let mut lowered = Lowered::default();
    let parts = Argument::At(lowered.scratch(Bytes::of::<f64>(PARTS)));
    let blocks = part_blocks(gradient.elements);
    let kernel = |entry, blocks, arguments| Kernel {
        source: source.clone(),
        entry,
        blocks,
        threads: THREADS,
        arguments,
    };
    let arguments = vec![gradient.pointer(), parts, long(gradient.elements)];
    lowered.kernel(kernel("sum_parts", blocks, arguments));
    let count = Argument::Int(blocks[0].cast_signed());
    let arguments = vec![parts, count, to.pointer(), call.overwrite(), Argument::Float(number)];
    lowered.kernel(kernel("add_sum", [1, 1, 1], arguments));
    lowered
}

/// Blocks for a sum over `items` items.
pub(super) fn part_blocks(items: usize) -> [u32; 3] {
    let [blocks, y, z] = blocks_for(items.div_ceil(4));
    [blocks.min(PARTS as u32), y, z]
}
