//! Elementwise rules, a block after the other: new values are computed beside the old ones, and a block is
//! written only if all of them are finite.

use super::average::Follow;
use super::rules::Before;
use memfit_device::found_inf::{is_finite, magnitude};

/// Elements that are computed before any of them is written: few enough to stay in the first-level cache.
pub(super) const BLOCK: usize = 256;

/// A rule over one element; it is compiled into the loop over a block.
pub(super) trait Formula {
    /// The new weight and state. The gradient is as [`Before`] leaves it; of the state, the first entries are
    /// the rule's. `#[inline(always)]`.
    fn next(&self, before: &Before, g: f32, w: f32, state: [f32; 3]) -> (f32, [f32; 3]);
}

/// Old values of a part of a weight, and their gradient. States that a rule does not have are empty.
#[derive(Clone, Copy)]
pub(super) struct Old<'a> {
    pub(super) gradient: &'a [f32],
    pub(super) weight: &'a [f32],
    pub(super) states: [&'a [f32]; 3],
    pub(super) average: &'a [f32],
}

/// Values of a part of a weight that are changed in place.
pub(super) struct Values<'a> {
    pub(super) weight: &'a mut [f32],
    pub(super) states: [&'a mut [f32]; 3],
    pub(super) average: &'a mut [f32],
}

/// The new values of a block.
struct New<const STATES: usize> {
    weight: [f32; BLOCK],
    states: [[f32; BLOCK]; STATES],
    average: [f32; BLOCK],
}

/// Changes a part of a weight with `STATES` states; returns how many elements kept their values.
#[inline(always)]
pub(super) fn apply<const STATES: usize>(
    rule: &impl Formula,
    before: &Before,
    follow: Option<&Follow>,
    gradient: &[f32],
    values: Values<'_>,
) -> usize {
    let Values { weight, mut states, average } = values;
    let mut new = New::<STATES>::empty();
    let mut kept = 0;
    for start in (0..weight.len()).step_by(BLOCK) {
        let range = start..weight.len().min(start + BLOCK);
        let part = |of: &[f32]| if of.is_empty() { 0..0 } else { range.clone() };
        let old = Old {
            gradient: &gradient[range.clone()],
            weight: &weight[range.clone()],
            states: states.each_ref().map(|state| &state[part(state)]),
            average: &average[part(average)],
        };
        if !new.compute(rule, before, follow, old) {
            kept += range.len();
            continue;
        }
        let count = range.len();
        weight[range.clone()].copy_from_slice(&new.weight[..count]);
        for (state, new) in states.iter_mut().zip(&new.states) {
            state[range.clone()].copy_from_slice(&new[..count]);
        }
        if follow.is_some() {
            average[range].copy_from_slice(&new.average[..count]);
        }
    }
    kept
}

/// Whether a part of a weight would be changed as a whole; nothing is written.
#[inline(always)]
pub(super) fn would_apply<const STATES: usize>(
    rule: &impl Formula,
    before: &Before,
    follow: Option<&Follow>,
    old: Old<'_>,
) -> bool {
    let mut new = New::<STATES>::empty();
    (0..old.weight.len()).step_by(BLOCK).all(|start| {
        let range = start..old.weight.len().min(start + BLOCK);
        let part = |of: &[f32]| if of.is_empty() { 0..0 } else { range.clone() };
        let block = Old {
            gradient: &old.gradient[range.clone()],
            weight: &old.weight[range.clone()],
            states: old.states.map(|state| &state[part(state)]),
            average: &old.average[part(old.average)],
        };
        new.compute(rule, before, follow, block)
    })
}

impl<const STATES: usize> New<STATES> {
    #[inline(always)]
    fn empty() -> New<STATES> {
        New { weight: [0.0; BLOCK], states: [[0.0; BLOCK]; STATES], average: [0.0; BLOCK] }
    }

    /// Computes a block; says whether all of it is finite.
    #[inline(always)]
    fn compute(
        &mut self,
        rule: &impl Formula,
        before: &Before,
        follow: Option<&Follow>,
        old: Old<'_>,
    ) -> bool {
        let count = old.weight.len().min(BLOCK);
        let (gradient, weight) = (&old.gradient[..count], &old.weight[..count]);
        let mut states = [&[][..]; STATES];
        for (state, old) in states.iter_mut().zip(old.states) {
            *state = &old[..count];
        }
        let mut most = 0;
        for i in 0..count {
            let mut state = [0.0; 3];
            for s in 0..STATES {
                state[s] = states[s][i];
            }
            let (w, state) = rule.next(before, before.gradient(gradient[i]), weight[i], state);
            self.weight[i] = w;
            most = most.max(magnitude(w));
            for (states, new) in self.states.iter_mut().zip(state) {
                states[i] = new;
                most = most.max(magnitude(new));
            }
        }
        if let Some(follow) = follow {
            let new = self.average.iter_mut().zip(&mut self.weight);
            for ((average, w), old) in new.zip(&old.average[..count]) {
                (*average, *w) = follow.next(*old, *w);
                most = most.max(magnitude(*average));
            }
        }
        is_finite(most)
    }
}
