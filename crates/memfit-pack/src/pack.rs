//! From items to a packing: cut into independent parts, pack greedily, then search.

use crate::bound::{bound, bound_of};
use crate::greedy;
use crate::instance::Instance;
use crate::packing::height_of;
use crate::{Effort, Item, Packing};

/// Gives every item an offset, as low as the effort allows.
///
/// # Panics
///
/// Panics if all sizes and alignments together exceed `u64`.
pub fn pack(items: &[Item], effort: Effort) -> Packing {
    let bound = bound(items);
    let mut offsets = vec![0; items.len()];
    let goal = bound.max(effort.goal);
    for part in Instance::new(items).components() {
        debug_assert!(bound_of(&part) <= bound);
        let mut placed = greedy::place(&part, goal);
        if placed.height > goal && effort.nodes > 0 { crate::search::improve(&part, &mut placed, goal, effort.nodes); }
        for (block, offset) in part.blocks.iter().zip(&placed.offsets) {
            offsets[block.item] = *offset;
        }
    }
    let height = height_of(items, &offsets);
    Packing { offsets, height, bound }
}
