//! A plan: exactly what happens. Offsets in one arena, and one list of steps.

#[cfg(doc)]
use crate::Problem;
use crate::{Bytes, NodeId, Rewrite, TensorId};

/// Every offset is a multiple of this: a cache line, and the widest vector.
pub const ALIGNMENT: u64 = 64;

/// Exactly what happens in one training step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Rows of a full training step.
    pub batch: usize,
    /// Rows of a full micro-batch; equal to `batch` when nothing is split.
    pub micro_batch: usize,
    /// How the problem's graph is rewritten before it runs, in this order. Ids of nodes and tensors are those of
    /// the problem that [`Problem::rewritten`] returns for these.
    pub rewrites: Vec<Rewrite>,
    /// Height of the arena: the end of the highest slot.
    pub bytes_peak: Bytes,
    /// No packing of this schedule can be lower.
    pub bytes_bound: Bytes,
    /// Height of offload memory, to which values are copied out.
    pub bytes_host: Bytes,
    /// Where tensors stand that stay from step to step.
    pub persistent: Vec<(TensorId, Slot)>,
    /// Where kept tensors stand when the step ends.
    pub kept: Vec<(TensorId, Slot)>,
    /// Where the next micro-batch's first rows wait on a device that copies them in beside launches, above
    /// all other buffers.
    pub ahead: Option<Slot>,
    /// Once, before the first micro-batch.
    pub prologue: Vec<Step>,
    /// Once for every micro-batch.
    pub body: Vec<Step>,
    /// Once, after the last micro-batch.
    pub epilogue: Vec<Step>,
}

/// A buffer of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// First byte.
    pub offset: Bytes,
    /// Length.
    pub bytes: Bytes,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A node runs.
    Launch {
        /// Which.
        node: NodeId,
        /// Slots of its inputs, outputs and updates, in this order.
        args: Vec<Slot>,
        /// Its scratch memory.
        workspace: Slot,
        /// Its updates count as zero before: the node stands in for the `Zero` that opens them.
        fresh: bool,
    },
    /// Bytes move.
    Copy {
        /// From here.
        from: Place,
        /// To there.
        to: Place,
    },
    /// The copy between offload memory and this buffer of the arena is over. It may begin at any time and run
    /// beside launches, so until then no step may write what it reads, or touch what it writes.
    Wait(Slot),
}

/// Where a copy begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The next rows of an input.
    Feed(TensorId),
    /// The arena.
    Arena(Slot),
    /// Offload memory: host memory beside a GPU, a file beside a CPU.
    Host(Slot),
}

impl Slot {
    /// One past the last byte.
    pub fn end(&self) -> Bytes {
        self.offset + self.bytes
    }

    /// Whether the two share a byte.
    pub fn overlaps(&self, other: &Slot) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }
}

impl Plan {
    /// How many micro-batches a full batch is cut into.
    pub fn micro_batches(&self) -> usize {
        self.batch.div_ceil(self.micro_batch)
    }

    /// The micro-batches of a step of `rows` rows, in order: first row and number of rows.
    pub fn pieces(&self, rows: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let micro_batch = self.micro_batch;
        (0..rows.div_ceil(micro_batch))
            .map(move |i| (i * micro_batch, micro_batch.min(rows - i * micro_batch)))
    }

    /// The inputs that are fed before anything else happens in a micro-batch, and where they go.
    pub fn fed_first(&self) -> impl Iterator<Item = (TensorId, Slot)> {
        self.body.iter().map_while(|step| match step {
            Step::Copy { from: Place::Feed(tensor), to: Place::Arena(slot) } => Some((*tensor, *slot)),
            Step::Copy { .. } | Step::Launch { .. } | Step::Wait(_) => None,
        })
    }

    /// All steps, in the order of their first run.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.prologue.iter().chain(&self.body).chain(&self.epilogue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micro_batches_cover_every_row_once() {
        for (batch, micro_batch, rows) in [(256, 4, 256), (32, 7, 32), (5, 5, 5), (10, 3, 4), (1, 1, 1)] {
            let plan = Plan {
                batch,
                micro_batch,
                rewrites: vec![],
                bytes_peak: Bytes::ZERO,
                bytes_bound: Bytes::ZERO,
                bytes_host: Bytes::ZERO,
                persistent: vec![],
                kept: vec![],
                ahead: None,
                prologue: vec![],
                body: vec![],
                epilogue: vec![],
            };
            let mut next = 0;
            for (start, count) in plan.pieces(rows) {
                assert!(start == next && 0 < count && count <= micro_batch);
                next += count;
            }
            assert_eq!(next, rows);
        }
    }
}
