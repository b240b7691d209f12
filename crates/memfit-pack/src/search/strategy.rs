//! Search strategies for the tree: first a few that are often good, then any number of others, led by
//! where the earlier ones failed.

use std::cmp::Reverse;

use super::model::{Model, Shape};
use super::tree::{Branching, Strategy};
use crate::random::Random;

/// Makes strategies for one model by number: the same number with the same trouble is always the
/// same strategy.
pub(crate) struct Strategies<'a> {
    model: &'a Model,
    features: Vec<Features>,
}

/// Features that distinguish blocks, as logarithms so that weights turn into powers.
#[derive(Clone, Copy)]
struct Features {
    load: i64,
    length: i64,
    size: i64,
}

/// Weights of the features in a rank; the heaviest block comes first.
#[derive(Clone, Copy, Default)]
struct Weights {
    load: i128,
    length: i128,
    size: i128,
    /// Of the failures in the block's sections.
    trouble: i128,
    noise: u64,
}

/// A weight beside which the others only break ties, and one beside which the rest do.
const FIRST: i128 = 1 << 50;
const SECOND: i128 = 1 << 25;

impl<'a> Strategies<'a> {
    pub(crate) fn new(model: &'a Model) -> Self {
        let load = |section| model.section(section).iter().map(|entry| entry.high - entry.low).sum();
        let loads: Vec<u64> = (0..model.section_count()).map(load).collect();
        let features = |block: &Shape| {
            let loads = &loads[block.first as usize..block.end as usize];
            Features {
                load: logarithm(loads.iter().copied().max().unwrap_or(0)),
                length: logarithm(block.duration),
                size: logarithm(block.size),
            }
        };
        Self { model, features: model.blocks.iter().map(features).collect() }
    }

    /// The strategy with this number, given how often each section was where a search failed.
    pub(crate) fn get(&self, number: u64, trouble: &[u64]) -> Strategy {
        use Branching::{Everything, Fewest};
        let weights = |load, length, size| Weights { load, length, size, ..Weights::default() };
        let known = [
            (Everything, weights(FIRST, SECOND, 1)),
            (Everything, weights(FIRST, 1, 1)),
            (Fewest, weights(FIRST, 1, 1)),
            (Everything, weights(1, FIRST, 1)),
            (Fewest, weights(0, 1, 2)),
            (Fewest, weights(0, 0, 1)),
        ];
        if let Some((branching, weights)) = known.get(number as usize) {
            return Strategy { branching: *branching, rank: self.rank(*weights, trouble, 0) };
        }
        let mut random = Random::new(number);
        let branching = [Everything, Fewest][random.below(2) as usize];
        let weights = Weights {
            load: i128::from(random.below(2) * random.below(80)),
            length: random.below(16).into(),
            size: random.below(16).into(),
            trouble: [8, 32, 64, 256][random.below(4) as usize],
            noise: [0, 1, 3, 8][random.below(4) as usize],
        };
        Strategy { branching, rank: self.rank(weights, trouble, random.next()) }
    }

    fn rank(&self, weights: Weights, trouble: &[u64], seed: u64) -> Vec<u32> {
        let mut trouble_before = vec![0];
        for trouble in trouble {
            trouble_before.push(trouble_before[trouble_before.len() - 1] + trouble);
        }
        let mut random = Random::new(seed);
        let mut key = |(block, features): (&Shape, &Features)| {
            let trouble = trouble_before[block.end as usize] - trouble_before[block.first as usize];
            let noise = weights.noise * random.below(1 << 16);
            i128::from(features.load) * weights.load
                + i128::from(features.length) * weights.length
                + i128::from(features.size) * weights.size
                + i128::from(logarithm(trouble)) * weights.trouble
                + i128::from(noise)
        };
        let keys: Vec<i128> = self.model.blocks.iter().zip(&self.features).map(&mut key).collect();
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        order.sort_by_key(|&block| (Reverse(keys[block as usize]), block));
        let mut rank = vec![0; order.len()];
        for (place, block) in order.into_iter().enumerate() {
            rank[block as usize] = place as u32;
        }
        rank
    }
}

/// The logarithm to base 2 times 2^16, with straight lines between the powers of two: the same on
/// every machine, which a library's logarithm need not be.
fn logarithm(value: u64) -> i64 {
    let value = value.max(1);
    let whole = value.ilog2();
    let fraction = ((u128::from(value) << 16) >> whole) as i64 - (1 << 16);
    (i64::from(whole) << 16) + fraction
}
