//! What a model is compiled with: from the job, or where that is silent from the model's own file.

use memfit_grad::Optimizer;
use memfit_ir::LossKind;
use serde_json::{Map, Value};

use crate::compile::parse_loss;
use crate::compile_optimizer::{constant_rate, parse_optimizer, undecayed};
use crate::model_file::ModelFile;
use crate::{Error, Job, Lack};

/// Losses, metrics and optimizer, one list a kind with a place for each output.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The loss of each output.
    pub losses: Vec<LossKind>,
    /// Its factor in the total.
    pub loss_weights: Vec<f32>,
    /// Names of the outputs.
    pub output_names: Vec<String>,
    /// Metrics of each output, as they were given.
    pub metrics: Vec<Vec<Value>>,
    /// Those in which rows count by their weights.
    pub weighted_metrics: Vec<Vec<Value>>,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Whether all of it is the file's own, so that it can be written back as it was.
    pub is_the_files: bool,
}

/// What the job says, completed by the model's file.
pub fn compiled(job: &Job, opened: &ModelFile) -> Result<Compiled, Error> {
    let names = &opened.model.output_names;
    let config = opened.compile_config();
    let stored = |key: &str| config.and_then(|config| config.get(key)).filter(|value| !value.is_null());
    let train = &job.train;
    let loss = match (&train.loss, stored("loss")) {
        (Value::Null, None) => {
            return Err(Error::Lacks(Lack::Loss));
        }
        (Value::Null, Some(stored)) => stored,
        (given, _) => given,
    };
    let losses = each(loss, names, "train.loss")?
        .into_iter()
        .map(|loss| parse_loss(&loss.unwrap_or_default(), "train.loss"))
        .collect::<Result<Vec<_>, Error>>()?;
    let loss_weights = match (&train.loss_weights, stored("loss_weights")) {
        (Some(given), _) => given.clone(),
        (None, Some(stored)) => each(stored, names, "loss_weights")?
            .into_iter()
            .map(|weight| weight.map_or(Some(1.0), |weight| weight.as_f64()).map(|weight| weight as f32))
            .collect::<Option<Vec<f32>>>()
            .ok_or_else(|| Error::job("loss_weights", format!("expected numbers, got {stored}")))?,
        (None, None) => vec![1.0; losses.len()],
    };
    if loss_weights.len() != losses.len() {
        let problem =
            format!("expected {} weights, one for each loss, got {}", losses.len(), loss_weights.len());
        return Err(Error::job("train.loss_weights", problem));
    }
    // What is given takes the place of all that is stored.
    let given = !train.metrics.is_empty() || !train.weighted_metrics.is_empty();
    let of = |key: &str, wanted: &[Value]| match stored(key) {
        Some(stored) if !given => stored_metrics(stored, names, key),
        Some(_) | None => given_metrics(wanted, names),
    };
    let metrics = of("metrics", &train.metrics)?;
    let weighted_metrics = of("weighted_metrics", &train.weighted_metrics)?;
    let rmsprop = Value::from("rmsprop");
    let optimizer = match (&train.optimizer, stored("optimizer")) {
        (Value::Null, Some(stored)) => stored,
        (Value::Null, None) => &rmsprop,
        (given, _) => given,
    };
    let is_the_files = config.is_some()
        && train.loss.is_null()
        && train.optimizer.is_null()
        && !given
        && train.learning_rate.is_none()
        && train.loss_weights.is_none();
    let mut optimizer = Optimizer { undecayed: undecayed(optimizer, opened)?, ..parse_optimizer(optimizer)? };
    if let Some(rate) = train.learning_rate {
        optimizer.schedule = constant_rate(rate, "train.learning_rate (--learning-rate)")?;
    }
    let output_names = names.clone();
    Ok(Compiled { losses, loss_weights, output_names, metrics, weighted_metrics, optimizer, is_the_files })
}

/// One value for each output: from a list, from an object by the outputs' names, or one for all.
fn each(value: &Value, names: &[String], place: &str) -> Result<Vec<Option<Value>>, Error> {
    Ok(match value {
        Value::Array(list) => list.iter().map(|item| Some(item.clone())).collect(),
        Value::Object(object) if !is_serialised(object) => {
            if let Some(unknown) = object.keys().find(|key| !names.contains(key)) {
                let problem = format!("there is no output `{unknown}`; there are {}", names.join(", "));
                return Err(Error::job(place, problem));
            }
            names.iter().map(|name| object.get(name).cloned()).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            vec![Some(value.clone()); names.len()]
        }
    })
}

fn is_serialised(object: &Map<String, Value>) -> bool {
    object.contains_key("class_name") || object.contains_key("class")
}

/// Metrics for each output, out of the forms that Keras writes.
fn stored_metrics(stored: &Value, names: &[String], place: &str) -> Result<Vec<Vec<Value>>, Error> {
    if let [_] = names {
        return Ok(vec![flat(stored)]);
    }
    let lists = each(stored, names, place)?;
    if lists.len() != names.len() {
        let problem = format!(
            "expected metrics for each of {}, got {}; give a list for each",
            names.join(", "),
            lists.len()
        );
        return Err(Error::job(place, problem));
    }
    Ok(lists.into_iter().map(|list| flat(&list.unwrap_or_default())).collect())
}

/// Metrics for each output as a job gives them: the same for all, or a list for each.
fn given_metrics(wanted: &[Value], names: &[String]) -> Result<Vec<Vec<Value>>, Error> {
    if wanted.iter().any(Value::is_array) {
        return stored_metrics(&Value::Array(wanted.to_vec()), names, "train.metrics");
    }
    let wanted: Vec<Value> = wanted.iter().filter(|value| value.as_str() != Some("none")).cloned().collect();
    Ok(vec![wanted; names.len()])
}

/// All metrics of lists within lists.
fn flat(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(list) => list.iter().flat_map(flat).collect(),
        Value::Object(object) if !is_serialised(object) => object.values().flat_map(flat).collect(),
        Value::Object(_) | Value::String(_) | Value::Bool(_) | Value::Number(_) => vec![value.clone()],
    }
}
