//! Depth first over packings from the bottom up, in parts as soon as they no longer meet.
//!
//! At each node some block lies exactly where it would rest: the one that could end lowest, or one
//! that is in its way. The node tries these in turn; one that was tried in vain is refused at that
//! height for the rest of the node, so that no packing is looked at twice.

use std::ops::Range;

use super::infer::infer;
use super::model::Model;
use super::state::State;

/// Which blocks a node tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Branching {
    /// Every block that begins below the lowest end of all.
    Everything,
    /// The block with the lowest end, and what is in its way.
    LowestEnd,
    /// The same for whichever block has the fewest in its way, among those for which it is sound.
    Fewest,
}

/// How to go through the tree.
#[derive(Clone, Debug)]
pub(crate) struct Strategy {
    pub(crate) branching: Branching,
    /// Whether the lowest of a node's blocks is tried first, or the first by rank wherever it lies.
    pub(crate) lowest_first: bool,
    /// Which block is tried first among equals.
    pub(crate) rank: Vec<u32>,
}

/// How a search ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Offsets of all blocks that end at or below the capacity.
    Fits(Vec<u64>),
    /// All packings that matter were tried.
    DoesNotFit,
    /// The limit was reached first.
    Stopped,
}

/// Looks for a packing no higher than `capacity`, placing at most `limit` blocks, and says how
/// many it placed. `keep_going` is asked now and then.
pub(crate) fn search(
    model: &Model,
    capacity: u64,
    strategy: &Strategy,
    limit: u64,
    keep_going: &dyn Fn() -> bool,
) -> (Outcome, u64, Vec<u64>) {
    let state = State::new(model);
    let arena = (0..model.blocks.len() as u32).collect();
    let mut tree = Tree { state, capacity, strategy, limit, placements: 0, keep_going, arena };
    let all = 0..model.blocks.len();
    tree.state.risen.set(0, model.section_count() as u32);
    let end = if infer(&mut tree.state, capacity, &tree.arena) {
        tree.descend(all)
    } else {
        End::DoesNotFit
    };
    let outcome = match end {
        End::Fits => Outcome::Fits(tree.state.offsets.clone()),
        End::DoesNotFit => Outcome::DoesNotFit,
        End::Stopped => Outcome::Stopped,
    };
    (outcome, tree.placements, tree.state.trouble)
}

/// How many placements pass between two questions whether to go on.
const PLACEMENTS_PER_QUESTION: u64 = 256;

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Fits,
    DoesNotFit,
    Stopped,
}

struct Tree<'a> {
    state: State<'a>,
    capacity: u64,
    strategy: &'a Strategy,
    limit: u64,
    placements: u64,
    keep_going: &'a dyn Fn() -> bool,
    /// Lists of blocks, one above the other as the recursion is.
    arena: Vec<u32>,
}

impl Tree<'_> {
    /// Places all of these unplaced blocks, which nothing unplaced outside them meets.
    fn descend(&mut self, blocks: Range<usize>) -> End {
        if blocks.is_empty() {
            return End::Fits;
        }
        let choices = self.choices(blocks.clone());
        let mark = self.state.mark();
        let arena_mark = self.arena.len();
        for choice in choices.clone() {
            let block = self.arena[choice] as usize;
            self.placements += 1;
            if self.placements > self.limit || !self.may_go_on() {
                return End::Stopped;
            }
            let before = self.state.mark();
            self.state.place(block);
            let end = self.settle(blocks.clone(), block);
            self.arena.truncate(arena_mark);
            match end {
                End::Fits | End::Stopped => return end,
                End::DoesNotFit => self.state.undo(before),
            }
            if choice + 1 < choices.end {
                let refused = self.state.rests[block] + 1;
                self.state.raise(block, refused);
                if !infer(&mut self.state, self.capacity, &self.arena[blocks.clone()]) {
                    break;
                }
            }
        }
        self.state.undo(mark);
        self.arena.truncate(choices.start);
        End::DoesNotFit
    }

    fn may_go_on(&self) -> bool {
        !self.placements.is_multiple_of(PLACEMENTS_PER_QUESTION) || (self.keep_going)()
    }

    /// Goes on with the blocks that are left after one was placed, part by part.
    fn settle(&mut self, blocks: Range<usize>, placed: usize) -> End {
        let begin = self.arena.len();
        for index in blocks {
            let block = self.arena[index];
            if block as usize != placed {
                self.arena.push(block);
            }
        }
        let rest = begin..self.arena.len();
        if !infer(&mut self.state, self.capacity, &self.arena[rest.clone()]) {
            return End::DoesNotFit;
        }
        let shape = &self.state.model.blocks[placed];
        let boundaries = shape.first as usize + 1..shape.end as usize;
        if boundaries.clone().all(|boundary| self.state.crossing[boundary] > 0) {
            return self.descend(rest);
        }
        self.descend_in_parts(rest, boundaries)
    }

    /// Cuts where no unplaced block lives across, and takes the smallest part first.
    fn descend_in_parts(&mut self, rest: Range<usize>, boundaries: Range<usize>) -> End {
        let blocks = &self.state.model.blocks;
        let cuts: Vec<u32> = boundaries
            .filter(|&boundary| self.state.crossing[boundary] == 0)
            .map(|boundary| boundary as u32)
            .collect();
        let mut parts: Vec<Vec<u32>> = vec![Vec::new(); cuts.len() + 1];
        for &block in &self.arena[rest] {
            let part = cuts.partition_point(|&cut| cut <= blocks[block as usize].first);
            parts[part].push(block);
        }
        parts.sort_by_key(Vec::len);
        for part in parts {
            let begin = self.arena.len();
            self.arena.extend(part);
            let end = self.descend(begin..self.arena.len());
            self.arena.truncate(begin);
            if end != End::Fits {
                return end;
            }
        }
        End::Fits
    }

    /// Appends to the arena the blocks to try, in the order to try them.
    fn choices(&mut self, blocks: Range<usize>) -> Range<usize> {
        let begin = self.arena.len();
        let rank = &self.strategy.rank;
        let soonest = |&block: &u32| (self.state.lowest_end(block as usize), rank[block as usize]);
        let lowest = *self.arena[blocks.clone()].iter().min_by_key(|block| soonest(block)).expect("not empty");
        match self.strategy.branching {
            Branching::Everything => {
                let end = self.state.lowest_end(lowest as usize);
                for index in blocks {
                    let block = self.arena[index];
                    if self.state.lowest[block as usize] < end {
                        self.arena.push(block);
                    }
                }
            }
            Branching::LowestEnd => self.push_with_those_in_the_way(lowest),
            Branching::Fewest => {
                let fewest = self.fewest_in_the_way(blocks, lowest);
                self.push_with_those_in_the_way(fewest);
            }
        }
        let state = &self.state;
        let choices = &mut self.arena[begin..];
        if self.strategy.lowest_first {
            choices.sort_unstable_by_key(|&block| (state.lowest[block as usize], rank[block as usize]));
        } else {
            choices.sort_unstable_by_key(|&block| rank[block as usize]);
        }
        begin..self.arena.len()
    }

    fn push_with_those_in_the_way(&mut self, block: u32) {
        self.arena.push(block);
        let end = self.state.lowest_end(block as usize);
        for neighbour in self.state.model.neighbours(block as usize) {
            if self.state.lowest[neighbour.block as usize] < end {
                self.arena.push(neighbour.block);
            }
        }
    }

    /// The block with the fewest in its way among those that could end before anything that could
    /// hold up the ones in their way.
    fn fewest_in_the_way(&self, blocks: Range<usize>, lowest: u32) -> u32 {
        let (mut best, mut fewest) = (lowest, usize::MAX);
        for &block in [lowest].iter().chain(&self.arena[blocks]) {
            if let Some(count) = self.count_in_the_way(block as usize, fewest) {
                (best, fewest) = (block, count);
                if count == 0 {
                    break;
                }
            }
        }
        best
    }

    /// How many blocks are in the way, if fewer than `fewest` and if it is sound to choose this one.
    fn count_in_the_way(&self, block: usize, fewest: usize) -> Option<usize> {
        let (state, model) = (&self.state, self.state.model);
        if state.lowest[block] != state.rests[block] {
            return None;
        }
        let end = state.lowest_end(block);
        let mut count = 0;
        for neighbour in model.neighbours(block) {
            let other = neighbour.block as usize;
            if state.lowest[other] < end {
                count += 1;
                if count >= fewest || state.lowest_end(other) < end {
                    return None;
                }
            }
        }
        for neighbour in model.neighbours(block) {
            if state.lowest[neighbour.block as usize] < end {
                for far in model.neighbours(neighbour.block as usize) {
                    let far = far.block as usize;
                    if !state.is_placed(far) && state.lowest_end(far) < end {
                        return None;
                    }
                }
            }
        }
        (count < fewest).then_some(count)
    }
}
