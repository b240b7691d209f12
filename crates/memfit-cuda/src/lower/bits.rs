//! One bit an element: kernels over the rows of a micro-batch.

use memfit_ir::Operand::{Bits, Dx, Dy, Y};

use crate::call::{Call, Operand, THREADS, blocks_for, long, pack_width};
use crate::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/bits.cu");

/// Sets the bits of elements above 0 and below a bound.
pub(super) fn sign_bits(call: &Call<'_>, below: f32) -> Lowered {
    let (y, bits) = (call.input(Y), call.output(Bits));
    let mut arguments = vec![y.pointer(), bits.pointer()];
    arguments.extend(row_bytes(call, y));
    arguments.push(Argument::Float(below));
    kernel("sign_bits", bits_defines(y, false), bytes(call, y), arguments)
}

/// Keeps elements whose bit is set.
pub(super) fn mask_bits(call: &Call<'_>) -> Lowered {
    masked(call, 1, call.output(Dx))
}

/// Keeps sums of the first two inputs whose bit, of the third, is set.
pub(super) fn mask_sum_into(call: &Call<'_>, dx: Operand<'_>) -> Lowered {
    masked(call, 2, dx)
}

fn masked(call: &Call<'_>, summands: usize, dx: Operand<'_>) -> Lowered {
    let dy = call.input(Dy);
    let mut arguments: Vec<_> = (0..summands).map(|index| call.input((Dy, index)).pointer()).collect();
    arguments.extend([call.input(Bits).pointer(), dx.pointer()]);
    arguments.extend(row_bytes(call, dy));
    let items = bytes(call, dy) * 8 / pack_width(8, dy.dtype());
    kernel("mask_bits", bits_defines(dy, summands == 2), items, arguments)
}

/// What stands before kernels of bits; `two` says whether there are two gradients to mask.
fn bits_defines(x: Operand<'_>, two: bool) -> String {
    let [other, packs, one] = if two {
        [
            "const X* other,",
            "float others[WIDTH]; load_pack<WIDTH>(dy, i, gradients); load_pack<WIDTH>(other, i, others); \
             for (int j = 0; j < WIDTH; j++) gradients[j] += others[j];",
            "(load(dy, at) + load(other, at))",
        ]
    } else {
        ["", "load_pack<WIDTH>(dy, i, gradients);", "load(dy, at)"]
    };
    let width = pack_width(8, x.dtype());
    format!(
        "typedef {} X;\n#define WIDTH {width}\n#define OTHER {other}\n#define LOAD_DY {packs}\n#define DY {one}\n",
        x.c_type()
    )
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

fn kernel(entry: &'static str, defines: String, items: usize, arguments: Vec<Argument>) -> Lowered {
    let source = Source { text: TEXT, defines };
    Kernel { source, entry, blocks: blocks_for(items), threads: THREADS, arguments }.into()
}
