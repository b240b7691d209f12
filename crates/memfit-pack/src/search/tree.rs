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
    /// One block and what is in its way: the block for which this is fewest, among those that
    /// could end before anything that could hold up the ones in their way.
    Fewest,
}

/// How to go through the tree.
#[derive(Clone, Debug)]
pub(crate) struct Strategy {
    pub(crate) branching: Branching,
    /// Which block is tried first among those at the same height.
    pub(crate) rank: Vec<u32>,
}

/// How a search ended, and what it took.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) outcome: Outcome,
    /// How many blocks were placed.
    pub(crate) placements: u64,
    /// How often each section was the one that could not fit.
    pub(crate) trouble: Vec<u64>,
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

/// Looks for a packing no higher than `capacity`, placing at most `limit` blocks.
/// `keep_going` is asked now and then.
pub(crate) fn search(
    model: &Model,
    capacity: u64,
    strategy: &Strategy,
    limit: u64,
    keep_going: &dyn Fn() -> bool,
) -> Attempt {
    let state = State::new(model);
    let blocks = (0..model.blocks.len() as u32).collect();
    let choices = Vec::new();
    let mut tree = Tree { state, capacity, strategy, limit, placements: 0, keep_going, blocks, choices };
    tree.state.risen.set(0, model.section_count() as u32);
    let end = if infer(&mut tree.state, capacity, &tree.blocks) {
        tree.descend(0..model.blocks.len())
    } else {
        End::DoesNotFit
    };
    let State { offsets, trouble, .. } = tree.state;
    let outcome = match end {
        End::Fits => Outcome::Fits(offsets),
        End::DoesNotFit => Outcome::DoesNotFit,
        End::Stopped => Outcome::Stopped,
    };
    Attempt { outcome, placements: tree.placements, trouble }
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
    /// All blocks, so arranged that the unplaced ones of each part stand together.
    blocks: Vec<u32>,
    /// What each node tries, one above the other as the recursion is.
    choices: Vec<u32>,
}

impl Tree<'_> {
    /// Places all of these unplaced blocks, which nothing unplaced outside them meets.
    fn descend(&mut self, part: Range<usize>) -> End {
        if part.is_empty() {
            return End::Fits;
        }
        let mark = self.state.mark();
        let choices = self.choose(part.clone());
        for index in choices.clone() {
            let block = self.choices[index];
            self.placements += 1;
            if self.placements > self.limit || !self.may_go_on() {
                return End::Stopped;
            }
            let before = self.state.mark();
            match self.try_block(part.clone(), block) {
                end @ (End::Fits | End::Stopped) => return end,
                End::DoesNotFit => self.state.undo(before),
            }
            if index + 1 < choices.end {
                let refused = self.state.rests[block as usize] + 1;
                self.state.raise(block as usize, refused);
                if !infer(&mut self.state, self.capacity, &self.blocks[part.clone()]) {
                    break;
                }
            }
        }
        self.state.undo(mark);
        self.choices.truncate(choices.start);
        End::DoesNotFit
    }

    fn may_go_on(&self) -> bool {
        !self.placements.is_multiple_of(PLACEMENTS_PER_QUESTION) || (self.keep_going)()
    }

    /// Places a block and goes on with those that are left.
    fn try_block(&mut self, part: Range<usize>, block: u32) -> End {
        let shape = &self.state.model.blocks[block as usize];
        if self.state.rests[block as usize] + shape.size > self.capacity {
            return End::DoesNotFit;
        }
        self.state.place(block as usize);
        let blocks = &mut self.blocks[part.clone()];
        let place = blocks.iter().position(|&other| other == block).expect("a choice is in its part");
        blocks.swap(place, part.len() - 1);
        let rest = part.start..part.end - 1;
        if !infer(&mut self.state, self.capacity, &self.blocks[rest.clone()]) {
            return End::DoesNotFit;
        }
        let boundaries = shape.first as usize + 1..shape.end as usize;
        if boundaries.clone().all(|boundary| self.state.crossing[boundary] > 0) {
            return self.descend(rest);
        }
        self.descend_in_parts(rest, boundaries)
    }

    /// Cuts where no unplaced block lives across, and takes the smallest part first.
    fn descend_in_parts(&mut self, rest: Range<usize>, boundaries: Range<usize>) -> End {
        let shapes = &self.state.model.blocks;
        let cuts: Vec<u32> = boundaries
            .filter(|&boundary| self.state.crossing[boundary] == 0)
            .map(|boundary| boundary as u32)
            .collect();
        let part_of = |block: &u32| cuts.partition_point(|&cut| cut <= shapes[*block as usize].first);
        self.blocks[rest.clone()].sort_by_key(part_of);
        let mut parts = Vec::new();
        let mut begin = rest.start;
        for blocks in self.blocks[rest].chunk_by(|a, b| part_of(a) == part_of(b)) {
            parts.push(begin..begin + blocks.len());
            begin += blocks.len();
        }
        parts.sort_by_key(ExactSizeIterator::len);
        for part in parts {
            let end = self.descend(part);
            if end != End::Fits {
                return end;
            }
        }
        End::Fits
    }

    /// Appends to the choices the blocks to try, in the order to try them.
    fn choose(&mut self, part: Range<usize>) -> Range<usize> {
        let begin = self.choices.len();
        let (state, rank) = (&self.state, &self.strategy.rank);
        let blocks = &self.blocks[part];
        let soonest = |&&block: &&u32| (state.lowest_end(block as usize), rank[block as usize]);
        let lowest = *blocks.iter().min_by_key(soonest).expect("a part is not empty");
        match self.strategy.branching {
            Branching::Everything => {
                let end = state.lowest_end(lowest as usize);
                let below = blocks.iter().filter(|&&block| state.lowest[block as usize] < end);
                self.choices.extend(below);
            }
            Branching::Fewest => {
                let block = fewest_in_the_way(state, blocks, lowest);
                let end = state.lowest_end(block as usize);
                let others = state.model.neighbours.get(block as usize).iter();
                let in_the_way = others.filter(|&&other| state.lowest[other as usize] < end);
                self.choices.push(block);
                self.choices.extend(in_the_way);
            }
        }
        let choices = &mut self.choices[begin..];
        choices.sort_unstable_by_key(|&block| (state.lowest[block as usize], rank[block as usize]));
        begin..self.choices.len()
    }
}

/// The block with the fewest in its way among those for which that is sound; at worst `lowest`.
fn fewest_in_the_way(state: &State<'_>, blocks: &[u32], lowest: u32) -> u32 {
    let (mut best, mut fewest) = (lowest, usize::MAX);
    for &block in [lowest].iter().chain(blocks) {
        if let Some(count) = count_in_the_way(state, block as usize, fewest) {
            (best, fewest) = (block, count);
            if count == 0 {
                break;
            }
        }
    }
    best
}

/// How many blocks are in the way of one, if fewer than `fewest`, and if it could end before
/// anything that could hold up these.
fn count_in_the_way(state: &State<'_>, block: usize, fewest: usize) -> Option<usize> {
    if state.lowest[block] != state.rests[block] {
        return None;
    }
    let end = state.lowest_end(block);
    let neighbours = |block: usize| state.model.neighbours.get(block).iter().map(|&other| other as usize);
    let mut count = 0;
    for other in neighbours(block) {
        if state.lowest[other] < end {
            count += 1;
            if count >= fewest || state.lowest_end(other) < end {
                return None;
            }
        }
    }
    for other in neighbours(block).filter(|&other| state.lowest[other] < end) {
        if neighbours(other).any(|far| !state.is_placed(far) && state.lowest_end(far) < end) {
            return None;
        }
    }
    (count < fewest).then_some(count)
}
