//! Penalties on weights, and putting weights back where they may be.

use memfit_ir::{Bytes, Constraint, Regularizer};

use super::chain::number;
use super::sums::{PARTS, part_blocks};
use crate::cuda::call::{Call, THREADS, blocks_for, int, long};
use crate::cuda::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/weight_rules.cu");

/// What Keras adds to a norm before it divides by it.
const EPSILON: f32 = 1e-7;

/// Adds what a weight costs to the loss, and its slope to the gradient.
pub(super) fn penalty(call: &Call<'_>, regularizer: &Regularizer) -> Lowered {
    let weight = call.input(0);
    let Regularizer { l1, l2, .. } = *regularizer;
    let defines = format!("#define PENALTY\n#define L1 {}\n#define L2 {}\n", number(l1), number(l2));
    let source = Source { text: TEXT, defines };
    let mut lowered = Lowered::default();
    let parts = Argument::At(lowered.scratch(Bytes::of::<f64>(PARTS)));
    let blocks = part_blocks(weight.elements);
    let mut launch = |entry, blocks, arguments| {
        lowered.kernel(Kernel { source: source.clone(), entry, blocks, threads: THREADS, arguments });
    };
    launch("penalty_parts", blocks, vec![weight.pointer(), parts, long(weight.elements)]);
    let count = Argument::Int(blocks[0].cast_signed());
    launch("penalty_sum", [1, 1, 1], vec![parts, count, call.update(0).pointer(), call.fresh()]);
    if call.node.updates.len() == 2 {
        let gradient = call.update(1).pointer();
        let arguments =
            vec![weight.pointer(), gradient, Argument::Context, long(weight.elements), call.fresh()];
        launch("penalty_slopes", blocks_for(weight.elements), arguments);
    }
    lowered
}

/// Puts a weight back where it may be.
pub(super) fn constrain(call: &Call<'_>, constraint: &Constraint) -> Lowered {
    let weight = call.update(0);
    let mut arguments =
        vec![call.input_if(!call.node.inputs.is_empty(), 0), weight.pointer(), Argument::Context];
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
