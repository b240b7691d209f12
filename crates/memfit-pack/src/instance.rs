//! The packer's own form of a problem: time cut into sections, items as blocks over sections.
//!
//! A section is a moment at which the set of live items is as large as it gets before something
//! dies: every other moment is contained in one of these. Two items meet in time exactly when they
//! share a section, so nothing is lost, and there are at most as many sections as items.
//!
//! ```text
//! items      ├──────a──────┤   ├──d──┤
//!                ├───b───┤
//!                    ├───────c───────┤
//! sections           0             1        a = 0..1, b = 0..1, c = 0..2, d = 1..2
//! ```

use std::ops::Range;

use crate::Item;

/// A problem over sections. Items that occupy nothing are left out.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) blocks: Vec<Block>,
    pieces: Vec<Piece>,
    /// How many sections there are.
    pub(crate) sections: usize,
}

/// An item that occupies something at some time.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Index of the item this came from.
    pub(crate) item: usize,
    /// The first section.
    pub(crate) first: u32,
    /// The section after the last.
    pub(crate) end: u32,
    pub(crate) size: u64,
    /// At least 1.
    pub(crate) alignment: u64,
    /// Length of the life in time, which sections do not show.
    pub(crate) duration: u64,
    /// Which pieces are this block's; they stand in the order of time.
    pieces: Range<u32>,
}

/// A run of sections in which a block occupies the same bytes, counted from its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) first: u32,
    pub(crate) end: u32,
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Block {
    /// How many sections the block spans.
    pub(crate) fn length(&self) -> u64 {
        u64::from(self.end - self.first)
    }

    /// The lowest aligned offset at or above `offset`.
    pub(crate) fn align(&self, offset: u64) -> u64 {
        if self.alignment == 1 { offset } else { offset.next_multiple_of(self.alignment) }
    }
}

impl Instance {
    /// The whole problem.
    ///
    /// # Panics
    ///
    /// Panics if all sizes and alignments together exceed `u64`.
    pub(crate) fn new(items: &[Item]) -> Self {
        let total = items
            .iter()
            .try_fold(0_u64, |total, item| total.checked_add(item.size)?.checked_add(item.alignment));
        assert!(total.is_some(), "the sizes and alignments of all items sum to more than a u64");

        let mut blocks = Vec::with_capacity(items.len());
        let mut pieces = Vec::with_capacity(items.len());
        let mut times = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let begin = pieces.len() as u32;
            occupied_times(item, |time, low, high| {
                pieces.push(Piece { first: 0, end: 0, low, high });
                times.push(time);
            });
            if begin < pieces.len() as u32 {
                blocks.push(Block {
                    item: index,
                    first: 0,
                    end: 0,
                    size: item.size,
                    alignment: item.alignment.max(1),
                    duration: (item.upper - item.lower) as u64,
                    pieces: begin..pieces.len() as u32,
                });
            }
        }
        let sections = cut_into_sections(&times, &mut pieces);
        for block in &mut blocks {
            block.first = pieces[block.pieces.start as usize].first;
            block.end = pieces[block.pieces.end as usize - 1].end;
        }
        Self { blocks, pieces, sections }
    }

    /// The pieces of a block in the order of time.
    pub(crate) fn pieces(&self, block: usize) -> &[Piece] {
        let range = &self.blocks[block].pieces;
        &self.pieces[range.start as usize..range.end as usize]
    }

    /// Whether some block does not occupy all its bytes over all its sections.
    pub(crate) fn has_gaps(&self) -> bool {
        self.pieces.len() != self.blocks.len()
            || self.blocks.iter().enumerate().any(|(index, block)| {
                let piece = self.pieces(index)[0];
                (piece.low, piece.high) != (0, block.size)
            })
    }

    /// The same problem with time running backwards: a packing of one is a packing of the other.
    pub(crate) fn mirrored(&self) -> Self {
        let sections = self.sections as u32;
        let mut mirror = self.clone();
        for block in &mut mirror.blocks {
            (block.first, block.end) = (sections - block.end, sections - block.first);
            mirror.pieces[block.pieces.start as usize..block.pieces.end as usize].reverse();
        }
        for piece in &mut mirror.pieces {
            (piece.first, piece.end) = (sections - piece.end, sections - piece.first);
        }
        mirror
    }

    /// The bytes occupied in each section.
    pub(crate) fn loads(&self) -> Vec<u64> {
        let mut loads = vec![0_u64; self.sections + 1];
        for piece in &self.pieces {
            let size = piece.high - piece.low;
            loads[piece.first as usize] = loads[piece.first as usize].wrapping_add(size);
            loads[piece.end as usize] = loads[piece.end as usize].wrapping_sub(size);
        }
        loads.pop();
        let mut running = 0_u64;
        for load in &mut loads {
            running = running.wrapping_add(*load);
            *load = running;
        }
        loads
    }

    /// How many pairs of blocks meet in time, counting a block that rests as if it did not.
    pub(crate) fn pairs(&self) -> u64 {
        let mut births = vec![0_u64; self.sections];
        let mut deaths = vec![0_u64; self.sections + 1];
        for block in &self.blocks {
            births[block.first as usize] += 1;
            deaths[block.end as usize] += 1;
        }
        let (mut live, mut pairs) = (0_u64, 0_u64);
        for section in 0..self.sections {
            live -= deaths[section];
            let born = births[section];
            pairs += born * live + born * born.saturating_sub(1) / 2;
            live += born;
        }
        pairs
    }

    /// Groups of blocks that no block of another group ever meets, each a problem of its own.
    pub(crate) fn components(&self) -> Vec<Instance> {
        let mut crossing = vec![0_i64; self.sections + 1];
        for block in &self.blocks {
            // A boundary `s` between sections `s - 1` and `s` is crossed if first < s < end.
            crossing[block.first as usize + 1] += 1;
            crossing[block.end as usize] -= 1;
        }
        let mut component_of = Vec::with_capacity(self.sections);
        let mut starts = Vec::new();
        let mut open = 0;
        for (section, change) in crossing.iter().take(self.sections).enumerate() {
            open += change;
            if open == 0 {
                starts.push(section as u32);
            }
            component_of.push(starts.len() - 1);
        }
        if starts.len() <= 1 {
            return vec![self.clone()];
        }
        let ends = starts.iter().skip(1).copied().chain([self.sections as u32]);
        let mut components: Vec<Instance> = starts
            .iter()
            .zip(ends)
            .map(|(start, end)| Instance {
                blocks: Vec::new(),
                pieces: Vec::new(),
                sections: (end - start) as usize,
            })
            .collect();
        for (index, block) in self.blocks.iter().enumerate() {
            let part = component_of[block.first as usize];
            components[part].adopt(block, self.pieces(index), starts[part]);
        }
        components
    }

    /// Takes over a block of another instance whose section `start` is this one's section 0.
    fn adopt(&mut self, block: &Block, pieces: &[Piece], start: u32) {
        let begin = self.pieces.len() as u32;
        let moved = |piece: &Piece| Piece { first: piece.first - start, end: piece.end - start, ..*piece };
        self.pieces.extend(pieces.iter().map(moved));
        self.blocks.push(Block {
            first: block.first - start,
            end: block.end - start,
            pieces: begin..self.pieces.len() as u32,
            ..block.clone()
        });
    }
}

/// Calls `emit` with each run of time in which the item occupies the same bytes.
fn occupied_times(item: &Item, mut emit: impl FnMut(Range<usize>, u64, u64)) {
    if item.is_nothing() {
        return;
    }
    if item.gaps.is_empty() {
        return emit(item.lower..item.upper, 0, item.size);
    }
    let inside = |time: &usize| item.lower < *time && *time < item.upper;
    let edges = item.gaps.iter().flat_map(|gap| [gap.lower, gap.upper]);
    let mut times: Vec<usize> = edges.filter(inside).chain([item.lower, item.upper]).collect();
    times.sort_unstable();
    times.dedup();

    let mut run: Option<(Range<usize>, u64, u64)> = None;
    for pair in times.windows(2) {
        let gap = item.gaps.iter().find(|gap| (gap.lower..gap.upper).contains(&pair[0]));
        let (low, high) = match gap.map(|gap| gap.window) {
            None => (0, item.size),
            Some(None) => (0, 0),
            Some(Some(window)) => (window.lower, window.upper.min(item.size)),
        };
        if let Some((time, run_low, run_high)) = &mut run {
            if (*run_low, *run_high) == (low, high) && time.end == pair[0] {
                time.end = pair[1];
                continue;
            }
            emit(time.clone(), *run_low, *run_high);
        }
        run = (low < high).then_some((pair[0]..pair[1], low, high));
    }
    if let Some((time, low, high)) = run {
        emit(time, low, high);
    }
}

/// Writes into each piece the sections that its time covers, and returns how many there are.
fn cut_into_sections(times: &[Range<usize>], pieces: &mut [Piece]) -> usize {
    let mut births: Vec<u32> = (0..times.len() as u32).collect();
    let mut deaths = births.clone();
    births.sort_unstable_by_key(|&piece| (times[piece as usize].start, piece));
    deaths.sort_unstable_by_key(|&piece| (times[piece as usize].end, piece));

    let mut sections = 0;
    let mut born = 0;
    let mut born_since_cut = false;
    for &death in &deaths {
        let end = times[death as usize].end;
        // What is born at the time of a death does not meet the one that dies.
        while let Some(&birth) = births.get(born).filter(|&&b| times[b as usize].start < end) {
            pieces[birth as usize].first = sections;
            born_since_cut = true;
            born += 1;
        }
        if born_since_cut {
            sections += 1;
            born_since_cut = false;
        }
        pieces[death as usize].end = sections;
    }
    sections as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gap, Window};

    fn spans(items: &[Item]) -> Vec<(u32, u32)> {
        Instance::new(items).blocks.iter().map(|block| (block.first, block.end)).collect()
    }

    #[test]
    fn sections_are_the_maximal_sets_of_live_items() {
        let items = [Item::new(0, 14, 1), Item::new(4, 12, 1), Item::new(8, 25, 1), Item::new(18, 25, 1)];
        assert_eq!(spans(&items), [(0, 1), (0, 1), (0, 2), (1, 2)]);
    }

    #[test]
    fn touching_lifetimes_share_no_section() {
        assert_eq!(spans(&[Item::new(0, 5, 1), Item::new(5, 9, 1)]), [(0, 1), (1, 2)]);
    }

    #[test]
    fn gaps_split_a_block_into_pieces() {
        let window = Some(Window { lower: 2, upper: 3 });
        let item = Item::new(0, 10, 4).resting(Gap { lower: 2, upper: 4, window: None }).resting(Gap {
            lower: 6,
            upper: 8,
            window,
        });
        let instance = Instance::new(&[item]);
        let held: Vec<_> = instance.pieces(0).iter().map(|piece| (piece.low, piece.high)).collect();
        assert_eq!(held, [(0, 4), (0, 4), (2, 3), (0, 4)]);
        assert!(instance.has_gaps());
    }

    #[test]
    fn components_split_where_nothing_lives_across() {
        let items = [Item::new(0, 3, 1), Item::new(1, 4, 2), Item::new(4, 6, 3)];
        let sizes: Vec<_> = Instance::new(&items).components().iter().map(|part| part.blocks.len()).collect();
        assert_eq!(sizes, [2, 1]);
    }

    #[test]
    fn pairs_and_loads_count_what_is_live() {
        let instance = Instance::new(&[Item::new(0, 3, 5), Item::new(1, 4, 2), Item::new(3, 6, 3)]);
        assert_eq!((instance.pairs(), instance.loads()), (2, vec![7, 5]));
    }
}
