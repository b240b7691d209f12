//! Batch normalisation: sums over columns, then one pass with coefficients of every channel.

use std::fmt::Write;

use memfit_ir::{Bytes, Chain, Norm};

use super::chain::statements;
use super::sums::Columns;
use crate::cuda::call::{Call, Operand, THREADS, blocks_for, int, long, pack_width};
use crate::cuda::work::{Argument, Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/batch_norm.cu");

/// Mean and variance of this batch.
pub(super) fn statistics(call: &Call<'_>) -> Lowered {
    let (x, mean, variance) = (call.input(0), call.output(0), call.output(1));
    let columns = Columns::of(x, 1);
    let mut lowered = Lowered::default();
    let parts = columns.parts(&mut lowered, [x.pointer(), Argument::Null, Argument::Null]);
    let mut arguments = columns.parts_arguments(parts);
    arguments.extend([x.pointer(), mean.pointer(), variance.pointer(), long(columns.rows())]);
    lowered.kernel(columns.finish("statistics", arguments));
    lowered
}

/// Normalises by given statistics, with a chain behind it where there is one.
pub(super) fn forward(call: &Call<'_>, norm: &Norm, chain: Option<&Chain>) -> Lowered {
    let (x, y) = (call.input(0), call.output(0));
    let packs = Packs::of(x);
    let given = 1 + usize::from(norm.scale) + usize::from(norm.center);
    let others = chain.map_or(0, |chain| chain.inputs - 1);
    let mut defines = packs.defines(x);
    let (statements, result) = chain.map_or((String::new(), "v0".to_owned()), statements);
    let each = |part: &dyn Fn(usize, &str) -> String| -> String {
        (1..=others).map(|index| part(index, call.input(given + 1 + index).c_type())).collect()
    };
    for (name, text) in [
        ("FORWARD", String::new()),
        ("OTHERS", each(&|index, c_type| format!("const {c_type}* x{index}, "))),
        (
            "LOAD_OTHERS",
            each(&|index, _| format!("load_pack<WIDTH>(x{index}, i + b * stride, p{index}[b]); ")),
        ),
        ("DECLARE_OTHERS", each(&|index, _| format!("float p{index}[BATCH][WIDTH]; "))),
        ("TAKE_OTHERS", each(&|index, _| format!("float v{index} = p{index}[b][j]; "))),
        ("BATCH", if others == 0 { "4" } else { "2" }.to_owned()),
        ("CHAIN", statements),
        ("RESULT", result),
    ] {
        writeln!(defines, "#define {name} {text}").expect("a text takes what is written to it");
    }
    let beta = 1 + usize::from(norm.scale);
    let mut arguments = vec![
        x.pointer(),
        call.input_if(norm.scale, 1),
        call.input_if(norm.center, beta),
        call.input(given).pointer(),
        call.input(given + 1).pointer(),
    ];
    arguments.extend((1..=others).map(|index| call.input(given + 1 + index).pointer()));
    arguments.push(y.pointer());
    arguments.extend(packs.arguments());
    arguments.push(Argument::Float(norm.epsilon));
    packs.kernel("normalise", defines, arguments).into()
}

/// The gradient through normalised values, mean and variance; adds those of gamma and beta.
pub(super) fn grad(call: &Call<'_>, norm: &Norm) -> Lowered {
    let (dy, x, dx) = (call.input(0), call.input(1), call.output(0));
    let (mean, variance) = (call.input(2), call.input(3));
    let columns = Columns::of(dy, 2);
    let mut lowered = Lowered::default();
    let parts = columns.parts(&mut lowered, [dy.pointer(), x.pointer(), mean.pointer()]);
    let coefficients = Argument::At(lowered.scratch(Bytes::of::<f32>(3 * columns.columns())));
    let mut updates = 0;
    let mut update = |present: bool| {
        let pointer = if present { call.update(updates).pointer() } else { Argument::Null };
        updates += usize::from(present);
        pointer
    };
    let trains = !call.node.updates.is_empty();
    let (dgamma, dbeta) = (update(trains && norm.scale), update(trains && norm.center));
    let mut arguments = columns.parts_arguments(parts);
    arguments.extend([
        variance.pointer(),
        call.input_if(norm.scale, 4),
        dgamma,
        dbeta,
        coefficients,
        long(columns.rows()),
        Argument::Float(norm.epsilon),
        call.fresh(),
    ]);
    lowered.kernel(columns.finish("norm_sums", arguments));
    let packs = Packs::of(dy);
    let mut arguments = vec![dy.pointer(), x.pointer(), mean.pointer(), coefficients, dx.pointer()];
    arguments.extend(packs.arguments());
    lowered.kernel(packs.kernel("normalise_grad", packs.backward(dy), arguments));
    lowered
}

/// `dx = dy gamma / √(variance + epsilon)`.
pub(super) fn inference_grad(call: &Call<'_>, norm: &Norm) -> Lowered {
    let (dy, dx) = (call.input(0), call.output(0));
    let packs = Packs::of(dy);
    let variance = call.input(1 + usize::from(norm.scale));
    let mut arguments = vec![dy.pointer(), call.input_if(norm.scale, 1), variance.pointer(), dx.pointer()];
    arguments.extend(packs.arguments());
    arguments.push(Argument::Float(norm.epsilon));
    packs.kernel("inference_grad", packs.backward(dy), arguments).into()
}

/// `moving = moving · momentum + value · (1 − momentum)`.
pub(super) fn moving(call: &Call<'_>, momentum: f32) -> Lowered {
    let mean = call.input(0);
    let packs = Packs::of(mean);
    let arguments = vec![
        mean.pointer(),
        call.input(1).pointer(),
        call.update(0).pointer(),
        call.update(1).pointer(),
        Argument::Context,
        long(mean.elements),
        Argument::Float(momentum),
    ];
    let kernel = packs.kernel("moving", packs.backward(mean), arguments);
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

    fn defines(&self, x: Operand<'_>) -> String {
        format!("typedef {} X;\n#define WIDTH {}\n", x.c_type(), self.width)
    }

    fn backward(&self, x: Operand<'_>) -> String {
        format!("{}#define BACKWARD\n", self.defines(x))
    }

    fn arguments(&self) -> [Argument; 2] {
        [long(self.all), int(self.in_row)]
    }

    /// A grid of at least one thread for each pack of channels: a thread always meets the same.
    fn kernel(&self, entry: &'static str, defines: String, arguments: Vec<Argument>) -> Kernel {
        let blocks = blocks_for(self.all.div_ceil(2).max(self.in_row).min(1 << 19));
        let least = u32::try_from(self.in_row.div_ceil(THREADS as usize)).expect("there are few channels");
        let blocks = [blocks[0].max(least), 1, 1];
        Kernel { source: Source { text: TEXT, defines }, entry, blocks, threads: THREADS, arguments }
    }
}
