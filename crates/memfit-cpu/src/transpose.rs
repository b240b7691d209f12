//! Axes in another order: every element is copied once, in runs where the last axis stays the last.

use memfit_ir::Operand::{X, Y};

use super::half::Half;
use super::operands::{Element, Operands};
use super::tasks::Cut;
use super::threads::Shared;

/// The most axes after the batch.
const AXES: usize = 16;

/// Writes the axes after the batch in another order.
pub(crate) fn launch(operands: &Operands, order: &[usize]) {
    match Half::of(operands.dtype(X)) {
        None => transpose::<f32>(operands, order),
        Some(_) => transpose::<u16>(operands, order),
    }
}

fn transpose<T: Element>(operands: &Operands, order: &[usize]) {
    let (from, to) = (operands.shape(X), operands.shape(Y));
    let (x, y) = (operands.input::<T>(X), operands.output::<T>(Y));
    let per_row = to.elements_per_row();
    assert!(order.len() <= AXES, "a tensor has at most {AXES} axes after the batch");
    let Some((last, outer)) = to.dims.split_last().filter(|_| per_row > 0) else {
        y.copy_from_slice(x);
        return;
    };
    // Elements of `x` between neighbours along each axis of `y`.
    let mut steps = [0; AXES];
    for (step, axis) in steps.iter_mut().zip(order) {
        *step = from.dims[axis + 1..].iter().product();
    }
    let (runs, along) = (y.len() / last, steps[order.len() - 1]);
    let cut = Cut::items(runs, *last);
    let y = Shared::new(y);
    operands.threads.for_each(cut.count(), |task, _| {
        for run in cut.range(task) {
            let (mut rest, mut start) = (run, 0);
            for (size, step) in outer.iter().zip(&steps).rev() {
                start += rest % size * step;
                rest /= size;
            }
            start += rest * per_row;
            // SAFETY: every run belongs to one task.
            let to = unsafe { y.slice(run * last..(run + 1) * last) };
            if along == 1 {
                to.copy_from_slice(&x[start..start + last]);
            } else {
                to.iter_mut().zip(x[start..].iter().step_by(along)).for_each(|(to, x)| *to = *x);
            }
        }
    });
}
