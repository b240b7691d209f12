//! State that follows sums of squared gradients instead of the square of their sum.

use memfit_ir::Operand::{Gradient, Squares, State};

use super::super::lanes::Lanes;
use crate::operands::Operands;
use crate::tasks::{self, Cut, Tasks};
use crate::threads::Shared;

/// Adds `factor · (squares − gradient²)` to the state.
pub(crate) fn correct_squares(operands: &Operands, factor: f32) {
    let (gradient, squares): (&[f32], &[f32]) = (operands.input(Gradient), operands.input(Squares));
    let cut = Cut::items(gradient.len(), 1);
    let work = Correct { cut, gradient, squares, state: Shared::new(operands.update(State)), factor };
    tasks::run(operands.threads, cut.count(), &work);
}

struct Correct<'a> {
    cut: Cut,
    gradient: &'a [f32],
    squares: &'a [f32],
    state: Shared<'a, f32>,
    factor: f32,
}

impl Tasks for Correct<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let range = self.cut.range(task);
        // SAFETY: ranges do not overlap, and every range belongs to one task.
        let state = unsafe { self.state.slice(range.clone()) };
        let gradients = self.gradient[range.clone()].iter().zip(&self.squares[range]);
        for (state, (gradient, squares)) in state.iter_mut().zip(gradients) {
            let corrected = *state + self.factor * (squares - gradient * gradient);
            // What is not finite is never written to state; the update, which reads the same gradient, stops
            // the run.
            if corrected.is_finite() {
                *state = corrected;
            }
        }
    }
}
