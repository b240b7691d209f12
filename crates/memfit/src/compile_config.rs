//! The compile configuration as Keras writes it, so that training goes on there.

use memfit_grad::{ClipBy, Optimizer, Schedule};
use memfit_ir::{Distance, LossKind, Reduction, UpdateRule};
use serde_json::{Value, json};

use crate::compile_arguments::plain;
use crate::compile_metric::metric_name;
use crate::compiled::Compiled;

/// Keras's form of what a model is compiled with.
pub fn compile_config(compiled: &Compiled) -> Value {
    let one_output = compiled.losses.len() == 1;
    let losses: Vec<Value> = compiled.losses.iter().map(loss).collect();
    let weighted = compiled.loss_weights.iter().any(|weight| *weight != 1.0);
    let weights: Vec<f64> = compiled.loss_weights.iter().map(|weight| exact(*weight)).collect();
    let each = |of: &[Value]| -> Value { of.iter().map(metric).collect() };
    let metrics = |of: &[Vec<Value>]| match (of.iter().all(Vec::is_empty), one_output) {
        (true, _) => Value::Null,
        (false, true) => each(&of[0]),
        (false, false) => of.iter().map(|of| each(of)).collect(),
    };
    json!({
        "optimizer": optimizer(&compiled.optimizer),
        "loss": if one_output { losses[0].clone() } else { Value::Array(losses) },
        "loss_weights": if weighted { json!(weights) } else { Value::Null },
        "metrics": metrics(&compiled.metrics),
        "weighted_metrics": metrics(&compiled.weighted_metrics),
        "run_eagerly": false,
        "steps_per_execution": 1,
        "jit_compile": false,
    })
}

/// Classes of metrics as Keras spells them; a job may write them otherwise.
const METRICS: [&str; 39] = [
    "AUC",
    "Accuracy",
    "BinaryAccuracy",
    "BinaryCrossentropy",
    "BinaryIoU",
    "CategoricalAccuracy",
    "CategoricalCrossentropy",
    "CategoricalHinge",
    "CosineSimilarity",
    "F1Score",
    "FBetaScore",
    "FalseNegatives",
    "FalsePositives",
    "Hinge",
    "IoU",
    "KLDivergence",
    "LogCoshError",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanIoU",
    "MeanSquaredError",
    "MeanSquaredLogarithmicError",
    "OneHotIoU",
    "OneHotMeanIoU",
    "Poisson",
    "Precision",
    "PrecisionAtRecall",
    "Recall",
    "RecallAtPrecision",
    "RootMeanSquaredError",
    "SensitivityAtSpecificity",
    "SparseCategoricalAccuracy",
    "SparseCategoricalCrossentropy",
    "SparseTopKCategoricalAccuracy",
    "SpecificityAtSensitivity",
    "SquaredHinge",
    "TopKCategoricalAccuracy",
    "TrueNegatives",
    "TruePositives",
];

/// A metric as Keras writes it, where a job wrote its class and arguments.
fn metric(value: &Value) -> Value {
    let Some(class) = value.get("class").and_then(Value::as_str) else { return value.clone() };
    let known = METRICS.iter().find(|known| plain(known) == plain(class)).unwrap_or(&class);
    let mut config = value.as_object().cloned().unwrap_or_default();
    config.remove("class");
    config.insert("name".to_owned(), json!(metric_name(value)));
    object("keras.metrics", known, &Value::Object(config))
}

fn object(module: &str, class: &str, config: &Value) -> Value {
    json!({"module": module, "class_name": class, "config": config, "registered_name": null})
}

fn loss(kind: &LossKind) -> Value {
    if let LossKind::Reduced { kind, reduction, ignore_class } = kind {
        let mut object = loss(kind);
        object["config"]["reduction"] = json!(match reduction {
            Reduction::Mean => "sum_over_batch_size",
            Reduction::Sum => "sum",
            Reduction::MeanOfWeights => "mean_with_sample_weight",
        });
        if kind.is_sparse() {
            object["config"]["ignore_class"] = json!(ignore_class);
        }
        return object;
    }
    let (class, name, mut config) = match kind {
        LossKind::MeanSquaredError => ("MeanSquaredError", "mean_squared_error", json!({})),
        LossKind::MeanAbsoluteError => ("MeanAbsoluteError", "mean_absolute_error", json!({})),
        LossKind::Huber { delta } => ("Huber", "huber_loss", json!({"delta": exact(*delta)})),
        LossKind::BinaryCrossentropy { from_logits, label_smoothing } => (
            "BinaryCrossentropy",
            "binary_crossentropy",
            json!({"from_logits": from_logits, "label_smoothing": exact(*label_smoothing), "axis": -1}),
        ),
        LossKind::CategoricalCrossentropy { from_logits, label_smoothing } => (
            "CategoricalCrossentropy",
            "categorical_crossentropy",
            json!({"from_logits": from_logits, "label_smoothing": exact(*label_smoothing), "axis": -1}),
        ),
        LossKind::UnitCategoricalCrossentropy { label_smoothing } => (
            "CategoricalCrossentropy",
            "categorical_crossentropy",
            json!({"from_logits": true, "label_smoothing": exact(*label_smoothing), "axis": -1}),
        ),
        LossKind::SparseCategoricalCrossentropy { from_logits } => (
            "SparseCategoricalCrossentropy",
            "sparse_categorical_crossentropy",
            json!({"from_logits": from_logits, "ignore_class": null}),
        ),
        LossKind::Distance(distance) => distance_config(*distance),
        LossKind::Reduced { .. } => unreachable!("written above"),
    };
    config["name"] = json!(name);
    config["reduction"] = json!("sum_over_batch_size");
    object("keras.losses", class, &config)
}

fn distance_config(distance: Distance) -> (&'static str, &'static str, Value) {
    let (class, name) = match distance {
        Distance::Poisson => ("Poisson", "poisson"),
        Distance::LogCosh => ("LogCosh", "log_cosh"),
        Distance::Hinge => ("Hinge", "hinge"),
        Distance::SquaredHinge => ("SquaredHinge", "squared_hinge"),
        Distance::CategoricalHinge => ("CategoricalHinge", "categorical_hinge"),
        Distance::MeanAbsolutePercentageError => {
            ("MeanAbsolutePercentageError", "mean_absolute_percentage_error")
        }
        Distance::MeanSquaredLogarithmicError => {
            ("MeanSquaredLogarithmicError", "mean_squared_logarithmic_error")
        }
        Distance::KlDivergence => ("KLDivergence", "kl_divergence"),
        Distance::CosineSimilarity => {
            return ("CosineSimilarity", "cosine_similarity", json!({"axis": -1}));
        }
        Distance::BinaryFocalCrossentropy { from_logits, label_smoothing, alpha, gamma } => {
            let config = json!({"from_logits": from_logits, "label_smoothing": exact(label_smoothing), "axis": -1,
                "apply_class_balancing": alpha.is_some(), "alpha": exact(alpha.unwrap_or(0.25)), "gamma": exact(gamma)});
            return ("BinaryFocalCrossentropy", "binary_focal_crossentropy", config);
        }
        Distance::CategoricalFocalCrossentropy { from_logits, label_smoothing, alpha, gamma } => {
            let config = json!({"from_logits": from_logits, "label_smoothing": exact(label_smoothing), "axis": -1,
                "alpha": exact(alpha), "gamma": exact(gamma)});
            return ("CategoricalFocalCrossentropy", "categorical_focal_crossentropy", config);
        }
        Distance::Dice { axes } => return ("Dice", "dice", json!({"axis": overlapped(axes)})),
        Distance::Tversky { alpha, beta, axes } => {
            let config = json!({"axis": overlapped(axes), "alpha": exact(alpha), "beta": exact(beta)});
            return ("Tversky", "tversky", config);
        }
    };
    (class, name, json!({}))
}

/// The axes of an overlap as Keras counts them.
fn overlapped(axes: usize) -> Value {
    if axes == 0 { Value::Null } else { json!((1..=axes).collect::<Vec<_>>()) }
}

fn optimizer(optimizer: &Optimizer) -> Value {
    let (class, name, mut config) = match &optimizer.rule {
        UpdateRule::Sgd { momentum, nesterov } => {
            ("SGD", "SGD", json!({"momentum": exact(*momentum), "nesterov": nesterov}))
        }
        UpdateRule::Adam { beta_1, beta_2, epsilon, amsgrad } => (
            "Adam",
            "adam",
            json!({"beta_1": exact(*beta_1), "beta_2": exact(*beta_2), "epsilon": exact(*epsilon), "amsgrad": amsgrad}),
        ),
        UpdateRule::Rmsprop { rho, momentum, epsilon, centered } => (
            "RMSprop",
            "rmsprop",
            json!({"rho": exact(*rho), "momentum": exact(*momentum), "epsilon": exact(*epsilon), "centered": centered}),
        ),
        UpdateRule::Adagrad { initial_accumulator_value, epsilon } => (
            "Adagrad",
            "adagrad",
            json!({"initial_accumulator_value": exact(*initial_accumulator_value), "epsilon": exact(*epsilon)}),
        ),
        UpdateRule::Adadelta { rho, epsilon } => {
            ("Adadelta", "adadelta", json!({"rho": exact(*rho), "epsilon": exact(*epsilon)}))
        }
        UpdateRule::Adamax { beta_1, beta_2, epsilon } => {
            ("Adamax", "adamax", betas(*beta_1, *beta_2, Some(*epsilon)))
        }
        UpdateRule::Nadam { beta_1, beta_2, epsilon } => {
            ("Nadam", "nadam", betas(*beta_1, *beta_2, Some(*epsilon)))
        }
        UpdateRule::Lamb { beta_1, beta_2, epsilon } => {
            ("Lamb", "lamb", betas(*beta_1, *beta_2, Some(*epsilon)))
        }
        UpdateRule::Lion { beta_1, beta_2 } => ("Lion", "lion", betas(*beta_1, *beta_2, None)),
        UpdateRule::Ftrl { learning_rate_power, initial_accumulator_value, l1, l2, l2_shrinkage, beta } => (
            "Ftrl",
            "ftrl",
            json!({"learning_rate_power": exact(*learning_rate_power),
                "initial_accumulator_value": exact(*initial_accumulator_value),
                "l1_regularization_strength": exact(*l1), "l2_regularization_strength": exact(*l2),
                "l2_shrinkage_regularization_strength": exact(*l2_shrinkage), "beta": exact(*beta)}),
        ),
        UpdateRule::Adafactor { beta_2_decay, epsilon_1, epsilon_2, clip_threshold, relative_step } => (
            "Adafactor",
            "adafactor",
            json!({"beta_2_decay": exact(*beta_2_decay), "epsilon_1": exact(*epsilon_1), "epsilon_2": exact(*epsilon_2),
                "clip_threshold": exact(*clip_threshold), "relative_step": relative_step}),
        ),
    };
    config["use_ema"] = json!(optimizer.average.is_some());
    if let Some(average) = optimizer.average {
        config["ema_momentum"] = json!(exact(average.momentum));
        config["ema_overwrite_frequency"] = json!(average.overwrite_every);
    }
    let steps = Some(optimizer.accumulation_steps).filter(|steps| *steps != 1);
    config["gradient_accumulation_steps"] = json!(steps);
    config["loss_scale_factor"] = json!(optimizer.loss_scale_factor.map(exact));
    config["name"] = json!(name);
    config["learning_rate"] = schedule(&optimizer.schedule);
    config["weight_decay"] = match optimizer.weight_decay {
        0.0 => Value::Null,
        decay => json!(exact(decay)),
    };
    let (by_value, by_norm, by_global_norm) = match optimizer.clip {
        ClipBy::None => (None, None, None),
        ClipBy::Value(limit) => (Some(exact(limit)), None, None),
        ClipBy::Norm(limit) => (None, Some(exact(limit)), None),
        ClipBy::GlobalNorm(limit) => (None, None, Some(exact(limit))),
    };
    config["clipvalue"] = json!(by_value);
    config["clipnorm"] = json!(by_norm);
    config["global_clipnorm"] = json!(by_global_norm);
    object("keras.optimizers", class, &config)
}

fn betas(beta_1: f32, beta_2: f32, epsilon: Option<f32>) -> Value {
    let mut config = json!({"beta_1": exact(beta_1), "beta_2": exact(beta_2)});
    if let Some(epsilon) = epsilon {
        config["epsilon"] = json!(exact(epsilon));
    }
    config
}

fn schedule(schedule: &Schedule) -> Value {
    let (class, config) = match schedule {
        Schedule::Constant(rate) => return json!(rate),
        Schedule::ExponentialDecay { initial, decay_steps, decay_rate, staircase } => (
            "ExponentialDecay",
            json!({"initial_learning_rate": initial, "decay_steps": decay_steps, "decay_rate": decay_rate, "staircase": staircase}),
        ),
        Schedule::CosineDecay { initial, decay_steps, alpha, warmup_target, warmup_steps } => (
            "CosineDecay",
            json!({"initial_learning_rate": initial, "decay_steps": decay_steps, "alpha": alpha,
                "warmup_target": warmup_target, "warmup_steps": warmup_steps}),
        ),
        Schedule::CosineDecayRestarts { initial, first_decay_steps, length_factor, rate_factor, alpha } => (
            "CosineDecayRestarts",
            json!({"initial_learning_rate": initial, "first_decay_steps": first_decay_steps, "t_mul": length_factor,
                "m_mul": rate_factor, "alpha": alpha}),
        ),
        Schedule::PiecewiseConstantDecay { boundaries, values } => {
            ("PiecewiseConstantDecay", json!({"boundaries": boundaries, "values": values}))
        }
        Schedule::PolynomialDecay { initial, decay_steps, end, power, cycle } => (
            "PolynomialDecay",
            json!({"initial_learning_rate": initial, "decay_steps": decay_steps, "end_learning_rate": end,
                "power": power, "cycle": cycle}),
        ),
        Schedule::InverseTimeDecay { initial, decay_steps, decay_rate, staircase } => (
            "InverseTimeDecay",
            json!({"initial_learning_rate": initial, "decay_steps": decay_steps, "decay_rate": decay_rate, "staircase": staircase}),
        ),
    };
    object("keras.optimizers.schedules", class, &config)
}

/// The shortest decimal that gives the float back: 0.9 and not 0.8999999761581421.
fn exact(value: f32) -> f64 {
    value.to_string().parse().expect("a float's own text is a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_s_metric_is_written_as_keras_reads_it() {
        let written = metric(&json!({"class": "top_k_categorical_accuracy", "k": 3}));
        assert_eq!(written["class_name"], "TopKCategoricalAccuracy");
        assert_eq!(written["config"], json!({"k": 3, "name": "top_k_categorical_accuracy"}));
        for same in [json!("mse"), json!({"class_name": "AUC", "config": {"name": "auc"}})] {
            assert_eq!(metric(&same), same);
        }
    }
}
