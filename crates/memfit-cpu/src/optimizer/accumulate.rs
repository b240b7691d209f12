//! Gradients of several steps, summed before they are applied.

use memfit_ir::Accumulate;
use memfit_ir::Operand::{Gradient, Sum};

use super::super::lanes::Lanes;
use super::blocks::BLOCK;
use super::is_forbidden;
use crate::operands::Operands;
use crate::tasks::{self, Cut, Tasks};
use crate::threads::Shared;
use memfit_device::found_inf::{FoundInf, is_finite, magnitude};

/// Adds a gradient to those of the steps before; the first of them begins again.
pub(crate) fn accumulate(operands: &Operands, accumulate: &Accumulate) {
    if is_forbidden(operands) {
        return;
    }
    let gradient: &[f32] = operands.input(Gradient);
    let cut = Cut::items(gradient.len(), 1);
    let add = Add {
        cut,
        gradient,
        sum: Shared::new(operands.update(Sum)),
        factor: 1.0 / operands.context.loss_scale,
        overwrite: operands.fresh || operands.context.iteration.is_multiple_of(accumulate.steps),
        found_inf: operands.found_inf(),
    };
    tasks::run(operands.threads, cut.count(), &add);
}

struct Add<'a> {
    cut: Cut,
    gradient: &'a [f32],
    sum: Shared<'a, f32>,
    factor: f32,
    overwrite: bool,
    found_inf: &'a FoundInf,
}

impl Add<'_> {
    #[inline(always)]
    fn next(&self, sum: f32, g: f32) -> f32 {
        let kept = if self.overwrite { 0.0 } else { sum };
        kept + g * self.factor
    }
}

impl Tasks for Add<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        // SAFETY: ranges do not overlap, and every range belongs to one task.
        let sum = unsafe { self.sum.slice(range.clone()) };
        for (sum, gradient) in sum.chunks_mut(BLOCK).zip(self.gradient[range].chunks(BLOCK)) {
            let pairs = sum.iter().zip(gradient);
            let most = pairs.fold(0, |most, (sum, g)| most.max(magnitude(self.next(*sum, *g))));
            if !is_finite(most) {
                self.found_inf.raise(sum.len());
                continue;
            }
            for (sum, g) in sum.iter_mut().zip(gradient) {
                *sum = self.next(*sum, *g);
            }
        }
    }
}

/// Adds the gradients of the steps before to this step's, which loses its loss scale.
pub(crate) fn add_accumulated(operands: &Operands, steps: u64) {
    let sum: &[f32] = operands.input(Sum);
    let cut = Cut::items(sum.len(), 1);
    let add = AddTo {
        cut,
        sum,
        gradient: Shared::new(operands.update(Gradient)),
        factor: 1.0 / operands.context.loss_scale,
        is_zero: operands.fresh,
        is_first: operands.context.iteration.is_multiple_of(steps),
    };
    tasks::run(operands.threads, cut.count(), &add);
}

struct AddTo<'a> {
    cut: Cut,
    sum: &'a [f32],
    gradient: Shared<'a, f32>,
    factor: f32,
    /// Whether the gradient counts as 0.
    is_zero: bool,
    /// Whether there are no steps before.
    is_first: bool,
}

impl Tasks for AddTo<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        // SAFETY: ranges do not overlap, and every range belongs to one task.
        let gradient = unsafe { self.gradient.slice(range.clone()) };
        for (g, sum) in gradient.iter_mut().zip(&self.sum[range]) {
            let now = if self.is_zero { 0.0 } else { *g };
            *g = if self.is_first { 0.0 } else { *sum } + now * self.factor;
        }
    }
}

/// Keeps the gradients so far for the next step.
pub(crate) fn keep_accumulated(operands: &Operands) {
    if is_forbidden(operands) {
        return;
    }
    let gradient: &[f32] = operands.input(Gradient);
    let cut = Cut::items(gradient.len(), 1);
    let copy = Copy { cut, gradient, sum: Shared::new(operands.update(Sum)) };
    tasks::run(operands.threads, cut.count(), &copy);
}

struct Copy<'a> {
    cut: Cut,
    gradient: &'a [f32],
    sum: Shared<'a, f32>,
}

impl Tasks for Copy<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        // SAFETY: ranges do not overlap, and every range belongs to one task.
        unsafe { self.sum.slice(range.clone()) }.copy_from_slice(&self.gradient[range]);
    }
}
