//! Sums over the columns of a matrix: parts of every block first, then their sum in a fixed order.

use memfit_ir::Bytes;
use memfit_ir::Operand::{Argmax, Bits, DBias, Dx, Dy};

use super::bits;
use crate::call::{Call, Operand, THREADS, int, long, pack_width};
use crate::work::{Address, Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/columns.cu");

/// Blocks that a sum over columns is cut in, at most: as many as run at once on a large device.
const CHUNKS: usize = 264;

/// Packs of neighbouring columns that a block has, at most. The fewer, the more rows it takes, and the fewer
/// parts are left.
const MOST_PACKS: usize = 32;

/// Columns that a block finishes, each by a warp.
const FINISHED_AT_ONCE: usize = 32;

/// What the first pass needs to know of a normalisation to find which values a ReLU let pass.
const MASKED: &str = "#define MASKED\n#define MORE_PARAMETERS const float* variance, const float* gamma, const float* beta, float epsilon, float below,\n";

/// What it must know to add two gradients, and where it writes them.
const SUMMED: &str =
    "#define BITS\n#define SUMMED\n#define MORE_PARAMETERS const X* other, const u8* bits, X* gradients,\n";

/// What it must know to mask a gradient, and where it writes that.
const BITS: &str = "#define BITS\n#define MORE_PARAMETERS const u8* bits, X* gradients,\n";

/// What it needs to leave out gradients that have no argmax.
const ARGMAX: &str = "#define ARGMAX\n#define MORE_PARAMETERS const u8* argmax,\n";

/// Where it need not know more.
const NO_MORE: &str = "#define MORE_PARAMETERS\n";

/// `dbias += Σ dy` over every axis but the last.
pub(super) fn bias_grad(call: &Call<'_>) -> Lowered {
    add_columns(call, Lowered::default(), call.input(Dy), Terms::Values, &[])
}

/// The same, where `dy` is computed and written on the way, as these defines and arguments say.
pub(super) fn bias_grad_of(call: &Call<'_>, made: &str, more: &[Argument]) -> Lowered {
    let mut columns = Columns::of(call.input(Dy), Terms::Values);
    columns.source.defines = columns.source.defines.replace(NO_MORE, made);
    add_parts(call, Lowered::default(), call.input(Dy), &columns, more)
}

/// The same for a gradient that counts only where there is an argmax.
pub(super) fn argmax_bias_grad(call: &Call<'_>) -> Lowered {
    let argmax = call.input(Argmax).pointer();
    add_columns(call, Lowered::default(), call.input(Dy), Terms::WithArgmax, &[argmax])
}

/// A gradient where a bit is set, and its sum.
pub(super) fn mask_bits_bias_grad(call: &Call<'_>) -> Lowered {
    let (dy, bits, dx) = (call.input(Dy), call.input(Bits), call.output(Dx));
    if dy.shape().elements_per_row().is_multiple_of(8) {
        let more = [bits.pointer(), dx.pointer()];
        return add_columns(call, Lowered::default(), dy, Terms::Masked, &more);
    }
    // Bits of a row that end within a byte are not where a pixel's number says.
    add_columns(call, bits::mask_bits(call), dx, Terms::Values, &[])
}

/// Adds the sums of a tensor's columns to what a node updates.
fn add_columns(
    call: &Call<'_>,
    lowered: Lowered,
    dy: Operand<'_>,
    terms: Terms,
    more: &[Argument],
) -> Lowered {
    add_parts(call, lowered, dy, &Columns::of(dy, terms), more)
}

fn add_parts(
    call: &Call<'_>,
    mut lowered: Lowered,
    dy: Operand<'_>,
    columns: &Columns,
    more: &[Argument],
) -> Lowered {
    let mut arguments = vec![dy.pointer(), Argument::Null, Argument::Null];
    arguments.extend(more);
    let parts = columns.parts(&mut lowered, arguments);
    let mut arguments = columns.parts_arguments(parts);
    arguments.extend([call.update(DBias).pointer(), call.overwrite()]);
    lowered.kernel(columns.finish("add_columns", arguments));
    lowered
}

/// What is summed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Terms {
    /// Values.
    Values,
    /// Values where a bit is set. These are written.
    Masked,
    /// Values where there is an argmax.
    WithArgmax,
    /// Distances from the first row, and their squares.
    Moments,
    /// Gradients, and their products with distances from the mean.
    Products,
    /// The same, where gradients count only where a ReLU after a normalisation let its value pass.
    MaskedProducts,
    /// The same, where a gradient is the sum of two where a bit is set. These are written.
    ProductsOfSums,
}

/// A matrix whose columns are summed.
pub(super) struct Columns {
    source: Source,
    sums: usize,
    rows: usize,
    columns: usize,
    width: usize,
    chunks: usize,
    groups: usize,
}

impl Columns {
    /// The columns of a tensor's last axis.
    pub(super) fn of(x: Operand<'_>, terms: Terms) -> Columns {
        let columns = x.shape().last().max(1);
        let (rows, width) = (x.elements / columns, pack_width(columns, x.dtype()));
        let packs = columns / width;
        let (lanes, groups) = (THREADS as usize / packs.min(MOST_PACKS), packs.div_ceil(MOST_PACKS));
        let (kind, sums, at_once, more) = match terms {
            Terms::Values => (0, 1, 8, NO_MORE),
            Terms::Masked => (0, 1, 8, BITS),
            Terms::WithArgmax => (0, 1, 8, ARGMAX),
            Terms::Moments => (1, 2, 8, NO_MORE),
            Terms::Products => (2, 2, 8, NO_MORE),
            Terms::MaskedProducts => (2, 2, 8, MASKED),
            Terms::ProductsOfSums => (2, 2, 4, SUMMED),
        };
        let chunks = rows.div_ceil(lanes * at_once).clamp(1, (CHUNKS / groups).max(1));
        let mut defines = format!("typedef {} X;\n#define COLUMNS {kind}\n#define SUMS {sums}\n", x.c_type());
        defines += &format!(
            "#define WIDTH {width}\n#define MOST_PACKS {MOST_PACKS}\n#define ROWS {at_once}\n{more}"
        );
        Columns { source: Source { text: TEXT, defines }, sums, rows, columns, width, chunks, groups }
    }

    /// Sums chunks of rows into the workspace. The room is that of the most chunks, so that it does not fall
    /// with the rows.
    pub(super) fn parts(&self, lowered: &mut Lowered, mut arguments: Vec<Argument>) -> Address {
        let most = (CHUNKS / self.groups).max(1);
        let parts = lowered.scratch(Bytes::of::<f64>(most * self.sums * self.columns));
        arguments.extend([Argument::At(parts), long(self.rows), int(self.columns / self.width)]);
        let count = |count: usize| u32::try_from(count).expect("there are few blocks");
        lowered.kernel(Kernel {
            source: self.source.clone(),
            entry: "column_parts",
            blocks: [count(self.groups), count(self.chunks), 1],
            threads: THREADS,
            arguments,
        });
        parts
    }

    /// The arguments with which every finishing kernel begins.
    pub(super) fn parts_arguments(&self, parts: Address) -> Vec<Argument> {
        vec![Argument::At(parts), int(self.chunks), int(self.columns)]
    }

    /// Elements of a column.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// How many columns there are.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// A kernel that adds the parts up.
    pub(super) fn finish(&self, entry: &'static str, arguments: Vec<Argument>) -> Kernel {
        let blocks = u32::try_from(self.columns.div_ceil(FINISHED_AT_ONCE)).expect("there are few columns");
        let threads = 32 * FINISHED_AT_ONCE as u32;
        Kernel { source: self.source.clone(), entry, blocks: [blocks, 1, 1], threads, arguments }
    }
}
