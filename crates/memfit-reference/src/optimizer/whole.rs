//! Rules that see a whole weight: Lamb and Adafactor.

use memfit_device::Kept;
use memfit_ir::UpdateRule;

use super::super::number::is_finite;
use super::{Step, Values, rules};

/// The new values but for the average; none where a mean would not be finite. An element of the weight that would not be finite keeps
/// its old value.
pub(super) fn changed(
    step: &Step,
    rule: &UpdateRule,
    gradient: &[f64],
    decayed: &[f64],
    old: &Values,
    dims: &[usize],
) -> Option<(Values, Kept)> {
    let (states, change) = match rule {
        UpdateRule::Lamb { .. } => lamb(step, rule, gradient, decayed, old),
        UpdateRule::Adafactor { .. } => adafactor(step, rule, gradient, decayed, old, dims),
        UpdateRule::Sgd { .. }
        | UpdateRule::Adam { .. }
        | UpdateRule::Rmsprop { .. }
        | UpdateRule::Adagrad { .. }
        | UpdateRule::Adadelta { .. }
        | UpdateRule::Adamax { .. }
        | UpdateRule::Nadam { .. }
        | UpdateRule::Ftrl { .. }
        | UpdateRule::Lion { .. } => panic!("{rule:?} changes every element alone"),
    };
    if !states.iter().flatten().all(|value| is_finite(*value)) {
        return None;
    }
    let (mut new, mut kept) = (Values { states, ..old.clone() }, Kept::default());
    for (index, weight) in new.weight.iter_mut().enumerate() {
        let next = decayed[index] - change[index];
        if is_finite(next) {
            *weight = next;
        } else {
            kept = Kept { elements: kept.elements + 1, state_written: true };
        }
    }
    Some((new, kept))
}

/// Adam's step, as long as the weight.
fn lamb(
    step: &Step,
    rule: &UpdateRule,
    gradient: &[f64],
    decayed: &[f64],
    old: &Values,
) -> (Vec<Vec<f64>>, Vec<f64>) {
    let UpdateRule::Lamb { beta_1, beta_2, epsilon } = *rule else { panic!("Lamb alone comes here") };
    let [beta_1, beta_2, epsilon] = [beta_1, beta_2, epsilon].map(f64::from);
    let t = step.iteration as f64 + 1.0;
    let (mut states, mut along) = (old.states.clone(), Vec::new());
    for (index, g) in gradient.iter().enumerate() {
        let mut state = [states[0][index], states[1][index]];
        rules::means(&mut state, *g, beta_1, beta_2);
        let [mean, squares] = state;
        (states[0][index], states[1][index]) = (mean, squares);
        let corrected = (squares / (1.0 - beta_2.powf(t))).sqrt() + epsilon;
        along.push(mean / (1.0 - beta_1.powf(t)) / corrected);
    }
    let length = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
    let (of_weight, of_step) = (length(decayed), length(&along));
    let ratio = if 0.0 < of_weight && 0.0 < of_step { of_weight / of_step } else { 1.0 };
    (states, along.iter().map(|step_of| step.learning_rate * ratio * step_of).collect())
}

/// Steps over the roots of squares, of which means over rows and over columns are kept.
fn adafactor(
    step: &Step,
    rule: &UpdateRule,
    gradient: &[f64],
    decayed: &[f64],
    old: &Values,
    dims: &[usize],
) -> (Vec<Vec<f64>>, Vec<f64>) {
    let UpdateRule::Adafactor { beta_2_decay, epsilon_1, epsilon_2, clip_threshold, .. } = *rule else {
        panic!("Adafactor alone comes here")
    };
    let t = step.iteration as f64 + 1.0;
    let new_share = t.powf(f64::from(beta_2_decay));
    let squares: Vec<f64> = gradient.iter().map(|g| g * g + f64::from(epsilon_1)).collect();
    let moved = |old: &[f64], new: &[f64]| -> Vec<f64> {
        old.iter().zip(new).map(|(old, new)| (1.0 - new_share) * old + new_share * new).collect()
    };
    let (states, sizes) = if let [.., rows, columns] = *dims {
        let (of_rows, of_columns) = means_of(&squares, rows, columns);
        let states = vec![moved(&old.states[0], &of_rows), moved(&old.states[1], &of_columns)];
        let sizes = sizes_of_matrices(&states[0], &states[1], rows, columns);
        (states, sizes)
    } else {
        let velocity = moved(&old.states[0], &squares);
        let sizes = velocity.iter().map(|v| v.sqrt()).collect::<Vec<f64>>();
        (vec![velocity], sizes)
    };
    // No gradient is no step, whatever its size.
    let along: Vec<f64> =
        gradient.iter().zip(&sizes).map(|(g, size)| if *g == 0.0 { 0.0 } else { g / size }).collect();
    let root_mean =
        |values: &[f64]| (values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64).sqrt();
    let rate = step.learning_rate.min(1.0 / t.sqrt());
    let alpha = root_mean(decayed).max(f64::from(epsilon_2)) * rate;
    let factor = alpha / (root_mean(&along) / f64::from(clip_threshold)).max(1.0);
    (states, along.iter().map(|step| factor * step).collect())
}

/// The means of each row, and of each column of each matrix.
fn means_of(values: &[f64], rows: usize, columns: usize) -> (Vec<f64>, Vec<f64>) {
    let of_rows = values.chunks(columns).map(|row| row.iter().sum::<f64>() / columns as f64).collect();
    let mut of_columns = Vec::new();
    for matrix in values.chunks(rows * columns) {
        for column in 0..columns {
            of_columns.push(matrix.iter().skip(column).step_by(columns).sum::<f64>() / rows as f64);
        }
    }
    (of_rows, of_columns)
}

/// The root of each square by its means: the share of its row in all rows, times its column.
fn sizes_of_matrices(of_rows: &[f64], of_columns: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let mut sizes = Vec::new();
    for (of_rows, of_columns) in of_rows.chunks(rows).zip(of_columns.chunks(columns)) {
        let mean = of_rows.iter().sum::<f64>() / rows as f64;
        for row in of_rows {
            sizes.extend(of_columns.iter().map(|column| (row / mean * column).sqrt()));
        }
    }
    sizes
}
