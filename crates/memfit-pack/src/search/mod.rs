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
    let adapt = std::env::var("PACK_ADAPT").is_ok();
    let mut trouble = vec![0_u64; model.section_count()];
    let debug = std::env::var("PACK_DEBUG").is_ok();
    let limit0: u64 = std::env::var("PACK_LIMIT").map_or(2000, |v| v.parse().expect("n"));
    while left > 0 {
        let t = std::time::Instant::now();
        let limit = left.min(limit0 * model.blocks.len() as u64 / 100);
        let st = strategies.get(number, &trouble, &model);
        let (outcome, used, tr) = tree::search(&model, goal, &st, limit, &|| true);
        if adapt { for (a, b) in trouble.iter_mut().zip(tr) { *a = *a * envs("DECAY", &[7])[0] / 8 + b * 100; } }
        if debug {
            let o = match &outcome { Outcome::Fits(_) => "FITS", Outcome::DoesNotFit => "NO", Outcome::Stopped => "stop" };
            eprintln!("{number} {:?} {} {o} {used} {:?}", st.branching, st.lowest_first, t.elapsed());
        }
        left -= used.min(left);
        number += 1;
        match outcome {
            Outcome::Fits(offsets) => {
                *placed = Placed::new(instance, offsets);
                if std::env::var("PACK_ALL").is_err() { return; }
            }
            Outcome::DoesNotFit => return,
            Outcome::Stopped => {}
        }
    }
}

pub(crate) fn envs(name: &str, or: &[u64]) -> Vec<u64> { std::env::var(name).map_or(or.to_vec(), |v| v.split(',').map(|x| x.parse().expect("n")).collect()) }
