//! Penalties on weights, and putting weights back where they may be.

use memfit_ir::Operand::{Dx, FoundInf, Gradient, Loss, Weight, X};
use memfit_ir::{Bytes, Constraint, Orthogonal, Regularizer};

use super::elementwise::number;
use super::sums::{PARTS, part_blocks};
use crate::call::{Call, Operand, THREADS, blocks_for, int, long};
use crate::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/weight_rules.cu");

/// What Keras adds to a norm before it divides by it.
const EPSILON: f32 = 1e-7;

/// Blocks for the angles between lines, each with room for a number a line.
const ANGLES_MOST: usize = 256;

/// Adds a weight's penalty to the loss, and its gradient to the gradient.
pub(super) fn penalty(call: &Call<'_>, regularizer: &Regularizer) -> Lowered {
    let weight = call.input(Weight);
    let source = source(regularizer, weight);
    let mut lowered = Lowered::default();
    let parts = lowered.scratch(Bytes::of::<f64>(PARTS + ANGLES_MOST));
    let mut blocks = part_blocks(weight.elements);
    let gradient = call.update_if_given(Gradient).map(|gradient| gradient.pointer());
    let kernel = |entry, blocks, arguments| Kernel {
        source: source.clone(),
        entry,
        blocks,
        threads: THREADS,
        arguments,
    };
    let count = long(weight.elements);
    lowered.kernel(kernel("penalty_parts", blocks, vec![weight.pointer(), Argument::At(parts), count]));
    if let Some(gradient) = gradient {
        let arguments = vec![weight.pointer(), gradient, Argument::Context, count, call.overwrite()];
        lowered.kernel(kernel("penalty_gradient", blocks_for(weight.elements), arguments));
    }
    if let Some(Orthogonal { factor, by_rows }) = regularizer.orthogonal {
        let [rows, columns] = weight.dims()[..] else {
            unreachable!("an orthogonal penalty is on matrices alone")
        };
        let (lines, length, next, step) = match by_rows {
            true => (rows, columns, columns, 1),
            false => (columns, rows, 1, columns),
        };
        let own = lines.clamp(1, ANGLES_MOST);
        let inverses = Argument::At(lowered.scratch(Bytes::of::<f64>(lines)));
        let signs = Argument::At(lowered.scratch(Bytes::of::<f64>(own * lines)));
        let sizes = [int(lines), int(length), long(next), long(step)];
        let arguments = [weight.pointer(), inverses].into_iter().chain(sizes).collect();
        lowered.kernel(kernel("line_inverses", blocks_for(32 * lines), arguments));
        let to = Argument::At(parts.offset(Bytes::of::<f64>(blocks[0] as usize)));
        let mut arguments = vec![weight.pointer(), inverses, signs, gradient.unwrap_or(Argument::Null), to];
        arguments.extend([Argument::Context].into_iter().chain(sizes).chain([Argument::Float(factor)]));
        let own = u32::try_from(own).expect("there are few blocks");
        lowered.kernel(kernel("line_angles", [own, 1, 1], arguments));
        blocks[0] += own;
    }
    let count = Argument::Int(blocks[0].cast_signed());
    let arguments = vec![Argument::At(parts), count, call.update(Loss).pointer(), call.overwrite()];
    lowered.kernel(kernel("penalty_sum", [1, 1, 1], arguments));
    lowered
}

/// Adds the penalty of values to the loss, and writes its gradient.
pub(super) fn activity_penalty(call: &Call<'_>, regularizer: &Regularizer) -> Lowered {
    let (x, gradients) = (call.input(X), call.output(Dx));
    let source = source(regularizer, x);
    let mut lowered = Lowered::default();
    let parts = Argument::At(lowered.scratch(Bytes::of::<f64>(PARTS)));
    let (blocks, count) = (part_blocks(x.elements), long(x.elements));
    let mut launch = |entry, blocks, arguments| {
        lowered.kernel(Kernel { source: source.clone(), entry, blocks, threads: THREADS, arguments });
    };
    launch("penalty_parts", blocks, vec![x.pointer(), parts, count]);
    let parts_count = Argument::Int(blocks[0].cast_signed());
    let loss = call.update(Loss).pointer();
    launch("activity_sum", [1, 1, 1], vec![parts, parts_count, loss, Argument::Context, call.overwrite()]);
    let arguments = vec![x.pointer(), gradients.pointer(), Argument::Context, count];
    launch("activity_gradients", blocks_for(x.elements), arguments);
    lowered
}

fn source(regularizer: &Regularizer, x: Operand<'_>) -> Source {
    let [l1, l2] = [regularizer.l1, regularizer.l2].map(number);
    let defines = format!("#define PENALTY\n#define L1 {l1}\n#define L2 {l2}\ntypedef {} X;\n", x.c_type());
    Source { text: TEXT, defines }
}

/// Puts a weight back where it may be.
pub(super) fn constrain(call: &Call<'_>, constraint: &Constraint) -> Lowered {
    let weight = call.update(Weight);
    let mut arguments = vec![call.pointer_if_given(FoundInf), weight.pointer(), Argument::Context];
    let epsilon = number(EPSILON);
    let (axes, factor) = match *constraint {
        Constraint::NonNeg => {
            arguments.push(long(weight.elements));
            let source = Source { text: TEXT, defines: String::new() };
            let blocks = blocks_for(weight.elements);
            let entry = "constrain_to_positive";
            return Kernel { source, entry, blocks, threads: THREADS, arguments }.into();
        }
        Constraint::MaxNorm { max_value, axes } => {
            (axes, format!("fminf(norm, {}) / ({epsilon} + norm)", number(max_value)))
        }
        Constraint::UnitNorm { axes } => (axes, format!("1.0f / ({epsilon} + norm)")),
        Constraint::MinMaxNorm { min_value, max_value, rate, axes } => {
            let [least, most, rate, rest] = [min_value, max_value, rate, 1.0 - rate].map(number);
            let desired = format!("{rate} * fminf(fmaxf(norm, {least}), {most}) + {rest} * norm");
            (axes, format!("({desired}) / ({epsilon} + norm)"))
        }
    };
    let dims = weight.dims();
    let inner: usize = dims[axes[1]..].iter().product();
    let length: usize = dims[axes[0]..axes[1]].iter().product();
    let outer: usize = dims[..axes[0]].iter().product();
    let across = inner.next_power_of_two().min(32);
    arguments.extend([long(inner), long(length), int(across)]);
    let blocks = u32::try_from((outer * inner.div_ceil(across)).max(1)).expect("a weight has fewer lines");
    Kernel {
        source: Source { text: TEXT, defines: format!("#define FACTOR {factor}\n") },
        entry: "constrain_norms",
        blocks: [blocks, 1, 1],
        threads: THREADS,
        arguments,
    }
    .into()
}
