//! A chain of elementwise work that runs as one op: a few links over values that stay in registers.

use std::fmt;

/// A little program over elements: inputs are values `0..inputs`, every link defines the next value,
/// and the last value is the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// How many tensors of one shape the chain reads.
    pub inputs: usize,
    /// The links, in order; there is at least one.
    pub links: Vec<Link>,
}

/// One link of a chain; operands are indices of earlier values.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// A function of one value.
    Unary(Unary, usize),
    /// A function of two values.
    Binary(Binary, usize, usize),
}

/// Functions of one element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// `max(x, 0)`.
    Relu,
    /// Keras's `ReLU` with all its arguments.
    ReluGeneral {
        /// Slope below the threshold.
        negative_slope: f32,
        /// Saturation; infinite for none.
        max_value: f32,
        /// Where the slope changes.
        threshold: f32,
    },
    /// `x` above 0, `slope · x` below.
    LeakyRelu(f32),
    /// `x` above 0, `alpha (eˣ − 1)` below.
    Elu(f32),
    /// `x Φ(x)`, by the error function.
    Gelu,
    /// `x σ(x)`.
    Silu,
    /// `σ(x) = 1 / (1 + e⁻ˣ)`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `ln(1 + eˣ)`.
    Softplus,
    /// `eˣ`.
    Exp,
    /// The natural logarithm.
    Log,
    /// `√x`.
    Sqrt,
    /// `1 / √x`.
    Rsqrt,
    /// `1 / x`.
    Reciprocal,
    /// `x²`.
    Square,
    /// `|x|`.
    Abs,
    /// `xᵖ`.
    Power(f32),
    /// Into `[low, high]`.
    Clip {
        /// The least.
        low: f32,
        /// The most.
        high: f32,
    },
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// `factor · x`.
    Scale(f32),
    /// `x + term`.
    Offset(f32),
}

/// Functions of two elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Binary {
    /// `a + b`.
    Add,
    /// `a − b`.
    Subtract,
    /// `a · b`.
    Multiply,
    /// `a / b`.
    Divide,
    /// The larger.
    Maximum,
    /// The smaller.
    Minimum,
    /// 1 where `a ≥ b`, else 0.
    GreaterEqual,
    /// `a · f′`, with `b` being what [`Unary::saves`] says of `f`.
    Derivative(Unary),
}

/// What the derivative of a function is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saves {
    /// Neither: the derivative is constant.
    Nothing,
    /// The function's argument.
    Input,
    /// The function's value.
    Output,
}

impl Chain {
    /// The chain of a single function of one tensor.
    pub fn unary(function: Unary) -> Chain {
        Chain { inputs: 1, links: vec![Link::Unary(function, 0)] }
    }

    /// The chain of a single function of two tensors.
    pub fn binary(function: Binary) -> Chain {
        Chain { inputs: 2, links: vec![Link::Binary(function, 0, 1)] }
    }

    /// `x · scale + offset`.
    pub fn affine(scale: f32, offset: f32) -> Chain {
        Chain {
            inputs: 1,
            links: vec![Link::Unary(Unary::Scale(scale), 0), Link::Unary(Unary::Offset(offset), 1)],
        }
    }

    /// One function applied to all inputs in turn, from the left.
    pub fn fold(function: Binary, inputs: usize) -> Chain {
        let links =
            (1..inputs).map(|i| Link::Binary(function, if i == 1 { 0 } else { inputs + i - 2 }, i)).collect();
        Chain { inputs, links }
    }

    /// Whether every operand is an earlier value and there is a result.
    pub fn is_well_formed(&self) -> bool {
        self.inputs > 0
            && !self.links.is_empty()
            && self.links.iter().enumerate().all(|(i, link)| match *link {
                Link::Unary(_, a) => a < self.inputs + i,
                Link::Binary(_, a, b) => a < self.inputs + i && b < self.inputs + i,
            })
    }
}

impl Unary {
    /// What the derivative needs: the output where that suffices, since the next layer often keeps it too.
    pub fn saves(self) -> Saves {
        match self {
            Unary::Relu
            | Unary::LeakyRelu(_)
            | Unary::Elu(_)
            | Unary::Sigmoid
            | Unary::Tanh
            | Unary::Softplus
            | Unary::Exp
            | Unary::Sqrt
            | Unary::Rsqrt
            | Unary::Reciprocal => Saves::Output,
            // Without a threshold the output lies on the same side of 0 and of the roof as the input.
            Unary::ReluGeneral { threshold: 0.0, negative_slope, .. } if negative_slope >= 0.0 => {
                Saves::Output
            }
            Unary::ReluGeneral { .. }
            | Unary::Gelu
            | Unary::Silu
            | Unary::Log
            | Unary::Square
            | Unary::Abs
            | Unary::Power(_)
            | Unary::Clip { .. }
            | Unary::Sin
            | Unary::Cos => Saves::Input,
            Unary::Scale(_) | Unary::Offset(_) => Saves::Nothing,
        }
    }
}

impl fmt::Display for Chain {
    /// The chain as one expression over `a, b, c, …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = (b'a'..=b'z').map(|letter| char::from(letter).to_string());
        let mut values: Vec<String> = letters.take(self.inputs).collect();
        for link in &self.links {
            values.push(match *link {
                Link::Unary(function, a) => function.apply(&values[a]),
                Link::Binary(function, a, b) => match function {
                    Binary::Add => format!("({} + {})", values[a], values[b]),
                    Binary::Subtract => format!("({} - {})", values[a], values[b]),
                    Binary::Multiply => format!("{} * {}", values[a], values[b]),
                    Binary::Divide => format!("({} / {})", values[a], values[b]),
                    Binary::Maximum => format!("max({}, {})", values[a], values[b]),
                    Binary::Minimum => format!("min({}, {})", values[a], values[b]),
                    Binary::GreaterEqual => format!("({} >= {})", values[a], values[b]),
                    Binary::Derivative(of) => format!("{} * d{}", values[a], of.apply(&values[b])),
                },
            });
        }
        f.write_str(values.last().map_or("", String::as_str))
    }
}

impl Unary {
    fn apply(self, a: &str) -> String {
        match self {
            Unary::Relu => format!("relu({a})"),
            Unary::ReluGeneral { negative_slope, max_value, threshold } => {
                format!("relu({a}, {negative_slope}, {max_value}, {threshold})")
            }
            Unary::LeakyRelu(slope) => format!("leaky_relu({a}, {slope})"),
            Unary::Elu(alpha) => format!("elu({a}, {alpha})"),
            Unary::Gelu => format!("gelu({a})"),
            Unary::Silu => format!("silu({a})"),
            Unary::Sigmoid => format!("sigmoid({a})"),
            Unary::Tanh => format!("tanh({a})"),
            Unary::Softplus => format!("softplus({a})"),
            Unary::Exp => format!("exp({a})"),
            Unary::Log => format!("log({a})"),
            Unary::Sqrt => format!("sqrt({a})"),
            Unary::Rsqrt => format!("rsqrt({a})"),
            Unary::Reciprocal => format!("1 / {a}"),
            Unary::Square => format!("square({a})"),
            Unary::Abs => format!("abs({a})"),
            Unary::Power(power) => format!("power({a}, {power})"),
            Unary::Clip { low, high } => format!("clip({a}, {low}, {high})"),
            Unary::Sin => format!("sin({a})"),
            Unary::Cos => format!("cos({a})"),
            Unary::Scale(factor) => format!("{factor} * {a}"),
            Unary::Offset(term) => format!("({a} + {term})"),
        }
    }
}
