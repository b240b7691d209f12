//! Images of another height and width. A whole factor is a case of any other size.

use memfit_ir::Interpolation;
use memfit_ir::Operand::{Dx, Dy, X, Y};

use crate::call::{Call, Operand, THREADS, blocks_for, int, long};
use crate::work::{Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/resize.cu");

/// Makes images of the output's height and width.
pub(super) fn forward(call: &Call<'_>, interpolation: Interpolation) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    resize("resize", interpolation, [x, y], [x, y])
}

/// Sums `dy` back to the pixels that it came from.
pub(super) fn grad(call: &Call<'_>, interpolation: Interpolation) -> Lowered {
    let (dy, dx) = (call.input(Dy), call.output(Dx));
    resize("resize_grad", interpolation, [dx, dy], [dy, dx])
}

fn resize(
    entry: &'static str,
    interpolation: Interpolation,
    [before, after]: [Operand<'_>; 2],
    [from, to]: [Operand<'_>; 2],
) -> Lowered {
    let bilinear = match interpolation {
        Interpolation::Nearest => 0,
        Interpolation::Bilinear => 1,
    };
    let defines = format!("typedef {} X;\n#define BILINEAR {bilinear}\n", from.c_type());
    let mut arguments = vec![from.pointer(), to.pointer(), long(to.elements)];
    arguments.extend(before.dims().iter().chain(&after.dims()[..2]).map(|size| int(*size)));
    let source = Source { text: TEXT, defines };
    Kernel { source, entry, blocks: blocks_for(to.elements), threads: THREADS, arguments }.into()
}
