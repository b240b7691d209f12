//! Making a packing lower by search, when greedy placements leave it above the goal.

mod infer;
mod model;
mod state;
mod strategy;
mod tree;

use crate::greedy::Placed;
use crate::instance::Instance;
use model::Model;
use strategy::Strategies;
use tree::Outcome;

pub(crate) fn improve(instance: &Instance, placed: &mut Placed, goal: u64, nodes: u64) {
    let model = Model::new(instance);
    let strategies = Strategies::new(&model);
    let mut left = nodes;
    let mut number = 0;
    let debug = std::env::var("PACK_DEBUG").is_ok();
    let limit0: u64 = std::env::var("PACK_LIMIT").map_or(2000, |v| v.parse().expect("n"));
    while left > 0 {
        let t = std::time::Instant::now();
        let limit = left.min(limit0);
        let (outcome, used) = tree::search(&model, goal, &strategies.get(number), limit, &|| true);
        if debug {
            let o = match &outcome { Outcome::Fits(_) => "FITS", Outcome::DoesNotFit => "NO", Outcome::Stopped => "stop" };
            eprintln!("{number} {:?} {o} {used} {:?}", strategies.get(number).branching, t.elapsed());
        }
        left -= used.min(left);
        number += 1;
        match outcome {
            Outcome::Fits(offsets) => {
                *placed = Placed::new(instance, offsets);
                return;
            }
            Outcome::DoesNotFit => return,
            Outcome::Stopped => {}
        }
    }
}
