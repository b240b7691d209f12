//! What the search knows before it starts: which blocks meet, and which sections each block is in.

use std::ops::Range;

use crate::bound::greatest_common_divisor;
use crate::instance::Instance;

/// A part of the problem with every pair that meets written out.
pub(crate) struct Model {
    pub(crate) blocks: Vec<Shape>,
    /// For each block, the blocks that it meets.
    pub(crate) neighbours: Lists<u32>,
    /// For each of `neighbours`, how far apart they are; nothing where no block ever rests.
    distances: Option<Vec<Distance>>,
    /// For each section, what is in it.
    pub(crate) sections: Lists<Entry>,
    /// For each block, the sections in which it occupies something.
    pub(crate) presences: Lists<u32>,
    /// Every height that a packing can have is a multiple of this.
    pub(crate) unit: u64,
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

/// How far apart the offsets of a block and its neighbour are.
#[derive(Clone, Copy, Debug)]
struct Distance {
    /// At least, if the neighbour lies above.
    above: u64,
    /// At least, if the neighbour lies below and holds the block up.
    holds: u64,
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
    fn new(lists: Vec<Vec<T>>) -> Self {
        let (mut starts, mut entries) = (vec![0], Vec::new());
        for list in lists {
            entries.extend(list);
            starts.push(entries.len() as u32);
        }
        Self { starts, entries }
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> &[T] {
        &self.entries[self.range(index)]
    }

    /// Where the list stands among all entries.
    #[inline]
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
        let shape = |block: &crate::instance::Block| Shape {
            first: block.first,
            end: block.end,
            size: block.size,
            alignment: block.alignment,
            duration: block.duration,
        };
        let mut sections = vec![Vec::new(); instance.sections];
        let mut presences = vec![Vec::new(); instance.blocks.len()];
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
        let (neighbours, distances) = neighbours(instance);
        Self {
            blocks: instance.blocks.iter().map(shape).collect(),
            neighbours,
            distances,
            sections: Lists::new(sections),
            presences: Lists::new(presences),
            unit,
        }
    }

    /// Whether a failed search is a proof: with gaps, two blocks may be above one another at
    /// different times, which the search does not try.
    pub(crate) fn is_complete(&self) -> bool {
        self.distances.is_none()
    }

    /// How much higher a neighbour is at least, if it lies above the block. The pair is an index
    /// into all entries of `neighbours`.
    #[inline]
    pub(crate) fn above(&self, block: usize, pair: usize) -> u64 {
        match &self.distances {
            None => self.blocks[block].size,
            Some(distances) => distances[pair].above,
        }
    }

    /// How much higher the block is at least, if that neighbour holds it up.
    #[inline]
    pub(crate) fn holds(&self, neighbour: usize, pair: usize) -> u64 {
        match &self.distances {
            None => self.blocks[neighbour].size,
            Some(distances) => distances[pair].holds,
        }
    }

    pub(crate) fn section(&self, section: usize) -> &[Entry] {
        self.sections.get(section)
    }

    pub(crate) fn section_count(&self) -> usize {
        self.sections.starts.len() - 1
    }
}

/// The blocks that each block shares a section with, and how far apart they are where that is
/// not simply their size.
fn neighbours(instance: &Instance) -> (Lists<u32>, Option<Vec<Distance>>) {
    let blocks = &instance.blocks;
    let mut births: Vec<u32> = (0..blocks.len() as u32).collect();
    births.sort_by_key(|&block| blocks[block as usize].first);
    let mut lists = vec![Vec::new(); blocks.len()];
    for (place, &block) in births.iter().enumerate() {
        let end = blocks[block as usize].end;
        let later = births[place + 1..].iter();
        for &other in later.take_while(|&&other| blocks[other as usize].first < end) {
            if distance(instance, block, other).is_some() {
                lists[block as usize].push(other);
                lists[other as usize].push(block);
            }
        }
    }
    if !instance.has_gaps() {
        return (Lists::new(lists), None);
    }
    let mut distances = Vec::new();
    for (block, list) in lists.iter().enumerate() {
        distances.extend(list.iter().filter_map(|&other| distance(instance, block as u32, other)));
    }
    (Lists::new(lists), Some(distances))
}

/// How far apart two blocks are, if they share a section.
fn distance(instance: &Instance, block: u32, other: u32) -> Option<Distance> {
    let mut distance: Option<Distance> = None;
    for piece in instance.pieces(block as usize) {
        for theirs in instance.pieces(other as usize) {
            if piece.first < theirs.end && theirs.first < piece.end {
                let above = piece.high.saturating_sub(theirs.low);
                let holds = theirs.high.saturating_sub(piece.low);
                let known = distance.get_or_insert(Distance { above, holds });
                known.above = known.above.max(above);
                known.holds = known.holds.min(holds);
            }
        }
    }
    distance
}
