//! Activity regularizers: what they add to the loss, and their gradient.

use std::ops::Range;

use memfit_ir::Operand::{Dx, Loss, X};
use memfit_ir::Regularizer;

use super::operands::Operands;
use super::sums::{self, Part, add_or_overwrite, sum, sum_parts};
use super::tasks::Cut;

/// Doubles of workspace that `launch` needs.
pub(crate) const WORKSPACE: usize = sums::PARTS_WORKSPACE;

/// Writes the gradient of every value and adds the values' penalty to the loss. All rows of the batch share
/// one scale.
pub(crate) fn launch(operands: &Operands, regularizer: &Regularizer) {
    let x: &[f32] = operands.input(X);
    let workspace = operands.workspace().take_doubles(WORKSPACE);
    let share = 1.0 / operands.context.rows_total as f64;
    let total = sum_parts(operands.threads, x.len(), 1, &Costs { x, regularizer }, workspace);
    add_or_overwrite(&mut operands.update(Loss)[0], total * share, operands.fresh);
    let factor = (share * f64::from(operands.context.loss_scale)) as f32;
    let (l1, l2) = (regularizer.l1 * factor, 2.0 * regularizer.l2 * factor);
    let size = Cut::items(x.len(), 1).range(0).len().max(1);
    operands.threads.for_each_chunk(operands.output(Dx), size, |chunk, gradients: &mut [f32]| {
        for (gradient, x) in gradients.iter_mut().zip(&x[chunk * size..]) {
            let sign = if *x == 0.0 { 0.0 } else { x.signum() };
            *gradient = l1 * sign + l2 * x;
        }
    });
}

struct Costs<'a> {
    x: &'a [f32],
    regularizer: &'a Regularizer,
}

impl Part for Costs<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        let (l1, l2) = (f64::from(self.regularizer.l1), f64::from(self.regularizer.l2));
        sum(&self.x[range], |x| l1 * x.abs() + l2 * x * x)
    }
}
