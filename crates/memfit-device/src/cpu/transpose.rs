//! Axes in another order.

use super::half::Half;
use super::operands::{Element, Operands};

/// The most axes behind the batch: more than any layer's dimensions.
const AXES: usize = 16;

/// Writes axis `order[i]` of the input as axis `i`.
pub(crate) fn launch(operands: &Operands, order: &[usize]) {
    match Half::of(operands.input_type(0)) {
        None => transpose_of::<f32>(operands, order),
        Some(_) => transpose_of::<u16>(operands, order),
    }
}

fn transpose_of<T: Element>(operands: &Operands, order: &[usize]) {
    let (from, to) = (operands.input_shape(0), operands.output_shape(0));
    let (x, y) = (operands.input::<T>(0), operands.output::<T>(0));
    // How far apart neighbours along an axis of the output stand in the input.
    let mut steps = [0; AXES];
    for (step, axis) in steps.iter_mut().zip(order) {
        *step = from.dims[axis + 1..].iter().product();
    }
    let Some((line, outer)) = to.dims.split_last() else {
        return y.copy_from_slice(x);
    };
    let row = from.elements_per_row();
    let step = steps[outer.len()];
    operands.threads.for_each_chunk(y, (*line).max(1), |index, to| {
        let (mut place, mut rest) = (0, index);
        for (size, step) in outer.iter().zip(steps).rev() {
            place += rest % size * step;
            rest /= size;
        }
        let from = &x[place + rest * row..];
        if step == 1 {
            to.copy_from_slice(&from[..to.len()]);
        } else {
            to.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, from)| *to = *from);
        }
    });
}
