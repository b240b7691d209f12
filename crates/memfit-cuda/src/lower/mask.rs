//! Masks, and weights of samples made of them.

use memfit_ir::Operand::{SampleWeights, X, Y};
use memfit_ir::{Bytes, DType, Mask};

use super::elementwise::number;
use super::sums::{PARTS, part_blocks};
use crate::call::{Call, Name, THREADS, blocks_for, long};
use crate::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/mask.cu");

/// Writes a mask.
pub(super) fn mask(call: &Call<'_>, mask: Mask) -> Lowered {
    let (x, y) = (call.input(X), call.output(Name::Mask));
    let (counts, features) = match mask {
        Mask::NotZero if x.dtype() == DType::I32 => ("((x)[i] != 0)".to_owned(), 1),
        // Floats are cut to whole numbers, as where they name entries.
        Mask::NotZero => ("(truncf(load(x, i)) != 0.0f)".to_owned(), 1),
        Mask::OtherClass(class) => (format!("((x)[i] != {class})"), 1),
        Mask::AnyOther(value) => (format!("(load(x, i) != {})", number(value)), x.shape().last().max(1)),
    };
    let defines = format!("typedef {} X;\n#define COUNTS(x, i) {counts}\n", x.c_type());
    Kernel {
        source: Source { text: TEXT, defines },
        entry: "mask",
        blocks: blocks_for(y.elements),
        threads: THREADS,
        arguments: vec![x.pointer(), y.pointer(), long(y.elements), long(features)],
    }
    .into()
}

/// Makes the mean of weights 1.
pub(super) fn balance(call: &Call<'_>) -> Lowered {
    let (weights, y) = (call.input(SampleWeights), call.output(Y));
    let source = Source { text: TEXT, defines: "#define BALANCE\n".to_owned() };
    let mut lowered = Lowered::default();
    let parts = Argument::At(lowered.scratch(Bytes::of::<f64>(PARTS)));
    let (blocks, count) = (part_blocks(weights.elements), long(weights.elements));
    let mut launch = |entry, blocks, arguments| {
        lowered.kernel(Kernel { source: source.clone(), entry, blocks, threads: THREADS, arguments });
    };
    launch("weight_parts", blocks, vec![weights.pointer(), parts, count]);
    let parts_count = Argument::Int(blocks[0].cast_signed());
    let arguments = vec![weights.pointer(), y.pointer(), parts, parts_count, count];
    launch("balance", blocks_for(weights.elements), arguments);
    lowered
}
