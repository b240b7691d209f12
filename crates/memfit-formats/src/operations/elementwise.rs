//! Functions of every element by itself, of one tensor or of two, or of a tensor and a number.

use memfit_ir::{Binary, Chain, Link, Op, TensorId, Unary};
use serde_json::Value;

use super::constants::Constant;
use super::{Call, Given};
use crate::error::FormatError;
use crate::layers::merge;

/// The functions, as far as they differ in what they are called with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Named(Named),
    Elu,
    LeakyRelu,
    Gelu,
    Clip,
    Cast,
    Two(Two),
}

/// Functions of one tensor that take nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Abs,
    Exp,
    Log,
    Sqrt,
    Rsqrt,
    Square,
    Negative,
    Reciprocal,
    Sin,
    Cos,
    Relu,
    Relu6,
    Sigmoid,
    Tanh,
    Silu,
    Softplus,
    LogSigmoid,
    HardSigmoid,
    Selu,
    Softsign,
}

/// Functions of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Two {
    Add,
    Subtract,
    Multiply,
    Divide,
    Maximum,
    Minimum,
    Power,
}

pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("Abs", Function::Named(Named::Abs)),
    ("Absolute", Function::Named(Named::Abs)),
    ("Exp", Function::Named(Named::Exp)),
    ("Log", Function::Named(Named::Log)),
    ("Sqrt", Function::Named(Named::Sqrt)),
    ("Rsqrt", Function::Named(Named::Rsqrt)),
    ("Square", Function::Named(Named::Square)),
    ("Negative", Function::Named(Named::Negative)),
    ("Reciprocal", Function::Named(Named::Reciprocal)),
    ("Sin", Function::Named(Named::Sin)),
    ("Cos", Function::Named(Named::Cos)),
    ("Relu", Function::Named(Named::Relu)),
    ("Relu6", Function::Named(Named::Relu6)),
    ("Sigmoid", Function::Named(Named::Sigmoid)),
    ("Tanh", Function::Named(Named::Tanh)),
    ("Silu", Function::Named(Named::Silu)),
    ("Softplus", Function::Named(Named::Softplus)),
    ("LogSigmoid", Function::Named(Named::LogSigmoid)),
    ("HardSigmoid", Function::Named(Named::HardSigmoid)),
    ("Selu", Function::Named(Named::Selu)),
    ("Softsign", Function::Named(Named::Softsign)),
    ("Elu", Function::Elu),
    ("LeakyRelu", Function::LeakyRelu),
    ("Gelu", Function::Gelu),
    ("Clip", Function::Clip),
    ("Cast", Function::Cast),
    ("Add", Function::Two(Two::Add)),
    ("Subtract", Function::Two(Two::Subtract)),
    ("Multiply", Function::Two(Two::Multiply)),
    ("Divide", Function::Two(Two::Divide)),
    ("TrueDivide", Function::Two(Two::Divide)),
    ("Maximum", Function::Two(Two::Maximum)),
    ("Minimum", Function::Two(Two::Minimum)),
    ("Power", Function::Two(Two::Power)),
];

impl Call<'_, '_> {
    pub(super) fn elementwise(&mut self, function: Function) -> Result<TensorId, FormatError> {
        let functions: Vec<Unary> = match function {
            Function::Two(function) => return self.of_two(function),
            Function::Gelu => return self.gelu(),
            Function::Named(Named::Softsign) => return self.softsign(),
            Function::Named(function) => named(function).to_vec(),
            Function::Elu => vec![Unary::Elu(self.number("alpha", 1.0)? as f32)],
            Function::LeakyRelu => vec![Unary::LeakyRelu(self.number("negative_slope", 0.2)? as f32)],
            Function::Clip => vec![Unary::Clip {
                low: self.number("x_min", f64::NEG_INFINITY)? as f32,
                high: self.number("x_max", f64::INFINITY)? as f32,
            }],
            Function::Cast => {
                let dtype = self.argument("dtype");
                if dtype != "float32" {
                    return Err(self.refuse("dtype", dtype, "float32; a layer's policy chooses other types"));
                }
                return self.single();
            }
        };
        let x = self.single()?;
        self.chained(x, &functions)
    }

    /// Functions one after the other.
    pub(super) fn chained(&mut self, x: TensorId, functions: &[Unary]) -> Result<TensorId, FormatError> {
        let links =
            functions.iter().enumerate().map(|(place, function)| Link::Unary(*function, place)).collect();
        self.site.push(Op::Elementwise(Chain { inputs: 1, links }), &[x])
    }

    /// By the error function, or as `x σ(c (x + 0.044715 x³))` with `c = 2 √(2/π)`.
    fn gelu(&mut self) -> Result<TensorId, FormatError> {
        let x = self.single()?;
        if self.argument("approximate") == &Value::Bool(false) {
            return self.chained(x, &[Unary::Gelu]);
        }
        let factor = 2.0 * std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2;
        let links = vec![
            Link::Unary(Unary::Square, 0),
            Link::Unary(Unary::Scale(0.044_715 * factor), 1),
            Link::Unary(Unary::Offset(factor), 2),
            Link::Binary(Binary::Multiply, 3, 0),
            Link::Unary(Unary::Sigmoid, 4),
            Link::Binary(Binary::Multiply, 5, 0),
        ];
        self.site.push(Op::Elementwise(Chain { inputs: 1, links }), &[x])
    }

    /// `x / (1 + |x|)`.
    fn softsign(&mut self) -> Result<TensorId, FormatError> {
        let x = self.single()?;
        let links = vec![
            Link::Unary(Unary::Abs, 0),
            Link::Unary(Unary::Offset(1.0), 1),
            Link::Binary(Binary::Divide, 0, 2),
        ];
        self.site.push(Op::Elementwise(Chain { inputs: 1, links }), &[x])
    }

    fn of_two(&mut self, function: Two) -> Result<TensorId, FormatError> {
        match (self.given, self.operands) {
            ([Given::Tensor, Given::Tensor], [a, b]) => self.of_tensors(function, *a, *b),
            ([Given::Tensor, Given::Constant(value)], [x]) => {
                if let Some(made) = self.with_numbers(function, *x, value, false)? {
                    return Ok(made);
                }
                let number = self.constant(value)?;
                self.chained(*x, &with_number_behind(function, number))
            }
            ([Given::Constant(value), Given::Tensor], [x]) => {
                if let Some(made) = self.with_numbers(function, *x, value, true)? {
                    return Ok(made);
                }
                let number = self.constant(value)?;
                let functions = with_number_before(function, number).ok_or_else(|| {
                    self.refuse("call", value, "a positive base, or a number after the tensor")
                })?;
                self.chained(*x, &functions)
            }
            _ => Err(self.refuse("call", &Value::from(self.given.len()), "two tensors, or one and a number")),
        }
    }

    fn of_tensors(&mut self, function: Two, a: TensorId, b: TensorId) -> Result<TensorId, FormatError> {
        // Operators align shapes from the last axis, layers from the first; with one rank both do the same.
        if self.dims(a).len() != self.dims(b).len() {
            return Err(self.site.mismatch("operands with the same number of axes", b));
        }
        let binary = match function {
            Two::Add => Binary::Add,
            Two::Subtract => Binary::Subtract,
            Two::Multiply => Binary::Multiply,
            Two::Divide => Binary::Divide,
            Two::Maximum => Binary::Maximum,
            Two::Minimum => Binary::Minimum,
            Two::Power => {
                return Err(self.refuse("call", &Value::from("a tensor"), "a number as the power"));
            }
        };
        merge(self.site, Chain::binary(binary), &[a, b])
    }

    /// What a tensor and several numbers make; none where there are not several.
    fn with_numbers(
        &mut self,
        function: Two,
        x: TensorId,
        value: &Value,
        numbers_first: bool,
    ) -> Result<Option<TensorId>, FormatError> {
        let several = Constant::read(value).filter(|constant| constant.single().is_none());
        let Some(numbers) = several else { return Ok(None) };
        match self.with_constant(function, x, &numbers, numbers_first)? {
            Some(made) => Ok(Some(made)),
            None => {
                let supported =
                    "numbers that stretch over the tensor, to add, subtract, multiply or divide by";
                Err(self.refuse("call", value, supported))
            }
        }
    }

    fn constant(&self, value: &Value) -> Result<f32, FormatError> {
        let single = Constant::read(value).and_then(|constant| constant.single());
        if let Some(number) = single {
            return Ok(number);
        }
        let number = value.as_f64().filter(|number| number.abs() <= f64::from(f32::MAX));
        let number = number.ok_or_else(|| self.refuse("call", value, "numbers and tensors of the model"))?;
        Ok(number as f32)
    }
}

fn named(function: Named) -> &'static [Unary] {
    match function {
        Named::Abs => &[Unary::Abs],
        Named::Exp => &[Unary::Exp],
        Named::Log => &[Unary::Log],
        Named::Sqrt => &[Unary::Sqrt],
        Named::Rsqrt => &[Unary::Rsqrt],
        Named::Square => &[Unary::Square],
        Named::Negative => &[Unary::Scale(-1.0)],
        Named::Reciprocal => &[Unary::Reciprocal],
        Named::Sin => &[Unary::Sin],
        Named::Cos => &[Unary::Cos],
        Named::Relu => &[Unary::Relu],
        Named::Relu6 => &[Unary::ReluGeneral { negative_slope: 0.0, max_value: 6.0, threshold: 0.0 }],
        Named::Sigmoid => &[Unary::Sigmoid],
        Named::Tanh => &[Unary::Tanh],
        Named::Silu => &[Unary::Silu],
        Named::Softplus => &[Unary::Softplus],
        Named::LogSigmoid => &[Unary::Scale(-1.0), Unary::Softplus, Unary::Scale(-1.0)],
        Named::HardSigmoid => {
            &[Unary::Scale(1.0 / 6.0), Unary::Offset(0.5), Unary::Clip { low: 0.0, high: 1.0 }]
        }
        Named::Selu => &[Unary::Elu(1.673_263_2), Unary::Scale(1.050_701)],
        // It reads its argument twice and is no row of functions.
        Named::Softsign => &[],
    }
}

/// `x ∘ number`.
fn with_number_behind(function: Two, number: f32) -> Vec<Unary> {
    match function {
        Two::Add => vec![Unary::Offset(number)],
        Two::Subtract => vec![Unary::Offset(-number)],
        Two::Multiply => vec![Unary::Scale(number)],
        Two::Divide => vec![Unary::Scale(1.0 / number)],
        Two::Maximum => vec![Unary::Clip { low: number, high: f32::INFINITY }],
        Two::Minimum => vec![Unary::Clip { low: f32::NEG_INFINITY, high: number }],
        Two::Power if number == 2.0 => vec![Unary::Square],
        Two::Power if number == 0.5 => vec![Unary::Sqrt],
        Two::Power if number == -0.5 => vec![Unary::Rsqrt],
        Two::Power if number == -1.0 => vec![Unary::Reciprocal],
        Two::Power => vec![Unary::Power(number)],
    }
}

/// `number ∘ x`; nothing for a power of what is not positive.
fn with_number_before(function: Two, number: f32) -> Option<Vec<Unary>> {
    match function {
        Two::Subtract => Some(vec![Unary::Scale(-1.0), Unary::Offset(number)]),
        Two::Divide => Some(vec![Unary::Reciprocal, Unary::Scale(number)]),
        Two::Power => (number > 0.0).then(|| vec![Unary::Scale(number.ln()), Unary::Exp]),
        Two::Add | Two::Multiply | Two::Maximum | Two::Minimum => Some(with_number_behind(function, number)),
    }
}
