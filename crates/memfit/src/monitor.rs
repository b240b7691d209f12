//! A value of an epoch that decides something: which one, and whether less or more of it is better.

use memfit_run::Means;

use crate::Error;

/// What is monitored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// Its name in the logs, as in `val_loss`.
    pub name: String,
    /// Whether more of it is better.
    pub is_maximised: bool,
}

impl Monitor {
    /// A value by its name, of an epoch that has these metrics; as in Keras's `mode="auto"`, the name says what is better.
    pub(crate) fn new(
        name: &str,
        metrics: &[String],
        validates: bool,
        place: &str,
    ) -> Result<Monitor, Error> {
        let plain = std::iter::once("loss").chain(metrics.iter().map(String::as_str));
        let known: Vec<String> = plain
            .flat_map(|name| [(true, name.to_owned()), (validates, format!("val_{name}"))])
            .filter(|(is_there, _)| *is_there)
            .map(|(_, name)| name)
            .collect();
        if !known.iter().any(|one| one == name) {
            let hint = if validates || !name.starts_with("val_") { "" } else { "; there is no validation" };
            let problem = format!("there is no `{name}`: an epoch has {}{hint}", known.join(", "));
            return Err(Error::job(place, problem));
        }
        Ok(Monitor { name: name.to_owned(), is_maximised: is_maximised(name) })
    }

    /// Its value at the end of an epoch.
    pub(crate) fn value(&self, means: &Means, validation: Option<&Means>, metrics: &[String]) -> Option<f64> {
        let (name, of) = match self.name.strip_prefix("val_") {
            Some(name) => (name, validation?),
            None => (self.name.as_str(), means),
        };
        if name == "loss" {
            return Some(of.loss);
        }
        let index = metrics.iter().position(|metric| metric == name)?;
        of.values.get(index).copied()
    }

    /// Whether a value is better than another by more than `least`.
    pub(crate) fn is_better(&self, value: f64, than: f64, least: f64) -> bool {
        if self.is_maximised { than + least < value } else { value < than - least }
    }
}

/// Parts of names of which more is better.
const MAXIMISED: [&str; 16] = [
    "acc",
    "auc",
    "precision",
    "recall",
    "f1_score",
    "fbeta_score",
    "iou",
    "cosine_similarity",
    "r2_score",
    "true_positives",
    "true_negatives",
    "sensitivity",
    "specificity",
    "top_k",
    "one_hot_mean",
    "concordance",
];

fn is_maximised(name: &str) -> bool {
    !name.ends_with("loss") && MAXIMISED.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_better() {
        let metrics = ["accuracy".to_owned(), "mae".to_owned(), "auc".to_owned()];
        for (name, more) in
            [("loss", false), ("val_loss", false), ("val_accuracy", true), ("mae", false), ("val_auc", true)]
        {
            let monitor = Monitor::new(name, &metrics, true, "here").unwrap();
            assert_eq!(monitor.is_maximised, more, "{name}");
            assert_eq!(monitor.is_better(2.0, 1.0, 0.0), more);
            assert!(!monitor.is_better(1.0, 1.0, 0.0));
        }
    }

    #[test]
    fn unknown_names_are_refused_with_those_there_are() {
        let refused = Monitor::new("val_loss", &[], false, "--keep-best").unwrap_err().to_string();
        assert!(refused.contains("--keep-best") && refused.contains("no validation"), "{refused}");
        let refused = Monitor::new("acc", &["accuracy".to_owned()], true, "x").unwrap_err().to_string();
        assert!(refused.contains("val_accuracy"), "{refused}");
    }
}
