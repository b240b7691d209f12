//! How weights begin: Keras's initializers, turned into draws once the weight's shape is known.

use memfit_ir::Initializer;
use serde_json::{Map, Value};

use crate::argument::{Argument, ArgumentError, Expects};
use crate::settings::Settings;

/// An initializer before the weight's shape is known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Start {
    distribution: Distribution,
    seed: Option<u64>,
}

impl Start {
    /// One number everywhere.
    pub fn constant(value: f64) -> Start {
        Start { distribution: Distribution::Constant(value), seed: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Distribution {
    Constant(f64),
    Uniform {
        low: f64,
        high: f64,
    },
    Normal {
        mean: f64,
        stddev: f64,
    },
    TruncatedNormal {
        mean: f64,
        stddev: f64,
    },
    VarianceScaling {
        scale: f64,
        fan: Fan,
        form: Form,
    },
    Orthogonal {
        gain: f64,
    },
    /// Ones between two indices, zeros elsewhere.
    Ones {
        start: usize,
        end: usize,
    },
}

/// Which number of connections the variance is divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fan {
    In,
    Out,
    Average,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Uniform,
    Normal,
    TruncatedNormal,
}

/// Standard deviation of a normal distribution that is cut at two standard deviations.
const TRUNCATED_DEVIATION: f64 = 0.879_625_661_034_239_8;

/// An initializer by name: what it takes, and how its distribution follows from that.
struct Row {
    name: &'static str,
    arguments: &'static [Argument],
    distribution: fn(&Settings) -> Distribution,
}

const ANY: Expects = Expects::Number { least: f64::NEG_INFINITY, below: f64::INFINITY };
const FROM_ZERO: Expects = Expects::Number { least: 0.0, below: f64::INFINITY };
const SEED: Argument = Argument::optional("seed", Expects::Seed, "null");
const MEAN: Argument = Argument::optional("mean", ANY, "0");
const STDDEV: Argument = Argument::optional("stddev", FROM_ZERO, "0.05");
const NAMED_SCALING: &[Argument] = &[SEED, Argument::refused("input_axes"), Argument::refused("output_axes")];

const INITIALIZERS: &[Row] = &[
    Row { name: "Zeros", arguments: &[], distribution: |_| Distribution::Constant(0.0) },
    Row { name: "Ones", arguments: &[], distribution: |_| Distribution::Constant(1.0) },
    Row {
        name: "Constant",
        arguments: &[Argument::optional("value", ANY, "0")],
        distribution: |settings| Distribution::Constant(settings.number("value")),
    },
    Row {
        name: "RandomUniform",
        arguments: &[
            Argument::optional("minval", ANY, "-0.05"),
            Argument::optional("maxval", ANY, "0.05"),
            SEED,
        ],
        distribution: |settings| Distribution::Uniform {
            low: settings.number("minval"),
            high: settings.number("maxval"),
        },
    },
    Row {
        name: "RandomNormal",
        arguments: &[MEAN, STDDEV, SEED],
        distribution: |settings| Distribution::Normal {
            mean: settings.number("mean"),
            stddev: settings.number("stddev"),
        },
    },
    Row {
        name: "TruncatedNormal",
        arguments: &[MEAN, STDDEV, SEED],
        distribution: |settings| Distribution::TruncatedNormal {
            mean: settings.number("mean"),
            stddev: settings.number("stddev"),
        },
    },
    Row {
        name: "VarianceScaling",
        arguments: &[
            Argument::optional("scale", FROM_ZERO, "1"),
            Argument::optional("mode", Expects::OneOf(&["fan_in", "fan_out", "fan_avg"]), r#""fan_in""#),
            Argument::optional("distribution", Expects::OneOf(FORMS), r#""truncated_normal""#),
            SEED,
            Argument::refused("input_axes"),
            Argument::refused("output_axes"),
        ],
        distribution: variance_scaling,
    },
    Row {
        name: "GlorotUniform",
        arguments: NAMED_SCALING,
        distribution: |_| scaling(1.0, Fan::Average, Form::Uniform),
    },
    Row {
        name: "GlorotNormal",
        arguments: NAMED_SCALING,
        distribution: |_| scaling(1.0, Fan::Average, Form::TruncatedNormal),
    },
    Row {
        name: "HeUniform",
        arguments: NAMED_SCALING,
        distribution: |_| scaling(2.0, Fan::In, Form::Uniform),
    },
    Row {
        name: "HeNormal",
        arguments: NAMED_SCALING,
        distribution: |_| scaling(2.0, Fan::In, Form::TruncatedNormal),
    },
    Row {
        name: "LecunUniform",
        arguments: NAMED_SCALING,
        distribution: |_| scaling(1.0, Fan::In, Form::Uniform),
    },
    Row {
        name: "LecunNormal",
        arguments: NAMED_SCALING,
        distribution: |_| scaling(1.0, Fan::In, Form::TruncatedNormal),
    },
    Row {
        name: "Orthogonal",
        arguments: &[Argument::optional("gain", FROM_ZERO, "1"), SEED],
        distribution: |settings| Distribution::Orthogonal { gain: settings.number("gain") },
    },
];

const FORMS: &[&str] = &["uniform", "normal", "truncated_normal", "untruncated_normal"];

const fn scaling(scale: f64, fan: Fan, form: Form) -> Distribution {
    Distribution::VarianceScaling { scale, fan, form }
}

fn variance_scaling(settings: &Settings) -> Distribution {
    let fan = match settings.choice("mode") {
        "fan_in" => Fan::In,
        "fan_out" => Fan::Out,
        _ => Fan::Average,
    };
    // Keras's "normal" is the truncated one.
    let form = match settings.choice("distribution") {
        "uniform" => Form::Uniform,
        "untruncated_normal" => Form::Normal,
        _ => Form::TruncatedNormal,
    };
    scaling(settings.number("scale"), fan, form)
}

impl Start {
    /// An initializer as an argument gives it: a name, or an object with `class_name` and `config`.
    pub fn read(value: &Value) -> Result<Start, ArgumentError> {
        let empty = Map::new();
        let (name, arguments) = match value {
            Value::String(name) => (name.as_str(), &empty),
            Value::Object(object) => match (object.get("class_name"), object.get("config")) {
                (Some(Value::String(name)), Some(Value::Object(arguments))) => (name.as_str(), arguments),
                (Some(Value::String(name)), None | Some(Value::Null)) => (name.as_str(), &empty),
                _ => return Err(ArgumentError::wrong(Expects::Initializer.describe(), value)),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                return Err(ArgumentError::wrong(Expects::Initializer.describe(), value));
            }
        };
        let row = find(name).ok_or_else(|| unsupported(name))?;
        // What every layer has (`name`, `dtype`) does no harm in an initializer.
        let settings = Settings::read(row.arguments, arguments)?;
        let seeded = row.arguments.iter().any(|argument| argument.name == SEED.name);
        let seed = if seeded { settings.seed(SEED.name) } else { None };
        Ok(Start { distribution: (row.distribution)(&settings), seed })
    }

    /// The same with ones at some places; nothing where it is not zeros.
    pub fn with_ones(&self, places: std::ops::Range<usize>) -> Option<Start> {
        let is_zero = self.distribution == Distribution::Constant(0.0);
        let distribution = Distribution::Ones { start: places.start, end: places.end };
        is_zero.then_some(Start { distribution, seed: None })
    }

    /// How a weight begins that Keras gives `shape`; `seed` is used where the initializer has none.
    pub fn initializer(&self, shape: &[usize], seed: u64) -> Initializer {
        let seed = self.seed.unwrap_or(seed);
        match self.distribution {
            Distribution::Constant(value) => Initializer::Constant(value as f32),
            Distribution::Uniform { low, high } => {
                Initializer::Uniform { low: low as f32, high: high as f32, seed }
            }
            Distribution::Normal { mean, stddev } => {
                Initializer::Normal { mean: mean as f32, stddev: stddev as f32, seed }
            }
            Distribution::TruncatedNormal { mean, stddev } => {
                Initializer::TruncatedNormal { mean: mean as f32, stddev: stddev as f32, seed }
            }
            Distribution::Orthogonal { gain } => Initializer::Orthogonal {
                gain: gain as f32,
                columns: shape.last().copied().unwrap_or(1),
                seed,
            },
            Distribution::Ones { start, end } => Initializer::Ones { start, end },
            Distribution::VarianceScaling { scale, fan, form } => {
                let variance = scale / connections(shape, fan).max(1.0);
                match form {
                    Form::Uniform => {
                        let limit = (3.0 * variance).sqrt() as f32;
                        Initializer::Uniform { low: -limit, high: limit, seed }
                    }
                    Form::Normal => Initializer::Normal { mean: 0.0, stddev: variance.sqrt() as f32, seed },
                    Form::TruncatedNormal => {
                        let stddev = (variance.sqrt() / TRUNCATED_DEVIATION) as f32;
                        Initializer::TruncatedNormal { mean: 0.0, stddev, seed }
                    }
                }
            }
        }
    }
}

/// Connections of one unit, as Keras counts them: the last two axes are in and out, the others the receptive field.
fn connections(shape: &[usize], fan: Fan) -> f64 {
    let (fan_in, fan_out) = match shape {
        [] => (1.0, 1.0),
        [width] => (*width as f64, *width as f64),
        [field @ .., inputs, outputs] => {
            let field: f64 = field.iter().map(|size| *size as f64).product();
            (field * *inputs as f64, field * *outputs as f64)
        }
    };
    match fan {
        Fan::In => fan_in,
        Fan::Out => fan_out,
        Fan::Average => (fan_in + fan_out) / 2.0,
    }
}

/// A row by class name or by Keras's names in lower case.
fn find(name: &str) -> Option<&'static Row> {
    let plain = |text: &str| text.replace('_', "").to_lowercase();
    let wanted = match name {
        "uniform" => "randomuniform".to_owned(),
        "normal" => "randomnormal".to_owned(),
        "zero" => "zeros".to_owned(),
        "one" => "ones".to_owned(),
        name => plain(name),
    };
    INITIALIZERS.iter().find(|row| plain(row.name) == wanted)
}

fn unsupported(name: &str) -> ArgumentError {
    let known: Vec<&str> = INITIALIZERS.iter().map(|row| row.name).collect();
    ArgumentError::unsupported(name, format!("one of {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(value: Value, shape: &[usize], expected: Initializer) {
        assert_eq!(Start::read(&value).unwrap().initializer(shape, 9), expected, "{value}");
    }

    #[test]
    fn every_initializer_has_keras_parameters() {
        let uniform = |limit: f64| Initializer::Uniform { low: -limit as f32, high: limit as f32, seed: 9 };
        let truncated =
            |stddev: f64| Initializer::TruncatedNormal { mean: 0.0, stddev: stddev as f32, seed: 9 };
        check(json!("zeros"), &[3], Initializer::Constant(0.0));
        check(json!("Ones"), &[3], Initializer::Constant(1.0));
        check(json!({"class_name": "Constant", "config": {"value": 0.5}}), &[3], Initializer::Constant(0.5));
        check(json!("uniform"), &[3, 4], uniform(0.05));
        let normal = json!({"class_name": "RandomNormal", "config": {"mean": 1.0, "stddev": 2.0, "seed": 4}});
        check(normal, &[3, 4], Initializer::Normal { mean: 1.0, stddev: 2.0, seed: 4 });
        check(json!("truncated_normal"), &[3, 4], truncated(0.05));
        check(json!("glorot_uniform"), &[5, 4], uniform((6.0 / 9.0f64).sqrt()));
        check(json!("glorot_normal"), &[5, 4], truncated((2.0 / 9.0f64).sqrt() / 0.879_625_661_034_239_8));
        check(json!("he_uniform"), &[3, 3, 2, 8], uniform((6.0 / 18.0f64).sqrt()));
        check(json!("HeNormal"), &[3, 3, 2, 8], truncated((2.0 / 18.0f64).sqrt() / 0.879_625_661_034_239_8));
        check(json!("lecun_uniform"), &[7], uniform((3.0 / 7.0f64).sqrt()));
        check(json!("lecun_normal"), &[5, 4], truncated((1.0 / 5.0f64).sqrt() / 0.879_625_661_034_239_8));
        let scaling = json!({"class_name": "VarianceScaling", "config":
            {"scale": 3.0, "mode": "fan_out", "distribution": "untruncated_normal"}});
        let stddev = (3.0 / 4.0f64).sqrt() as f32;
        check(scaling, &[5, 4], Initializer::Normal { mean: 0.0, stddev, seed: 9 });
    }

    #[test]
    fn the_seed_of_a_serialised_generator_is_used() {
        let value = json!({"class_name": "RandomUniform", "config":
            {"seed": {"class_name": "SeedGenerator", "config": {"seed": 3}}}});
        check(value, &[3], Initializer::Uniform { low: -0.05, high: 0.05, seed: 3 });
    }
}
