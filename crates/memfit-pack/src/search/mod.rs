//! Making a packing lower by search, when greedy placements leave it above the goal.

mod infer;
mod lane;
mod model;
mod state;
mod strategy;
mod tree;

use crate::greedy::Placed;
use crate::instance::{Block, Instance};
use lane::{LANES, Lane, Task};
use model::Model;
use strategy::Strategies;
use tree::Outcome;

/// Above this many pairs that meet, or sections that blocks are in, they are no longer all
/// written out.
const PAIRS_MOST: u64 = 2_000_000;
const PRESENCES_MOST: u64 = 1_000_000;

/// How many attempts each lane makes before the next capacity is tried: most with few blocks, so
/// that many blocks do not wait long at a capacity that is out of reach.
fn attempts_per_round(model: &Model) -> usize {
    (8_000 / model.blocks.len().max(1)).clamp(2, 8)
}

/// What to search for, and with how much effort.
pub(crate) struct Search<'a> {
    /// No packing is lower.
    pub(crate) bound: u64,
    /// A packing this low is good enough; at least the bound.
    pub(crate) goal: u64,
    /// Whether only a packing as low as the goal is of use, and not every byte above it.
    pub(crate) wants_goal: bool,
    /// How many blocks may still be placed.
    pub(crate) nodes: u64,
    pub(crate) keep_going: &'a (dyn Fn() -> bool + Sync),
}

/// Whether a problem is small enough to be searched.
pub(crate) fn is_possible(instance: &Instance) -> bool {
    let presences: u64 = instance.blocks.iter().map(Block::length).sum();
    presences <= PRESENCES_MOST && instance.pairs() <= PAIRS_MOST
}

/// The most heap that a search holds, with all its lanes; none if the problem is too large to be searched.
pub(crate) fn bytes(instance: &Instance) -> u64 {
    /// A pair is written out from both sides, first in lists that grow, then in a single one; each lane can take back what it lifted.
    const PER_PAIR: u64 = 160;
    /// What is in a section is known from the section and from the block, and once more in each lane.
    const PER_PRESENCE: u64 = 120;
    /// Each lane remembers its attempts of a round.
    const PER_SECTION: u64 = 400;
    const PER_BLOCK: u64 = 400;
    if !is_possible(instance) {
        return 0;
    }
    let presences: u64 = instance.blocks.iter().map(Block::length).sum();
    let (blocks, sections) = (instance.blocks.len() as u64, instance.sections as u64);
    instance.pairs() * PER_PAIR + presences * PER_PRESENCE + sections * PER_SECTION + blocks * PER_BLOCK
}

/// Lowers `placed` as far as the effort allows. What it proves and spends is noted in `search`.
pub(crate) fn improve(instance: &Instance, placed: &mut Placed, search: &mut Search<'_>) {
    let model = Model::new(instance);
    let strategies = Strategies::new(&model);
    let mut lanes = Lane::all(&model);
    let mut ladder = Ladder { rounds: 0, rung: 1, rung_first: 1, wants_goal: search.wants_goal };
    let mut goal = search.goal;
    while placed.height > goal && search.nodes > 0 && (search.keep_going)() {
        let capacity = ladder.next(placed.height, goal, model.unit);
        let task = Task {
            model: &model,
            strategies: &strategies,
            capacity,
            attempts: attempts_per_round(&model),
            placements: search.nodes.div_ceil(LANES as u64),
            keep_going: search.keep_going,
        };
        let round = lane::run(&mut lanes, &task);
        search.nodes = search.nodes.saturating_sub(round.placements.max(1));
        match round.outcome {
            Outcome::Fits(offsets) => {
                *placed = Placed::new(instance, offsets);
                ladder.step_back();
            }
            Outcome::DoesNotFit => {
                // Nothing this low will be found, so what is just above is as good as the goal.
                goal = goal.max(capacity - capacity % model.unit + model.unit);
                if model.is_complete() {
                    search.bound = search.bound.max(goal);
                }
            }
            Outcome::Stopped => {}
        }
    }
}

/// Which capacity to try next, between the goal and the best height so far.
struct Ladder {
    rounds: u64,
    /// Each rung is half as far below the best height as the one before; number 0 is the goal.
    rung: u32,
    /// Where to begin again after the highest: a little below the last that held.
    rung_first: u32,
    /// Whether only the goal is of use, and not every byte above it.
    wants_goal: bool,
}

impl Ladder {
    fn next(&mut self, height: u64, goal: u64, unit: u64) -> u64 {
        self.rounds += 1;
        // One round in four is for what is wanted less.
        if self.rounds.is_multiple_of(4) != self.wants_goal {
            return goal;
        }
        let distance = (height - goal).checked_shr(self.rung).unwrap_or(0);
        self.rung = if distance <= unit { self.rung_first } else { self.rung + 1 };
        height - distance.max(unit).min(height - goal)
    }

    /// Makes the next capacity as far below the best height as the last one was.
    fn step_back(&mut self) {
        self.rung = self.rung.saturating_sub(1).max(1);
        self.rung_first = self.rung.saturating_sub(1).max(1);
    }
}
