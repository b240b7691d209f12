//! What follows from a partial packing: blocks that must be higher, and sections that cannot fit.
//!
//! Both rules hold for every packing in which nothing can sink, which is enough: any packing can
//! be let sink into one of these without growing.

use super::state::{PLACED, State};

/// Raises what must be higher until nothing changes; false when something cannot fit.
///
/// Looks at the sections that have risen and at `blocks`, the unplaced blocks in question.
pub(crate) fn infer(state: &mut State<'_>, capacity: u64, blocks: &[u32]) -> bool {
    loop {
        let mut from = 0;
        while let Some(section) = state.risen.take_from(from).or_else(|| state.risen.take_from(0)) {
            if !fill_section(state, capacity, section) {
                state.trouble[section] += 1;
                return false;
            }
            from = section + 1;
        }
        let Some(raised) = hold_up(state, capacity, blocks) else { return false };
        if !raised {
            return true;
        }
    }
}

/// A section is full of blocks one above the other, so the next block must begin low enough for
/// all to end below the capacity. What begins too high comes after one of those that do not.
fn fill_section(state: &mut State<'_>, capacity: u64, section: usize) -> bool {
    let waiting = state.waiting[section];
    if waiting == 0 {
        return true;
    }
    let Some(latest) = capacity.checked_sub(waiting) else { return false };
    let (mut end_lowest, mut begin_lowest) = (u64::MAX, u64::MAX);
    for entry in state.section(section) {
        let lowest = state.lowest[entry.block as usize];
        if lowest + entry.low <= latest {
            end_lowest = end_lowest.min(lowest + entry.high);
        } else {
            begin_lowest = begin_lowest.min(lowest + entry.low);
        }
    }
    if begin_lowest >= end_lowest {
        return true;
    }
    if end_lowest == u64::MAX {
        return false;
    }
    for index in 0..state.section(section).len() {
        let entry = state.section(section)[index];
        let begin = state.lowest[entry.block as usize] + entry.low;
        if latest < begin && begin < end_lowest {
            let shape = &state.model.blocks[entry.block as usize];
            let raised = shape.align(end_lowest.saturating_sub(entry.low));
            if raised + shape.size > capacity {
                return false;
            }
            state.raise(entry.block as usize, raised);
        }
    }
    true
}

/// A block that may not lie where it would rest now must lie on something yet unplaced.
/// Says whether anything was raised, or nothing if a block finds no place.
fn hold_up(state: &mut State<'_>, capacity: u64, blocks: &[u32]) -> Option<bool> {
    let model = state.model;
    let mut raised = false;
    for &block in blocks {
        let block = block as usize;
        let lowest = state.lowest[block];
        if lowest == PLACED || lowest <= state.rests[block] {
            continue;
        }
        let holds = |state: &State<'_>, pair: usize| {
            let neighbour = model.neighbours.entries[pair] as usize;
            let offset = state.lowest[neighbour];
            if offset == PLACED { u64::MAX } else { offset + model.holds(neighbour, pair) }
        };
        let pairs = model.neighbours.range(block);
        // What held the block up the last time mostly still does.
        if !pairs.is_empty() && holds(state, state.support[block] as usize) <= lowest {
            continue;
        }
        let mut support = u64::MAX;
        for pair in pairs {
            support = support.min(holds(state, pair));
            if support <= lowest {
                state.support[block] = pair as u32;
                break;
            }
        }
        if support == u64::MAX {
            return None;
        }
        if support > lowest {
            let shape = &model.blocks[block];
            let offset = shape.align(support);
            if offset + shape.size > capacity {
                return None;
            }
            state.raise(block, offset);
            raised = true;
        }
    }
    Some(raised)
}
