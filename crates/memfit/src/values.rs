//! First values of weights, written straight into their slots.

use memfit_ir::{Initializer, Kind, random};
use memfit_run::Runner;

/// Writes the first value of every weight. What has no initializer begins at zero, as a new arena does.
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
            Initializer::Ones { start, end } => {
                values.fill(0.0);
                values[start..end].fill(1.0);
            }
            Initializer::Orthogonal { gain, columns, seed } => {
                indexed.for_each(|(value, index)| *value = random::normal(seed, index));
                orthogonalize(values, columns, gain);
            }
            Initializer::TruncatedNormal { mean, stddev, seed } => {
                indexed.for_each(|(value, index)| {
                    *value = mean + stddev * random::truncated_normal(seed, index)
                });
            }
        }
    }
}

/// Makes the rows of a matrix orthogonal and of one length, one after the other, or its columns where these
/// are fewer.
fn orthogonalize(values: &mut [f32], columns: usize, gain: f32) {
    let rows = values.len() / columns.max(1);
    // Element `at` of vector `index` stands at `index · apart + at · step`.
    let (count, length, apart, step) =
        if rows <= columns { (rows, columns, columns, 1) } else { (columns, rows, 1, columns) };
    for index in 0..count {
        // A second pass, since rounding errors of the first grow with the number of rows.
        for other in (0..index).chain(0..index) {
            let dot: f64 = (0..length)
                .map(|at| {
                    f64::from(values[index * apart + at * step])
                        * f64::from(values[other * apart + at * step])
                })
                .sum();
            for at in 0..length {
                values[index * apart + at * step] -= dot as f32 * values[other * apart + at * step];
            }
        }
        let squares: f64 = (0..length).map(|at| f64::from(values[index * apart + at * step]).powi(2)).sum();
        let factor = (1.0 / squares.sqrt()) as f32;
        (0..length).for_each(|at| values[index * apart + at * step] *= factor);
    }
    values.iter_mut().for_each(|value| *value *= gain);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_or_columns_are_orthogonal_and_of_one_length() {
        for (rows, columns) in [(5, 20), (6, 6), (9, 4)] {
            let mut values: Vec<f32> = (0..rows * columns).map(|at| random::normal(3, at as u64)).collect();
            orthogonalize(&mut values, columns, 2.0);
            let (count, length) = (rows.min(columns), rows.max(columns));
            let at = |index: usize, at: usize| {
                if rows <= columns { values[index * columns + at] } else { values[at * columns + index] }
            };
            for (a, b) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
                let dot: f32 = (0..length).map(|i| at(a, i) * at(b, i)).sum();
                assert!((dot - if a == b { 4.0 } else { 0.0 }).abs() < 1e-4, "{rows}×{columns}: {dot}");
            }
        }
    }
}
