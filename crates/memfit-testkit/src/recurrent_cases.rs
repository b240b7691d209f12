//! The rows of the op table that are about recurrent layers.

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
