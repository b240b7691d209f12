//! Sums over everything and over columns: parts of every block first, then their sum in a fixed order.

use memfit_ir::{Bytes, Op};

use crate::cuda::call::{Call, Operand, THREADS, blocks_for, int, long, pack_width};
use crate::cuda::work::{Address, Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/sums.cu");

/// Blocks that a sum over everything is cut in, at most.
pub(super) const PARTS: usize = 1024;

/// Blocks that a sum over columns is cut in, at most: a few on every multiprocessor.
const CHUNKS: usize = 792;

/// Packs of neighbouring columns that a block has, at most. The fewer, the more rows it takes, and the fewer parts are left.
const MOST_PACKS: usize = 32;

/// Rows that a thread takes, at least, where there are so many.
const ROWS_LEAST: usize = 16;

/// `dbias += Σ dy` over every axis but the last.
pub(super) fn bias_grad(call: &Call<'_>) -> Lowered {
    let (dy, dbias) = (call.input(0), call.update(0));
    let columns = Columns::of(dy, 0);
    let mut lowered = Lowered::default();
    let parts = columns.parts(&mut lowered, [dy.pointer(), Argument::Null, Argument::Null]);
    let mut arguments = columns.parts_arguments(parts);
    arguments.extend([dbias.pointer(), call.fresh()]);
    lowered.kernel(columns.finish("add_columns", arguments));
    lowered
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
    /// The columns of a tensor's last axis; `kind` is the kernel's `COLUMNS`.
    pub(super) fn of(x: Operand<'_>, kind: usize) -> Columns {
        let columns = x.shape().last().max(1);
        let (rows, width) = (x.elements / columns, pack_width(columns, x.dtype()));
        let packs = columns / width;
        let (lanes, groups) = (THREADS as usize / packs.min(MOST_PACKS), packs.div_ceil(MOST_PACKS));
        let chunks = rows.div_ceil(lanes * ROWS_LEAST).clamp(1, (CHUNKS / groups).max(1));
        let sums = if kind == 0 { 1 } else { 2 };
        let defines = format!(
            "typedef {} X;\n#define COLUMNS {kind}\n#define SUMS {sums}\n#define WIDTH {width}\n#define MOST_PACKS {MOST_PACKS}\n",
            x.c_type()
        );
        Columns { source: Source { text: TEXT, defines }, sums, rows, columns, width, chunks, groups }
    }

    /// Sums chunks of rows into the workspace. The room is that of the most chunks, so that it does not fall with the rows.
    pub(super) fn parts(&self, lowered: &mut Lowered, operands: [Argument; 3]) -> Address {
        let most = (CHUNKS / self.groups).max(1);
        let parts = lowered.scratch(Bytes::of::<f64>(most * self.sums * self.columns));
        let mut arguments = operands.to_vec();
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

    /// A kernel with a warp for each column.
    pub(super) fn finish(&self, entry: &'static str, arguments: Vec<Argument>) -> Kernel {
        let blocks = u32::try_from(self.columns.div_ceil(8)).expect("there are few columns");
        Kernel { source: self.source.clone(), entry, blocks: [blocks, 1, 1], threads: THREADS, arguments }
    }
}

/// Sums of terms of one gradient: squares, or elements that are not finite.
pub(super) fn of_gradient(call: &Call<'_>) -> Lowered {
    let (term, settle, number) = if let Op::CheckFinite(number) = call.node.op {
        (
            "(isfinite((float)x) ? 0.0 : 1.0)",
            "float before = fresh ? 0.0f : *to; *to = total > 0.0 && (before == 0.0f || number < before) ? number : before;",
            number as f32,
        )
    } else {
        ("x * x", "*to = (float)((fresh ? 0.0 : (double)*to) + total);", 0.0)
    };
    let (gradient, to) = (call.input(0), call.update(0));
    let source = Source { text: TEXT, defines: format!("#define TERM {term}\n#define SETTLE {settle}\n") };
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
    let arguments = vec![parts, count, to.pointer(), call.fresh(), Argument::Float(number)];
    lowered.kernel(kernel("settle", [1, 1, 1], arguments));
    lowered
}

/// Blocks for a sum over so many items.
pub(super) fn part_blocks(items: usize) -> [u32; 3] {
    let [blocks, y, z] = blocks_for(items.div_ceil(4));
    [blocks.min(PARTS as u32), y, z]
}
