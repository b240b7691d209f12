//! Placing blocks in the order of time, as an allocator with a list of free ranges would.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::instance::{Block, Instance};

/// Offsets as a best-fit allocator gives them that sees only the present.
///
/// A block that rests is treated as if it did not.
pub(crate) fn place(instance: &Instance) -> Vec<u64> {
    let mut offsets = vec![0; instance.blocks.len()];
    let mut births: Vec<u32> = (0..instance.blocks.len() as u32).collect();
    let mut deaths = births.clone();
    let block = |index: &u32| &instance.blocks[*index as usize];
    births.sort_by_key(|index| {
        let block = block(index);
        (block.first, Reverse(block.end), Reverse(block.size))
    });
    deaths.sort_by_key(|index| block(index).end);

    let mut free = FreeList::default();
    let mut deaths = deaths.into_iter().peekable();
    for birth in births {
        let now = block(&birth).first;
        while let Some(dead) = deaths.next_if(|index| block(index).end <= now) {
            free.give_back(offsets[dead as usize], block(&dead).size);
        }
        offsets[birth as usize] = free.take(block(&birth));
    }
    offsets
}

/// Free ranges below the top, never touching each other nor the top.
#[derive(Default)]
struct FreeList {
    /// Length of the free range at each offset.
    by_offset: BTreeMap<u64, u64>,
    /// The same as (length, offset).
    by_length: BTreeSet<(u64, u64)>,
    top: u64,
}

/// How many free ranges are looked at for one whose aligned part is long enough.
const CANDIDATES: usize = 8;

impl FreeList {
    /// Takes the shortest free range that holds the block, or the top.
    fn take(&mut self, block: &Block) -> u64 {
        let candidates = self.by_length.range((block.size, 0)..).take(CANDIDATES);
        let fitting = candidates.copied().find_map(|(length, offset)| {
            let aligned = block.align(offset);
            (aligned + block.size <= offset + length).then_some((offset, length, aligned))
        });
        if let Some((offset, length, aligned)) = fitting {
            self.remove(offset, length);
            self.insert(offset, aligned - offset);
            let end = aligned + block.size;
            self.insert(end, offset + length - end);
            return aligned;
        }
        // The free range just below the top would be joined to it, so the top starts occupied.
        let aligned = block.align(self.top);
        self.insert(self.top, aligned - self.top);
        self.top = aligned + block.size;
        aligned
    }

    fn give_back(&mut self, offset: u64, length: u64) {
        let (mut begin, mut end) = (offset, offset + length);
        if let Some((&before, &before_length)) = self.by_offset.range(..begin).next_back()
            && before + before_length == begin
        {
            self.remove(before, before_length);
            begin = before;
        }
        if let Some((&after, &after_length)) = self.by_offset.range(end..).next()
            && after == end
        {
            self.remove(after, after_length);
            end += after_length;
        }
        if end == self.top {
            self.top = begin;
        } else {
            self.insert(begin, end - begin);
        }
    }

    fn insert(&mut self, offset: u64, length: u64) {
        if length > 0 {
            self.by_offset.insert(offset, length);
            self.by_length.insert((length, offset));
        }
    }

    fn remove(&mut self, offset: u64, length: u64) {
        self.by_offset.remove(&offset);
        self.by_length.remove(&(length, offset));
    }
}
