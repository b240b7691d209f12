//! Lamb: Adam's step, as large as the weight it changes.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use super::super::lanes::Lanes;
use super::blocks::BLOCK;
use super::look::Look;
use super::rules::Before;
use crate::operands::Operands;
use crate::sums::{self, Part, sum_parts};
use crate::tasks::{self, Cut, Tasks};
use crate::threads::Shared;
use memfit_device::found_inf::{FoundInf, is_finite, magnitude};

/// Doubles of workspace that `update` needs.
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

    /// What a step is multiplied by, from the squares of the weight and of the steps.
    fn factor(&self, squares: f64, steps: f64) -> f32 {
        let ratio = if 0.0 < squares && 0.0 < steps { (squares.sqrt() / steps.sqrt()) as f32 } else { 1.0 };
        ratio * self.learning_rate
    }

    #[inline(always)]
    fn means(&self, m: f32, v: f32, g: f32) -> (f32, f32) {
        (m + (g - m) * self.rest_1, v + (g * g - v) * self.rest_2)
    }
}

/// One pass looks at weight and gradient, one moves the means and takes their norm, a third moves the weight.
/// Nothing is written where a mean would not be finite, and no block of the weight that would not be; says
/// whether anything was.
pub(super) fn update(
    operands: &Operands,
    rule: &Lamb,
    before: &Before,
    gradient: &[f32],
    weight: &mut [f32],
    [m, v]: [Shared<'_, f32>; 2],
) -> bool {
    let workspace = operands.workspace().take_doubles(WORKSPACE);
    let looked = Look { weight, gradient, before, found_inf: AtomicBool::new(false) };
    let squares = sum_parts(operands.threads, weight.len(), 1, &looked, workspace);
    if looked.found_inf.into_inner() {
        return false;
    }
    let means = Means { rule, before, gradient, m: &m, v: &v };
    let steps = sum_parts(operands.threads, gradient.len(), 1, &means, workspace);
    let cut = Cut::items(gradient.len(), 1);
    let factor = rule.factor(squares, steps);
    let found_inf = operands.found_inf();
    let apply = Apply { cut, rule, before, weight: Shared::new(weight), m: &m, v: &v, factor, found_inf };
    tasks::run(operands.threads, cut.count(), &apply);
    true
}

/// Whether an update would write nothing that is not finite.
pub(super) fn would_update(
    operands: &Operands,
    rule: &Lamb,
    before: &Before,
    gradient: &[f32],
    weight: &[f32],
    [m, v]: [&[f32]; 2],
) -> bool {
    let workspace = operands.workspace().take_doubles(WORKSPACE);
    let looked = Look { weight, gradient, before, found_inf: AtomicBool::new(false) };
    let squares = sum_parts(operands.threads, weight.len(), 1, &looked, workspace);
    if looked.found_inf.into_inner() {
        return false;
    }
    let mut unwritten = Unwritten { rule, before, gradient, weight, m, v, factor: None };
    let steps = sum_parts(operands.threads, weight.len(), 1, &unwritten, workspace);
    unwritten.factor = Some(rule.factor(squares, steps));
    sum_parts(operands.threads, weight.len(), 1, &unwritten, workspace) == 0.0
}

/// Steps that are computed again wherever they are wanted: their squares, or where the factor is known, how
/// many blocks of new weights are not finite.
struct Unwritten<'a> {
    rule: &'a Lamb,
    before: &'a Before,
    gradient: &'a [f32],
    weight: &'a [f32],
    m: &'a [f32],
    v: &'a [f32],
    factor: Option<f32>,
}

impl Part for Unwritten<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        let (mut squares, mut most) = (0.0, 0);
        let factor = self.factor.unwrap_or(0.0);
        for i in range {
            let g = self.before.gradient(self.gradient[i]);
            let (m, v) = self.rule.means(self.m[i], self.v[i], g);
            let step = self.rule.step(m, v);
            squares += f64::from(step) * f64::from(step);
            most = most.max(magnitude(self.before.weight(self.weight[i]) - factor * step));
        }
        match self.factor {
            None => squares,
            Some(_) => f64::from(u8::from(!is_finite(most))),
        }
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
            (*m, *v) = self.rule.means(*m, *v, self.before.gradient(*g));
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
    found_inf: &'a FoundInf,
}

impl Apply<'_> {
    #[inline(always)]
    fn next(&self, w: f32, m: f32, v: f32) -> f32 {
        self.before.weight(w) - self.factor * self.rule.step(m, v)
    }
}

impl Tasks for Apply<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        // SAFETY: ranges do not overlap, and every range belongs to one task.
        let (weight, m, v) =
            unsafe { (self.weight.slice(range.clone()), self.m.slice(range.clone()), self.v.slice(range)) };
        for ((weight, m), v) in weight.chunks_mut(BLOCK).zip(m.chunks(BLOCK)).zip(v.chunks(BLOCK)) {
            let values = weight.iter().zip(m).zip(v);
            let most = values.fold(0, |most, ((w, m), v)| most.max(magnitude(self.next(*w, *m, *v))));
            if !is_finite(most) {
                self.found_inf.raise_with_state(weight.len());
                continue;
            }
            for ((w, m), v) in weight.iter_mut().zip(m).zip(v) {
                *w = self.next(*w, *m, *v);
            }
        }
    }
}
