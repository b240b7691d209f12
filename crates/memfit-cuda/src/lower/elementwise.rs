//! Elementwise chains: the links become statements of a kernel.

use std::fmt::Write;

use memfit_ir::Operand::{X, Y};
use memfit_ir::{Binary, Chain, Link, Unary};

use crate::call::{Call, THREADS, blocks_for, long};
use crate::work::{Kernel, Lowered, Source};

const TEXT: &str = include_str!("../kernels/elementwise.cu");

/// A chain as one kernel.
pub(super) fn elementwise(call: &Call<'_>, chain: &Chain) -> Lowered {
    let y = call.output(Y);
    let width = if y.dtype().size() == 4 { 4 } else { 8 };
    let inputs = || (0..chain.inputs).map(|index| (index, call.input((X, index))));
    let join = |part: &dyn Fn(usize, &'static str) -> String| -> String {
        inputs().map(|(index, input)| part(index, input.c_type())).collect()
    };
    let (statements, result) = statements(chain);
    let mut defines = format!("typedef {} Y;\n#define WIDTH {width}\n", y.c_type());
    for (name, text) in [
        ("PARAMETERS", join(&|index, c_type| format!("const {c_type}* x{index}, "))),
        (
            "LOAD_PACKS",
            join(&|index, _| format!("float p{index}[WIDTH]; load_pack<WIDTH>(x{index}, i, p{index}); ")),
        ),
        ("TAKE_PACKED", join(&|index, _| format!("float v{index} = p{index}[j]; "))),
        ("TAKE_ONE", join(&|index, _| format!("float v{index} = load(x{index}, i); "))),
        ("CHAIN", statements),
        ("RESULT", result),
    ] {
        writeln!(defines, "#define {name} {text}").expect("a text takes what is written to it");
    }
    let mut arguments: Vec<_> = inputs().map(|(_, input)| input.pointer()).collect();
    arguments.extend([y.pointer(), long(y.elements)]);
    Kernel {
        source: Source { text: TEXT, defines },
        entry: "elementwise",
        blocks: blocks_for(y.elements.div_ceil(width)),
        threads: THREADS,
        arguments,
    }
    .into()
}

/// The links of a chain as statements over floats `v0`, `v1`, … of which the inputs are there already, and
/// the name of the result.
pub(super) fn statements(chain: &Chain) -> (String, String) {
    let mut text = String::new();
    for (index, link) in chain.links.iter().enumerate() {
        let value = match *link {
            Link::Unary(function, a) => unary(function, &format!("v{a}")),
            Link::Binary(function, a, b) => binary(function, &format!("v{a}"), &format!("v{b}")),
        };
        write!(text, "float v{} = {value}; ", chain.inputs + index)
            .expect("a text takes what is written to it");
    }
    (text, format!("v{}", chain.inputs + chain.links.len() - 1))
}

/// A number that a kernel reads as exactly this float.
pub(super) fn number(value: f32) -> String {
    format!("__int_as_float({:#x})", value.to_bits())
}

fn unary(function: Unary, x: &str) -> String {
    match function {
        Unary::Relu => format!("f_relu({x})"),
        Unary::ReluGeneral { negative_slope, max_value, threshold } => {
            let [negative_slope, most, threshold] = [negative_slope, max_value, threshold].map(number);
            format!("f_relu_general({x}, {negative_slope}, {most}, {threshold})")
        }
        Unary::LeakyRelu(negative_slope) => format!("({x} > 0.0f ? {x} : {} * {x})", number(negative_slope)),
        Unary::Elu(alpha) => format!("({x} > 0.0f ? {x} : {} * expm1f({x}))", number(alpha)),
        Unary::Gelu => format!("({x} * f_normal_distribution({x}))"),
        Unary::Silu => format!("({x} * f_sigmoid({x}))"),
        Unary::Sigmoid => format!("f_sigmoid({x})"),
        Unary::Tanh => format!("tanhf({x})"),
        Unary::Softplus => format!("f_softplus({x})"),
        Unary::Exp => format!("expf({x})"),
        Unary::Log => format!("logf({x})"),
        Unary::Sqrt => format!("sqrtf({x})"),
        Unary::Rsqrt => format!("(1.0f / sqrtf({x}))"),
        Unary::Reciprocal => format!("(1.0f / {x})"),
        Unary::Square => format!("({x} * {x})"),
        Unary::Abs => format!("fabsf({x})"),
        Unary::Power(power) => format!("powf({x}, {})", number(power)),
        Unary::Clip { low, high } => format!("f_clip({x}, {}, {})", number(low), number(high)),
        Unary::Sin => format!("sinf({x})"),
        Unary::Cos => format!("cosf({x})"),
        Unary::Scale(factor) => format!("({} * {x})", number(factor)),
        Unary::Offset(term) => format!("({x} + {})", number(term)),
    }
}

fn binary(function: Binary, a: &str, b: &str) -> String {
    match function {
        Binary::Add => format!("({a} + {b})"),
        Binary::Subtract => format!("({a} - {b})"),
        Binary::Multiply => format!("({a} * {b})"),
        Binary::Divide => format!("({a} / {b})"),
        Binary::Maximum => format!("f_maximum({a}, {b})"),
        Binary::Minimum => format!("f_minimum({a}, {b})"),
        Binary::GreaterEqual => format!("({a} >= {b} ? 1.0f : 0.0f)"),
        Binary::Derivative(of) => derivative(of, a, b),
    }
}

/// `dy f′`, from the input or the output of the function, as `Unary::saves` says.
fn derivative(of: Unary, dy: &str, saved: &str) -> String {
    match of {
        Unary::Relu => format!("({saved} > 0.0f ? {dy} : 0.0f)"),
        Unary::ReluGeneral { negative_slope, max_value, threshold } => {
            let [negative_slope, most, threshold] = [negative_slope, max_value, threshold].map(number);
            format!("({saved} >= {most} ? 0.0f : ({saved} > {threshold} ? {dy} : {negative_slope} * {dy}))")
        }
        Unary::LeakyRelu(negative_slope) => {
            format!("({saved} > 0.0f ? {dy} : {} * {dy})", number(negative_slope))
        }
        Unary::Elu(alpha) => format!("({saved} > 0.0f ? {dy} : {dy} * ({saved} + {}))", number(alpha)),
        Unary::Gelu => {
            format!("({dy} * (f_normal_distribution({saved}) + {saved} * f_normal_density({saved})))")
        }
        Unary::Silu => {
            let s = format!("f_sigmoid({saved})");
            format!("({dy} * {s} * (1.0f + {saved} * (1.0f - {s})))")
        }
        Unary::Sigmoid => format!("({dy} * {saved} * (1.0f - {saved}))"),
        Unary::Tanh => format!("({dy} * (1.0f - {saved} * {saved}))"),
        Unary::Softplus => format!("({dy} * -expm1f(-{saved}))"),
        Unary::Exp => format!("({dy} * {saved})"),
        Unary::Log => format!("({dy} / {saved})"),
        Unary::Sqrt => format!("(0.5f * {dy} / {saved})"),
        Unary::Rsqrt => format!("(-0.5f * {dy} * {saved} * {saved} * {saved})"),
        Unary::Reciprocal => format!("(-{dy} * {saved} * {saved})"),
        Unary::Square => format!("(2.0f * {dy} * {saved})"),
        Unary::Abs => format!("({saved} == 0.0f ? 0.0f : {dy} * copysignf(1.0f, {saved}))"),
        Unary::Power(power) => {
            format!("({dy} * {} * powf({saved}, {}))", number(power), number(power - 1.0))
        }
        Unary::Clip { low, high } => {
            format!("(({saved} < {} || {} < {saved}) ? 0.0f : {dy})", number(low), number(high))
        }
        Unary::Sin => format!("({dy} * cosf({saved}))"),
        Unary::Cos => format!("(-{dy} * sinf({saved}))"),
        Unary::Scale(factor) => format!("({} * {dy})", number(factor)),
        Unary::Offset(_) => dy.to_owned(),
    }
}
