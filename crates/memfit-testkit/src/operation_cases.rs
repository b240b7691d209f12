//! The rows of the op table that are about functions of `keras.ops`.

use memfit_ir::{Binary, Chain, Link, MatMul, Op, Unary};

use crate::op_cases::Add;

pub(crate) fn add(add: Add<'_>) {
    elementwise(add);
    for (name, dims, order) in [
        ("of a matrix", vec![5, 3], vec![1, 0]),
        ("that keeps the last axis", vec![2, 3, 4], vec![1, 0, 2]),
        ("round in a circle", vec![2, 3, 4], vec![2, 0, 1]),
        ("of four axes", vec![2, 3, 2, 3], vec![3, 1, 0, 2]),
    ] {
        add(&format!("transpose {name}"), &move |b| {
            let x = b.input(dims.clone());
            b.op(Op::Transpose(order.clone()), &[x])
        });
    }
    for transpose_a in [false, true] {
        for transpose_b in [false, true] {
            add(&format!("matmul with a turned {transpose_a}, b turned {transpose_b}"), &move |b| {
                let x = b.input(if transpose_a { [2, 5, 4] } else { [2, 4, 5] });
                let y = b.input(if transpose_b { [2, 3, 5] } else { [2, 5, 3] });
                b.op(Op::MatMul(MatMul { transpose_a, transpose_b }), &[x, y])
            });
        }
    }
    add("matmul of a tensor with itself", &|b| {
        let x = b.input([4, 5]);
        b.op(Op::MatMul(MatMul { transpose_a: false, transpose_b: true }), &[x, x])
    });
    for (axis, before, after) in [(0, 1, 2), (1, 0, 3), (2, 2, 0)] {
        add(&format!("pad_axis {axis} by {before} and {after}"), &move |b| {
            let x = b.input([2, 3, 2]);
            b.op(Op::PadAxis { axis, before, after }, &[x])
        });
    }
    for (axis, start, length) in [(0, 1, 2), (1, 0, 1), (2, 1, 3)] {
        add(&format!("slice {length} of axis {axis} from {start}"), &move |b| {
            let x = b.input([3, 2, 4]);
            b.op(Op::Slice { axis, start, length }, &[x])
        });
    }
    for (name, dims) in [("the last axis", [3, 4, 1]), ("two axes", [1, 4, 1]), ("all", [1, 1, 1])] {
        add(&format!("sum_to over {name}"), &move |b| {
            let x = b.input([3, 4, 2]);
            b.op(Op::SumTo(dims.to_vec()), &[x])
        });
    }
}

fn elementwise(add: Add<'_>) {
    for (name, function) in [
        ("exp", Unary::Exp),
        ("square", Unary::Square),
        ("abs", Unary::Abs),
        ("clip", Unary::Clip { low: -0.5, high: 0.3 }),
        ("sin", Unary::Sin),
        ("cos", Unary::Cos),
    ] {
        add(&format!("elementwise {name}"), &move |b| {
            let x = b.input([2, 9]);
            b.op(Op::Elementwise(Chain::unary(function)), &[x])
        });
    }
    for (name, function) in [
        ("log", Unary::Log),
        ("sqrt", Unary::Sqrt),
        ("rsqrt", Unary::Rsqrt),
        ("reciprocal", Unary::Reciprocal),
        ("power", Unary::Power(1.7)),
    ] {
        add(&format!("elementwise {name}"), &move |b| {
            let x = b.input([2, 9]);
            let links = vec![Link::Unary(Unary::Offset(1.5), 0), Link::Unary(function, 1)];
            b.op(Op::Elementwise(Chain { inputs: 1, links }), &[x])
        });
    }
    add("elementwise minimum", &|b| {
        let (x, y) = (b.input([2, 9]), b.input([2, 9]));
        b.op(Op::Elementwise(Chain::binary(Binary::Minimum)), &[x, y])
    });
    add("elementwise divide", &|b| {
        let (x, y) = (b.input([2, 9]), b.input([2, 9]));
        let links = vec![Link::Unary(Unary::Offset(2.0), 1), Link::Binary(Binary::Divide, 0, 2)];
        b.op(Op::Elementwise(Chain { inputs: 2, links }), &[x, y])
    });
}
