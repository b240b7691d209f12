//! Losses by Keras's names, as a job file or a Keras configuration spells them.

use memfit_ir::{Distance, LossKind, Reduction};
use serde_json::Value;

use crate::Error;
use crate::compile_arguments::{Arguments, plain};

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
        class => match distance(class, &mut arguments)? {
            Some(distance) => LossKind::Distance(distance),
            None => {
                return Err(Error::job(
                    place,
                    format!(
                        "unknown loss `{}`; known: mean_squared_error, mean_absolute_error, huber, binary_crossentropy, \
                         categorical_crossentropy, sparse_categorical_crossentropy, poisson, log_cosh, hinge, \
                         squared_hinge, categorical_hinge, kl_divergence, cosine_similarity, \
                         mean_absolute_percentage_error, mean_squared_logarithmic_error, binary_focal_crossentropy, \
                         categorical_focal_crossentropy, dice, tversky",
                        arguments.class
                    ),
                ));
            }
        },
    };
    let reduction = match arguments.text("reduction", "sum_over_batch_size")?.as_str() {
        "sum_over_batch_size" | "mean" => Reduction::Mean,
        "sum" => Reduction::Sum,
        "mean_with_sample_weight" => Reduction::MeanOfWeights,
        other => {
            let known = "sum_over_batch_size, sum or mean_with_sample_weight";
            return Err(Error::job(place, format!("reduction `{other}` is not supported; use {known}")));
        }
    };
    let ignore_class = ignored_class(&mut arguments, &kind)?;
    arguments.only("axis", &Value::from(-1))?;
    arguments.ignore(&["name", "dtype", "fn"]);
    arguments.finish()?;
    if reduction == Reduction::Mean && ignore_class.is_none() {
        return Ok(kind);
    }
    if kind.mixes_rows() {
        return Err(Error::job(
            place,
            "a loss of the whole batch has no samples to reduce; leave `reduction` out",
        ));
    }
    Ok(LossKind::Reduced { kind: Box::new(kind), reduction, ignore_class })
}

/// The class whose samples do not count.
fn ignored_class(arguments: &mut Arguments, kind: &LossKind) -> Result<Option<i32>, Error> {
    if !kind.is_sparse() {
        arguments.only("ignore_class", &Value::Null)?;
        return Ok(None);
    }
    let Some(number) = arguments.optional("ignore_class")? else { return Ok(None) };
    let is_whole = number.fract() == 0.0 && number.abs() <= f64::from(i32::MAX);
    if is_whole {
        Ok(Some(number as i32))
    } else {
        Err(Error::job(
            &arguments.place,
            format!("`ignore_class` must be the number of a class, got {number}"),
        ))
    }
}

/// How many axes of a row overlap: all of them, or 0 for the whole batch.
fn axes_overlapped(arguments: &mut Arguments) -> Result<usize, Error> {
    let value = arguments.take("axis").unwrap_or(Value::Null);
    let axes: Option<Vec<i64>> = value.as_array().and_then(|axes| axes.iter().map(Value::as_i64).collect());
    match axes {
        None if value.is_null() => Ok(0),
        // All axes after the batch; how many there are is the output's to say.
        Some(axes) if !axes.is_empty() && axes.iter().copied().eq(1..=axes.len() as i64) => Ok(axes.len()),
        _ => Err(Error::job(
            &arguments.place,
            format!(
                "{}: `axis = {value}` is not supported; use null, or all axes after the batch",
                arguments.class
            ),
        )),
    }
}

/// The losses that are distances, by their plain names.
fn distance(class: &str, arguments: &mut Arguments) -> Result<Option<Distance>, Error> {
    Ok(Some(match class {
        "poisson" => Distance::Poisson,
        "logcosh" => Distance::LogCosh,
        "hinge" => Distance::Hinge,
        "squaredhinge" => Distance::SquaredHinge,
        "categoricalhinge" => Distance::CategoricalHinge,
        "meanabsolutepercentageerror" | "mape" => Distance::MeanAbsolutePercentageError,
        "meansquaredlogarithmicerror" | "msle" => Distance::MeanSquaredLogarithmicError,
        "kldivergence" | "kld" | "kullbackleiblerdivergence" => Distance::KlDivergence,
        "cosinesimilarity" => Distance::CosineSimilarity,
        "binaryfocalcrossentropy" => {
            let alpha = arguments.float("alpha", 0.25)?;
            Distance::BinaryFocalCrossentropy {
                from_logits: arguments.truth("from_logits", false)?,
                label_smoothing: arguments.float("label_smoothing", 0.0)?,
                alpha: arguments.truth("apply_class_balancing", false)?.then_some(alpha),
                gamma: arguments.float("gamma", 2.0)?,
            }
        }
        "categoricalfocalcrossentropy" => Distance::CategoricalFocalCrossentropy {
            from_logits: arguments.truth("from_logits", false)?,
            label_smoothing: arguments.float("label_smoothing", 0.0)?,
            alpha: arguments.float("alpha", 0.25)?,
            gamma: arguments.float("gamma", 2.0)?,
        },
        "dice" => Distance::Dice { axes: axes_overlapped(arguments)? },
        "tversky" => Distance::Tversky {
            alpha: arguments.float("alpha", 0.5)?,
            beta: arguments.float("beta", 0.5)?,
            axes: axes_overlapped(arguments)?,
        },
        _ => return Ok(None),
    }))
}
