//! Values changed at random: draws belong to seed, step and place in the batch.

use memfit_ir::Operand::{X, Y};
use memfit_ir::{Noise, NoiseKind};

use crate::call::{Call, THREADS, blocks_for, long};
use crate::work::{Argument, Kernel, Lowered, Source};

use super::places::{Axis, places};
use super::rearrange::element_bytes;

const TEXT: &str = include_str!("../kernels/noise.cu");

/// The number of a sequence of draws as a kernel takes it.
pub(super) fn sequence(seed: u64) -> Argument {
    Argument::Long(seed.cast_signed())
}

/// Sets a share of elements to 0 and scales the others.
pub(super) fn dropout(call: &Call<'_>, rate: f32, seed: u64) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    Kernel {
        source: Source { text: TEXT, defines: format!("typedef {} X;\n", x.c_type()) },
        entry: "dropout",
        blocks: blocks_for(x.elements.div_ceil(16 / element_bytes(x))),
        threads: THREADS,
        arguments: vec![
            x.pointer(),
            y.pointer(),
            Argument::Context,
            long(x.elements),
            long(call.row_start),
            long(x.shape().elements_per_row()),
            sequence(seed),
            Argument::Float(rate),
            Argument::Float(1.0 / (1.0 - rate)),
        ],
    }
    .into()
}

/// Noise of a shape that may be smaller than the values it changes.
pub(super) fn noise(call: &Call<'_>, noise: &Noise) -> Lowered {
    let (x, y) = (call.input(X), call.output(Y));
    let mut step = 1;
    let mut axes: Vec<Axis> = Vec::new();
    for (size, drawn) in x.dims().iter().zip(&noise.dims).rev() {
        axes.push(Axis { size: *size, step: if drawn == size { step } else { 0 } });
        step *= drawn;
    }
    axes.reverse();
    let (kind, numbers) = match noise.kind {
        NoiseKind::Dropout { rate } => ("KIND_DROPOUT", [rate, 1.0 / (1.0 - rate), 0.0, 0.0]),
        NoiseKind::Add { stddev } => ("KIND_ADD", [stddev, 0.0, 0.0, 0.0]),
        NoiseKind::Multiply { stddev } => ("KIND_MULTIPLY", [stddev, 0.0, 0.0, 0.0]),
        NoiseKind::Alpha { rate } => {
            let (lowest, scale, shift) = NoiseKind::alpha_constants(rate);
            ("KIND_CHOOSE", [rate, scale as f32, shift as f32, (scale * lowest + shift) as f32])
        }
        NoiseKind::AlphaGrad { rate } => {
            ("KIND_CHOOSE", [rate, NoiseKind::alpha_constants(rate).1 as f32, 0.0, 0.0])
        }
    };
    let defines =
        format!("typedef {} X;\n#define KIND {kind}\n#define PLACE {}\n", x.c_type(), places(&axes, None));
    let mut arguments = vec![
        x.pointer(),
        y.pointer(),
        Argument::Context,
        long(x.elements),
        long(call.row_start),
        long(step),
        sequence(noise.seed),
    ];
    arguments.extend(numbers.map(Argument::Float));
    Kernel {
        source: Source { text: TEXT, defines },
        entry: "noise",
        blocks: blocks_for(x.elements),
        threads: THREADS,
        arguments,
    }
    .into()
}
