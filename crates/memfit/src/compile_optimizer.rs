//! Optimizers and schedules by Keras's names, as a job file or a Keras configuration spells them.

use memfit_formats::StoredWeight;
use memfit_grad::{ClipBy, Optimizer, Schedule};
use memfit_ir::{Average, TensorId, UpdateRule};
use serde_json::Value;

use crate::Error;
use crate::compile_arguments::{Arguments, plain};
use crate::model_file::ModelFile;

/// An optimizer: a name, or an object with a class and its arguments.
pub fn parse_optimizer(value: &Value) -> Result<Optimizer, Error> {
    let place = "train.optimizer";
    let mut arguments = Arguments::new(value, place)?;
    let class = plain(&arguments.class);
    let (rule, learning_rate) = rule(&class, &mut arguments)?;
    let weight_decay = if class == "adamw" { 0.004 } else { 0.0 };
    let schedule = match arguments.take("learning_rate") {
        None | Some(Value::Null) => Schedule::Constant(learning_rate),
        Some(value) => parse_schedule(&value)?,
    };
    let weight_decay = arguments.float("weight_decay", weight_decay)?;
    let clip = clip(&mut arguments)?;
    let average = average(&mut arguments)?;
    let accumulation_steps = match arguments.optional("gradient_accumulation_steps")? {
        None => 1,
        Some(steps) if 2.0 <= steps && steps.fract() == 0.0 => steps as u64,
        Some(steps) => {
            let problem = format!("expected a whole number of at least 2, got {steps}");
            return Err(Error::job(format!("{place}.gradient_accumulation_steps"), problem));
        }
    };
    let loss_scale_factor = arguments.optional_float("loss_scale_factor")?;
    let undecayed = Vec::new();
    // Which weights these are is the model's to say: see `undecayed`.
    arguments.ignore(&["exclude_from_weight_decay"]);
    arguments.ignore(&["name", "is_legacy_optimizer", "jit_compile"]);
    arguments.finish()?;
    Ok(Optimizer {
        rule,
        schedule,
        weight_decay,
        undecayed,
        clip,
        average,
        accumulation_steps,
        loss_scale_factor,
    })
}

/// The weights that an optimizer's `exclude_from_weight_decay` names: each whose name holds one of the texts, or by number in
/// Keras's order of all weights.
pub(crate) fn undecayed(value: &Value, opened: &ModelFile) -> Result<Vec<TensorId>, Error> {
    let config = value.get("config").unwrap_or(value);
    let Some(wanted) = config.get("exclude_from_weight_decay").filter(|wanted| !wanted.is_null()) else {
        return Ok(Vec::new());
    };
    let place = "train.optimizer.exclude_from_weight_decay";
    let wrong = || Error::job(place, format!("expected a list of names, as in [\"bias\"], got {wanted}"));
    let weights = &opened.model.weights;
    let mut found = Vec::new();
    for one in wanted.as_array().ok_or_else(wrong)? {
        let before = found.len();
        if let Some(text) = one.as_str() {
            let name = |weight: &StoredWeight| &opened.model.graph.tensors[weight.tensor.0].name;
            found.extend(
                weights.iter().filter(|weight| name(weight).contains(text)).map(|weight| weight.tensor),
            );
        } else {
            let index = one.as_u64().and_then(|index| usize::try_from(index).ok()).ok_or_else(wrong)?;
            found.extend(weights.get(index).map(|weight| weight.tensor));
        }
        if found.len() == before {
            return Err(Error::job(place, format!("no weight is named by {one}")));
        }
    }
    Ok(found)
}

/// The rule of an optimizer, and its learning rate where none is given.
fn rule(class: &str, arguments: &mut Arguments) -> Result<(UpdateRule, f64), Error> {
    let rule = match class {
        "sgd" => {
            let momentum = arguments.float("momentum", 0.0)?;
            return Ok((UpdateRule::Sgd { momentum, nesterov: arguments.truth("nesterov", false)? }, 0.01));
        }
        "adam" | "adamw" => UpdateRule::Adam {
            beta_1: arguments.float("beta_1", 0.9)?,
            beta_2: arguments.float("beta_2", 0.999)?,
            epsilon: arguments.float("epsilon", 1e-7)?,
            amsgrad: arguments.truth("amsgrad", false)?,
        },
        "rmsprop" => UpdateRule::Rmsprop {
            rho: arguments.float("rho", 0.9)?,
            momentum: arguments.float("momentum", 0.0)?,
            epsilon: arguments.float("epsilon", 1e-7)?,
            centered: arguments.truth("centered", false)?,
        },
        "adagrad" => UpdateRule::Adagrad {
            initial_accumulator_value: arguments.float("initial_accumulator_value", 0.1)?,
            epsilon: arguments.float("epsilon", 1e-7)?,
        },
        "adadelta" => UpdateRule::Adadelta {
            rho: arguments.float("rho", 0.95)?,
            epsilon: arguments.float("epsilon", 1e-7)?,
        },
        "adamax" => UpdateRule::Adamax {
            beta_1: arguments.float("beta_1", 0.9)?,
            beta_2: arguments.float("beta_2", 0.999)?,
            epsilon: arguments.float("epsilon", 1e-7)?,
        },
        "nadam" => UpdateRule::Nadam {
            beta_1: arguments.float("beta_1", 0.9)?,
            beta_2: arguments.float("beta_2", 0.999)?,
            epsilon: arguments.float("epsilon", 1e-7)?,
        },
        "ftrl" => UpdateRule::Ftrl {
            learning_rate_power: arguments.float("learning_rate_power", -0.5)?,
            initial_accumulator_value: arguments.float("initial_accumulator_value", 0.1)?,
            l1: arguments.float("l1_regularization_strength", 0.0)?,
            l2: arguments.float("l2_regularization_strength", 0.0)?,
            l2_shrinkage: arguments.float("l2_shrinkage_regularization_strength", 0.0)?,
            beta: arguments.float("beta", 0.0)?,
        },
        "lion" => UpdateRule::Lion {
            beta_1: arguments.float("beta_1", 0.9)?,
            beta_2: arguments.float("beta_2", 0.99)?,
        },
        "adafactor" => UpdateRule::Adafactor {
            beta_2_decay: arguments.float("beta_2_decay", -0.8)?,
            epsilon_1: arguments.float("epsilon_1", 1e-30)?,
            epsilon_2: arguments.float("epsilon_2", 1e-3)?,
            clip_threshold: arguments.float("clip_threshold", 1.0)?,
            relative_step: arguments.truth("relative_step", true)?,
        },
        "lamb" => UpdateRule::Lamb {
            beta_1: arguments.float("beta_1", 0.9)?,
            beta_2: arguments.float("beta_2", 0.999)?,
            epsilon: arguments.float("epsilon", 1e-7)?,
        },
        _ => {
            let problem = format!(
                "unknown optimizer `{}`; known: SGD, Adam, AdamW, RMSprop, Adagrad, Adadelta, Adamax, Nadam, Ftrl, \
                 Lion, Adafactor, Lamb",
                arguments.class
            );
            return Err(Error::job(&arguments.place, problem));
        }
    };
    if let UpdateRule::Ftrl { learning_rate_power, initial_accumulator_value, l1, l2, l2_shrinkage, .. } =
        rule
    {
        let below_0 = [initial_accumulator_value, l1, l2, l2_shrinkage].iter().any(|value| *value < 0.0);
        if below_0 || 0.0 < learning_rate_power {
            let problem = "Ftrl's strengths and first accumulator must be at least 0, its learning_rate_power at most 0";
            return Err(Error::job(&arguments.place, problem));
        }
    }
    Ok((rule, 0.001))
}

/// Moving averages, where they are asked for.
fn average(arguments: &mut Arguments) -> Result<Option<Average>, Error> {
    let wanted = arguments.truth("use_ema", false)?;
    let momentum = arguments.float("ema_momentum", 0.99)?;
    let every = arguments.optional("ema_overwrite_frequency")?;
    if !wanted {
        return Ok(None);
    }
    if !(0.0..=1.0).contains(&momentum) {
        return Err(Error::job(
            &arguments.place,
            format!("ema_momentum must be from 0 to 1, got {momentum}"),
        ));
    }
    let overwrite_every = match every {
        None => None,
        Some(every) if 1.0 <= every && every.fract() == 0.0 => Some(every as u64),
        Some(every) => {
            let problem = format!("ema_overwrite_frequency must be a whole number from 1, got {every}");
            return Err(Error::job(&arguments.place, problem));
        }
    };
    Ok(Some(Average { momentum, overwrite_every }))
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

/// The same rate at every step.
pub(crate) fn constant_rate(rate: f64, place: &str) -> Result<Schedule, Error> {
    if rate.is_finite() && rate >= 0.0 {
        Ok(Schedule::Constant(rate))
    } else {
        Err(Error::job(place, format!("expected a rate of at least 0, got {rate}")))
    }
}

fn parse_schedule(value: &Value) -> Result<Schedule, Error> {
    let place = "train.optimizer.learning_rate";
    if let Some(rate) = value.as_f64() {
        return constant_rate(rate, place);
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
        "cosinedecayrestarts" => {
            let length_factor = arguments.optional("t_mul")?.unwrap_or(2.0);
            let first_decay_steps: f64 = arguments.required("first_decay_steps")?;
            if first_decay_steps <= 0.0 || length_factor < 1.0 {
                let problem =
                    "CosineDecayRestarts needs `first_decay_steps` above 0 and a `t_mul` of at least 1";
                return Err(Error::job(place, problem));
            }
            Schedule::CosineDecayRestarts {
                initial: arguments.required("initial_learning_rate")?,
                first_decay_steps,
                length_factor,
                rate_factor: arguments.optional("m_mul")?.unwrap_or(1.0),
                alpha: arguments.optional("alpha")?.unwrap_or(0.0),
            }
        }
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
                    "unknown schedule `{}`; known: ExponentialDecay, CosineDecay, CosineDecayRestarts, \
                     PiecewiseConstantDecay, PolynomialDecay, InverseTimeDecay",
                    arguments.class
                ),
            ));
        }
    };
    arguments.ignore(&["name"]);
    arguments.finish()?;
    Ok(schedule)
}
