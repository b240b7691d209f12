//! What a model is compiled with: from the job, or where that is silent from the model's own file.

use memfit_grad::Optimizer;
use memfit_ir::LossKind;
use serde_json::{Map, Value};

use crate::compile::parse_loss;
use crate::compile_optimizer::parse_optimizer;
use crate::model_file::ModelFile;
use crate::{Error, Job};

/// Losses, metrics and optimizer, one list a kind with a place for each output.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The loss of each output.
    pub losses: Vec<LossKind>,
    /// Its factor in the total.
    pub loss_weights: Vec<f32>,
    /// Names of the metrics of each output.
    pub metrics: Vec<Vec<String>>,
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
            return Err(Error::job(
                "train.loss",
                "there is none; give `--loss NAME` (and `--optimizer NAME`, `--metrics NAMES`), or `loss` under [train]",
            ));
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
    if train.metrics.is_empty() && stored("weighted_metrics").is_some() {
        let problem =
            "weighted metrics are not supported; give others with `--metrics`, or none with `--metrics none`";
        return Err(Error::job("weighted_metrics", problem));
    }
    let metrics = match stored("metrics") {
        Some(stored) if train.metrics.is_empty() => metrics_of(stored, names)?,
        Some(_) | None => {
            let wanted = train.metrics.iter().filter(|name| *name != "none");
            vec![wanted.cloned().collect(); names.len()]
        }
    };
    let rmsprop = Value::from("rmsprop");
    let optimizer = match (&train.optimizer, stored("optimizer")) {
        (Value::Null, Some(stored)) => stored,
        (Value::Null, None) => &rmsprop,
        (given, _) => given,
    };
    let is_the_files = config.is_some()
        && train.loss.is_null()
        && train.optimizer.is_null()
        && train.metrics.is_empty()
        && train.loss_weights.is_none();
    let optimizer = parse_optimizer(optimizer)?;
    Ok(Compiled { losses, loss_weights, metrics, optimizer, is_the_files })
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

/// Names of metrics for each output, out of the forms that Keras writes.
fn metrics_of(stored: &Value, names: &[String]) -> Result<Vec<Vec<String>>, Error> {
    // With one output, a list is that output's; a list within it too.
    let is_one_list = stored.as_array().is_some_and(|list| !matches!(&list[..], [Value::Array(_)]));
    let lists = if names.len() == 1 && is_one_list {
        vec![Some(stored.clone())]
    } else {
        each(stored, names, "metrics")?
    };
    lists.into_iter().map(|list| metric_names(&list.unwrap_or_default())).collect()
}

fn metric_names(value: &Value) -> Result<Vec<String>, Error> {
    let object_name = |object: &Map<String, Value>| {
        let class = object.get("class_name")?.as_str()?;
        // Keras's own name of it reads better, unless the user gave another.
        let name = value.pointer("/config/name").and_then(Value::as_str);
        let name = name.filter(|name| name.replace('_', "") == class.to_lowercase());
        Some(name.unwrap_or(class).to_owned())
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(name) => Ok(vec![name.clone()]),
        Value::Array(list) => {
            let inner: Vec<Vec<String>> = list.iter().map(metric_names).collect::<Result<_, _>>()?;
            Ok(inner.concat())
        }
        Value::Object(object) => object_name(object).map(|name| vec![name]).ok_or_else(|| strange(value)),
        Value::Bool(_) | Value::Number(_) => Err(strange(value)),
    }
}

fn strange(value: &Value) -> Error {
    Error::job(
        "metrics",
        format!("{value} is no metric; give others with `--metrics`, or none with `--metrics none`"),
    )
}
