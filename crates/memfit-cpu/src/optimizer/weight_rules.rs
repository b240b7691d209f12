//! Penalties on weights, and putting weights back where they may be.

use std::ops::Range;

use memfit_ir::Operand::{Gradient, Loss, Weight};
use memfit_ir::{Constraint, Regularizer};

use super::super::lanes::Lanes;
use super::{is_forbidden, orthogonal};
use crate::operands::Operands;
use crate::sums::{self, Part, add_or_overwrite, sum, sum_parts};
use crate::tasks::{self, BLOCK, Cut, Tasks, blocks};
use crate::threads::Shared;

/// Doubles of workspace that `penalty` needs.
pub(crate) const PENALTY_WORKSPACE: usize = sums::PARTS_WORKSPACE;

/// What Keras adds to a norm before it divides by it.
const EPSILON: f32 = 1e-7;

/// Adds a weight's penalty to the loss, and its gradient to the gradient.
pub(crate) fn penalty(operands: &Operands, regularizer: &Regularizer) {
    let weight: &[f32] = operands.input(Weight);
    let workspace = operands.workspace().take_doubles(PENALTY_WORKSPACE);
    let mut total = sum_parts(operands.threads, weight.len(), 1, &Costs { weight, regularizer }, workspace);
    if let Some(rule) = regularizer.orthogonal {
        total += orthogonal::penalty(operands, rule, workspace);
    }
    add_or_overwrite(&mut operands.update(Loss)[0], total, operands.fresh);
    if let Some(gradient) = operands.update_if_given(Gradient) {
        let cut = Cut::items(weight.len(), 1);
        let (scale, overwrite) = (operands.context.loss_scale, operands.fresh);
        let work =
            PenaltyGradient { cut, weight, regularizer, scale, overwrite, gradient: Shared::new(gradient) };
        tasks::run(operands.threads, cut.count(), &work);
        if let Some(rule) = regularizer.orthogonal {
            orthogonal::add_gradient(operands, rule, gradient, scale);
        }
    }
}

struct Costs<'a> {
    weight: &'a [f32],
    regularizer: &'a Regularizer,
}

impl Part for Costs<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        let (l1, l2) = (f64::from(self.regularizer.l1), f64::from(self.regularizer.l2));
        sum(&self.weight[range], |w| l1 * w.abs() + l2 * w * w)
    }
}

struct PenaltyGradient<'a> {
    cut: Cut,
    weight: &'a [f32],
    regularizer: &'a Regularizer,
    scale: f32,
    overwrite: bool,
    gradient: Shared<'a, f32>,
}

impl Tasks for PenaltyGradient<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        // SAFETY: ranges do not overlap, and every range belongs to one task.
        let gradient = unsafe { self.gradient.slice(range.clone()) };
        let (l1, l2) = (self.scale * self.regularizer.l1, self.scale * 2.0 * self.regularizer.l2);
        for (g, w) in gradient.iter_mut().zip(&self.weight[range]) {
            let sign = f32::from(i8::from(*w > 0.0) - i8::from(*w < 0.0));
            *g = if self.overwrite { 0.0 } else { *g } + l1 * sign + l2 * *w;
        }
    }
}

/// Puts a weight back where its constraint allows it, unless `found_inf` forbids any change.
pub(crate) fn constrain(operands: &Operands, constraint: &Constraint) {
    if is_forbidden(operands) {
        return;
    }
    let dims = &operands.shape(Weight).dims;
    let weight = operands.update(Weight);
    let axes = match *constraint {
        Constraint::NonNeg => {
            for w in weight {
                *w = if *w < 0.0 { 0.0 } else { *w };
            }
            return;
        }
        Constraint::MaxNorm { axes, .. }
        | Constraint::UnitNorm { axes }
        | Constraint::MinMaxNorm { axes, .. } => axes,
    };
    let inner: usize = dims[axes[1]..].iter().product();
    let length: usize = dims[axes[0]..axes[1]].iter().product();
    let outer: usize = dims[..axes[0]].iter().product();
    let cut = Cut::items(outer * inner, length);
    let norms = Norms { cut, inner, length, constraint, weight: Shared::new(weight) };
    tasks::run(operands.threads, cut.count(), &norms);
}

/// Lines of `length` elements that stand `inner` apart.
struct Norms<'a> {
    cut: Cut,
    inner: usize,
    length: usize,
    constraint: &'a Constraint,
    weight: Shared<'a, f32>,
}

impl Norms<'_> {
    /// The factor for a line of this sum of squares. It is finite, and so is every product with an element of
    /// the line.
    #[inline(always)]
    fn factor(&self, squares: f64) -> f32 {
        let norm = squares.sqrt() as f32;
        if norm.is_infinite() {
            return self.factor_of_large(squares.sqrt());
        }
        match *self.constraint {
            Constraint::NonNeg => 1.0,
            Constraint::MaxNorm { max_value, .. } => norm.min(max_value) / (EPSILON + norm),
            Constraint::UnitNorm { .. } => 1.0 / (EPSILON + norm),
            Constraint::MinMaxNorm { min_value, max_value, rate, .. } => {
                let desired = rate * norm.max(min_value).min(max_value) + (1.0 - rate) * norm;
                desired / (EPSILON + norm)
            }
        }
    }

    /// The same of a norm that no float holds.
    #[cold]
    fn factor_of_large(&self, norm: f64) -> f32 {
        let factor = match *self.constraint {
            Constraint::NonNeg => 1.0,
            Constraint::MaxNorm { max_value, .. } => f64::from(max_value) / norm,
            Constraint::UnitNorm { .. } => 1.0 / norm,
            Constraint::MinMaxNorm { max_value, rate, .. } => {
                let rate = f64::from(rate);
                rate * f64::from(max_value) / norm + (1.0 - rate)
            }
        };
        factor as f32
    }
}

impl Tasks for Norms<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let mut range = self.cut.range(task);
        while range.start < range.end {
            // Lines whose elements are neighbours.
            let outer = range.start / self.inner;
            let end = range.end.min((outer + 1) * self.inner);
            for block in blocks(range.start..end) {
                let count = block.len();
                let first = outer * self.length * self.inner + block.start - outer * self.inner;
                // SAFETY: lines do not overlap, and every line belongs to one task.
                let part = |index: usize| unsafe {
                    let start = first + index * self.inner;
                    self.weight.slice(start..start + count)
                };
                let mut squares = [0.0; BLOCK];
                for index in 0..self.length {
                    for (sum, w) in squares.iter_mut().zip(part(index)) {
                        *sum += f64::from(*w) * f64::from(*w);
                    }
                }
                let factors = squares.map(|sum| self.factor(sum));
                for index in 0..self.length {
                    for (w, factor) in part(index).iter_mut().zip(&factors) {
                        *w *= factor;
                    }
                }
            }
            range.start = end;
        }
    }
}
