//! A value that is watched from epoch to epoch, and whether smaller or larger values are better: as Keras's
//! callbacks have it.

use memfit_ir::{Graph, Metric, Op, Rate, RowValue};
use memfit_run::Means;

use crate::Error;

/// Whether smaller or larger values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Less is better.
    Min,
    /// More is better.
    Max,
}

/// A value of an epoch that can be watched, and its mode where that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watchable {
    /// Its name, as in `val_loss`.
    pub name: String,
    /// None where Keras has none either: counts of right and wrong predictions.
    pub mode: Option<Mode>,
}

/// What can be watched: loss and metrics, and the same of the validation where there is one. `metrics` are the names of a graph's
/// losses of several outputs and of its metrics, in its order.
pub fn watchables(graph: &Graph, metrics: &[String], validates: bool) -> Vec<Watchable> {
    let mut modes = Vec::new();
    let mut known = Vec::new();
    for node in &graph.nodes {
        // Slices of a batch add to the same sums.
        if let Op::Metric(metric) = &node.op
            && !known.contains(&node.updates[0])
        {
            known.push(node.updates[0]);
            let numbers = metric.numbers(&graph.tensors[node.inputs[0].0].shape);
            modes.extend(std::iter::repeat_n(mode_of(metric), numbers));
        }
    }
    let losses = 1 + metrics.len().saturating_sub(modes.len());
    let modes: Vec<Option<Mode>> = std::iter::repeat_n(Some(Mode::Min), losses).chain(modes).collect();
    let names: Vec<&str> = std::iter::once("loss").chain(metrics.iter().map(String::as_str)).collect();
    let prefixes: &[&str] = if validates { &["", "val_"] } else { &[""] };
    let named = |prefix: &&str| {
        let prefix = *prefix;
        let each = names.iter().zip(&modes);
        each.map(move |(name, mode)| Watchable { name: format!("{prefix}{name}"), mode: *mode })
            .collect::<Vec<_>>()
    };
    prefixes.iter().flat_map(named).collect()
}

/// The mode that Keras assumes for a metric.
fn mode_of(metric: &Metric) -> Option<Mode> {
    match metric {
        Metric::Mean(value) => match value {
            RowValue::BinaryAccuracy { .. }
            | RowValue::Accuracy
            | RowValue::CategoricalAccuracy
            | RowValue::SparseCategoricalAccuracy
            | RowValue::TopKCategoricalAccuracy { .. }
            | RowValue::SparseTopKCategoricalAccuracy { .. }
            | RowValue::CosineSimilarity => Some(Mode::Max),
            RowValue::Loss(_) => Some(Mode::Min),
        },
        Metric::RootMeanSquaredError => Some(Mode::Min),
        Metric::Counts(counts) => match counts.of {
            Rate::TruePositives | Rate::FalsePositives | Rate::TrueNegatives | Rate::FalseNegatives => None,
            Rate::Precision | Rate::Recall | Rate::Specificity | Rate::Auc { .. } | Rate::Best { .. } => {
                Some(Mode::Max)
            }
        },
        Metric::Iou(_) | Metric::FBeta(_) => Some(Mode::Max),
    }
}

/// A value that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    name: String,
    mode: Mode,
}

impl Monitor {
    /// Finds what a job names at `place` among what there is; `mode` where the job says it.
    pub fn find(place: &str, name: &str, mode: Option<Mode>, known: &[Watchable]) -> Result<Monitor, Error> {
        let Some(found) = known.iter().find(|known| known.name == name) else {
            let names: Vec<&str> = known.iter().map(|known| known.name.as_str()).collect();
            let validates = names.iter().any(|name| name.starts_with("val_"));
            let remedy = if name.starts_with("val_") && !validates {
                "; give validation data for a `val_` one"
            } else {
                ""
            };
            let problem = format!("there is no `{name}`; there are {}{remedy}", names.join(", "));
            return Err(Error::job(place, problem));
        };
        let mode = mode.or(found.mode).ok_or_else(|| {
            let problem =
                format!("whether more or less of `{name}` is better is not known; give the mode, min or max");
            Error::job(place, problem)
        })?;
        Ok(Monitor { name: name.to_owned(), mode })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value in what an epoch gave.
    pub fn value(&self, means: &Means, validation: Option<&Means>, metrics: &[String]) -> Option<f64> {
        let (name, means) = match self.name.strip_prefix("val_") {
            // A metric of the training may be called so too.
            Some(name) if !metrics.contains(&self.name) => (name, validation?),
            Some(_) | None => (self.name.as_str(), means),
        };
        if name == "loss" {
            return Some(means.loss);
        }
        let place = metrics.iter().position(|metric| metric == name)?;
        means.values.get(place).copied()
    }

    /// Whether a value is better than the best so far, by more than `min_delta`.
    pub fn improves(&self, value: f64, best: Option<f64>, min_delta: f64) -> bool {
        let Some(best) = best else { return true };
        match self.mode {
            Mode::Min => value + min_delta < best,
            Mode::Max => best < value - min_delta,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<Watchable> {
        let one = |name: &str, mode| Watchable { name: name.to_owned(), mode };
        vec![
            one("loss", Some(Mode::Min)),
            one("accuracy", Some(Mode::Max)),
            one("true_positives", None),
            one("val_loss", Some(Mode::Min)),
            one("val_accuracy", Some(Mode::Max)),
        ]
    }

    #[test]
    fn an_unknown_name_is_refused_with_those_there_are() {
        let answer = |name: &str, known: &[Watchable]| {
            Monitor::find("--early-stopping", name, None, known).unwrap_err().to_string()
        };
        let text = answer("val_mae", &known());
        assert_eq!(
            text,
            "--early-stopping: there is no `val_mae`; there are loss, accuracy, true_positives, val_loss, val_accuracy"
        );
        assert!(answer("val_loss", &known()[..3]).ends_with("give validation data for a `val_` one"));
        assert!(answer("true_positives", &known()).ends_with("give the mode, min or max"));
        assert!(Monitor::find("", "true_positives", Some(Mode::Max), &known()).is_ok());
    }

    #[test]
    fn a_value_is_found_by_its_name() {
        let metrics = ["accuracy".to_owned(), "true_positives".to_owned()];
        let means = |loss: f64| Means { rows: 1, loss, values: vec![loss + 1.0, loss + 2.0] };
        let cases = [
            ("loss", Some(10.0), Some(10.0)),
            ("accuracy", Some(11.0), Some(11.0)),
            ("val_loss", Some(20.0), None),
            ("val_accuracy", Some(21.0), None),
        ];
        for (name, with, without) in cases {
            let monitor = Monitor::find("", name, None, &known()).unwrap();
            assert_eq!(monitor.value(&means(10.0), Some(&means(20.0)), &metrics), with, "{name}");
            assert_eq!(monitor.value(&means(10.0), None, &metrics), without, "{name}");
        }
    }
}
