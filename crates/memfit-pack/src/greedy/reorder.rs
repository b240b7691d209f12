//! Changing the order of a greedy placement: what touches the top is taken sooner the next time.
//!
//! For problems too large to search. Each pass costs as much as a greedy placement.

use super::order::Order;
use super::{Placed, niche};
use crate::instance::Instance;

/// How many passes without a lower height end it.
const PASSES_IN_VAIN: u32 = 24;

/// Lowers `placed` by filling niches in better and better orders, and says how many blocks it
/// placed. Each pass places every block once; `nodes` limits them all.
pub(crate) fn improve(
    instance: &Instance,
    placed: &mut Placed,
    goal: u64,
    nodes: u64,
    keep_going: &dyn Fn() -> bool,
) -> u64 {
    let blocks = instance.blocks.len() as u64;
    let mut order = Order::Length.of(instance);
    let mut in_vain = 0;
    let mut used = 0;
    while placed.height > goal && used + blocks <= nodes && in_vain < PASSES_IN_VAIN && keep_going() {
        let Some(offsets) = niche::place(instance, &order) else { break };
        used += blocks;
        let pass = Placed::new(instance, offsets);
        sooner(instance, &mut order, &pass, goal);
        in_vain += 1;
        if pass.height < placed.height {
            *placed = pass;
            in_vain = 0;
        }
    }
    used
}

/// Moves everything that ends in the upper half of what is above the goal to half its place.
fn sooner(instance: &Instance, order: &mut [u32], pass: &Placed, goal: u64) {
    let high = goal + (pass.height.saturating_sub(goal)) / 2;
    let is_high = |block: usize| pass.offsets[block] + instance.blocks[block].size > high;
    let mut places: Vec<(usize, u32)> = order
        .iter()
        .enumerate()
        .map(|(place, &block)| (if is_high(block as usize) { place } else { 2 * place + 1 }, block))
        .collect();
    places.sort_unstable();
    for (place, (_, block)) in order.iter_mut().zip(places) {
        *place = block;
    }
}
