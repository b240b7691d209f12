//! Values times and plus numbers that repeat along the last axes.

use memfit_ir::Bytes;
use memfit_ir::Operand::{DScale, Dy, Offset, Scale, X, Y};

use crate::call::{Call, Operand, THREADS, blocks_for, long};
use crate::work::{Argument, Kernel, Lowered, Source, c_type};

const TEXT: &str = include_str!("../kernels/affine.cu");

/// Parts in which rows are summed, and columns of a block.
const PARTS: usize = 64;
const COLUMNS: usize = 32;

fn source(x: Operand<'_>, number: &str) -> Source {
    Source { text: TEXT, defines: format!("typedef {} X;\ntypedef {number} S;\n", x.c_type()) }
}

/// `y = x · scale + offset`, with weights.
pub(super) fn forward(call: &Call<'_>) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    let (scale, offset) = (call.input_if_given(Scale), call.input_if_given(Offset));
    let number = scale.or(offset).map_or("float", |weight| weight.c_type());
    let pointer = |weight: Option<Operand<'_>>| weight.map_or(x.pointer(), |weight| weight.pointer());
    let period = |weight: Option<Operand<'_>>| long(weight.map_or(0, |weight| weight.elements));
    Kernel {
        source: source(x, number),
        entry: "affine",
        blocks: blocks_for(x.elements),
        threads: THREADS,
        arguments: vec![
            x.pointer(),
            pointer(scale),
            pointer(offset),
            y.pointer(),
            long(x.elements),
            period(scale),
            period(offset),
        ],
    }
    .into()
}

/// `y = x · scale + offset`, with constants.
pub(super) fn constant(call: &Call<'_>, scale: &[f32], offset: &[f32]) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    let list = |numbers: &[f32]| -> String {
        numbers.iter().map(|number| format!("__builtin_bit_cast(float, {}u), ", number.to_bits())).collect()
    };
    let Source { text, mut defines } = source(x, c_type(memfit_ir::DType::F32));
    defines += &format!("#define SCALES {}\n#define OFFSETS {}\n", list(scale), list(offset));
    Kernel {
        source: Source { text, defines },
        entry: "affine_constant",
        blocks: blocks_for(x.elements),
        threads: THREADS,
        arguments: vec![x.pointer(), y.pointer(), long(x.elements), long(scale.len())],
    }
    .into()
}

/// `dscale += Σ x · dy` over every axis that the scale has not.
pub(super) fn grad_scale(call: &Call<'_>) -> Lowered {
    let (x, dy, dscale) = (call.input(X), call.input(Dy), call.update(DScale));
    let columns = dscale.elements;
    let mut lowered = Lowered::default();
    let parts = Argument::At(lowered.scratch(Bytes::of::<f64>(PARTS * columns)));
    let blocks = u32::try_from(columns.div_ceil(COLUMNS)).expect("a grid has fewer blocks");
    lowered.kernel(Kernel {
        source: source(x, dscale.c_type()),
        entry: "grad_scale_parts",
        blocks: [blocks, PARTS as u32, 1],
        threads: THREADS,
        arguments: vec![x.pointer(), dy.pointer(), parts, long(x.elements / columns), long(columns)],
    });
    lowered.kernel(Kernel {
        source: source(x, dscale.c_type()),
        entry: "grad_scale_sum",
        blocks: blocks_for(columns),
        threads: THREADS,
        arguments: vec![parts, dscale.pointer(), long(PARTS), long(columns), call.overwrite()],
    });
    lowered
}
