//! Filling the lowest niche of the skyline with the best block that fits between its walls.
//!
//! ```text
//! ▓▓▓▓        ▓▓▓▓▓▓▓
//! ▓▓▓▓  niche ▓▓▓▓▓▓▓      a block fits if its life lies within the niche;
//! ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓      where none does, the niche is raised to its lower wall
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::instance::Instance;

/// How many tree nodes may be looked at for each block, so that no shape of input is quadratic.
const VISITS_PER_BLOCK: u64 = 500;

/// Offsets of the blocks, each niche taking the first block of `order` that fits in it.
///
/// Returns nothing if the search for blocks that fit would take too long.
/// A block that rests is treated as if it did not.
pub(crate) fn place(instance: &Instance, order: &[u32]) -> Option<Vec<u64>> {
    let mut waiting = Waiting::new(instance, order);
    let mut skyline = Skyline::new(instance.sections);
    let mut offsets = vec![0; instance.blocks.len()];
    let mut left = order.len();
    while left > 0 {
        let niche = skyline.lowest();
        let Some(block) = waiting.take_within(niche.first, niche.end) else {
            if waiting.visits_left == 0 {
                return None;
            }
            skyline.raise_to_wall(niche);
            continue;
        };
        let body = &instance.blocks[block];
        offsets[block] = body.align(niche.height);
        skyline.cover(niche, body.first, body.end, offsets[block] + body.size);
        left -= 1;
    }
    Some(offsets)
}

/// A run of sections at one height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u32,
    end: u32,
    height: u64,
}

/// Runs that cover all sections, with a heap of where each begins that may be out of date.
struct Skyline {
    /// The run that begins at a section; a run's end is where the next begins.
    runs: Vec<Option<Run>>,
    /// For each section at which a run ends, where that run begins.
    begin_of_end: Vec<u32>,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Skyline {
    fn new(sections: usize) -> Self {
        let mut skyline =
            Self { runs: vec![None; sections], begin_of_end: vec![0; sections + 1], heap: BinaryHeap::new() };
        skyline.put(Run { first: 0, end: sections as u32, height: 0 });
        skyline
    }

    /// Removes and returns the lowest run; the first of equals.
    fn lowest(&mut self) -> Run {
        loop {
            let Reverse((height, first)) = self.heap.pop().expect("runs cover all sections");
            if let Some(run) = self.runs[first as usize].filter(|run| run.height == height) {
                self.runs[first as usize] = None;
                return run;
            }
        }
    }

    /// Puts a removed run back with a part of it at another height.
    fn cover(&mut self, run: Run, first: u32, end: u32, height: u64) {
        for part in [Run { end: first, ..run }, Run { first, end, height }, Run { first: end, ..run }] {
            if part.first < part.end {
                self.put(part);
            }
        }
    }

    /// Puts a removed run back at the height of its lower wall.
    fn raise_to_wall(&mut self, run: Run) {
        let left = self.left_of(run.first).map(|wall| wall.height);
        let right = self.right_of(run.end).map(|wall| wall.height);
        let wall = left.into_iter().chain(right).min();
        // Between no walls every block fits, so there is none left to place.
        self.put(Run { height: wall.unwrap_or(u64::MAX), ..run });
    }

    /// Adds a run, joined to neighbours of the same height.
    fn put(&mut self, mut run: Run) {
        if let Some(left) = self.left_of(run.first).filter(|left| left.height == run.height) {
            self.runs[left.first as usize] = None;
            run.first = left.first;
        }
        if let Some(right) = self.right_of(run.end).filter(|right| right.height == run.height) {
            self.runs[right.first as usize] = None;
            run.end = right.end;
        }
        self.runs[run.first as usize] = Some(run);
        self.begin_of_end[run.end as usize] = run.first;
        self.heap.push(Reverse((run.height, run.first)));
    }

    fn left_of(&self, first: u32) -> Option<Run> {
        let left = self.runs[self.begin_of_end[first as usize] as usize];
        left.filter(|left| left.end == first)
    }

    fn right_of(&self, end: u32) -> Option<Run> {
        self.runs.get(end as usize).copied().flatten()
    }
}

/// The blocks not yet placed, as a tree by birth that shows where one may fit in a niche.
struct Waiting {
    /// Births in the order of the leaves, and the block of each leaf.
    births: Vec<(u32, u32)>,
    leaves: usize,
    nodes: Vec<Summary>,
    visits_left: u64,
}

/// What is known of the blocks below a node.
#[derive(Clone, Copy)]
struct Summary {
    /// The earliest death; nothing below fits in a niche that ends before it.
    earliest_end: u32,
    /// The best place in the order.
    best_rank: u32,
}

const NOTHING: Summary = Summary { earliest_end: u32::MAX, best_rank: u32::MAX };

impl Waiting {
    fn new(instance: &Instance, order: &[u32]) -> Self {
        let mut rank_of = vec![0; order.len()];
        for (rank, &block) in order.iter().enumerate() {
            rank_of[block as usize] = rank as u32;
        }
        let born = |block: u32| (instance.blocks[block as usize].first, block);
        let mut births: Vec<(u32, u32)> = (0..order.len() as u32).map(born).collect();
        births.sort_unstable();
        let leaves = order.len().max(1).next_power_of_two();
        let mut nodes = vec![NOTHING; 2 * leaves];
        for (leaf, (_, block)) in births.iter().enumerate() {
            nodes[leaves + leaf] = Summary {
                earliest_end: instance.blocks[*block as usize].end,
                best_rank: rank_of[*block as usize],
            };
        }
        let visits_left = VISITS_PER_BLOCK * order.len() as u64;
        let mut waiting = Self { births, leaves, nodes, visits_left };
        for node in (1..leaves).rev() {
            waiting.summarise(node);
        }
        waiting
    }

    fn summarise(&mut self, node: usize) {
        let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
        self.nodes[node] = Summary {
            earliest_end: left.earliest_end.min(right.earliest_end),
            best_rank: left.best_rank.min(right.best_rank),
        };
    }

    /// Takes the best block whose life lies in `first..end`.
    fn take_within(&mut self, first: u32, end: u32) -> Option<usize> {
        let begin = self.births.partition_point(|(birth, _)| *birth < first);
        let stop = begin + self.births[begin..].partition_point(|(birth, _)| *birth < end);
        let mut best = Best { end, rank: u32::MAX, leaf: 0 };
        let (mut left, mut right) = (begin + self.leaves, stop + self.leaves);
        while left < right {
            if left & 1 == 1 {
                self.improve(left, &mut best);
                left += 1;
            }
            if right & 1 == 1 {
                right -= 1;
                self.improve(right, &mut best);
            }
            left >>= 1;
            right >>= 1;
        }
        if best.rank == u32::MAX || self.visits_left == 0 {
            return None;
        }
        let mut node = best.leaf;
        self.nodes[node] = NOTHING;
        while node > 1 {
            node >>= 1;
            self.summarise(node);
        }
        Some(self.births[best.leaf - self.leaves].1 as usize)
    }

    /// Looks below a node, all of whose births lie in the niche, for a better block.
    fn improve(&mut self, node: usize, best: &mut Best) {
        self.visits_left = self.visits_left.saturating_sub(1);
        let Summary { earliest_end, best_rank } = self.nodes[node];
        if earliest_end > best.end || best_rank >= best.rank || self.visits_left == 0 {
            return;
        }
        if node >= self.leaves {
            *best = Best { rank: best_rank, leaf: node, ..*best };
            return;
        }
        let (mut near, mut far) = (2 * node, 2 * node + 1);
        if self.nodes[far].best_rank < self.nodes[near].best_rank {
            (near, far) = (far, near);
        }
        self.improve(near, best);
        self.improve(far, best);
    }
}

/// The best block found so far for a niche that ends at `end`.
#[derive(Clone, Copy)]
struct Best {
    end: u32,
    rank: u32,
    leaf: usize,
}
