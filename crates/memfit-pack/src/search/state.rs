//! A partial packing that can be taken back: what is placed, and how low the rest can still be.

use super::model::{Entry, Model};

/// Where a block that is placed stands in `lowest`: above every height.
pub(crate) const PLACED: u64 = u64::MAX;

/// A partial packing.
pub(crate) struct State<'a> {
    pub(crate) model: &'a Model,
    /// The offset of each placed block.
    pub(crate) offsets: Vec<u64>,
    /// Where each unplaced block would rest on what is placed below it.
    pub(crate) rests: Vec<u64>,
    /// The lowest offset that each unplaced block can still have; `PLACED` for a placed one.
    /// Above `rests` where the block was refused there: something unplaced must hold it up.
    pub(crate) lowest: Vec<u64>,
    /// The bytes of unplaced blocks in each section.
    pub(crate) waiting: Vec<u64>,
    /// What is in each section as in the model, but with the unplaced in front.
    entries: Vec<Entry>,
    /// Where each presence stands in `entries`.
    positions: Vec<u32>,
    /// How many entries of each section are of unplaced blocks.
    unplaced: Vec<u32>,
    /// How many unplaced blocks live across the boundary before each section.
    pub(crate) crossing: Vec<u32>,
    /// The pair whose other block was last seen to hold up each block; only a hint.
    pub(crate) support: Vec<u32>,
    /// Sections whose unplaced blocks have risen since they were last looked at.
    pub(crate) risen: Marks,
    /// How often each section was found to be one that cannot fit; never taken back.
    pub(crate) trouble: Vec<u64>,
    trail: Vec<Change>,
}

/// What to put back.
enum Change {
    Placed { block: u32, lowest: u64 },
    Rests { block: u32, before: u64 },
    Lowest { block: u32, before: u64 },
}

impl<'a> State<'a> {
    pub(crate) fn new(model: &'a Model) -> Self {
        let (blocks, sections) = (model.blocks.len(), model.section_count());
        let mut crossing = vec![0; sections + 1];
        for block in &model.blocks {
            for boundary in &mut crossing[block.first as usize + 1..block.end as usize] {
                *boundary += 1;
            }
        }
        let entries = model.sections.entries.clone();
        let mut positions = vec![0; entries.len()];
        for (position, entry) in entries.iter().enumerate() {
            positions[entry.presence as usize] = position as u32;
        }
        let load = |section| model.section(section).iter().map(|entry| entry.high - entry.low).sum();
        Self {
            model,
            offsets: vec![0; blocks],
            rests: vec![0; blocks],
            lowest: vec![0; blocks],
            waiting: (0..sections).map(load).collect(),
            entries,
            positions,
            unplaced: (0..sections).map(|section| model.section(section).len() as u32).collect(),
            crossing,
            support: model.neighbours.starts[..blocks].to_vec(),
            risen: Marks::new(sections),
            trouble: vec![0; sections],
            trail: Vec::new(),
        }
    }

    /// Everything that happens after this can be taken back to it.
    pub(crate) fn mark(&self) -> usize {
        self.trail.len()
    }

    #[inline]
    pub(crate) fn is_placed(&self, block: usize) -> bool {
        self.lowest[block] == PLACED
    }

    /// The lowest end that an unplaced block can have.
    #[inline]
    pub(crate) fn lowest_end(&self, block: usize) -> u64 {
        self.lowest[block] + self.model.blocks[block].size
    }

    /// Puts a block where it rests, and lifts everything that meets it onto it.
    pub(crate) fn place(&mut self, block: usize) {
        let model = self.model;
        let offset = self.rests[block];
        self.offsets[block] = offset;
        self.trail.push(Change::Placed { block: block as u32, lowest: self.lowest[block] });
        self.lowest[block] = PLACED;
        self.take_out(block);
        let shape = &model.blocks[block];
        self.risen.set(shape.first, shape.end);
        for pair in model.neighbours.range(block) {
            let other = model.neighbours.entries[pair] as usize;
            let top = offset + model.above(block, pair);
            if self.lowest[other] == PLACED || top <= self.rests[other] {
                continue;
            }
            let rests = model.blocks[other].align(top);
            self.trail.push(Change::Rests { block: other as u32, before: self.rests[other] });
            self.rests[other] = rests;
            self.raise(other, rests);
        }
    }

    /// Notes that an unplaced block cannot be lower than `offset`.
    #[inline]
    pub(crate) fn raise(&mut self, block: usize, offset: u64) {
        let before = self.lowest[block];
        if before < offset {
            self.trail.push(Change::Lowest { block: block as u32, before });
            self.lowest[block] = offset;
            let shape = &self.model.blocks[block];
            self.risen.set(shape.first, shape.end);
        }
    }

    /// Takes back everything since the mark.
    pub(crate) fn undo(&mut self, mark: usize) {
        while self.trail.len() > mark {
            match self.trail.pop().expect("the trail is longer than the mark") {
                Change::Placed { block, lowest } => {
                    self.lowest[block as usize] = lowest;
                    self.put_back(block as usize);
                }
                Change::Rests { block, before } => self.rests[block as usize] = before,
                Change::Lowest { block, before } => self.lowest[block as usize] = before,
            }
        }
        self.risen.clear();
    }

    /// The unplaced blocks of a section.
    #[inline]
    pub(crate) fn section(&self, section: usize) -> &[Entry] {
        let begin = self.model.sections.starts[section] as usize;
        &self.entries[begin..begin + self.unplaced[section] as usize]
    }

    /// Moves a block after the unplaced ones of its sections.
    fn take_out(&mut self, block: usize) {
        let model = self.model;
        let presences = model.presences.range(block);
        for (presence, &section) in presences.zip(model.presences.get(block)) {
            let section = section as usize;
            self.unplaced[section] -= 1;
            let last = (model.sections.starts[section] + self.unplaced[section]) as usize;
            let position = self.positions[presence] as usize;
            self.entries.swap(position, last);
            self.positions[self.entries[position].presence as usize] = position as u32;
            self.positions[presence] = last as u32;
            let entry = self.entries[last];
            self.waiting[section] -= entry.high - entry.low;
        }
        let shape = &model.blocks[block];
        let crossed = &mut self.crossing[shape.first as usize + 1..shape.end as usize];
        crossed.iter_mut().for_each(|count| *count -= 1);
    }

    /// Undoes `take_out` of the block that was taken out last.
    fn put_back(&mut self, block: usize) {
        let model = self.model;
        for &section in model.presences.get(block) {
            let section = section as usize;
            let entry = self.entries[(model.sections.starts[section] + self.unplaced[section]) as usize];
            debug_assert_eq!(entry.block as usize, block);
            self.unplaced[section] += 1;
            self.waiting[section] += entry.high - entry.low;
        }
        let shape = &model.blocks[block];
        let crossed = &mut self.crossing[shape.first as usize + 1..shape.end as usize];
        crossed.iter_mut().for_each(|count| *count += 1);
    }
}

/// A set of sections.
pub(crate) struct Marks {
    words: Vec<u64>,
}

impl Marks {
    fn new(sections: usize) -> Self {
        Self { words: vec![0; sections / 64 + 1] }
    }

    /// Adds `first..end`.
    #[inline]
    pub(crate) fn set(&mut self, first: u32, end: u32) {
        let (from, to) = (first as usize / 64, (end as usize - 1) / 64);
        let head = u64::MAX << (first % 64);
        let tail = u64::MAX >> (63 - (end - 1) % 64);
        if from == to {
            self.words[from] |= head & tail;
        } else {
            self.words[from] |= head;
            self.words[from + 1..to].fill(u64::MAX);
            self.words[to] |= tail;
        }
    }

    /// Takes out the first section at or after `from`.
    #[inline]
    pub(crate) fn take_from(&mut self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = *self.words.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.words.get(word)?;
        }
        let section = word * 64 + bits.trailing_zeros() as usize;
        self.words[word] &= !(1 << (section % 64));
        Some(section)
    }

    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }
}
