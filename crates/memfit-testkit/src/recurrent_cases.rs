//! The rows of the op table that are about recurrent layers, and their slow reference.

use memfit_ir::{Cell, Gate, Mask, Op, Recurrent};

use crate::op_cases::Add;

pub(crate) fn add(add: Add<'_>) {
    let (activation, recurrent) = (Gate::Tanh, Gate::Sigmoid);
    for (name, cell) in [
        ("simple", Cell::Simple { activation }),
        ("simple linear", Cell::Simple { activation: Gate::Linear }),
        ("lstm", Cell::Lstm { activation, recurrent }),
        ("lstm by other functions", Cell::Lstm { activation: Gate::Sigmoid, recurrent: Gate::Tanh }),
        ("gru", Cell::Gru { activation, recurrent, reset_after: true }),
        (
            "gru by other functions",
            Cell::Gru { activation: Gate::Linear, recurrent: Gate::Tanh, reset_after: true },
        ),
        ("gru that resets before", Cell::Gru { activation, recurrent, reset_after: false }),
    ] {
        for [reads_backwards, writes_backwards, bias, masked, starts, ends] in [
            [false, false, true, false, false, false],
            [true, false, false, false, false, false],
            [true, true, true, false, false, false],
            [false, false, true, true, false, false],
            [true, false, false, true, false, false],
            [true, true, true, true, false, false],
            [false, false, true, false, true, true],
            [true, false, true, true, true, false],
            [true, true, false, true, false, true],
        ] {
            let kind =
                Recurrent { cell: cell.clone(), reads_backwards, writes_backwards, masked, starts, ends };
            let name = format!(
                "recurrent {name}, backwards {reads_backwards} {writes_backwards}, bias {bias}, masked {masked}, \
                 states {starts} {ends}"
            );
            add(&name, &move |b| {
                let (units, wide) = (3, 3 * kind.cell.gates());
                let x = b.input([4 + kind.rows_after_input(), wide]);
                let mut operands = vec![x, b.weight("kernel", &[units, wide])];
                if bias {
                    operands.push(b.weight("bias", &[kind.cell.biases(), wide]));
                }
                if masked {
                    let ids = b.ids([4], 2);
                    operands.push(b.op(Op::Mask(Mask::NotZero), &[ids]));
                }
                b.op(Op::Recurrent(kind.clone()), &operands)
            });
        }
    }
}

/// The states of all steps, and zeros for what is kept.
pub(crate) fn evaluate(
    kind: &Recurrent,
    steps: usize,
    x: &[f64],
    kernel: &[f64],
    bias: Option<&[f64]>,
    mask: Option<&[f64]>,
) -> Vec<Vec<f64>> {
    let gates = kind.cell.gates();
    let units = (kernel.len() / gates).isqrt();
    let wide = gates * units;
    let (inputs, places) = (steps + kind.rows_after_input(), steps + kind.rows_after_states());
    let rows = x.len() / (inputs * wide);
    let mut y = vec![0.0; rows * places * units];
    for row in 0..rows {
        let (mut states, mut cells) = (vec![0.0; units], vec![0.0; units]);
        let y = &mut y[row * places * units..][..places * units];
        let x = &x[row * inputs * wide..][..inputs * wide];
        let has_cells = matches!(kind.cell, Cell::Lstm { .. });
        if kind.starts {
            let given = &x[steps * wide..];
            states.copy_from_slice(&given[..units]);
            y[steps * units..][..units].copy_from_slice(&states);
            if has_cells {
                cells.copy_from_slice(&given[units..2 * units]);
                y[(steps + 1) * units..][..units].copy_from_slice(&cells);
            }
        }
        for step in 0..steps {
            let turned = |backwards: bool| if backwards { steps - 1 - step } else { step };
            let read = &x[turned(kind.reads_backwards) * wide..][..wide];
            if mask.is_none_or(|mask| mask[row * steps + turned(kind.reads_backwards)] == 1.0) {
                step_of(kind, read, kernel, bias, &mut states, &mut cells);
            }
            y[turned(kind.writes_backwards) * units..][..units].copy_from_slice(&states);
        }
        if kind.ends && has_cells {
            y[(places - 1) * units..].copy_from_slice(&cells);
        }
    }
    let kept = vec![0.0; rows * steps * units * kind.cell.kept()];
    vec![y, kept]
}

fn step_of(
    kind: &Recurrent,
    x: &[f64],
    kernel: &[f64],
    bias: Option<&[f64]>,
    states: &mut Vec<f64>,
    cells: &mut [f64],
) {
    let (units, wide) = (states.len(), x.len());
    let with_bias = |at: usize| bias.map_or(0.0, |bias| bias[at]);
    let product = |states: &[f64], column: usize| {
        (0..units).map(|unit| states[unit] * kernel[unit * wide + column]).sum::<f64>()
    };
    let before = states.clone();
    let plain = |gate: usize, unit: usize| {
        let column = gate * units + unit;
        x[column] + with_bias(column) + product(&before, column)
    };
    match kind.cell {
        Cell::Simple { activation } => {
            *states = (0..units).map(|unit| value(activation, plain(0, unit))).collect();
        }
        Cell::Lstm { activation, recurrent } => {
            for unit in 0..units {
                let [input, forget, output] = [0, 1, 3].map(|gate| value(recurrent, plain(gate, unit)));
                cells[unit] = forget * cells[unit] + input * value(activation, plain(2, unit));
                states[unit] = output * value(activation, cells[unit]);
            }
        }
        Cell::Gru { activation, recurrent, reset_after } => {
            let second = |at: usize| if reset_after { with_bias(wide + at) } else { 0.0 };
            let gate =
                |gate: usize, unit: usize| value(recurrent, plain(gate, unit) + second(gate * units + unit));
            let passed: Vec<f64> = (0..units).map(|unit| gate(1, unit) * before[unit]).collect();
            for unit in 0..units {
                let column = 2 * units + unit;
                let seen = if reset_after {
                    gate(1, unit) * (product(&before, column) + second(column))
                } else {
                    product(&passed, column)
                };
                let candidate = value(activation, x[column] + with_bias(column) + seen);
                let update = gate(0, unit);
                states[unit] = update * before[unit] + (1.0 - update) * candidate;
            }
        }
    }
}

fn value(gate: Gate, x: f64) -> f64 {
    match gate {
        Gate::Linear => x,
        Gate::Relu => x.max(0.0),
        Gate::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Gate::Tanh => x.tanh(),
    }
}
