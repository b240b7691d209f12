//! Many ways to go through the tree: a few that are often good, then as many as one likes.

use std::cmp::Reverse;

use super::model::{Model, Shape};
use super::tree::{Branching, Strategy};
use crate::random::Random;

/// Chooses strategies for one model by number: the same number is always the same strategy.
pub(crate) struct Strategies {
    features: Vec<Features>,
}

/// What tells blocks apart, as logarithms so that weights turn into powers.
#[derive(Clone, Copy)]
struct Features {
    load: i64,
    length: i64,
    size: i64,
}

/// Weights of the features and of noise in a rank; the heaviest block comes first.
#[derive(Clone, Copy)]
struct Weights {
    load: i128,
    length: i128,
    size: i128,
    noise: u64,
}

/// A weight beside which the others only break ties.
const FIRST: i128 = 1 << 50;

impl Strategies {
    pub(crate) fn new(model: &Model) -> Self {
        let sections = 0..model.section_count();
        let load = |section| model.section(section).iter().map(|entry| entry.high - entry.low).sum();
        let loads: Vec<u64> = sections.map(load).collect();
        let features = |block: &Shape| {
            let loads = &loads[block.first as usize..block.end as usize];
            Features {
                load: logarithm(loads.iter().copied().max().unwrap_or(0)),
                length: logarithm(block.duration),
                size: logarithm(block.size),
            }
        };
        Self { features: model.blocks.iter().map(features).collect() }
    }

    /// The strategy with this number.
    pub(crate) fn get(&self, number: u64, trouble: &[u64], model: &Model) -> Strategy {
        use Branching::{Everything, Fewest, LowestEnd};
        let weights = |load, length, size| Weights { load, length, size, noise: 0 };
        let known = [
            (Everything, weights(FIRST, FIRST >> 25, 1)),
            (Everything, weights(FIRST, 1, 1)),
            (Fewest, weights(FIRST, 1, 1)),
            (Everything, weights(1, FIRST, 1)),
            (Fewest, weights(1, FIRST, 1)),
            (Fewest, weights(0, 1, 2)),
            (Fewest, weights(0, 0, 1)),
            (LowestEnd, weights(0, 1, 1)),
        ];
        if let Some((branching, weights)) = known.get(number as usize) {
            return Strategy { branching: *branching, lowest_first: true, rank: self.rank(*weights, 0, &[]) };
        }
        let mut random = Random::new(number);
        let branching = [Everything, Fewest, LowestEnd][crate::search::envs("BR", &[0,1,2])[random.below(3) as usize] as usize];
        let weights = Weights {
            load: i128::from(random.below(2) * random.below(80)),
            length: random.below(16).into(),
            size: random.below(16).into(),
            noise: [0, 1, 3, 8][random.below(4) as usize],
        };
        let tw = crate::search::envs("TW", &[0,1,4,16])[random.below(4) as usize] as i128;
        let tr: Vec<i128> = model.blocks.iter().map(|b| tw * i128::from(logarithm({ let t = &trouble[b.first as usize..b.end as usize]; match crate::search::envs("TM", &[0])[0] { 0 => *t.iter().max().expect("x"), 1 => t.iter().sum::<u64>() / t.len() as u64, _ => t.iter().sum::<u64>() } }))).collect();
        let rank = self.rank(weights, random.next(), &tr);
        Strategy { branching, lowest_first: random.below(8) > 0, rank }
    }

    fn rank(&self, weights: Weights, seed: u64, tr: &[i128]) -> Vec<u32> {
        let mut random = Random::new(seed);
        let mut key = |block: usize| {
            let features = &self.features[block];
            let noise = weights.noise * random.below(1 << 16);
            i128::from(features.load) * weights.load
                + i128::from(features.length) * weights.length
                + i128::from(features.size) * weights.size
                + i128::from(noise) + tr.get(block).copied().unwrap_or(0)
        };
        let keys: Vec<i128> = (0..self.features.len()).map(&mut key).collect();
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
