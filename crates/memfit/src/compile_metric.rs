//! Metrics by Keras's names, as a job file or a Keras configuration spells them, and the names that their
//! values are reported under.

use std::collections::BTreeMap;

use memfit_ir::{
    AtRate, ClassAverage, ClassOf, Counts, Curve, FBeta, Iou, Metric, Rate, RowValue, Summation, Tensor,
    Thresholds,
};
use serde_json::Value;

use crate::Error;
use crate::compile::parse_loss;
use crate::compile_arguments::{Arguments, plain};

/// Where errors point.
const PLACE: &str = "train.metrics";

/// What there is.
const KNOWN: &str = "accuracy, binary_accuracy, categorical_accuracy, sparse_categorical_accuracy, \
    top_k_categorical_accuracy, sparse_top_k_categorical_accuracy, precision, recall, auc, true_positives, false_positives, \
    true_negatives, false_negatives, sensitivity_at_specificity, specificity_at_sensitivity, precision_at_recall, \
    recall_at_precision, f1_score, f_beta_score, io_u, binary_io_u, mean_io_u, one_hot_io_u, one_hot_mean_io_u, \
    root_mean_squared_error, cosine_similarity, mse, mae, and the other losses";

/// Losses that Keras knows as metrics too, by their plain names.
const LOSSES: [&str; 22] = [
    "meansquarederror",
    "mse",
    "meanabsoluteerror",
    "mae",
    "meanabsolutepercentageerror",
    "mape",
    "meansquaredlogarithmicerror",
    "msle",
    "huber",
    "poisson",
    "logcosh",
    "hinge",
    "squaredhinge",
    "categoricalhinge",
    "kldivergence",
    "kld",
    "kullbackleiblerdivergence",
    "binarycrossentropy",
    "bce",
    "categoricalcrossentropy",
    "sparsecategoricalcrossentropy",
    "binaryfocalcrossentropy",
];

/// A metric: a name, or an object with a class and its arguments. `accuracy` takes its kind from the shapes of prediction and target,
/// as in Keras. `sparse` says whether targets are class numbers.
pub fn parse_metric(value: &Value, prediction: &Tensor, sparse: bool) -> Result<Metric, Error> {
    let value = &unwrapped(value);
    let mut arguments = Arguments::new(value, PLACE)?;
    arguments.ignore(&["name", "dtype"]);
    let metric = match plain(&arguments.class).as_str() {
        "accuracy" | "acc" if value.is_object() => Metric::Mean(RowValue::Accuracy),
        "accuracy" | "acc" => Metric::Mean(if prediction.shape.last() == 1 {
            RowValue::BinaryAccuracy { threshold: 0.5 }
        } else if sparse {
            RowValue::SparseCategoricalAccuracy
        } else {
            RowValue::CategoricalAccuracy
        }),
        "binaryaccuracy" => {
            Metric::Mean(RowValue::BinaryAccuracy { threshold: arguments.float("threshold", 0.5)? })
        }
        "categoricalaccuracy" => Metric::Mean(RowValue::CategoricalAccuracy),
        "sparsecategoricalaccuracy" => Metric::Mean(RowValue::SparseCategoricalAccuracy),
        "topkcategoricalaccuracy" => {
            Metric::Mean(RowValue::TopKCategoricalAccuracy { k: arguments.count("k")?.unwrap_or(5) })
        }
        "sparsetopkcategoricalaccuracy" => {
            arguments.only("from_sorted_ids", &Value::from(false))?;
            Metric::Mean(RowValue::SparseTopKCategoricalAccuracy { k: arguments.count("k")?.unwrap_or(5) })
        }
        "rootmeansquarederror" => Metric::RootMeanSquaredError,
        "cosinesimilarity" => {
            arguments.only("axis", &Value::from(-1))?;
            Metric::Mean(RowValue::CosineSimilarity)
        }
        "logcosherror" => return parse_metric(&Value::from("log_cosh"), prediction, sparse),
        class => {
            match (counts(class, &mut arguments, prediction)?, overlap(class, &mut arguments, prediction)?) {
                (Some(counts), _) => Metric::Counts(counts),
                (None, Some(metric)) => metric,
                (None, None) if LOSSES.contains(&class) => {
                    return checked(
                        value,
                        Metric::Mean(RowValue::Loss(parse_loss(&full(value), PLACE)?)),
                        sparse,
                    );
                }
                (None, None) => {
                    let problem =
                        format!("unknown metric `{}`; leave it out, or give one of {KNOWN}", arguments.class);
                    return Err(Error::job(PLACE, problem));
                }
            }
        }
    };
    arguments.finish()?;
    checked(value, metric, sparse)
}

/// Refuses a metric that reads other targets than the loss does.
fn checked(value: &Value, metric: Metric, sparse: bool) -> Result<Metric, Error> {
    let name = metric_name(value);
    match (metric.is_sparse(), sparse) {
        (false, true) => Err(Error::job(
            PLACE,
            format!(
                "`{name}` wants targets of the prediction's shape, and the loss reads class numbers; use the loss \
                 categorical_crossentropy with one-hot targets, or leave the metric out"
            ),
        )),
        (true, false) => Err(Error::job(
            PLACE,
            format!(
                "`{name}` wants class numbers, and the loss reads targets of the prediction's shape; use the loss \
                 sparse_categorical_crossentropy, or the metric without `sparse`"
            ),
        )),
        (true, true) | (false, false) => Ok(metric),
    }
}

/// The metric that a wrapper or a function is.
fn unwrapped(value: &Value) -> Value {
    let function = |value: &Value| match value.get("class_name").and_then(Value::as_str) {
        Some("function") => value.get("config").cloned(),
        _ => None,
    };
    if let Some(name) = function(value) {
        return name;
    }
    if value.get("class_name").and_then(Value::as_str) != Some("MeanMetricWrapper") {
        return value.clone();
    }
    let mut config = value.get("config").cloned().unwrap_or_default();
    let wrapped = config.as_object_mut().and_then(|config| config.remove("fn")).unwrap_or_default();
    let class = function(&wrapped).unwrap_or(wrapped);
    serde_json::json!({"class_name": class, "config": config})
}

/// A loss by the name that losses have, where metrics have another.
fn full(value: &Value) -> Value {
    match value.as_str() {
        Some(name) if plain(name) == "bce" => Value::from("binary_crossentropy"),
        _ => value.clone(),
    }
}

/// Metrics of positives and negatives.
fn counts(class: &str, arguments: &mut Arguments, prediction: &Tensor) -> Result<Option<Counts>, Error> {
    let at = |rate, key: &'static str| (rate, key);
    let best = match class {
        "sensitivityatspecificity" => Some(at(AtRate::SensitivityAtSpecificity, "specificity")),
        "specificityatsensitivity" => Some(at(AtRate::SpecificityAtSensitivity, "sensitivity")),
        "precisionatrecall" => Some(at(AtRate::PrecisionAtRecall, "recall")),
        "recallatprecision" => Some(at(AtRate::RecallAtPrecision, "precision")),
        _ => None,
    };
    if let Some((rate, key)) = best {
        let of = Rate::Best { rate, least: arguments.required(key)? as f32 };
        let thresholds = match arguments.count("num_thresholds")?.unwrap_or(200) {
            0 | 1 => Thresholds::At(vec![0.5]),
            count => Thresholds::Even { count, open: false },
        };
        let class = arguments.count("class_id")?;
        return Ok(Some(Counts { thresholds, class, top_k: None, from_logits: false, labels: None, of }));
    }
    let of = match class {
        "precision" => Rate::Precision,
        "recall" => Rate::Recall,
        "truepositives" => Rate::TruePositives,
        "falsepositives" => Rate::FalsePositives,
        "truenegatives" => Rate::TrueNegatives,
        "falsenegatives" => Rate::FalseNegatives,
        "auc" => return auc(arguments, prediction).map(Some),
        _ => return Ok(None),
    };
    let (class, top_k) = (arguments.count("class_id")?, arguments.count("top_k")?);
    // Among the top k, any prediction is positive.
    let usual = if top_k.is_some() { f32::NEG_INFINITY } else { 0.5 };
    let thresholds = match arguments.take("thresholds") {
        None | Some(Value::Null) => vec![usual],
        Some(value) => {
            let list = value.pointer("/config/value").unwrap_or(&value);
            let list = list.as_array().map_or(std::slice::from_ref(list), Vec::as_slice);
            let numbers: Option<Vec<f32>> =
                list.iter().map(|one| one.as_f64().map(|one| one as f32)).collect();
            let rising = |list: &Vec<f32>| !list.is_empty() && list.windows(2).all(|pair| pair[0] < pair[1]);
            let wanted = "a number, or a list of numbers that rise";
            numbers.filter(rising).ok_or_else(|| arguments.wrong("thresholds", wanted, &value))?
        }
    };
    let thresholds = Thresholds::At(thresholds);
    Ok(Some(Counts { thresholds, class, top_k, from_logits: false, labels: None, of }))
}

fn auc(arguments: &mut Arguments, prediction: &Tensor) -> Result<Counts, Error> {
    let curve = match plain(&arguments.text("curve", "ROC")?).as_str() {
        "roc" => Curve::Roc,
        "pr" => Curve::Pr,
        other => return Err(Error::job(PLACE, format!("AUC: the curve is ROC or PR, not `{other}`"))),
    };
    let summation = match arguments.text("summation_method", "interpolation")?.to_lowercase().as_str() {
        "interpolation" => Summation::Interpolation,
        "minoring" => Summation::Minoring,
        "majoring" => Summation::Majoring,
        other => {
            let problem =
                format!("AUC: the summation_method is interpolation, minoring or majoring, not `{other}`");
            return Err(Error::job(PLACE, problem));
        }
    };
    let labels = match arguments.truth("multi_label", false)? {
        false => {
            arguments.only("label_weights", &Value::Null)?;
            None
        }
        true => {
            let weights = arguments.take("label_weights").filter(|weights| !weights.is_null());
            let given =
                weights.map_or_else(|| vec![1.0; prediction.shape.last()], |weights| numbers(&weights));
            Some(given)
        }
    };
    arguments.ignore(&["num_labels"]);
    let count = arguments.count("num_thresholds")?.unwrap_or(200);
    let thresholds = match arguments.take("thresholds") {
        None | Some(Value::Null) => Thresholds::Even { count, open: true },
        Some(list) => {
            between(&list).ok_or_else(|| arguments.wrong("thresholds", "a list of numbers", &list))?
        }
    };
    let from_logits = arguments.truth("from_logits", false)?;
    Ok(Counts {
        thresholds,
        class: None,
        top_k: None,
        from_logits,
        labels,
        of: Rate::Auc { curve, summation },
    })
}

/// The numbers of a list, also where Keras writes it as an array of its own.
fn numbers(list: &Value) -> Vec<f32> {
    let list = list.pointer("/config/value").unwrap_or(list);
    list.as_array().into_iter().flatten().filter_map(Value::as_f64).map(|number| number as f32).collect()
}

/// Thresholds that Keras adds one below 0 and one above 1 to.
fn between(list: &Value) -> Option<Thresholds> {
    let mut inner: Vec<f64> = list.as_array()?.iter().map(Value::as_f64).collect::<Option<_>>()?;
    inner.sort_by(f64::total_cmp);
    let steps = (inner.len() + 1) as f64;
    if inner.iter().enumerate().all(|(index, at)| (at - (index + 1) as f64 / steps).abs() < 1e-6) {
        return Some(Thresholds::Even { count: inner.len() + 2, open: true });
    }
    let all = std::iter::once(-1e-7).chain(inner).chain([1.0 + 1e-7]);
    Some(Thresholds::At(all.map(|at| at as f32).collect()))
}

/// Metrics of classes that overlap.
fn overlap(class: &str, arguments: &mut Arguments, prediction: &Tensor) -> Result<Option<Metric>, Error> {
    let (one_hot, all_classes) = match class {
        "f1score" | "fbetascore" => return score(arguments).map(|score| Some(Metric::FBeta(score))),
        "binaryiou" => {
            let wanted = classes(arguments)?.unwrap_or(vec![0, 1]);
            let threshold = arguments.float("threshold", 0.5)?;
            let prediction = ClassOf::AtLeast(threshold);
            let iou = Iou { classes: 2, wanted, one_hot: false, prediction, ignored: None };
            return Ok(Some(Metric::Iou(iou)));
        }
        "iou" => (false, false),
        "meaniou" => (false, true),
        "onehotiou" => (true, false),
        "onehotmeaniou" => (true, true),
        _ => return Ok(None),
    };
    let Some(count) = arguments.count("num_classes")? else {
        return Err(Error::job(PLACE, format!("{} needs the argument `num_classes`", arguments.class)));
    };
    let wanted = match classes(arguments)? {
        Some(wanted) if !all_classes => wanted,
        None if !all_classes => {
            let problem = format!("{} needs the argument `target_class_ids`", arguments.class);
            return Err(Error::job(PLACE, problem));
        }
        Some(_) | None => (0..count).collect(),
    };
    arguments.only("axis", &Value::from(-1))?;
    let one_hot = one_hot || !arguments.truth("sparse_y_true", true)?;
    let is_number = arguments.truth("sparse_y_pred", class == "iou" || class == "meaniou")?;
    if is_number && one_hot {
        let problem = format!(
            "{} with one-hot targets wants predictions of every class; set sparse_y_pred=False",
            arguments.class
        );
        return Err(Error::job(PLACE, problem));
    }
    if is_number && 1 < prediction.shape.last() && prediction.shape.dims.len() == 1 {
        let problem = format!(
            "{} reads each prediction as the number of a class, and there are {} a row; set sparse_y_pred=False",
            arguments.class,
            prediction.shape.last()
        );
        return Err(Error::job(PLACE, problem));
    }
    let prediction = if is_number { ClassOf::Number } else { ClassOf::Largest };
    let ignored = arguments.optional("ignore_class")?.map(|class| class as i64);
    Ok(Some(Metric::Iou(Iou { classes: count, wanted, one_hot, prediction, ignored })))
}

fn classes(arguments: &mut Arguments) -> Result<Option<Vec<usize>>, Error> {
    let Some(value) = arguments.take("target_class_ids").filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    // Keras writes a tuple as an object.
    let list = value.pointer("/config/value").unwrap_or(&value);
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    let numbers = list.as_array().map(|list| list.iter().map(number).collect::<Option<Vec<usize>>>());
    let wrong = || arguments.wrong("target_class_ids", "a list of class numbers", &value);
    numbers.flatten().map(Some).ok_or_else(wrong)
}

fn score(arguments: &mut Arguments) -> Result<FBeta, Error> {
    let average = match arguments.take("average") {
        Some(Value::String(name)) if name == "micro" => ClassAverage::Micro,
        Some(Value::String(name)) if name == "macro" => ClassAverage::Macro,
        Some(Value::String(name)) if name == "weighted" => ClassAverage::Weighted,
        None | Some(Value::Null) => ClassAverage::None,
        Some(other) => {
            let wanted = "\"macro\", \"micro\", \"weighted\" or none";
            return Err(arguments.wrong("average", wanted, &other));
        }
    };
    let (beta, threshold) = (arguments.float("beta", 1.0)?, arguments.optional_float("threshold")?);
    Ok(FBeta { beta, threshold, average })
}

/// The name that a metric's values are reported under: as it was given, or the object's own.
pub(crate) fn metric_name(value: &Value) -> String {
    if let Some(name) = value.as_str() {
        return name.to_owned();
    }
    let function = value.get("config").and_then(Value::as_str);
    let given = value.pointer("/config/name").or(value.get("name")).and_then(Value::as_str).or(function);
    let class = value.get("class_name").or(value.get("class")).and_then(Value::as_str).unwrap_or("metric");
    given.map_or_else(|| snake(class), str::to_owned)
}

/// `MeanIoU` as Keras names it: `mean_io_u`.
fn snake(class: &str) -> String {
    let letters: Vec<char> = class.chars().collect();
    let mut name = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| letters[before]);
        let starts_word = letters.get(index + 1).is_some_and(|next| next.is_lowercase());
        let follows = before.is_some_and(|before| before != '_' && (before.is_lowercase() || starts_word));
        if letter.is_uppercase() && follows {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// Names of metrics as Keras reports them: with the output's where there are several, numbered where two are
/// alike, and `weighted_` where an unweighted one has the name.
#[derive(Default)]
pub(crate) struct Names {
    taken: BTreeMap<String, usize>,
}

impl Names {
    pub(crate) fn next(&mut self, output: Option<&str>, name: &str, weighted: bool) -> String {
        let full = |name: &str| output.map_or(name.to_owned(), |output| format!("{output}_{name}"));
        let plain = full(name);
        if !self.taken.contains_key(&plain) {
            self.taken.insert(plain.clone(), 1);
            return plain;
        }
        let name = if weighted { full(&format!("weighted_{name}")) } else { plain };
        match self.taken.get_mut(&name) {
            None => {
                self.taken.insert(name.clone(), 1);
                name
            }
            Some(count) => {
                *count += 1;
                format!("{name}_{}", *count - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_keras() {
        let classes = ["AUC", "MeanIoU", "F1Score", "FBetaScore", "KLDivergence", "TopKCategoricalAccuracy"];
        let names =
            ["auc", "mean_io_u", "f1_score", "f_beta_score", "kl_divergence", "top_k_categorical_accuracy"];
        assert_eq!(classes.map(snake), names);
    }

    #[test]
    fn names_that_are_alike_are_numbered() {
        let mut names = Names::default();
        let named =
            [("mae", false), ("mae", false), ("mse", false), ("mae", true), ("mae", true), ("auc", true)];
        let named = named.map(|(name, weighted)| names.next(None, name, weighted));
        assert_eq!(named, ["mae", "mae_1", "mse", "weighted_mae", "weighted_mae_1", "auc"]);
        assert_eq!(names.next(Some("left"), "mae", true), "left_mae");
    }
}
