//! From items to a packing: cut into independent parts, pack greedily, then search.

use std::cmp::Reverse;

use crate::bound::bound;
use crate::greedy::{self, Placed};
use crate::instance::Instance;
use crate::packing::height_of;
use crate::search::{self, Search};
use crate::{Effort, Item, Packing};

/// Gives every item an offset, as low as the effort allows.
///
/// # Panics
///
/// Panics if all sizes and alignments together exceed `u64`.
pub fn pack(items: &[Item], effort: Effort) -> Packing {
    pack_while(items, effort, &|| true)
}

/// The most heap that a search for a lower packing holds, without the items and the memory of greedy
/// placements. The timing of its threads does not change it.
pub fn bytes_of_search(items: &[Item]) -> u64 {
    let parts = Instance::new(items).components();
    parts.iter().map(search::bytes).max().unwrap_or(0)
}

/// The same, but gives the best packing so far when `keep_going` says no.
///
/// This is the place for a limit in time, which makes the result depend on the machine; `pack`
/// never does. Greedy packing is always finished.
pub fn pack_while(items: &[Item], effort: Effort, keep_going: &(dyn Fn() -> bool + Sync)) -> Packing {
    let mut bound = bound(items);
    let goal = bound.max(effort.goal);
    let parts = Instance::new(items).components();
    let mut parts: Vec<(Instance, Placed)> = parts
        .into_iter()
        .map(|part| {
            let placed = greedy::place(&part, goal);
            (part, placed)
        })
        .collect();

    // The highest part decides, so it comes first, and no part need be lower than one before it.
    parts.sort_by_key(|(_, placed)| Reverse(placed.height));
    let mut nodes = effort.nodes;
    let mut height = goal;
    for (part, placed) in &mut parts {
        if nodes == 0 || placed.height <= height {
            continue;
        }
        nodes -= greedy::improve(part, placed, height, nodes / 4, keep_going);
        if placed.height > height && search::is_possible(part) && search::bytes(part) <= effort.bytes {
            let wants_goal = effort.goal >= bound;
            let mut search = Search { bound, goal: height, wants_goal, nodes, keep_going };
            search::improve(part, placed, &mut search);
            (nodes, bound) = (search.nodes, search.bound);
        }
        height = height.max(placed.height);
    }

    let mut offsets = vec![0; items.len()];
    for (part, placed) in &parts {
        for (block, offset) in part.blocks.iter().zip(&placed.offsets) {
            offsets[block.item] = *offset;
        }
    }
    Packing { height: height_of(items, &offsets), offsets, bound }
}
