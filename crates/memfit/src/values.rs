//! First values of weights, written straight into their slots.

use memfit_ir::{Initializer, Kind, random};
use memfit_run::Runner;

/// Writes the first value of every weight. What has no initializer begins at zero, as a fresh arena does.
pub fn initialize(runner: &mut Runner) {
    initialize_those(runner, |_| true);
}

/// Writes the first value of the optimizer's state alone, for weights that come from elsewhere.
pub fn initialize_state(runner: &mut Runner) {
    initialize_those(runner, |kind| kind == Kind::Optimizer);
}

fn initialize_those(runner: &mut Runner, wanted: impl Fn(Kind) -> bool) {
    let graph = &runner.plan().problem().graph;
    let mut initial = graph.initial.clone();
    initial.retain(|(tensor, _)| wanted(graph.tensors[tensor.0].kind));
    for (tensor, initializer) in initial {
        let values = runner.floats_mut(tensor);
        let indexed = values.iter_mut().zip(0u64..);
        match initializer {
            Initializer::Constant(value) => values.fill(value),
            Initializer::Uniform { low, high, seed } => {
                let (low, high) = (f64::from(low), f64::from(high));
                indexed.for_each(|(value, index)| *value = random::uniform(seed, index, low, high));
            }
            Initializer::Normal { mean, stddev, seed } => {
                indexed.for_each(|(value, index)| *value = mean + stddev * random::normal(seed, index));
            }
            Initializer::TruncatedNormal { mean, stddev, seed } => {
                indexed.for_each(|(value, index)| {
                    *value = mean + stddev * random::truncated_normal(seed, index)
                });
            }
        }
    }
}
