//! Batch normalisation: sums over columns, then one pass with coefficients of every channel.

use std::fmt::Write;

use memfit_ir::Operand::{
    Beta, Bits, DBeta, DGamma, Dx, Dy, Dz, FoundInf, Gamma, Mean, MovingMean, MovingVariance, Other,
    Variance, X, Y,
};
use memfit_ir::{Bytes, Chain, Norm};

use super::bits;
use super::columns::{Columns, Terms};
use super::elementwise::statements;
use crate::call::{Call, Name, Operand, THREADS, blocks_for, int, long, pack_width};
use crate::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/batch_norm.cu");

/// What the second pass of a gradient needs beside its coefficients to find which values a ReLU let pass,
/// where there is one.
const NO_MASK: &str = "#define MASK_PARAMETERS\n";
const MASK: &str = "#define MASKED\n#define MASK_PARAMETERS const float* beta, float below,\n";

/// How a pass over all elements is cut: how many packs a thread reads before it uses them, how many blocks a
/// multiprocessor has registers for, and how many blocks there are at most. Few where each begins with square
/// roots.
type Pass = [usize; 3];

const FORWARD: Pass = [4, 2, 264];
const FORWARD_OF_SEVERAL: Pass = [2, 2, 264];
const BACKWARD: Pass = [2, 4, 8192];
const BACKWARD_MASKED: Pass = [4, 3, 8192];

/// Mean and variance of this batch.
pub(super) fn statistics(call: &Call<'_>) -> Lowered {
    let (x, mean, variance) = (call.input(X), call.output(Mean), call.output(Variance));
    let columns = Columns::of(x, Terms::Moments);
    let mut lowered = Lowered::default();
    let parts = columns.parts(&mut lowered, vec![x.pointer(), Argument::Null, Argument::Null]);
    let mut arguments = columns.parts_arguments(parts);
    arguments.extend([x.pointer(), mean.pointer(), variance.pointer(), long(columns.rows())]);
    lowered.kernel(columns.finish("statistics", arguments));
    lowered
}

/// Normalises by given statistics, with a chain after it where there is one.
pub(super) fn forward(
    call: &Call<'_>,
    norm: &Norm,
    statistics_given: [Name; 2],
    chain: Option<&Chain>,
) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    let packs = Packs::of(x);
    let others = chain.map_or(0, |chain| chain.inputs - 1);
    let pass = if others == 0 { FORWARD } else { FORWARD_OF_SEVERAL };
    let mut defines = packs.defines(x, pass);
    let (statements, result) = chain.map_or((String::new(), "v0".to_owned()), statements);
    let each = |part: &dyn Fn(usize, &str) -> String| -> String {
        (1..=others).map(|index| part(index, call.input((Other, index - 1)).c_type())).collect()
    };
    for (name, text) in [
        ("FORWARD", String::new()),
        ("OTHERS", each(&|index, c_type| format!("const {c_type}* x{index}, "))),
        (
            "LOAD_OTHERS",
            each(&|index, _| format!("p{index}[b] = pack_at<WIDTH>(x{index}, i + b * stride); ")),
        ),
        ("DECLARE_OTHERS", each(&|index, c_type| format!("Pack<{c_type}, WIDTH> p{index}[COUNT]; "))),
        ("TAKE_OTHERS", each(&|index, _| format!("float v{index} = widen(p{index}[b].at[j]); "))),
        ("CHAIN", statements),
        ("RESULT", result),
    ] {
        writeln!(defines, "#define {name} {text}").expect("a text takes what is written to it");
    }
    let [mean, variance] = statistics_given.map(|statistic| call.input(statistic).pointer());
    let (gamma, beta) = (call.pointer_if_given(Gamma), call.pointer_if_given(Beta));
    let mut arguments = vec![x.pointer(), gamma, beta, mean, variance];
    arguments.extend((1..=others).map(|index| call.input((Other, index - 1)).pointer()));
    arguments.push(y.pointer());
    arguments.extend(packs.arguments());
    arguments.push(Argument::Float(norm.epsilon));
    packs.kernel("normalise", defines, pass, arguments).into()
}

/// Which gradients reach a normalisation.
#[derive(Clone, Copy)]
pub(super) enum GradientSource {
    /// Those of its output.
    Plain,
    /// Those that a ReLU after it lets pass, below a bound.
    ThroughRelu(f32),
    /// Sums of two, where a bit is set. They are written too.
    MaskedSum,
}

/// The gradient through normalised values, mean and variance; adds those of gamma and beta.
pub(super) fn grad(call: &Call<'_>, norm: &Norm, gradients: GradientSource) -> Lowered {
    let mut lowered = Lowered::default();
    // Bits of rows that are no whole bytes are not found by counting elements: those sums are made before.
    let sums_before = matches!(gradients, GradientSource::MaskedSum) && !is_whole_bytes(call);
    if sums_before {
        lowered = bits::mask_sum_into(call, call.output(Dz));
    }
    let dy = match gradients {
        GradientSource::Plain | GradientSource::ThroughRelu(_) => call.input(Dy),
        GradientSource::MaskedSum => call.output(Dz),
    };
    let (x, dx) = (call.input(X), call.output(Dx));
    let (mean, variance) = (call.input(Mean), call.input(Variance));
    let gamma = call.pointer_if_given(Gamma);
    let epsilon = Argument::Float(norm.epsilon);
    let mut arguments = vec![dy.pointer(), x.pointer(), mean.pointer()];
    let (terms, pass, mask, mask_arguments) = match gradients {
        GradientSource::ThroughRelu(below) => {
            let beta = call.pointer_if_given(Beta);
            let below = Argument::Float(below);
            arguments.extend([variance.pointer(), gamma, beta, epsilon, below]);
            (Terms::MaskedProducts, BACKWARD_MASKED, MASK, vec![beta, below])
        }
        GradientSource::MaskedSum if !sums_before => {
            arguments[0] = call.input(Dy).pointer();
            arguments.extend([call.input((Dy, 1)).pointer(), call.input(Bits).pointer(), dy.pointer()]);
            (Terms::ProductsOfSums, BACKWARD, NO_MASK, vec![])
        }
        GradientSource::Plain | GradientSource::MaskedSum => (Terms::Products, BACKWARD, NO_MASK, vec![]),
    };
    let columns = Columns::of(dy, terms);
    let parts = columns.parts(&mut lowered, arguments);
    let coefficients = Argument::At(lowered.scratch(Bytes::of::<f32>(3 * columns.columns())));
    let [dgamma, dbeta] = [DGamma, DBeta]
        .map(|operand| call.update_if_given(operand).map_or(Argument::Null, |sum| sum.pointer()));
    let mut arguments = columns.parts_arguments(parts);
    let count = long(columns.rows());
    arguments.extend([
        variance.pointer(),
        gamma,
        dgamma,
        dbeta,
        coefficients,
        count,
        epsilon,
        call.overwrite(),
    ]);
    lowered.kernel(columns.finish("norm_sums", arguments));
    let packs = Packs::of(dy);
    let mut arguments = vec![dy.pointer(), x.pointer(), mean.pointer(), coefficients];
    arguments.extend(mask_arguments);
    arguments.push(dx.pointer());
    arguments.extend(packs.arguments());
    lowered.kernel(packs.kernel("normalise_grad", packs.backward(dy, pass, mask), pass, arguments));
    lowered
}

/// Whether every row of bits is whole bytes.
fn is_whole_bytes(call: &Call<'_>) -> bool {
    call.input(Dy).shape().elements_per_row().is_multiple_of(8)
}

/// `dx = dy gamma / √(variance + epsilon)`.
pub(super) fn inference_grad(call: &Call<'_>, norm: &Norm) -> Lowered {
    let (dy, dx) = (call.input(Dy), call.output(Dx));
    let packs = Packs::of(dy);
    let variance = call.input(MovingVariance);
    let mut arguments = vec![dy.pointer(), call.pointer_if_given(Gamma), variance.pointer(), dx.pointer()];
    arguments.extend(packs.arguments());
    arguments.push(Argument::Float(norm.epsilon));
    packs.kernel("inference_grad", packs.backward(dy, BACKWARD, NO_MASK), BACKWARD, arguments).into()
}

/// `moving = moving · momentum + value · (1 − momentum)`.
pub(super) fn moving(call: &Call<'_>, momentum: f32) -> Lowered {
    let mean = call.input(Mean);
    let packs = Packs::of(mean);
    let arguments = vec![
        mean.pointer(),
        call.input(Variance).pointer(),
        call.update(MovingMean).pointer(),
        call.update(MovingVariance).pointer(),
        Argument::Context,
        long(mean.elements),
        Argument::Float(momentum),
        call.pointer_if_given(FoundInf),
    ];
    let kernel = packs.kernel("moving", packs.backward(mean, BACKWARD, NO_MASK), BACKWARD, arguments);
    Kernel { blocks: blocks_for(mean.elements), ..kernel }.into()
}

/// A tensor in packs of neighbouring channels.
struct Packs {
    width: usize,
    /// Packs of all channels, and of everything.
    in_row: usize,
    all: usize,
}

impl Packs {
    fn of(x: Operand<'_>) -> Packs {
        let channels = x.shape().last().max(1);
        let width = pack_width(channels, x.dtype());
        Packs { width, in_row: channels / width, all: x.elements / width }
    }

    fn defines(&self, x: Operand<'_>, [batch, at_once, _]: Pass) -> String {
        let mut defines = format!("typedef {} X;\n#define WIDTH {}\n", x.c_type(), self.width);
        defines += &format!("#define BATCH {batch}\n#define BLOCKS_AT_ONCE {at_once}\n");
        defines
    }

    fn backward(&self, x: Operand<'_>, pass: Pass, mask: &str) -> String {
        format!("{}#define BACKWARD\n{mask}", self.defines(x, pass))
    }

    fn arguments(&self) -> [Argument; 2] {
        [long(self.all), int(self.in_row)]
    }

    /// A grid of at least one thread for each pack of channels: a thread always meets the same.
    fn kernel(
        &self,
        entry: &'static str,
        defines: String,
        [batch, _, most]: Pass,
        arguments: Vec<Argument>,
    ) -> Kernel {
        let threads = THREADS as usize;
        let blocks = self.all.div_ceil(batch * threads).clamp(1, most).max(self.in_row.div_ceil(threads));
        let blocks = [u32::try_from(blocks).expect("there are few channels"), 1, 1];
        Kernel { source: Source { text: TEXT, defines }, entry, blocks, threads: THREADS, arguments }
    }
}
