//! Optimizers by Keras's formulas, and what is done to gradients and weights around them.

mod average;
mod rules;
mod sums;
mod weight_rules;
mod whole;

pub(crate) use sums::{
    accumulate, add_accumulated, check_finite, correct_squares, keep_accumulated, sum_squares,
};
pub(crate) use weight_rules::{activity, constrain, penalty};

use memfit_device::Kept;
use memfit_ir::{CheckUpdate, Clip, Update, UpdateRule};

use super::call::{Call, Computed};
use super::number::is_finite;
use average::Follow;

/// A weight, its state and its average, before or after an update.
#[derive(Clone)]
struct Values {
    weight: Vec<f64>,
    states: Vec<Vec<f64>>,
    average: Option<Vec<f64>>,
}

/// What an update computes with in this step.
struct Step {
    /// Updates before this one.
    iteration: u64,
    learning_rate: f64,
    /// Gradients are cut to this, then multiplied.
    limit: f64,
    factor: f64,
    /// The share of a weight that decays.
    decay: f64,
    follow: Option<Follow>,
    /// Whether the gradients of all steps of the update are there.
    is_due: bool,
}

/// Changes a weight, its state and its average, unless `found_inf` forbids it.
pub(crate) fn update(call: &Call, update: &Update) -> Computed {
    let all: Vec<Vec<f64>> = call.updates.iter().map(|values| values.to_vec()).collect();
    let found_inf = call.input_if(update.guarded, call.inputs.len() - 1);
    if found_inf.is_some_and(|found_inf| found_inf[0] != 0.0) {
        return Computed::updates(all);
    }
    let old = Values::of(update, all);
    let (new, kept) = Step::new(call, update).changed(&update.rule, call.input(0), &old, call.update_dims(0));
    Computed { updates: new.into_list(), kept, ..Computed::default() }
}

/// Says whether an update would keep old values, and so what `found_inf` becomes.
pub(crate) fn check_update(call: &Call, check: &CheckUpdate) -> Computed {
    let (update, at) = (&check.update, check.weight_at());
    let old = Values::of(update, call.inputs[at..].iter().map(|values| values.to_vec()).collect());
    let step = Step::new(call, update);
    let (_, kept) = step.changed(&update.rule, call.input(0), &old, call.dims(at));
    sums::found_inf(call, check.number, step.is_due && 0 < kept.elements)
}

impl Values {
    fn of(update: &Update, mut all: Vec<Vec<f64>>) -> Values {
        let average = update.average.and_then(|_| all.pop());
        let states = all.split_off(1);
        Values { weight: all.remove(0), states, average }
    }

    fn into_list(self) -> Vec<Vec<f64>> {
        std::iter::once(self.weight).chain(self.states).chain(self.average).collect()
    }
}

impl Step {
    fn new(call: &Call, update: &Update) -> Step {
        let context = call.context;
        // What was summed over several steps had its scale taken off before.
        let scale = if update.steps == 1 { f64::from(context.loss_scale) } else { update.steps as f64 };
        let (limit, factor) = match update.clip {
            Clip::None => (f64::INFINITY, 1.0),
            Clip::Value(limit) => (f64::from(limit), 1.0),
            Clip::Norm(limit) => {
                let (limit, norm) = (f64::from(limit), call.input(1)[0].sqrt() / scale);
                (f64::INFINITY, if norm <= limit { 1.0 } else { limit / norm })
            }
        };
        let (iteration, learning_rate) = (context.iteration / update.steps, f64::from(context.learning_rate));
        Step {
            iteration,
            learning_rate,
            limit: limit * scale,
            factor: factor / scale,
            decay: learning_rate * f64::from(update.weight_decay),
            follow: update.average.map(|average| Follow::new(&average, iteration)),
            is_due: (context.iteration + 1).is_multiple_of(update.steps),
        }
    }

    /// The new values. Where they are not finite, old ones are kept.
    fn changed(&self, rule: &UpdateRule, gradient: &[f64], old: &Values, dims: &[usize]) -> (Values, Kept) {
        let gradient: Vec<f64> =
            gradient.iter().map(|g| g.clamp(-self.limit, self.limit) * self.factor).collect();
        let decayed: Vec<f64> = old.weight.iter().map(|w| w - w * self.decay).collect();
        if !self.is_due {
            return self.averaged(old.clone(), Kept::default());
        }
        if rule.is_elementwise() {
            return self.elementwise(rule, &gradient, &decayed, old);
        }
        match whole::changed(self, rule, &gradient, &decayed, old, dims) {
            Some((new, kept)) => self.averaged(new, kept),
            // Nothing is written where a mean would not be finite.
            None => (old.clone(), Kept { elements: old.weight.len() as u64, state_written: false }),
        }
    }

    /// An element whose new values are not all finite keeps its old ones.
    fn elementwise(
        &self,
        rule: &UpdateRule,
        gradient: &[f64],
        decayed: &[f64],
        old: &Values,
    ) -> (Values, Kept) {
        let (mut new, mut kept) = (old.clone(), Kept::default());
        for (index, g) in gradient.iter().enumerate() {
            let mut state: Vec<f64> = old.states.iter().map(|state| state[index]).collect();
            let mut weight = rules::next(self, rule, *g, decayed[index], &mut state);
            let average = self.follow.zip(old.average.as_ref()).map(|(follow, averages)| {
                let (average, followed) = follow.next(averages[index], weight);
                weight = followed;
                average
            });
            if !state.iter().chain([&weight]).chain(&average).all(|value| is_finite(*value)) {
                kept.elements += 1;
                continue;
            }
            new.weight[index] = weight;
            new.states.iter_mut().zip(state).for_each(|(states, state)| states[index] = state);
            new.average.iter_mut().zip(average).for_each(|(averages, average)| averages[index] = average);
        }
        (new, kept)
    }

    /// The same with the average moved after the weight.
    fn averaged(&self, mut values: Values, mut kept: Kept) -> (Values, Kept) {
        let Some((follow, averages)) = self.follow.zip(values.average.as_mut()) else {
            return (values, kept);
        };
        for (average, weight) in averages.iter_mut().zip(&mut values.weight) {
            let (next, followed) = follow.next(*average, *weight);
            if is_finite(next) {
                (*average, *weight) = (next, followed);
            } else {
                kept = Kept { elements: kept.elements + 1, state_written: true };
            }
        }
        (values, kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_is_never_written() {
        let [beta_1, beta_2, rho, epsilon] = [0.9, 0.99, 0.9, 1e-3];
        let rules = [
            UpdateRule::Sgd { momentum: 0.0, nesterov: false },
            UpdateRule::Sgd { momentum: 0.9, nesterov: true },
            UpdateRule::Adam { beta_1, beta_2, epsilon, amsgrad: true },
            UpdateRule::Rmsprop { rho, momentum: 0.9, epsilon, centered: true },
            UpdateRule::Adagrad { initial_accumulator_value: 0.1, epsilon },
            UpdateRule::Adadelta { rho, epsilon },
            UpdateRule::Adamax { beta_1, beta_2, epsilon },
            UpdateRule::Nadam { beta_1, beta_2, epsilon },
            UpdateRule::Lion { beta_1, beta_2 },
            UpdateRule::Lamb { beta_1, beta_2, epsilon },
            UpdateRule::Adafactor {
                beta_2_decay: -0.8,
                epsilon_1: 1e-30,
                epsilon_2: 1e-3,
                clip_threshold: 1.0,
                relative_step: true,
            },
        ];
        for rule in rules {
            let step = Step {
                iteration: 0,
                learning_rate: 0.1,
                limit: f64::INFINITY,
                factor: 1.0,
                decay: 0.0,
                follow: None,
                is_due: true,
            };
            let states = rule.state(&[3]).iter().map(|_| vec![0.1; 3]).collect();
            let old = Values { weight: vec![1.0; 3], states, average: None };
            for bad in [f64::INFINITY, f64::NAN] {
                let (new, kept) = step.changed(&rule, &[0.1, bad, -0.1], &old, &[3]);
                let all = new.states.iter().flatten().chain(&new.weight);
                assert!(all.copied().all(is_finite), "{rule:?}");
                let (elements, moved) = if rule.is_elementwise() { (1, true) } else { (3, false) };
                assert_eq!((kept.elements, new.weight[0] != 1.0), (elements, moved), "{rule:?}");
            }
        }
    }
}
