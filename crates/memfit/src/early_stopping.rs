//! Stopping when a value no longer improves, as Keras's `EarlyStopping` does.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::monitor::{Mode, Monitor, Watchable};

/// Where errors point.
const PLACE: &str = "train.early_stopping (--early-stopping)";

/// What a job asks for: `"val_loss:5"`, `"val_loss:5:0.01"`, or a table with Keras's arguments.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Written")]
pub struct EarlyStoppingRule {
    /// The value that is watched.
    pub monitor: String,
    /// Epochs without improvement after which training stops.
    pub patience: u64,
    /// What counts as an improvement.
    pub min_delta: f64,
    /// Whether smaller or larger values are better; that of the metric where it is not given.
    pub mode: Option<Mode>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Table(Table),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default = "val_loss")]
    monitor: String,
    #[serde(default)]
    patience: u64,
    #[serde(default)]
    min_delta: f64,
    mode: Option<Mode>,
}

fn val_loss() -> String {
    "val_loss".to_owned()
}

impl TryFrom<Written> for EarlyStoppingRule {
    type Error = String;

    fn try_from(written: Written) -> Result<EarlyStoppingRule, String> {
        match written {
            Written::Text(text) => text.parse(),
            Written::Table(Table { monitor, patience, min_delta, mode }) => {
                EarlyStoppingRule { monitor, patience, min_delta, mode }.checked()
            }
        }
    }
}

impl std::str::FromStr for EarlyStoppingRule {
    type Err = String;

    fn from_str(text: &str) -> Result<EarlyStoppingRule, String> {
        let wrong = || {
            format!("expected MONITOR:PATIENCE or MONITOR:PATIENCE:MIN_DELTA, as in val_loss:5, got `{text}`")
        };
        let parts: Vec<&str> = text.split(':').collect();
        let (monitor, patience, min_delta) = match parts[..] {
            [monitor, patience] => (monitor, patience, "0"),
            [monitor, patience, min_delta] => (monitor, patience, min_delta),
            _ => return Err(wrong()),
        };
        let patience = patience.parse().map_err(|_| wrong())?;
        let min_delta = min_delta.parse().map_err(|_| wrong())?;
        EarlyStoppingRule { monitor: monitor.to_owned(), patience, min_delta, mode: None }.checked()
    }
}

impl EarlyStoppingRule {
    fn checked(self) -> Result<EarlyStoppingRule, String> {
        if self.monitor.is_empty() {
            return Err("the monitor has no name; give one, as in val_loss:5".to_owned());
        }
        if !(self.min_delta.is_finite() && 0.0 <= self.min_delta) {
            return Err(format!("min_delta is {}; give a number of at least 0", self.min_delta));
        }
        Ok(self)
    }
}

/// How far patience is used up.
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    monitor: Monitor,
    patience: u64,
    min_delta: f64,
    best: Option<f64>,
    wait: u64,
}

/// What a checkpoint keeps of it. The best value is its bits: numbers in JSON have no NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyStoppingState {
    /// Bits of the best value so far.
    pub best: Option<u64>,
    /// Epochs since.
    pub wait: u64,
}

impl EarlyStopping {
    /// Begins to watch. What a job names must be there.
    pub fn new(rule: &EarlyStoppingRule, known: &[Watchable]) -> Result<EarlyStopping, Error> {
        let monitor = Monitor::find(PLACE, &rule.monitor, rule.mode, known)?;
        let (patience, min_delta) = (rule.patience, rule.min_delta);
        Ok(EarlyStopping { monitor, patience, min_delta, best: None, wait: 0 })
    }

    /// What is watched.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// The best value so far.
    pub fn best(&self) -> Option<f64> {
        self.best
    }

    /// Takes the value of an epoch, counted from 0, and says whether training stops.
    pub fn stops(&mut self, epoch: u64, value: f64) -> bool {
        self.wait += 1;
        if self.monitor.improves(value, self.best, self.min_delta) {
            (self.best, self.wait) = (Some(value), 0);
            return false;
        }
        // As in Keras, the first epoch never stops it.
        self.patience <= self.wait && 0 < epoch
    }

    /// What a checkpoint keeps.
    pub fn state(&self) -> EarlyStoppingState {
        EarlyStoppingState { best: self.best.map(f64::to_bits), wait: self.wait }
    }

    /// Goes on from what a checkpoint kept.
    pub fn resume(&mut self, state: EarlyStoppingState) {
        self.best = state.best.map(f64::from_bits);
        self.wait = state.wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(rule: &str, mode: Mode) -> EarlyStopping {
        let rule: EarlyStoppingRule = rule.parse().unwrap();
        let known = [Watchable { name: rule.monitor.clone(), mode: Some(mode) }];
        EarlyStopping::new(&rule, &known).unwrap()
    }

    /// The epoch at which it stops, as `references/early_stopping.py` prints Keras's.
    fn stopped_at(stopping: &mut EarlyStopping, values: &[f64]) -> Option<usize> {
        (0..values.len()).find(|epoch| stopping.stops(*epoch as u64, values[*epoch]))
    }

    #[test]
    fn it_stops_when_keras_does() {
        let nan = f64::NAN;
        let cases: [(&str, Mode, &[f64], Option<usize>); 11] = [
            ("val_loss:2", Mode::Min, &[3.0, 2.0, 2.5, 2.1, 2.2], Some(3)),
            ("val_loss:2", Mode::Min, &[3.0, 2.0, 2.5, 1.9, 2.2], None),
            ("val_loss:0", Mode::Min, &[3.0, 2.0, 2.5], Some(2)),
            ("val_loss:1", Mode::Min, &[3.0, 3.0], Some(1)),
            ("val_loss:2:0.1", Mode::Min, &[3.0, 2.95, 2.92, 2.0], Some(2)),
            ("val_loss:2:0.1", Mode::Min, &[3.0, 2.95, 2.85, 2.8, 2.8], Some(4)),
            ("accuracy:2", Mode::Max, &[0.1, 0.3, 0.2, 0.2, 0.9], Some(3)),
            ("accuracy:1:0.05", Mode::Max, &[0.1, 0.2, 0.24], Some(2)),
            ("loss:2", Mode::Min, &[nan, 1.0, 1.0], Some(2)),
            ("loss:2", Mode::Min, &[1.0, nan, 0.5, nan, nan], Some(4)),
            ("loss:3", Mode::Min, &[1.0, 1.0, 1.0], None),
        ];
        for (rule, mode, values, wanted) in cases {
            assert_eq!(stopped_at(&mut watch(rule, mode), values), wanted, "{rule} of {values:?}");
        }
    }

    #[test]
    fn a_state_that_is_resumed_goes_on_as_if_nothing_had_happened() {
        let values = [3.0, 2.0, f64::NAN, 2.5, 1.0, 1.5, 1.5, 1.5];
        let whole = stopped_at(&mut watch("loss:3", Mode::Min), &values);
        assert_eq!(whole, Some(7));
        for cut in 1..values.len() {
            let mut before = watch("loss:3", Mode::Min);
            assert_eq!(stopped_at(&mut before, &values[..cut]), None);
            let text = serde_json::to_string(&before.state()).unwrap();
            let mut after = watch("loss:3", Mode::Min);
            after.resume(serde_json::from_str(&text).unwrap());
            assert_eq!(after.state(), before.state());
            let stopped = (cut..values.len()).find(|epoch| after.stops(*epoch as u64, values[*epoch]));
            assert_eq!(stopped, whole, "cut at {cut}");
        }
    }

    #[test]
    fn rules_are_read_as_text_and_as_a_table() {
        #[derive(Deserialize)]
        struct Section {
            early_stopping: EarlyStoppingRule,
        }
        let rule = |monitor: &str, patience, min_delta, mode| EarlyStoppingRule {
            monitor: monitor.to_owned(),
            patience,
            min_delta,
            mode,
        };
        let cases = [
            (r#""val_loss:5""#, rule("val_loss", 5, 0.0, None)),
            (r#""val_mae:3:0.01""#, rule("val_mae", 3, 0.01, None)),
            ("{}", rule("val_loss", 0, 0.0, None)),
            (r#"{ monitor = "x", patience = 2, mode = "max" }"#, rule("x", 2, 0.0, Some(Mode::Max))),
        ];
        for (text, wanted) in cases {
            let section: Section = toml::from_str(&format!("early_stopping = {text}")).unwrap();
            assert_eq!(section.early_stopping, wanted, "{text}");
        }
        for text in ["val_loss", "val_loss:x", "val_loss:1:-1", "val_loss:1:nan", ":3", "a:1:2:3"] {
            assert!(text.parse::<EarlyStoppingRule>().is_err(), "{text}");
        }
    }
}
