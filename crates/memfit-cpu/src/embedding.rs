//! Embeddings: rows of a table by number, and their gradient.

use memfit_ir::Operand::{DTable, Dy, Table, Y};
use memfit_ir::{DType, Operand};

use super::operands::Operands;
use super::tasks::Cut;
use super::threads::Shared;

/// The most tasks that a gradient is cut in: each looks at all ids and takes those of its own entries.
const TASKS: usize = 16;

/// Writes the entry of every id; NaN where there is none.
pub(crate) fn forward(operands: &Operands) {
    let (ids, table) = (Ids::new(operands), operands.input::<f32>(Table));
    let width = operands.shape(Table).last();
    let entries = operands.shape(Table).dims[0];
    let cut = Cut::items(ids.count(), width);
    let y = Shared::new(operands.output::<f32>(Y));
    operands.threads.for_each(cut.count(), |task, _| {
        for position in cut.range(task) {
            // SAFETY: every position belongs to one task.
            let to = unsafe { y.slice(position * width..(position + 1) * width) };
            match ids.entry(position, entries) {
                Some(entry) => to.copy_from_slice(&table[entry * width..(entry + 1) * width]),
                None => to.fill(f32::NAN),
            }
        }
    });
}

/// Adds `dy` of every position to its entry, in the order of positions; `dy` of ids that have no entry is
/// dropped.
pub(crate) fn grad(operands: &Operands) {
    let (ids, dy) = (Ids::new(operands), operands.input::<f32>(Dy));
    let width = operands.shape(Dy).last();
    let dtable = operands.update(DTable);
    let entries = dtable.len() / width.max(1);
    let size = entries.div_ceil(TASKS).max(1);
    operands.threads.for_each_chunk(dtable, size * width.max(1), |task, dtable| {
        if operands.fresh {
            dtable.fill(0.0);
        }
        let mine = task * size..entries.min((task + 1) * size);
        for position in 0..ids.count() {
            if let Some(entry) = ids.entry(position, entries).filter(|entry| mine.contains(entry)) {
                let to = &mut dtable[(entry - mine.start) * width..][..width];
                let dy = &dy[position * width..(position + 1) * width];
                to.iter_mut().zip(dy).for_each(|(to, dy)| *to += dy);
            }
        }
    });
}

/// Ids in either of their types.
enum Ids<'a> {
    Whole(&'a [i32]),
    Floats(&'a [f32]),
}

impl<'a> Ids<'a> {
    fn new(operands: &Operands<'a>) -> Ids<'a> {
        match operands.dtype(Operand::Ids) {
            DType::I32 => Ids::Whole(operands.input(Operand::Ids)),
            DType::F32 => Ids::Floats(operands.input(Operand::Ids)),
            DType::F16 | DType::BF16 | DType::I64 | DType::U8 | DType::Bool => {
                unreachable!("the shape rules ask for ids of i32 or f32")
            }
        }
    }

    fn count(&self) -> usize {
        match self {
            Ids::Whole(ids) => ids.len(),
            Ids::Floats(ids) => ids.len(),
        }
    }

    /// The entry of a position, where the table has it. Floats are cut to whole numbers; NaN has no entry.
    fn entry(&self, position: usize, entries: usize) -> Option<usize> {
        let id = match self {
            Ids::Whole(ids) => i64::from(ids[position]),
            Ids::Floats(ids) if ids[position].is_nan() => return None,
            Ids::Floats(ids) => ids[position] as i64,
        };
        usize::try_from(id).ok().filter(|entry| *entry < entries)
    }
}
