//! Placing blocks in a given order, each on top of what already lies in its sections.

use crate::instance::Instance;
use crate::range_max::RangeMax;

/// Offsets of the blocks when they are dropped onto the skyline in this order.
///
/// Holes below the skyline are never filled: an order that puts the longest first leaves few.
pub(crate) fn place(instance: &Instance, order: &[u32]) -> Vec<u64> {
    let mut skyline = RangeMax::new(instance.sections);
    let mut offsets = vec![0; instance.blocks.len()];
    for &block in order {
        let block = block as usize;
        let pieces = instance.pieces(block);
        let lowest = pieces.iter().map(|piece| {
            let top = skyline.largest(piece.first as usize, piece.end as usize);
            top.saturating_sub(piece.low)
        });
        let offset = instance.blocks[block].align(lowest.max().unwrap_or(0));
        for piece in pieces {
            skyline.raise(piece.first as usize, piece.end as usize, offset + piece.high);
        }
        offsets[block] = offset;
    }
    offsets
}
