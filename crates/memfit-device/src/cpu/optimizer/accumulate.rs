//! Gradients of several steps, summed before they are applied.

use memfit_ir::Accumulate;

use super::super::lanes::Lanes;
use super::is_forbidden;
use crate::cpu::operands::Operands;
use crate::cpu::tasks::{self, Cut, Tasks};
use crate::cpu::threads::Shared;

/// Adds a gradient to those of the steps before; the first of them begins anew.
pub(crate) fn accumulate(operands: &Operands, accumulate: &Accumulate) {
    if is_forbidden(operands, accumulate.guarded) {
        return;
    }
    let gradient: &[f32] = operands.input(0);
    let cut = Cut::items(gradient.len(), 1);
    let add = Add {
        cut,
        gradient,
        sum: Shared::new(operands.update(0)),
        factor: 1.0 / operands.context.loss_scale,
        fresh: operands.fresh || operands.context.iteration.is_multiple_of(accumulate.steps),
    };
    tasks::run(operands.threads, cut.count(), &add);
}

struct Add<'a> {
    cut: Cut,
    gradient: &'a [f32],
    sum: Shared<'a, f32>,
    factor: f32,
    fresh: bool,
}

impl Tasks for Add<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        // SAFETY: ranges do not overlap, and every range belongs to one task.
        let sum = unsafe { self.sum.slice(range.clone()) };
        for (sum, g) in sum.iter_mut().zip(&self.gradient[range]) {
            *sum = if self.fresh { 0.0 } else { *sum } + *g * self.factor;
        }
    }
}
