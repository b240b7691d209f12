//! Placing blocks in a given order, each in the lowest or the tightest hole that holds it.

use crate::instance::{Instance, Piece};

/// Which hole to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hole {
    /// The lowest that is large enough.
    Lowest,
    /// The smallest that is large enough; the lowest of equals.
    Tightest,
}

/// Offsets of the blocks when each takes its hole in this order.
///
/// The work is the number of pairs that meet in time, times a logarithm.
pub(crate) fn place(instance: &Instance, order: &[u32], hole: Hole) -> Vec<u64> {
    let mut offsets = vec![0; instance.blocks.len()];
    let mut placed = PlacedIndex::new(instance);
    let mut taken = Vec::new();
    for &block in order {
        taken.clear();
        for piece in instance.pieces(block as usize) {
            placed.for_each_meeting(piece, |other, bottom| {
                // Offsets strictly between these two would overlap.
                let below = (bottom + other.low) as i128 - piece.high as i128;
                let above = (bottom + other.high) as i128 - piece.low as i128;
                if above > 0 {
                    taken.push((below, above as u64));
                }
            });
        }
        taken.sort_unstable();
        let offset = choose(instance, block as usize, &taken, hole);
        offsets[block as usize] = offset;
        placed.insert(block as usize, offset);
    }
    offsets
}

/// The offset in the chosen hole between the taken ranges, which are sorted by where they begin.
fn choose(instance: &Instance, block: usize, taken: &[(i128, u64)], hole: Hole) -> u64 {
    let block = &instance.blocks[block];
    let mut offset = 0_u64;
    let mut best: Option<(i128, u64)> = None;
    for &(below, above) in taken {
        let slack = below - i128::from(offset);
        if slack >= 0 {
            if hole == Hole::Lowest {
                return offset;
            }
            if best.is_none_or(|(tightest, _)| slack < tightest) {
                best = Some((slack, offset));
            }
        }
        if above > offset {
            offset = block.align(above);
        }
    }
    best.map_or(offset, |(_, offset)| offset)
}

/// The placed pieces, found by time: a tree over all pieces by birth with the latest death below
/// each node, in which a piece has a death only once it is placed.
struct PlacedIndex {
    /// Pieces sorted by their first section, with the block of each.
    pieces: Vec<(Piece, u32)>,
    /// Where each block's pieces stand in the tree.
    leaf_of: Vec<Vec<u32>>,
    bottoms: Vec<u64>,
    leaves: usize,
    latest: Vec<u32>,
}

impl PlacedIndex {
    fn new(instance: &Instance) -> Self {
        let blocks = 0..instance.blocks.len();
        let mut pieces: Vec<(Piece, u32)> = blocks
            .flat_map(|block| instance.pieces(block).iter().map(move |&piece| (piece, block as u32)))
            .collect();
        pieces.sort_unstable_by_key(|(piece, block)| (piece.first, *block));
        let mut leaf_of = vec![Vec::new(); instance.blocks.len()];
        for (leaf, (_, block)) in pieces.iter().enumerate() {
            leaf_of[*block as usize].push(leaf as u32);
        }
        let leaves = pieces.len().max(1).next_power_of_two();
        let bottoms = vec![0; instance.blocks.len()];
        Self { pieces, leaf_of, bottoms, leaves, latest: vec![0; 2 * leaves] }
    }

    fn insert(&mut self, block: usize, bottom: u64) {
        self.bottoms[block] = bottom;
        for &leaf in &self.leaf_of[block] {
            let end = self.pieces[leaf as usize].0.end;
            let mut node = leaf as usize + self.leaves;
            while node > 0 && self.latest[node] < end {
                self.latest[node] = end;
                node >>= 1;
            }
        }
    }

    /// Calls `meet` with each placed piece that shares a section, and its block's offset.
    fn for_each_meeting(&self, piece: &Piece, mut meet: impl FnMut(&Piece, u64)) {
        let born_before = self.pieces.partition_point(|(other, _)| other.first < piece.end);
        self.walk(1, 0, self.leaves, born_before, piece.first, &mut meet);
    }

    fn walk(
        &self,
        node: usize,
        begin: usize,
        width: usize,
        born_before: usize,
        dead_by: u32,
        meet: &mut impl FnMut(&Piece, u64),
    ) {
        if begin >= born_before || self.latest[node] <= dead_by {
            return;
        }
        if width == 1 {
            let (piece, block) = &self.pieces[begin];
            return meet(piece, self.bottoms[*block as usize]);
        }
        let half = width / 2;
        self.walk(2 * node, begin, half, born_before, dead_by, meet);
        self.walk(2 * node + 1, begin + half, half, born_before, dead_by, meet);
    }
}
