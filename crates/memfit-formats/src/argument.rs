//! Arguments of layers, as the table describes them, and what can be wrong with given ones.

use serde_json::Value;

use crate::error::Fault;

/// One argument of a layer class.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// Keras's name of it.
    pub name: &'static str,
    /// What it may be.
    pub expects: Expects,
    /// What it is where it is not given, as JSON; nothing where it must be given.
    pub default: Option<&'static str>,
}

/// What an argument may be.
#[derive(Clone, Copy, Debug)]
pub enum Expects {
    /// A whole number from 1.
    Size,
    /// One whole number from 1 for both axes, or two.
    Pair,
    /// One whole number from 1 for all three axes, or three.
    Triple,
    /// Margins of three axes: one for all sides, three for the axes, or three pairs for the sides.
    Sides,
    /// A whole number from 1 for the one axis there is, or a list of one.
    Single,
    /// Margins of the one axis there is: one for both ends, or two.
    Ends,
    /// A number, or a list of numbers.
    Numbers,
    /// Margins: one for all sides, two for the axes, or two pairs for the sides.
    Margins,
    /// A number with `least ≤ number < below`.
    Number {
        /// The smallest.
        least: f64,
        /// The number stays below this.
        below: f64,
    },
    /// Two numbers, or one for as much below 0 as above.
    Range,
    /// True or false.
    Flag,
    /// Any text.
    Text,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// Dimensions; -1 or null for one that is not given.
    Dims,
    /// As dimensions; one of them may stand alone.
    DimsOrOne,
    /// An axis, the batch being axis 0.
    Axis,
    /// An axis or a list of axes, the batch being axis 0.
    Axes,
    /// The name of an activation, or a layer that is one.
    Activation,
    /// The activation of a recurrent layer: one whose derivative follows from its value.
    Gate,
    /// A share from 0 to below 1 that only inference takes: in training it must be 0.
    ShareAtInference,
    /// The name of an initializer, or one with arguments.
    Initializer,
    /// A layer within the layer.
    Layer,
    /// A cell of a recurrent layer, or a stack of them.
    Cells,
    /// A seed; null for one that is derived from the run's.
    Seed,
    /// A dtype policy; null for the model's.
    Policy,
    /// What a weight adds to the loss; null for nothing.
    Regularizer,
    /// Where a weight must stay; null for anywhere.
    Constraint,
    /// Null, or this.
    Maybe(&'static Expects),
    /// Null or false: Keras has more, memfit does not.
    Nothing,
}

/// Sizes of windows, strides and margins stay below this, so that no sum of them overflows.
pub(crate) const SIDE_LIMIT: u64 = 1 << 16;
/// Other sizes stay below this.
pub(crate) const SIZE_LIMIT: u64 = 1 << 31;

impl Argument {
    /// Whether Keras has it and memfit has not: only null and false are taken.
    pub fn is_refused(&self) -> bool {
        matches!(self.expects, Expects::Nothing)
    }

    /// An argument that must be given.
    pub(crate) const fn required(name: &'static str, expects: Expects) -> Argument {
        Argument { name, expects, default: None }
    }

    /// An argument with a default, as JSON.
    pub(crate) const fn optional(name: &'static str, expects: Expects, default: &'static str) -> Argument {
        Argument { name, expects, default: Some(default) }
    }

    /// An argument that Keras has and memfit has not.
    pub(crate) const fn refused(name: &'static str) -> Argument {
        Argument::optional(name, Expects::Nothing, "null")
    }

    /// A regularizer or a constraint of a weight by its name, or else one that memfit has not.
    pub(crate) const fn of_weight_or_refused(name: &'static str) -> Argument {
        let expects = if ends_with(name, "_regularizer") {
            Expects::Regularizer
        } else if ends_with(name, "_constraint") {
            Expects::Constraint
        } else {
            Expects::Nothing
        };
        Argument::optional(name, expects, "null")
    }
}

/// `str::ends_with`, before the program runs.
const fn ends_with(text: &str, end: &str) -> bool {
    let (text, end) = (text.as_bytes(), end.as_bytes());
    let mut left = end.len();
    if text.len() < left {
        return false;
    }
    while 0 < left {
        left -= 1;
        if text[text.len() - end.len() + left] != end[left] {
            return false;
        }
    }
    true
}

/// What is wrong with which argument. The reader of layers adds the layer's name.
#[derive(Debug)]
pub(crate) struct ArgumentError {
    /// The argument's name, empty while the reader of values speaks.
    pub argument: String,
    pub fault: Fault,
}

impl ArgumentError {
    /// A value of the wrong type or out of range.
    pub fn wrong(expected: impl Into<String>, got: &Value) -> ArgumentError {
        let fault = Fault::Wrong { expected: expected.into(), got: brief(got) };
        ArgumentError { argument: String::new(), fault }
    }

    /// A value that Keras knows and memfit does not.
    pub fn unsupported(value: impl Into<String>, supported: impl Into<String>) -> ArgumentError {
        let fault = Fault::Unsupported { value: value.into(), supported: supported.into() };
        ArgumentError { argument: String::new(), fault }
    }

    /// The same fault, seen from the object around the argument.
    pub fn within(self, outer: &str) -> ArgumentError {
        let argument =
            if self.argument.is_empty() { outer.to_owned() } else { format!("{outer}.{}", self.argument) };
        ArgumentError { argument, ..self }
    }
}

impl Expects {
    /// What to give, in words.
    pub fn describe(&self) -> String {
        match self {
            Expects::Size => format!("a whole number from 1 to {}", SIZE_LIMIT - 1),
            Expects::Pair => format!("one or two whole numbers from 1 to {}", SIDE_LIMIT - 1),
            Expects::Triple => format!("one or three whole numbers from 1 to {}", SIDE_LIMIT - 1),
            Expects::Sides => "a margin, three margins [depth, height, width], or a pair for each".to_owned(),
            Expects::Single => format!("a whole number from 1 to {}", SIDE_LIMIT - 1),
            Expects::Ends => "a margin, or two margins [before, after]".to_owned(),
            Expects::Numbers => "a number or a list of numbers".to_owned(),
            Expects::Margins => {
                "a margin, two margins [height, width], or [[top, bottom], [left, right]]".to_owned()
            }
            Expects::Number { least, below } => match (least.is_finite(), below.is_finite()) {
                (false, false) => "a number".to_owned(),
                (false, true) => format!("a number below {below}"),
                (true, false) => format!("a number from {least}"),
                (true, true) => format!("a number from {least} to below {below}"),
            },
            Expects::Range => "a number, or two numbers [low, high]".to_owned(),
            Expects::Flag => "true or false".to_owned(),
            Expects::Text => "a text".to_owned(),
            Expects::OneOf(texts) => texts.join(" or "),
            Expects::Dims => format!("a list of whole numbers from 1 to {}", SIZE_LIMIT - 1),
            Expects::DimsOrOne => {
                format!("a whole number from 1 to {}, or a list of them", SIZE_LIMIT - 1)
            }
            Expects::Axis => "an axis".to_owned(),
            Expects::Axes => "an axis or a list of axes".to_owned(),
            Expects::Activation => "the name of an activation".to_owned(),
            Expects::Gate => "tanh, sigmoid, relu or linear".to_owned(),
            Expects::ShareAtInference => "0 in training; evaluation and prediction ignore it".to_owned(),
            Expects::Initializer => {
                "the name of an initializer, or an object with class_name and config".to_owned()
            }
            Expects::Layer => "a layer, as an object with class_name and config".to_owned(),
            Expects::Cells => "LSTMCell, GRUCell, SimpleRNNCell, or StackedRNNCells of them".to_owned(),
            Expects::Seed => "a whole number from 0, or null".to_owned(),
            Expects::Policy => "float32, mixed_float16 or mixed_bfloat16".to_owned(),
            Expects::Regularizer => "L1, L2, L1L2 or OrthogonalRegularizer, or null".to_owned(),
            Expects::Constraint => "MaxNorm, NonNeg, UnitNorm or MinMaxNorm, or null".to_owned(),
            Expects::Maybe(inner) => format!("{}, or null", inner.describe()),
            Expects::Nothing => "null".to_owned(),
        }
    }
}

/// A value as a message shows it.
pub(crate) fn brief(value: &Value) -> String {
    const LONGEST: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
