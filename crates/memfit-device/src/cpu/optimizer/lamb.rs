//! Lamb: Adam's step, as large as the weight it changes.

use std::ops::Range;

use super::super::lanes::Lanes;
use super::rules::Before;
use crate::cpu::operands::Operands;
use crate::cpu::sums::{self, Part, sum, sum_parts};
use crate::cpu::tasks::{self, Cut, Tasks};
use crate::cpu::threads::Shared;

/// Doubles of workspace that `update` wants.
pub(super) const WORKSPACE: usize = sums::PARTS_WORKSPACE;

/// The rule with its coefficients of this step.
pub(super) struct Lamb {
    pub(super) learning_rate: f32,
    pub(super) rest_1: f32,
    pub(super) rest_2: f32,
    /// Corrections for means that began at 0.
    pub(super) of_mean: f32,
    pub(super) of_squares: f32,
    pub(super) epsilon: f32,
}

impl Lamb {
    #[inline(always)]
    fn step(&self, m: f32, v: f32) -> f32 {
        m * self.of_mean / ((v * self.of_squares).sqrt() + self.epsilon)
    }
}

/// One pass moves the means and takes both norms, a second moves the weight.
pub(super) fn update(
    operands: &Operands,
    rule: &Lamb,
    before: &Before,
    gradient: &[f32],
    weight: &mut [f32],
    [m, v]: [Shared<'_, f32>; 2],
) {
    let workspace = operands.workspace().take_doubles(WORKSPACE);
    let squares = sum_parts(operands.threads, weight.len(), 1, &Weights { weight, before }, workspace);
    let means = Means { rule, before, gradient, m: &m, v: &v };
    let steps = sum_parts(operands.threads, gradient.len(), 1, &means, workspace);
    let ratio = if 0.0 < squares && 0.0 < steps { (squares.sqrt() / steps.sqrt()) as f32 } else { 1.0 };
    let cut = Cut::items(gradient.len(), 1);
    let factor = ratio * rule.learning_rate;
    let apply = Apply { cut, rule, before, weight: Shared::new(weight), m: &m, v: &v, factor };
    tasks::run(operands.threads, cut.count(), &apply);
}

struct Weights<'a> {
    weight: &'a [f32],
    before: &'a Before,
}

impl Part for Weights<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        sum(&self.weight[range], |w| {
            let w = f64::from(self.before.weight(w as f32));
            w * w
        })
    }
}

struct Means<'a> {
    rule: &'a Lamb,
    before: &'a Before,
    gradient: &'a [f32],
    m: &'a Shared<'a, f32>,
    v: &'a Shared<'a, f32>,
}

impl Part for Means<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        // SAFETY: ranges do not overlap, and every range belongs to one part.
        let (m, v) = unsafe { (self.m.slice(range.clone()), self.v.slice(range.clone())) };
        let mut squares = 0.0;
        for ((m, v), g) in m.iter_mut().zip(v).zip(&self.gradient[range]) {
            let g = self.before.gradient(*g);
            *m += (g - *m) * self.rule.rest_1;
            *v += (g * g - *v) * self.rule.rest_2;
            let step = f64::from(self.rule.step(*m, *v));
            squares += step * step;
        }
        squares
    }
}

struct Apply<'a> {
    cut: Cut,
    rule: &'a Lamb,
    before: &'a Before,
    weight: Shared<'a, f32>,
    m: &'a Shared<'a, f32>,
    v: &'a Shared<'a, f32>,
    /// What a step is multiplied by.
    factor: f32,
}

impl Tasks for Apply<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        // SAFETY: ranges do not overlap, and every range belongs to one task.
        let (weight, m, v) =
            unsafe { (self.weight.slice(range.clone()), self.m.slice(range.clone()), self.v.slice(range)) };
        for ((w, m), v) in weight.iter_mut().zip(m).zip(v) {
            *w = self.before.weight(*w) - self.factor * self.rule.step(*m, *v);
        }
    }
}
