//! Losses by Keras's names, as a job file or a Keras configuration spells them.

use memfit_ir::{Distance, LossKind};
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
                         mean_absolute_percentage_error, mean_squared_logarithmic_error, binary_focal_crossentropy",
                        arguments.class
                    ),
                ));
            }
        },
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
        _ => return Ok(None),
    }))
}
