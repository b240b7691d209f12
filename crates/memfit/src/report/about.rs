//! Which run a report is of.

use serde_json::{Value, json};

use crate::Prepared;
use crate::compile_config::compile_config;
use crate::saving::{date, seconds_now};

/// What distinguishes one run from another, in the order in which it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    lines: Vec<(&'static str, String)>,
}

impl About {
    /// What a planned job knows of itself: model, optimizer, device, version and date.
    pub(crate) fn of(prepared: &Prepared) -> About {
        let config = &prepared.model.model.config;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let (class, name) = (text(config.get("class_name")), text(config.pointer("/config/name")));
        let parameters: u64 = prepared.model.model.layers.iter().map(|layer| layer.parameters).sum();
        let optimizer = compile_config(&prepared.compiled);
        let optimizer = text(optimizer.pointer("/optimizer/class_name"));
        let rate = prepared.compiled.optimizer.schedule.at(0);
        let setup = &prepared.setup;
        let device = match setup.vectors() {
            Some(vectors) => {
                let processor = memfit_device::process::processor();
                format!("{processor}, {} threads, {vectors}", setup.threads())
            }
            None => setup.name(),
        };
        let date = date(seconds_now()).replace('@', " ") + " UTC";
        let mut about = About::default();
        about.add("Model", format!("{name} ({class}), {parameters} parameters").trim_start());
        about.add("Optimizer", format!("{optimizer}, learning rate {rate}"));
        about.add("Device", device);
        about.add("Version", format!("memfit {}", env!("CARGO_PKG_VERSION")));
        about.add("Date", date);
        about
    }

    /// Adds a line, such as the command that was typed.
    pub fn add(&mut self, name: &'static str, value: impl Into<String>) {
        self.lines.push((name, value.into()));
    }

    /// Pairs of name and value.
    pub(crate) fn to_json(&self) -> Value {
        self.lines.iter().map(|(name, value)| json!([name, value])).collect()
    }
}
