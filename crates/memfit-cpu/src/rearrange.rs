//! Elements moved but not changed: concatenation, slices, other shapes, and zeros.

use memfit_ir::Operand::{Sum, X, Y};
use memfit_ir::Shape;

use super::half::Half;
use super::operands::{Element, Operands};
use super::tasks::Cut;
use super::threads::Shared;

/// Bytes that one task copies or clears.
const TASK: usize = 1 << 16;

/// Puts tensors side by side along an axis.
pub(crate) fn concat(operands: &Operands, axis: usize) {
    match Half::of(operands.dtype(X)) {
        None => concat_of::<f32>(operands, axis),
        Some(_) => concat_of::<u16>(operands, axis),
    }
}

fn concat_of<T: Element>(operands: &Operands, axis: usize) {
    let stride = run(operands.shape(Y), axis);
    let y = operands.output::<T>(Y);
    let mut start = 0;
    for index in 0..operands.inputs(X) {
        let length = run(operands.shape((X, index)), axis);
        let from = Runs { start: 0, stride: length };
        copy_runs(operands, length, operands.input((X, index)), from, y, Runs { start, stride });
        start += length;
    }
}

/// Takes a slice of an axis.
pub(crate) fn slice(operands: &Operands, axis: usize, start: usize) {
    match Half::of(operands.dtype(X)) {
        None => slice_of::<f32>(operands, axis, start),
        Some(_) => slice_of::<u16>(operands, axis, start),
    }
}

fn slice_of<T: Element>(operands: &Operands, axis: usize, start: usize) {
    let (whole, taken) = (operands.shape(X), operands.shape(Y));
    let length = run(taken, axis);
    let from = Runs { start: start * run(whole, axis + 1), stride: run(whole, axis) };
    copy_runs(
        operands,
        length,
        operands.input::<T>(X),
        from,
        operands.output(Y),
        Runs { start: 0, stride: length },
    );
}

/// Pads an axis with zeros on both sides.
pub(crate) fn pad_axis(operands: &Operands, axis: usize, before: usize) {
    match Half::of(operands.dtype(X)) {
        None => pad_axis_of::<f32>(operands, axis, before, 0.0),
        Some(_) => pad_axis_of::<u16>(operands, axis, before, 0),
    }
}

fn pad_axis_of<T: Element>(operands: &Operands, axis: usize, before: usize, zero: T) {
    let (inner, outer) = (operands.shape(X), operands.shape(Y));
    let (length, stride) = (run(inner, axis), run(outer, axis));
    let start = before * run(outer, axis + 1);
    let (x, y) = (operands.input::<T>(X), operands.output::<T>(Y));
    let cut = Cut::items(y.len() / stride.max(1), stride);
    let y = Shared::new(y);
    operands.threads.for_each(cut.count(), |task, _| {
        for index in cut.range(task) {
            // SAFETY: every slice belongs to one task.
            let to = unsafe { y.slice(index * stride..(index + 1) * stride) };
            to[..start].fill(zero);
            to[start..start + length].copy_from_slice(&x[index * length..(index + 1) * length]);
            to[start + length..].fill(zero);
        }
    });
}

/// Copies the same bytes, unless they stand there already.
pub(crate) fn reshape(operands: &Operands) {
    if operands.is_in_place(Y, X) {
        return;
    }
    copy_bytes(operands, operands.input_bytes(X), operands.output_bytes(Y));
}

/// Copies a slice out of all rows.
pub(crate) fn take_rows(operands: &Operands) {
    copy_bytes(operands, operands.input_bytes(X), operands.output_bytes(Y));
}

/// Copies a slice to its place among all rows.
pub(crate) fn put_rows(operands: &Operands) {
    copy_bytes(operands, operands.input_bytes(X), operands.update_bytes(Y));
}

fn copy_bytes(operands: &Operands, from: &[u8], to: &mut [u8]) {
    operands.threads.for_each_chunk(to, TASK, |chunk, to| {
        to.copy_from_slice(&from[chunk * TASK..][..to.len()]);
    });
}

/// Writes zeros.
pub(crate) fn zero(operands: &Operands) {
    operands.threads.for_each_chunk(operands.output_bytes(X), TASK, |_, to| to.fill(0));
}

/// Writes zeros where a sum begins, and nothing else.
pub(crate) fn add_zero(operands: &Operands) {
    if operands.fresh {
        operands.update(Sum).fill(0.0);
    }
}

/// Elements that stand together from an axis on.
fn run(shape: &Shape, axis: usize) -> usize {
    shape.dims[axis..].iter().product()
}

/// Runs of elements, the first at `start` and the others `stride` apart.
struct Runs {
    start: usize,
    stride: usize,
}

fn copy_runs<T: Element>(
    operands: &Operands,
    length: usize,
    from: &[T],
    from_at: Runs,
    to: &mut [T],
    to_at: Runs,
) {
    if length == 0 {
        return;
    }
    let cut = Cut::items(from.len() / from_at.stride, length);
    let to = Shared::new(to);
    operands.threads.for_each(cut.count(), |task, _| {
        for index in cut.range(task) {
            let (source, target) =
                (from_at.start + index * from_at.stride, to_at.start + index * to_at.stride);
            // SAFETY: runs do not overlap, and every run belongs to one task.
            unsafe { to.slice(target..target + length) }.copy_from_slice(&from[source..source + length]);
        }
    });
}
