//! The compile configuration as Keras writes it, so that training goes on there.

use memfit_grad::{ClipBy, Optimizer, Schedule};
use memfit_ir::{LossKind, UpdateRule};
use serde_json::{Value, json};

use crate::compiled::Compiled;

/// Keras's form of what a model is compiled with.
pub fn compile_config(compiled: &Compiled) -> Value {
    let one_output = compiled.losses.len() == 1;
    let losses: Vec<Value> = compiled.losses.iter().map(loss).collect();
    let weighted = compiled.loss_weights.iter().any(|weight| *weight != 1.0);
    let weights: Vec<f64> = compiled.loss_weights.iter().map(|weight| exact(*weight)).collect();
    let no_metrics = compiled.metrics.iter().all(Vec::is_empty);
    json!({
        "optimizer": optimizer(&compiled.optimizer),
        "loss": if one_output { losses[0].clone() } else { Value::Array(losses) },
        "loss_weights": if weighted { json!(weights) } else { Value::Null },
        "metrics": match (no_metrics, one_output) {
            (true, _) => Value::Null,
            (false, true) => json!(compiled.metrics[0]),
            (false, false) => json!(compiled.metrics),
        },
        "weighted_metrics": null,
        "run_eagerly": false,
        "steps_per_execution": 1,
        "jit_compile": false,
    })
}

fn object(module: &str, class: &str, config: &Value) -> Value {
    json!({"module": module, "class_name": class, "config": config, "registered_name": null})
}

fn loss(kind: &LossKind) -> Value {
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
        LossKind::SparseCategoricalCrossentropy { from_logits } => (
            "SparseCategoricalCrossentropy",
            "sparse_categorical_crossentropy",
            json!({"from_logits": from_logits, "ignore_class": null}),
        ),
    };
    config["name"] = json!(name);
    config["reduction"] = json!("sum_over_batch_size");
    object("keras.losses", class, &config)
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
    };
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
