//! Recurrent layers: a block takes a few rows through all steps. The gradient of the kernel is a product over
//! all steps of many rows, gathered side by side.

use memfit_ir::Operand::{Bias, DBias, DKernel, Dx, Dy, Kept, Mask, X, Y};
use memfit_ir::{Bytes, Cell, DType, Gate, Recurrent};

use crate::call::{Call, Name, Operand, THREADS, blocks_for, int, long};
use crate::work::{Argument, Kernel, Lowered, Product, Source, Work, c_type};

const TEXT: &str = include_str!("../kernels/recurrent.cu");

/// Rows of a block.
const ROWS: usize = 4;

/// Steps of all rows that one product sums over, unless one row has more.
const STEPS_AT_ONCE: usize = 16384;

/// Parts in which biases are summed, and columns of a block.
const PARTS: usize = 64;
const COLUMNS: usize = 32;

struct Sizes {
    rows: usize,
    steps: usize,
    units: usize,
    wide: usize,
}

impl Sizes {
    fn new(call: &Call<'_>, kind: &Recurrent, states: Operand<'_>) -> Sizes {
        let units = states.shape().last();
        let steps = states.dims()[0] - kind.rows_after_states();
        Sizes { rows: call.rows, steps, units, wide: kind.cell.gates() * units }
    }

    /// What a block keeps of its rows.
    fn memory(&self, lowered: &mut Lowered) -> Argument {
        let floats = self.rows.div_ceil(ROWS) * ROWS * (3 * self.units + self.wide);
        Argument::At(lowered.scratch(Bytes::of::<f32>(floats)))
    }

    fn blocks(&self) -> [u32; 3] {
        [u32::try_from(self.rows.div_ceil(ROWS)).expect("a grid has more blocks"), 1, 1]
    }

    fn numbers(&self) -> [Argument; 3] {
        [self.rows, self.steps, self.units].map(int)
    }
}

fn source(kind: &Recurrent, x: Operand<'_>, kernel: Operand<'_>, bias: Option<Operand<'_>>) -> Source {
    let Recurrent { cell, reads_backwards, writes_backwards, masked, starts, ends } = kind;
    let (name, activation, recurrent) = match *cell {
        Cell::Simple { activation } => ("SIMPLE", activation, Gate::Linear),
        Cell::Lstm { activation, recurrent } => ("LSTM", activation, recurrent),
        Cell::Gru { activation, recurrent, reset_after: true } => ("GRU_AFTER", activation, recurrent),
        Cell::Gru { activation, recurrent, reset_after: false } => ("GRU_BEFORE", activation, recurrent),
    };
    let gate = |gate: Gate| match gate {
        Gate::Linear => "LINEAR",
        Gate::Relu => "RELU",
        Gate::Sigmoid => "SIGMOID",
        Gate::Tanh => "TANH",
    };
    let flag = |is: bool| if is { "1" } else { "0" };
    let types = [x.c_type(), kernel.c_type(), bias.map_or(c_type(DType::F32), |bias| bias.c_type())];
    let mut defines = format!("typedef {} X;\ntypedef {} W;\ntypedef {} B;\n", types[0], types[1], types[2]);
    for (name, value) in [
        ("CELL", name),
        ("ACTIVATION", gate(activation)),
        ("RECURRENT", gate(recurrent)),
        ("HAS_BIAS", flag(bias.is_some())),
        ("READS_BACKWARDS", flag(*reads_backwards)),
        ("WRITES_BACKWARDS", flag(*writes_backwards)),
        ("MASKED", flag(*masked)),
        ("STARTS", flag(*starts)),
        ("ENDS", flag(*ends)),
    ] {
        defines += &format!("#define {name} {value}\n");
    }
    Source { text: TEXT, defines }
}

/// A pointer to an operand that the op may be without.
fn pointer(operand: Option<Operand<'_>>) -> Argument {
    operand.map_or(Argument::Null, |operand| operand.pointer())
}

/// Runs a cell over all steps.
pub(super) fn forward(call: &Call<'_>, kind: &Recurrent) -> Lowered {
    let (x, kernel, y) = (call.input(X), call.input(Name::Kernel), call.output(Y));
    let (bias, mask, kept) =
        (call.input_if_given(Bias), call.input_if_given(Mask), pointer(call.output_if_given(Kept)));
    let sizes = Sizes::new(call, kind, y);
    let mut lowered = Lowered::default();
    let memory = sizes.memory(&mut lowered);
    let mut arguments = vec![x.pointer(), kernel.pointer(), pointer(bias), pointer(mask)];
    arguments.extend([y.pointer(), kept, memory]);
    arguments.extend(sizes.numbers());
    lowered.kernel(Kernel {
        source: source(kind, x, kernel, bias),
        entry: "recurrent",
        blocks: sizes.blocks(),
        threads: THREADS,
        arguments,
    });
    lowered
}

/// `dy, y, [kept], kernel, [mask] → dx ⇒ dkernel, [dbias]`.
pub(super) fn grad(call: &Call<'_>, kind: &Recurrent) -> Lowered {
    let (dy, y, dx) = (call.input(Dy), call.input(Y), call.output(Dx));
    let (kept, kernel) = (call.pointer_if_given(Kept), call.input(Name::Kernel));
    let (mask, dbias) = (call.input_if_given(Mask), call.update_if_given(DBias));
    let sizes = Sizes::new(call, kind, y);
    let source = source(kind, y, kernel, dbias);
    let mut lowered = Lowered::default();
    let memory = sizes.memory(&mut lowered);
    let mut arguments = vec![dy.pointer(), y.pointer(), kept, kernel.pointer(), pointer(mask)];
    arguments.extend([dx.pointer(), memory]);
    arguments.extend(sizes.numbers());
    let blocks = sizes.blocks();
    lowered.kernel(Kernel {
        source: source.clone(),
        entry: "recurrent_grad",
        blocks,
        threads: THREADS,
        arguments,
    });
    grad_kernel(call, kind, &sizes, &source, kept, &mut lowered);
    if let Some(dbias) = dbias {
        let columns = dbias.elements;
        let parts = Argument::At(lowered.scratch(Bytes::of::<f64>(PARTS * columns)));
        let blocks = u32::try_from(columns.div_ceil(COLUMNS)).expect("a grid has more blocks");
        let mut arguments = vec![dx.pointer(), kept, parts, long(sizes.rows)];
        arguments.extend([int(sizes.steps), int(sizes.units), long(columns)]);
        lowered.kernel(Kernel {
            source: source.clone(),
            entry: "recurrent_bias_parts",
            blocks: [blocks, PARTS as u32, 1],
            threads: THREADS,
            arguments,
        });
        lowered.kernel(Kernel {
            source,
            entry: "recurrent_bias_sum",
            blocks: blocks_for(columns),
            threads: THREADS,
            arguments: vec![parts, dbias.pointer(), long(PARTS), long(columns), call.overwrite()],
        });
    }
    lowered
}

/// `dkernel += Σ statesᵀ gates` over all steps of all rows, some rows at a time.
fn grad_kernel(
    call: &Call<'_>,
    kind: &Recurrent,
    sizes: &Sizes,
    source: &Source,
    kept: Argument,
    lowered: &mut Lowered,
) {
    let Sizes { rows, steps, units, wide } = *sizes;
    let (y, dx, dkernel) = (call.input(Y), call.output(Dx), call.update(DKernel));
    let at_once = (STEPS_AT_ONCE / steps.max(1)).clamp(1, rows.max(1));
    let states = lowered.scratch(Bytes::of::<f32>(at_once * steps * units));
    let gates = lowered.scratch(Bytes::of::<f32>(at_once * steps * wide));
    let parts: &[i32] = match kind.cell {
        Cell::Gru { reset_after: false, .. } => &[1, 2],
        Cell::Simple { .. } | Cell::Lstm { .. } | Cell::Gru { .. } => &[0],
    };
    let mut adds = !call.overwrite;
    for first in (0..rows).step_by(at_once) {
        let count = at_once.min(rows - first);
        for part in parts {
            let mut arguments = vec![dx.pointer(), y.pointer(), kept];
            arguments.extend([states, gates].map(Argument::At));
            arguments.extend([long(first), long(count), int(steps), int(units), Argument::Int(*part)]);
            lowered.kernel(Kernel {
                source: source.clone(),
                entry: "recurrent_gather",
                blocks: blocks_for(count * steps * (units + wide)),
                threads: THREADS,
                arguments,
            });
            lowered.work.push(Work::Product(Product {
                m: units,
                n: wide,
                k: count * steps,
                transpose_a: true,
                transpose_b: false,
                count: 1,
                dtype: DType::F32,
                dtype_result: dkernel.dtype(),
                a: states,
                b: gates,
                d: dkernel.address(),
                bias: None,
                adds,
                c: None,
            }));
            adds = true;
        }
    }
}
