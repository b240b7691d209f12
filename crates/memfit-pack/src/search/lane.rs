//! Attempts that learn from one another, in lanes that run side by side.
//!
//! A lane is a row of short searches; each one's order puts first what was in trouble before it.
//! How many lanes there are is fixed, and how many attempts of each count is decided by the
//! attempts alone, so the result does not depend on how many processors there are.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::model::Model;
use super::strategy::Strategies;
use super::tree::{self, Attempt, Outcome};

/// How many lanes there are.
pub(crate) const LANES: usize = 2;

/// Below this many blocks, starting a thread takes longer than the attempts.
const BLOCKS_FEW: usize = 48;

/// Below this many blocks, any thread's stack has room for the recursion.
const BLOCKS_ON_ANY_STACK: usize = 500;

/// Room for one frame of the recursion for each block.
const STACK: usize = 64 << 20;

/// One row of attempts.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    index: usize,
    attempts: u64,
    /// How often each section was in trouble, the latest attempts counting most.
    trouble: Vec<u64>,
}

/// What a round of attempts in all lanes came to.
pub(crate) struct Round {
    pub(crate) outcome: Outcome,
    /// How many blocks were placed in the attempts that count.
    pub(crate) placements: u64,
}

/// What is asked of every lane in a round.
pub(crate) struct Task<'a> {
    pub(crate) model: &'a Model,
    pub(crate) strategies: &'a Strategies<'a>,
    pub(crate) capacity: u64,
    /// How many attempts each lane makes.
    pub(crate) attempts: usize,
    /// How many blocks each lane may place.
    pub(crate) placements: u64,
    pub(crate) keep_going: &'a (dyn Fn() -> bool + Sync),
}

impl Lane {
    pub(crate) fn all(model: &Model) -> Vec<Lane> {
        let trouble = vec![0; model.section_count()];
        (0..LANES).map(|index| Lane { index, attempts: 0, trouble: trouble.clone() }).collect()
    }

    /// Makes the next attempt.
    fn attempt(&mut self, task: &Task<'_>, limit: u64, keep_going: &dyn Fn() -> bool) -> Attempt {
        let number = self.attempts * LANES as u64 + self.index as u64;
        let strategy = task.strategies.get(number, &self.trouble);
        let attempt = tree::search(task.model, task.capacity, &strategy, limit, keep_going);
        for (trouble, more) in self.trouble.iter_mut().zip(&attempt.trouble) {
            *trouble = *trouble - *trouble / 8 + 100 * more;
        }
        self.attempts += 1;
        attempt
    }

    /// How many blocks the next attempt may place. An attempt that succeeds mostly places each
    /// block once or twice, and one that does not is soon lost. Yet every eighth may place four
    /// times as many, of these every eighth again: only long attempts prove anything.
    fn limit(&self, model: &Model) -> u64 {
        let mut limit = 5 * model.blocks.len() as u64 / 2 + 16;
        let mut attempts = self.attempts + 1;
        while attempts.is_multiple_of(8) {
            limit *= 4;
            attempts /= 8;
        }
        limit
    }
}

/// Lets every lane make its attempts until one fits or is a proof that nothing does.
///
/// The first attempt that ends so decides, the lower lane among equals; every lane goes on from
/// where it stood after as many attempts.
pub(crate) fn run(lanes: &mut [Lane], task: &Task<'_>) -> Round {
    let decided = AtomicUsize::new(usize::MAX);
    let results: Vec<Vec<Step>> = if task.model.blocks.len() < BLOCKS_FEW {
        lanes.iter().map(|lane| run_lane(lane.clone(), task, &decided)).collect()
    } else {
        thread::scope(|scope| {
            let start = |lane: &Lane| {
                let (lane, decided) = (lane.clone(), &decided);
                let builder = thread::Builder::new().stack_size(STACK);
                builder.spawn_scoped(scope, move || run_lane(lane, task, decided))
            };
            let threads: Vec<_> = lanes.iter().map(|lane| (lane, start(lane))).collect();
            // If a thread cannot be started, the caller makes its attempts if the caller's stack has room.
            // Otherwise they are left out.
            let finish =
                |(lane, thread): (&Lane, std::io::Result<thread::ScopedJoinHandle<'_, Vec<Step>>>)| {
                    match thread {
                        Ok(thread) => thread.join().expect("a search does not panic"),
                        Err(_) if task.model.blocks.len() < BLOCKS_ON_ANY_STACK => {
                            run_lane(lane.clone(), task, &decided)
                        }
                        Err(_) => Vec::new(),
                    }
                };
            threads.into_iter().map(finish).collect()
        })
    };
    let decision = |step: &Step| step.attempt.outcome != Outcome::Stopped;
    let first = results.iter().filter_map(|steps| steps.iter().position(decision)).min();
    let mut round = Round { outcome: Outcome::Stopped, placements: 0 };
    for (lane, steps) in lanes.iter_mut().zip(results) {
        for (index, step) in steps.into_iter().enumerate() {
            if first.is_some_and(|first| index > first) {
                break;
            }
            round.placements += step.attempt.placements;
            *lane = step.lane;
            if round.outcome == Outcome::Stopped {
                round.outcome = step.attempt.outcome;
            }
        }
    }
    round
}

/// An attempt, and the lane as it stood after it.
struct Step {
    attempt: Attempt,
    lane: Lane,
}

fn run_lane(mut lane: Lane, task: &Task<'_>, decided: &AtomicUsize) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut left = task.placements;
    for index in 0..task.attempts {
        // Results after the deciding attempt are discarded, so they need not be computed.
        let wanted = || index <= decided.load(Ordering::Relaxed);
        if left == 0 || !wanted() || !(task.keep_going)() {
            break;
        }
        let limit = lane.limit(task.model).min(left);
        let attempt = lane.attempt(task, limit, &|| wanted() && (task.keep_going)());
        left = left.saturating_sub(attempt.placements);
        let decides = attempt.outcome != Outcome::Stopped;
        steps.push(Step { attempt, lane: lane.clone() });
        if decides {
            decided.fetch_min(index, Ordering::Relaxed);
            break;
        }
    }
    steps
}
