//! What the search knows before it starts: who meets whom, and who is in which section.

use std::ops::Range;

use crate::bound::greatest_common_divisor;
use crate::instance::Instance;

/// A part of the problem with every pair that meets written out.
pub(crate) struct Model {
    pub(crate) blocks: Vec<Shape>,
    /// For each block, the blocks that it meets.
    neighbours: Lists<Neighbour>,
    /// For each section, what is in it.
    pub(crate) sections: Lists<Entry>,
    /// For each block, the sections in which it occupies something.
    pub(crate) presences: Lists<u32>,
    /// Every height that a packing can have is a multiple of this.
    pub(crate) unit: u64,
    /// Whether a failed search is a proof: with gaps, two blocks may be above one another at
    /// different times, which the search does not try.
    pub(crate) complete: bool,
}

/// A block as the search sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) first: u32,
    pub(crate) end: u32,
    pub(crate) size: u64,
    pub(crate) alignment: u64,
    /// Length of the life in time.
    pub(crate) duration: u64,
}

/// A block that meets another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbour {
    pub(crate) block: u32,
    /// If the neighbour lies above, its offset is at least this much larger.
    pub(crate) above: u64,
    /// If the neighbour lies below and holds this block up, its offset is this much smaller.
    pub(crate) holds: u64,
}

/// What a block occupies in a section, counted from its offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) block: u32,
    /// Which of all presences this is.
    pub(crate) presence: u32,
    pub(crate) low: u64,
    pub(crate) high: u64,
}

/// Many lists in one vector.
pub(crate) struct Lists<T> {
    pub(crate) starts: Vec<u32>,
    pub(crate) entries: Vec<T>,
}

impl<T> Lists<T> {
    fn new(lists: impl IntoIterator<Item = Vec<T>>) -> Self {
        let (mut starts, mut entries) = (vec![0], Vec::new());
        for list in lists {
            entries.extend(list);
            starts.push(entries.len() as u32);
        }
        Self { starts, entries }
    }

    pub(crate) fn get(&self, index: usize) -> &[T] {
        &self.entries[self.range(index)]
    }

    pub(crate) fn range(&self, index: usize) -> Range<usize> {
        self.starts[index] as usize..self.starts[index + 1] as usize
    }
}

impl Shape {
    /// The lowest aligned offset at or above `offset`.
    #[inline]
    pub(crate) fn align(&self, offset: u64) -> u64 {
        if self.alignment == 1 { offset } else { offset.next_multiple_of(self.alignment) }
    }
}

impl Model {
    pub(crate) fn new(instance: &Instance) -> Self {
        let blocks: Vec<Shape> = instance
            .blocks
            .iter()
            .map(|block| Shape {
                first: block.first,
                end: block.end,
                size: block.size,
                alignment: block.alignment,
                duration: block.duration,
            })
            .collect();
        let mut sections = vec![Vec::new(); instance.sections];
        let mut presences = vec![Vec::new(); blocks.len()];
        let (mut unit, mut presence) = (0, 0);
        for (index, block) in instance.blocks.iter().enumerate() {
            unit = greatest_common_divisor(unit, block.size);
            if block.alignment > 1 {
                unit = greatest_common_divisor(unit, block.alignment);
            }
            for piece in instance.pieces(index) {
                let (low, high) = (piece.low, piece.high);
                unit = greatest_common_divisor(greatest_common_divisor(unit, low), high);
                for section in piece.first..piece.end {
                    let entry = Entry { block: index as u32, presence, low, high };
                    sections[section as usize].push(entry);
                    presences[index].push(section);
                    presence += 1;
                }
            }
        }
        let neighbours = Lists::new((0..blocks.len()).map(|block| neighbours_of(instance, block)));
        let complete = !instance.has_gaps();
        let (sections, presences) = (Lists::new(sections), Lists::new(presences));
        Self { blocks, neighbours, sections, presences, unit, complete }
    }

    pub(crate) fn neighbours(&self, block: usize) -> &[Neighbour] {
        self.neighbours.get(block)
    }

    pub(crate) fn section(&self, section: usize) -> &[Entry] {
        self.sections.get(section)
    }

    pub(crate) fn section_count(&self) -> usize {
        self.sections.starts.len() - 1
    }
}

/// Every block that shares a section with this one, and how far above it must then be.
fn neighbours_of(instance: &Instance, block: usize) -> Vec<Neighbour> {
    let own = &instance.blocks[block];
    let meets = |other: &usize| {
        let shape = &instance.blocks[*other];
        *other != block && shape.first < own.end && own.first < shape.end
    };
    let distances = |other: usize| {
        let mut neighbour: Option<Neighbour> = None;
        for piece in instance.pieces(block) {
            for theirs in instance.pieces(other) {
                if piece.first < theirs.end && theirs.first < piece.end {
                    let above = piece.high.saturating_sub(theirs.low);
                    let holds = theirs.high.saturating_sub(piece.low);
                    let known = neighbour.get_or_insert(Neighbour { block: other as u32, above, holds });
                    known.above = known.above.max(above);
                    known.holds = known.holds.min(holds);
                }
            }
        }
        neighbour
    };
    (0..instance.blocks.len()).filter(meets).filter_map(distances).collect()
}
