//! Losses, metrics and optimizers by Keras's names, as a job file or a Keras configuration spells them.

use memfit_grad::{ClipBy, Optimizer, Schedule};
use memfit_ir::{LossKind, Metric, Tensor, UpdateRule};
use serde_json::{Map, Value};

use crate::Error;

/// A loss: a name, or an object with a class and its arguments.
pub fn parse_loss(value: &Value, place: &str) -> Result<LossKind, Error> {
    let mut arguments = Arguments::new(value, place)?;
    let kind = match plain(&arguments.class).as_str() {
        "meansquarederror" | "mse" => LossKind::MeanSquaredError,
        "meanabsoluteerror" | "mae" => LossKind::MeanAbsoluteError,
        "huber" | "huberloss" => LossKind::Huber { delta: arguments.float("delta", 1.0)? },
        "binarycrossentropy" => LossKind::BinaryCrossentropy {
            from_logits: arguments.truth("from_logits", false)?,
            label_smoothing: arguments.float("label_smoothing", 0.0)?,
        },
        "categoricalcrossentropy" => LossKind::CategoricalCrossentropy {
            from_logits: arguments.truth("from_logits", false)?,
            label_smoothing: arguments.float("label_smoothing", 0.0)?,
        },
        "sparsecategoricalcrossentropy" => {
            LossKind::SparseCategoricalCrossentropy { from_logits: arguments.truth("from_logits", false)? }
        }
        _ => {
            return Err(Error::job(
                place,
                format!(
                    "unknown loss `{}`; known: mean_squared_error, mean_absolute_error, huber, binary_crossentropy, \
                     categorical_crossentropy, sparse_categorical_crossentropy",
                    arguments.class
                ),
            ));
        }
    };
    let reduction = arguments.text("reduction", "sum_over_batch_size")?;
    if reduction != "sum_over_batch_size" {
        return Err(Error::job(
            place,
            format!("reduction `{reduction}` is not supported; use sum_over_batch_size"),
        ));
    }
    for (name, default) in [("axis", Value::from(-1)), ("ignore_class", Value::Null)] {
        arguments.only(name, &default)?;
    }
    arguments.ignore(&["name", "dtype", "fn"]);
    arguments.finish()?;
    Ok(kind)
}

/// A metric by name. `accuracy` takes its kind from the shapes of prediction and target, as in Keras.
pub fn parse_metric(name: &str, prediction: &Tensor, sparse: bool) -> Result<Metric, Error> {
    Ok(match plain(name).as_str() {
        "accuracy" | "acc" => {
            if prediction.shape.last() == 1 {
                Metric::BinaryAccuracy
            } else if sparse {
                Metric::SparseCategoricalAccuracy
            } else {
                Metric::CategoricalAccuracy
            }
        }
        "binaryaccuracy" => Metric::BinaryAccuracy,
        "categoricalaccuracy" => Metric::CategoricalAccuracy,
        "sparsecategoricalaccuracy" => Metric::SparseCategoricalAccuracy,
        "mae" | "meanabsoluteerror" => Metric::MeanAbsoluteError,
        "mse" | "meansquarederror" => Metric::MeanSquaredError,
        _ => {
            return Err(Error::job(
                "train.metrics",
                format!(
                    "unknown metric `{name}`; known: accuracy, binary_accuracy, categorical_accuracy, \
                     sparse_categorical_accuracy, mae, mse"
                ),
            ));
        }
    })
}

/// An optimizer: a name, or an object with a class and its arguments.
pub fn parse_optimizer(value: &Value) -> Result<Optimizer, Error> {
    let place = "train.optimizer";
    let mut arguments = Arguments::new(value, place)?;
    let class = plain(&arguments.class);
    let (rule, learning_rate, weight_decay) = match class.as_str() {
        "sgd" => {
            let momentum = arguments.float("momentum", 0.0)?;
            (UpdateRule::Sgd { momentum, nesterov: arguments.truth("nesterov", false)? }, 0.01, 0.0)
        }
        "adam" | "adamw" => {
            let rule = UpdateRule::Adam {
                beta_1: arguments.float("beta_1", 0.9)?,
                beta_2: arguments.float("beta_2", 0.999)?,
                epsilon: arguments.float("epsilon", 1e-7)?,
                amsgrad: arguments.truth("amsgrad", false)?,
            };
            (rule, 0.001, if class == "adamw" { 0.004 } else { 0.0 })
        }
        "rmsprop" => {
            let rule = UpdateRule::Rmsprop {
                rho: arguments.float("rho", 0.9)?,
                momentum: arguments.float("momentum", 0.0)?,
                epsilon: arguments.float("epsilon", 1e-7)?,
                centered: arguments.truth("centered", false)?,
            };
            (rule, 0.001, 0.0)
        }
        _ => {
            let problem =
                format!("unknown optimizer `{}`; known: SGD, Adam, AdamW, RMSprop", arguments.class);
            return Err(Error::job(place, problem));
        }
    };
    let schedule = match arguments.take("learning_rate") {
        None | Some(Value::Null) => Schedule::Constant(learning_rate),
        Some(value) => parse_schedule(&value)?,
    };
    let weight_decay = arguments.float("weight_decay", weight_decay)?;
    let clip = clip(&mut arguments)?;
    for (name, default) in [
        ("use_ema", Value::Bool(false)),
        ("loss_scale_factor", Value::Null),
        ("gradient_accumulation_steps", Value::Null),
    ] {
        arguments.only(name, &default)?;
    }
    arguments.ignore(&[
        "name",
        "ema_momentum",
        "ema_overwrite_frequency",
        "is_legacy_optimizer",
        "jit_compile",
    ]);
    arguments.finish()?;
    Ok(Optimizer { rule, schedule, weight_decay, clip })
}

fn clip(arguments: &mut Arguments) -> Result<ClipBy, Error> {
    let given: Vec<(&str, f32)> = ["clipvalue", "clipnorm", "global_clipnorm"]
        .into_iter()
        .filter_map(|name| arguments.optional_float(name).transpose().map(|limit| (name, limit)))
        .map(|(name, limit)| limit.map(|limit| (name, limit)))
        .collect::<Result<_, Error>>()?;
    match given[..] {
        [] => Ok(ClipBy::None),
        [(_, limit)] if limit <= 0.0 => Err(Error::job(&arguments.place, "a clip must be above 0")),
        [("clipvalue", limit)] => Ok(ClipBy::Value(limit)),
        [("clipnorm", limit)] => Ok(ClipBy::Norm(limit)),
        [(_, limit)] => Ok(ClipBy::GlobalNorm(limit)),
        _ => Err(Error::job(&arguments.place, "give only one of clipvalue, clipnorm, global_clipnorm")),
    }
}

fn parse_schedule(value: &Value) -> Result<Schedule, Error> {
    let place = "train.optimizer.learning_rate";
    if let Some(rate) = value.as_f64() {
        return if rate.is_finite() && rate >= 0.0 {
            Ok(Schedule::Constant(rate))
        } else {
            Err(Error::job(place, format!("expected a rate of at least 0, got {rate}")))
        };
    }
    let mut arguments = Arguments::new(value, place)?;
    let class = plain(&arguments.class);
    let schedule = match class.as_str() {
        "exponentialdecay" => Schedule::ExponentialDecay {
            initial: arguments.required("initial_learning_rate")?,
            decay_steps: arguments.required("decay_steps")?,
            decay_rate: arguments.required("decay_rate")?,
            staircase: arguments.truth("staircase", false)?,
        },
        "cosinedecay" => Schedule::CosineDecay {
            initial: arguments.required("initial_learning_rate")?,
            decay_steps: arguments.required("decay_steps")?,
            alpha: f64::from(arguments.float("alpha", 0.0)?),
            warmup_target: arguments.optional("warmup_target")?,
            warmup_steps: arguments.optional("warmup_steps")?.unwrap_or(0.0),
        },
        "piecewiseconstantdecay" => {
            let (boundaries, values) = (arguments.list("boundaries")?, arguments.list("values")?);
            if values.len() != boundaries.len() + 1 {
                return Err(Error::job(place, "expected one more of `values` than of `boundaries`"));
            }
            Schedule::PiecewiseConstantDecay { boundaries, values }
        }
        "polynomialdecay" => Schedule::PolynomialDecay {
            initial: arguments.required("initial_learning_rate")?,
            decay_steps: arguments.required("decay_steps")?,
            end: arguments.optional("end_learning_rate")?.unwrap_or(0.0001),
            power: arguments.optional("power")?.unwrap_or(1.0),
            cycle: arguments.truth("cycle", false)?,
        },
        "inversetimedecay" => Schedule::InverseTimeDecay {
            initial: arguments.required("initial_learning_rate")?,
            decay_steps: arguments.required("decay_steps")?,
            decay_rate: arguments.required("decay_rate")?,
            staircase: arguments.truth("staircase", false)?,
        },
        _ => {
            return Err(Error::job(
                place,
                format!(
                    "unknown schedule `{}`; known: ExponentialDecay, CosineDecay, PiecewiseConstantDecay, \
                     PolynomialDecay, InverseTimeDecay",
                    arguments.class
                ),
            ));
        }
    };
    arguments.ignore(&["name"]);
    arguments.finish()?;
    Ok(schedule)
}

/// `CategoricalCrossentropy` and `categorical_crossentropy` are one name.
fn plain(name: &str) -> String {
    name.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

/// The arguments of one object, taken one after the other so that what is left over is unknown.
struct Arguments {
    class: String,
    place: String,
    rest: Map<String, Value>,
}

impl Arguments {
    /// From a name; from `{class_name, config}`, as Keras writes it; or from `{class, …arguments}`, as a job file does.
    fn new(value: &Value, place: &str) -> Result<Arguments, Error> {
        let place = place.to_owned();
        if let Value::String(class) = value {
            return Ok(Arguments { class: class.clone(), place, rest: Map::new() });
        }
        let Value::Object(object) = value else {
            return Err(Error::job(place, format!("expected a name or a table with `class`, got {value}")));
        };
        let mut rest = object.clone();
        let class = ["class_name", "class"].iter().find_map(|key| rest.remove(*key));
        let Some(Value::String(class)) = class else {
            return Err(Error::job(place, "expected a key `class` with the name"));
        };
        if let Some(Value::Object(config)) = rest.remove("config") {
            rest = config;
        }
        Ok(Arguments { class, place, rest })
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.rest.remove(name)
    }

    fn optional(&mut self, name: &str) -> Result<Option<f64>, Error> {
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) if number.is_finite() => Ok(Some(number)),
                _ => Err(self.wrong(name, "a number", &value)),
            },
        }
    }

    fn optional_float(&mut self, name: &str) -> Result<Option<f32>, Error> {
        Ok(self.optional(name)?.map(|number| number as f32))
    }

    fn float(&mut self, name: &str, default: f64) -> Result<f32, Error> {
        Ok(self.optional(name)?.unwrap_or(default) as f32)
    }

    fn required(&mut self, name: &str) -> Result<f64, Error> {
        let class = self.class.clone();
        self.optional(name)?
            .ok_or_else(|| Error::job(&self.place, format!("{class} needs the argument `{name}`")))
    }

    fn truth(&mut self, name: &str, default: bool) -> Result<bool, Error> {
        match self.take(name) {
            None => Ok(default),
            Some(Value::Bool(truth)) => Ok(truth),
            Some(value) => Err(self.wrong(name, "true or false", &value)),
        }
    }

    fn text(&mut self, name: &str, default: &str) -> Result<String, Error> {
        match self.take(name) {
            None => Ok(default.to_owned()),
            Some(Value::String(text)) => Ok(text),
            Some(value) => Err(self.wrong(name, "a text", &value)),
        }
    }

    fn list(&mut self, name: &str) -> Result<Vec<f64>, Error> {
        let value = self.take(name).unwrap_or(Value::Null);
        let numbers =
            value.as_array().map(|items| items.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>());
        numbers.flatten().ok_or_else(|| self.wrong(name, "a list of numbers", &value))
    }

    /// An argument that is known and accepted at its default alone.
    fn only(&mut self, name: &str, default: &Value) -> Result<(), Error> {
        match self.take(name) {
            Some(value) if value != *default && !value.is_null() => Err(Error::job(
                &self.place,
                format!("{}: `{name} = {value}` is not supported; leave it at {default}", self.class),
            )),
            _ => Ok(()),
        }
    }

    fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.take(name);
        }
    }

    fn finish(self) -> Result<(), Error> {
        match self.rest.keys().next() {
            None => Ok(()),
            Some(name) => {
                Err(Error::job(&self.place, format!("{} has no argument `{name}`; remove it", self.class)))
            }
        }
    }

    fn wrong(&self, name: &str, expected: &str, got: &Value) -> Error {
        Error::job(&self.place, format!("{}: `{name}` must be {expected}, got {got}", self.class))
    }
}
