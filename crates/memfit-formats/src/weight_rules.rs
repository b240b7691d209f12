//! Regularizers and constraints of weights, as Keras writes them.

use memfit_ir::{Constraint, Orthogonal, Regularizer};
use serde_json::{Map, Value};

use crate::argument::{ArgumentError, brief};

/// A constraint before the weight's shape is known: its axes may be counted from the end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stay {
    constraint: Constraint,
    axes: Vec<i64>,
}

/// A regularizer: a name, or an object with a class and its arguments. Null is none.
pub(crate) fn regularizer(value: &Value) -> Result<Option<Regularizer>, ArgumentError> {
    let Some((class, config)) = parts(value)? else { return Ok(None) };
    let mut given = Given { config };
    let none = Regularizer::default();
    let found = match class.as_str() {
        "l1" => Regularizer { l1: given.number("l1", 0.01)?, ..none },
        "l2" => Regularizer { l2: given.number("l2", 0.01)?, ..none },
        "l1l2" => Regularizer { l1: given.number("l1", 0.0)?, l2: given.number("l2", 0.0)?, ..none },
        "orthogonalregularizer" => {
            let factor = given.number("factor", 0.01)?;
            let mode = given.config.remove("mode").unwrap_or_else(|| Value::from("rows"));
            if mode != "rows" && mode != "columns" {
                return Err(ArgumentError::wrong("rows or columns", &mode).within("mode"));
            }
            Regularizer { orthogonal: Some(Orthogonal { factor, by_rows: mode == "rows" }), ..none }
        }
        _ => return Err(ArgumentError::unsupported(brief(value), "L1, L2, L1L2 or OrthogonalRegularizer")),
    };
    given.finish()?;
    Ok(Some(found))
}

/// A constraint, likewise.
pub(crate) fn constraint(value: &Value) -> Result<Option<Stay>, ArgumentError> {
    let Some((class, config)) = parts(value)? else { return Ok(None) };
    let mut given = Given { config };
    let axes = [0, 0];
    let constraint = match class.as_str() {
        "nonneg" => Constraint::NonNeg,
        "maxnorm" => Constraint::MaxNorm { max_value: given.number("max_value", 2.0)?, axes },
        "unitnorm" => Constraint::UnitNorm { axes },
        "minmaxnorm" => Constraint::MinMaxNorm {
            min_value: given.number("min_value", 0.0)?,
            max_value: given.number("max_value", 1.0)?,
            rate: given.number("rate", 1.0)?,
            axes,
        },
        _ => {
            let known = "MaxNorm, NonNeg, UnitNorm or MinMaxNorm";
            return Err(ArgumentError::unsupported(brief(value), known));
        }
    };
    let axes = if constraint == Constraint::NonNeg { vec![] } else { given.axes()? };
    given.finish()?;
    Ok(Some(Stay { constraint, axes }))
}

impl Stay {
    /// The constraint of a weight of these dimensions; none where its axes are not neighbours.
    pub fn of(&self, dims: &[usize]) -> Option<Constraint> {
        let rank = i64::try_from(dims.len()).ok()?;
        let places = self.axes.iter().map(|axis| usize::try_from(axis.rem_euclid(rank.max(1))).ok());
        let mut places = places.collect::<Option<Vec<usize>>>()?;
        let in_range = self.axes.iter().all(|axis| (-rank..rank).contains(axis));
        places.sort_unstable();
        let neighbours = places.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let span = match (places.first(), places.last()) {
            (Some(first), Some(last)) if in_range && neighbours => Some([*first, last + 1]),
            (Some(_) | None, Some(_) | None) => None,
        };
        Some(match self.constraint {
            Constraint::NonNeg => Constraint::NonNeg,
            Constraint::MaxNorm { max_value, .. } => Constraint::MaxNorm { max_value, axes: span? },
            Constraint::UnitNorm { .. } => Constraint::UnitNorm { axes: span? },
            Constraint::MinMaxNorm { min_value, max_value, rate, .. } => {
                Constraint::MinMaxNorm { min_value, max_value, rate, axes: span? }
            }
        })
    }

    /// Whether it looks at single elements alone.
    pub fn is_elementwise(&self) -> bool {
        self.constraint == Constraint::NonNeg
    }
}

/// Class, without case and underscores, and arguments.
type Parts = (String, Map<String, Value>);

fn parts(value: &Value) -> Result<Option<Parts>, ArgumentError> {
    let wrong = || ArgumentError::wrong("a name, or an object with class_name and config", value);
    let plain = |name: &str| name.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect();
    match value {
        Value::Null => Ok(None),
        Value::String(name) => Ok(Some((plain(name), Map::new()))),
        Value::Object(object) => {
            let class = object.get("class_name").or_else(|| object.get("class"));
            let class = class.and_then(Value::as_str).ok_or_else(wrong)?;
            let config = object.get("config").and_then(Value::as_object).cloned().unwrap_or_default();
            Ok(Some((plain(class), config)))
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => Err(wrong()),
    }
}

/// Arguments that are taken one after the other, so that what is left over is unknown.
struct Given {
    config: Map<String, Value>,
}

impl Given {
    fn number(&mut self, name: &str, default: f64) -> Result<f32, ArgumentError> {
        let Some(value) = self.config.remove(name) else { return Ok(default as f32) };
        let number = value.as_f64().filter(|number| (0.0..=f64::from(f32::MAX)).contains(number));
        number
            .map(|number| number as f32)
            .ok_or_else(|| ArgumentError::wrong("a number from 0", &value).within(name))
    }

    fn axes(&mut self) -> Result<Vec<i64>, ArgumentError> {
        let value = self.config.remove("axis").unwrap_or_else(|| Value::from(0));
        let list = match &value {
            Value::Array(list) => list.iter().map(Value::as_i64).collect(),
            Value::Number(_) | Value::Null | Value::Bool(_) | Value::String(_) | Value::Object(_) => {
                value.as_i64().map(|axis| vec![axis])
            }
        };
        list.ok_or_else(|| ArgumentError::wrong("an axis or a list of axes", &value).within("axis"))
    }

    fn finish(self) -> Result<(), ArgumentError> {
        match self.config.into_iter().next() {
            None => Ok(()),
            Some((name, value)) => Err(ArgumentError::unsupported(brief(&value), "nothing").within(&name)),
        }
    }
}

/// The argument of a layer that speaks of a weight: `kernel_regularizer` of `kernel`, `recurrent_regularizer` of
/// `recurrent_kernel`, and `depthwise_regularizer` of the kernel of a depthwise convolution.
pub(crate) fn arguments_of(weight: &str, what: &str) -> [String; 3] {
    let last = weight.rsplit('/').next().unwrap_or(weight);
    let short = last.strip_suffix("_kernel").unwrap_or(last);
    let depthwise = if last == "kernel" { "depthwise" } else { last };
    [format!("{last}_{what}"), format!("{short}_{what}"), format!("{depthwise}_{what}")]
}
