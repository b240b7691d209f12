//! Embeddings: rows of a table by number. Their gradient sorts positions by entry, so that sums have one
//! order.

use memfit_ir::Operand::{DTable, Dy, Ids, Table, Y};
use memfit_ir::{Bytes, DType};

use crate::call::{Call, Operand, THREADS, blocks_for, int, long, pack_width};
use crate::work::{Argument, Kernel, Lowered, Source, Work};

const TEXT: &str = include_str!("../kernels/embedding.cu");

/// The most ranges that positions are cut into for sorting; each is a warp's.
const RANGES: usize = 256;
/// Positions of a chunk, as the kernel has it.
const CHUNK: usize = 32;
/// Digits of one move.
const DIGITS: usize = 256;

/// Writes the entry of every id; NaN where there is none.
pub(super) fn forward(call: &Call<'_>) -> Lowered {
    let (ids, table, y) = (call.input(Ids), call.input(Table), call.output(Y));
    let sizes = Sizes::of(ids, table);
    Kernel {
        source: sizes.source(ids),
        entry: "embedding",
        blocks: blocks_for(ids.elements * sizes.packs),
        threads: THREADS,
        arguments: vec![
            ids.pointer(),
            table.pointer(),
            y.pointer(),
            long(ids.elements),
            long(sizes.entries),
            int(sizes.packs),
        ],
    }
    .into()
}

/// Adds `dy` of every position to its entry, in the order of positions.
pub(super) fn grad(call: &Call<'_>) -> Lowered {
    let (ids, dy, dtable) = (call.input(Ids), call.input(Dy), call.update(DTable));
    let sizes = Sizes::of(ids, dtable);
    let positions = ids.elements;
    let mut lowered = Lowered::default();
    if call.overwrite {
        let bytes = dtable.tensor.shape.bytes(DType::F32, call.rows);
        lowered.work.push(Work::Zero { to: dtable.address(), bytes });
    }
    if positions == 0 || sizes.entries == 0 {
        return lowered;
    }
    let source = sizes.source(ids);
    let kernel = |entry: &'static str, blocks: [usize; 2], threads: u32, arguments: Vec<Argument>| Kernel {
        source: source.clone(),
        entry,
        blocks: [count(blocks[0]), count(blocks[1]), 1],
        threads,
        arguments,
    };

    let each = positions.div_ceil(RANGES).next_multiple_of(32);
    let ranges = positions.div_ceil(each);
    let mut pair = || [(); 2].map(|()| Argument::At(lowered.scratch(Bytes::of::<u32>(positions))));
    let mut sorted @ [keys, places] = pair();
    let mut moved = pair();
    let counts = Argument::At(lowered.scratch(Bytes::of::<u32>(DIGITS * RANGES)));
    let arguments = vec![ids.pointer(), keys, places, long(positions), long(sizes.entries)];
    lowered.kernel(kernel("entry_keys", [positions.div_ceil(1024), 1], THREADS, arguments));
    let bits = usize::BITS - sizes.entries.leading_zeros();
    for shift in (0..bits).step_by(8) {
        let shape = [long(positions), long(each), Argument::Int(shift.cast_signed())];
        let mut arguments = vec![sorted[0], counts];
        arguments.extend(shape);
        lowered.kernel(kernel("digit_counts", [ranges, 1], 32, arguments));
        lowered.kernel(kernel("sums_before", [1, 1], 1024, vec![counts, int(DIGITS * ranges)]));
        let mut arguments = vec![sorted[0], sorted[1], moved[0], moved[1], counts];
        arguments.extend(shape);
        lowered.kernel(kernel("move_keys", [ranges, 1], 32, arguments));
        std::mem::swap(&mut sorted, &mut moved);
    }

    let chunks = positions.div_ceil(CHUNK);
    let floats = 2 * chunks * sizes.packs * sizes.width;
    let parts = Argument::At(lowered.scratch(Bytes::of::<f32>(floats)));
    let threads = sizes.packs.next_multiple_of(32).min(THREADS as usize);
    let (blocks, threads) = ([chunks, sizes.packs.div_ceil(threads)], count(threads));
    let shape = [long(positions), long(sizes.entries), int(sizes.packs)];
    let [keys, places] = sorted;
    let mut arguments = vec![keys, places, dy.pointer(), dtable.pointer(), parts];
    arguments.extend(shape);
    lowered.kernel(kernel("entry_parts", blocks, threads, arguments));
    let mut arguments = vec![keys, dtable.pointer(), parts];
    arguments.extend(shape);
    lowered.kernel(kernel("entry_sums", blocks, threads, arguments));
    lowered
}

/// A table's sizes.
struct Sizes {
    entries: usize,
    /// Packs of an entry, and floats of a pack.
    packs: usize,
    width: usize,
}

impl Sizes {
    fn of(ids: Operand<'_>, table: Operand<'_>) -> Sizes {
        assert!(ids.elements <= u32::MAX as usize, "positions are counted by 32 bits");
        let line = table.shape().last().max(1);
        let width = pack_width(line, DType::F32);
        Sizes { entries: table.elements / line, packs: line / width, width }
    }

    fn source(&self, ids: Operand<'_>) -> Source {
        let defines = format!("typedef {} ID;\n#define WIDTH {}\n", ids.c_type(), self.width);
        Source { text: TEXT, defines }
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).expect("there are few blocks")
}
