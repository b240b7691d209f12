//! A portfolio of greedy placements: the best is kept, and the bound stops it.

mod first_fit;
mod free_list;
mod niche;
mod order;
mod reorder;
mod skyline;

use crate::instance::Instance;
use first_fit::Hole;
use order::Order;
pub(crate) use reorder::improve;

/// How many pairs that meet in time may be looked at by all placements that look at each pair.
const PAIRS_MOST: u64 = 1_500_000;

/// Above this many blocks, a height within a thousandth of the goal is not improved upon.
const BLOCKS_MANY: usize = 10_000;

/// One algorithm to place everything. The ones that are nearly always good or cheap come first.
#[derive(Clone, Copy, Debug)]
enum Placement {
    Skyline(Order),
    Niche(Order),
    Hole(Order, Hole),
    FreeList,
    FreeListMirrored,
}

/// Offsets of the blocks, and the first byte above them.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) offsets: Vec<u64>,
    pub(crate) height: u64,
}

impl Placed {
    pub(crate) fn new(instance: &Instance, offsets: Vec<u64>) -> Self {
        let blocks = instance.blocks.iter().zip(&offsets);
        let height = blocks.map(|(block, offset)| offset + block.size).max().unwrap_or(0);
        Self { offsets, height }
    }
}

/// The lowest of all greedy placements, or the first that is no higher than `goal`.
pub(crate) fn place(instance: &Instance, goal: u64) -> Placed {
    let many = instance.blocks.len() > BLOCKS_MANY;
    let good_enough = if many { goal + goal / 1_000 } else { goal };
    let pairs = instance.pairs();
    let mut pairs_left = PAIRS_MOST;
    let mut niche_is_quick = true;
    let mut best: Option<Placed> = None;
    for placement in placements() {
        match placement {
            Placement::Niche(_) if !niche_is_quick => continue,
            Placement::Hole(..) if pairs_left < pairs => continue,
            Placement::Hole(..) => pairs_left -= pairs,
            Placement::Niche(_)
            | Placement::Skyline(_)
            | Placement::FreeList
            | Placement::FreeListMirrored => {}
        }
        let Some(offsets) = try_placement(instance, placement) else {
            niche_is_quick = false;
            continue;
        };
        let placed = Placed::new(instance, offsets);
        if best.as_ref().is_none_or(|best| placed.height < best.height) {
            best = Some(placed);
        }
        if best.as_ref().is_some_and(|best| best.height <= good_enough) {
            break;
        }
    }
    best.expect("a skyline placement always succeeds")
}

fn placements() -> impl Iterator<Item = Placement> {
    let quick = [
        Placement::Skyline(Order::Length),
        Placement::Niche(Order::Length),
        Placement::Niche(Order::Load),
        Placement::FreeListMirrored,
        Placement::FreeList,
        Placement::Niche(Order::Area),
        Placement::Niche(Order::Size),
        Placement::Skyline(Order::Area),
        Placement::Skyline(Order::Size),
    ];
    let lowest = Order::ALL.map(|order| Placement::Hole(order, Hole::Lowest));
    let tightest =
        [Order::Size, Order::Area, Order::Length].map(|order| Placement::Hole(order, Hole::Tightest));
    quick.into_iter().chain(lowest).chain(tightest)
}

fn try_placement(instance: &Instance, placement: Placement) -> Option<Vec<u64>> {
    match placement {
        Placement::Skyline(order) => Some(skyline::place(instance, &order.of(instance))),
        Placement::Niche(order) => niche::place(instance, &order.of(instance)),
        Placement::Hole(order, hole) => Some(first_fit::place(instance, &order.of(instance), hole)),
        Placement::FreeList => Some(free_list::place(instance)),
        Placement::FreeListMirrored => Some(free_list::place(&instance.mirrored())),
    }
}
