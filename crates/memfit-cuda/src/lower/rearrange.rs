//! Elements that move but do not change, repeated elements, and the sums that undo that.

use memfit_ir::Operand::{X, Y};
use memfit_ir::{Bytes, Pads, Shape};

use crate::call::{Call, Operand, THREADS, blocks_for, long};
use crate::work::{Kernel, Lowered, Source};

use super::places::{Axis, places};

const TEXT: &str = include_str!("../kernels/rearrange.cu");
const SUM_TO: &str = include_str!("../kernels/sum_to.cu");

/// Sums of neighbours are left to one thread each from this width on.
const WIDTH_THREADS: usize = 32;

/// What moves as a whole.
struct Unit {
    /// In elements.
    elements: usize,
    c_type: &'static str,
}

impl Unit {
    /// The largest unit that divides all these numbers of elements; all slots begin at multiples of it.
    fn new(element: usize, counts: &[usize]) -> Unit {
        let divides = |elements: &usize| counts.iter().all(|count| count.is_multiple_of(*elements));
        let sizes =
            [16, 8, 4, 2, 1].into_iter().map(|bytes| bytes / element).filter(|elements| 0 < *elements);
        let elements = sizes.into_iter().find(divides).unwrap_or(1);
        let c_type = match elements * element {
            16 => "Pack<u64, 2>",
            8 => "u64",
            4 => "u32",
            2 => "u16",
            _ => "u8",
        };
        Unit { elements, c_type }
    }

    fn source(&self, defines: &str) -> Source {
        Source { text: TEXT, defines: format!("typedef {} E;\n{defines}", self.c_type) }
    }
}

/// A kernel over units: from `x` to `y`, their count, and more numbers after it.
fn moving(
    call: &Call<'_>,
    from: usize,
    entry: &'static str,
    unit: &Unit,
    count: usize,
    numbers: &[usize],
) -> Kernel {
    let mut arguments = vec![call.input((X, from)).pointer(), call.output(Y).pointer(), long(count)];
    arguments.extend(numbers.iter().copied().map(long));
    Kernel { source: unit.source(""), entry, blocks: blocks_for(count), threads: THREADS, arguments }
}

/// Bytes of an element.
pub(super) fn element_bytes(operand: Operand<'_>) -> usize {
    Bytes(operand.dtype().size()).to_usize()
}

/// Elements that stand together from an axis on.
fn run(shape: &Shape, axis: usize) -> usize {
    shape.dims[axis..].iter().product()
}

/// Puts tensors side by side along an axis.
pub(super) fn concat(call: &Call<'_>, axis: usize) -> Lowered {
    let y = call.output(Y);
    let stride = run(y.shape(), axis);
    let inputs = 0..call.inputs(X);
    let lengths: Vec<usize> = inputs.map(|index| run(call.input((X, index)).shape(), axis)).collect();
    let unit = Unit::new(element_bytes(y), &lengths);
    let (mut lowered, mut start) = (Lowered::default(), 0);
    for (index, length) in lengths.into_iter().enumerate() {
        let [length, stride] = [length, stride].map(|elements| elements / unit.elements);
        let count = call.input((X, index)).elements / unit.elements;
        if 0 < count {
            lowered.kernel(moving(
                call,
                index,
                "copy_runs",
                &unit,
                count,
                &[length, 0, length, start, stride],
            ));
        }
        start += length;
    }
    lowered
}

/// Takes a slice of an axis.
pub(super) fn slice(call: &Call<'_>, axis: usize, start: usize) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    let (length, stride, start) =
        (run(y.shape(), axis), run(x.shape(), axis), start * run(x.shape(), axis + 1));
    let unit = Unit::new(element_bytes(x), &[length, stride, start]);
    let [length, stride, start] = [length, stride, start].map(|elements| elements / unit.elements);
    let count = y.elements / unit.elements;
    moving(call, 0, "copy_runs", &unit, count, &[length, start, stride, 0, length]).into()
}

/// Pads an axis with zeros on both sides.
pub(super) fn pad_axis(call: &Call<'_>, axis: usize, before: usize) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    let (length, stride) = (run(x.shape(), axis), run(y.shape(), axis));
    let start = before * run(y.shape(), axis + 1);
    let unit = Unit::new(element_bytes(x), &[length, stride, start]);
    let numbers = [stride, start, length].map(|elements| elements / unit.elements);
    moving(call, 0, "pad_runs", &unit, y.elements / unit.elements, &numbers).into()
}

/// Copies images into the middle of zeros.
pub(super) fn pad(call: &Call<'_>, pads: &Pads) -> Lowered {
    margins(call, "pad_lines", call.output(Y).shape(), call.input(X).shape(), pads)
}

/// Copies the middle of images.
pub(super) fn crop(call: &Call<'_>, pads: &Pads) -> Lowered {
    margins(call, "crop_lines", call.input(X).shape(), call.output(Y).shape(), pads)
}

fn margins(call: &Call<'_>, entry: &'static str, outer: &Shape, inner: &Shape, pads: &Pads) -> Lowered {
    let y = call.output(Y);
    let widths = [run(outer, 1), pads.left * outer.last(), run(inner, 1)];
    let unit = Unit::new(element_bytes(y), &widths);
    let [width, left, width_inner] = widths.map(|elements| elements / unit.elements);
    let numbers = [outer.dims[0], width, pads.top, left, inner.dims[0], width_inner];
    moving(call, 0, entry, &unit, y.elements / unit.elements, &numbers).into()
}

/// Axes in another order.
pub(super) fn transpose(call: &Call<'_>, order: &[usize]) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    let axes = order.iter().map(|axis| Axis { size: x.dims()[*axis], step: run(x.shape(), axis + 1) });
    gather(call, axes.collect(), y.shape().elements_per_row())
}

/// Repeats elements along dimensions of 1.
pub(super) fn broadcast(call: &Call<'_>) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    let axes = y.dims().iter().enumerate().map(|(axis, size)| {
        let broadcast = x.dims()[axis] != *size;
        Axis { size: *size, step: if broadcast { 0 } else { run(x.shape(), axis + 1) } }
    });
    gather(call, axes.collect(), x.shape().elements_per_row())
}

/// `y` from the places that axes name in `x`.
fn gather(call: &Call<'_>, axes: Vec<Axis>, per_row: usize) -> Lowered {
    let y = call.output(Y);
    let mut axes = Axis::merged(axes);
    // Neighbours that stay neighbours move together.
    let together = axes.last().filter(|axis| axis.step == 1).map_or(1, |axis| axis.size);
    let mut counts = vec![together, per_row];
    counts.extend(axes.iter().map(|axis| axis.step).filter(|step| *step != 1));
    let unit = Unit::new(element_bytes(y), &counts);
    for axis in &mut axes {
        if axis.step == 1 && 1 < unit.elements {
            axis.size /= unit.elements;
        } else {
            axis.step /= unit.elements;
        }
    }
    let defines = format!("#define PLACE {}\n", places(&axes, Some(per_row / unit.elements)));
    let count = y.elements / unit.elements;
    Kernel {
        source: unit.source(&defines),
        entry: "gather",
        blocks: blocks_for(count),
        threads: THREADS,
        arguments: vec![call.input(X).pointer(), y.pointer(), long(count)],
    }
    .into()
}

/// Sums over dimensions that were broadcast.
pub(super) fn sum_to(call: &Call<'_>) -> Lowered {
    let (dy, dx) = (call.input(X), call.output(Y));
    let axes = || {
        dy.dims().iter().enumerate().map(|(axis, size)| Axis { size: *size, step: run(dy.shape(), axis + 1) })
    };
    let is_kept = |axis: usize| dx.dims()[axis] == dy.dims()[axis];
    let part = |kept: bool| -> Vec<Axis> {
        axes().enumerate().filter(|(axis, _)| is_kept(*axis) == kept).map(|(_, axis)| axis).collect()
    };
    let (kept, repeated) = (part(true), part(false));
    let repeats: usize = repeated.iter().map(|axis| axis.size).product();
    let neighbours = kept.last().filter(|axis| axis.step == 1).map_or(1, |axis| axis.size);
    let defines = format!(
        "typedef {} X;\n#define REPEATS {repeats}ll\n#define KEPT {}\n#define REPEATED {}\n",
        dy.c_type(),
        places(&kept, Some(dy.shape().elements_per_row())),
        places(&repeated, None),
    );
    let threads = WIDTH_THREADS <= neighbours || repeats < WIDTH_THREADS;
    Kernel {
        source: Source { text: SUM_TO, defines },
        entry: if threads { "sum_by_threads" } else { "sum_by_blocks" },
        blocks: blocks_for(if threads { dx.elements } else { dx.elements * THREADS as usize }),
        threads: THREADS,
        arguments: vec![dy.pointer(), dx.pointer(), long(dx.elements)],
    }
    .into()
}
