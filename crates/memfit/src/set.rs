//! Settings: any key of a job and its value, in place of what its file says. The shell's options and Python's arguments are settings too,
//! so that there is one path from all of them to a job.

use std::str::FromStr;

use memfit_formats::hint;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use toml::{Table, Value};

use crate::Error;
use crate::checkpoint::CheckpointSection;
use crate::job::{DataSection, Job, MemorySection, ModelSection, TrainSection};

/// A key of a job and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The parts of the key, as in `train`, `optimizer`, `learning_rate`.
    path: Vec<String>,
    /// `None` removes the key.
    value: Option<Value>,
}

impl FromStr for Setting {
    type Err = String;

    /// Reads `KEY=VALUE`. What is no value of TOML is a text, so that quotes are not needed.
    fn from_str(text: &str) -> Result<Setting, String> {
        let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, as in train.batch=64")?;
        let path: Vec<String> = key.trim().split('.').map(|part| part.trim().to_owned()).collect();
        if path.len() < 2 || path.iter().any(String::is_empty) {
            return Err(format!("`{key}` names no key of a section; give one, as in train.batch=64"));
        }
        let value = value.trim();
        let read: Option<Table> = toml::from_str(&format!("value = {value}")).ok();
        let read = read.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
        Ok(Setting { path, value: Some(read.unwrap_or_else(|| Value::from(value))) })
    }
}

impl Setting {
    /// A key, as in `train.batch`, and its value.
    pub fn new(key: &str, value: impl Into<Value>) -> Setting {
        Setting { path: key.split('.').map(str::to_owned).collect(), value: Some(value.into()) }
    }

    /// The same of a value in JSON.
    pub fn from_json(key: &str, value: &serde_json::Value) -> Result<Setting, Error> {
        let value = Value::try_from(value).map_err(|error| Error::job(key, error.to_string()))?;
        Ok(Setting::new(key, value))
    }

    /// A key that the job is to have no value for.
    pub fn without(key: &str) -> Setting {
        Setting { value: None, ..Setting::new(key, "") }
    }

    /// The key, as in `train.batch`.
    pub(crate) fn key(&self) -> String {
        self.path.join(".")
    }

    /// Writes the value to the table of a job.
    pub(crate) fn apply(&self, job: &mut Table) -> Result<(), Error> {
        let wrong = |problem: String| Error::job(self.key(), problem);
        let section = &self.path[0];
        let sections = sections();
        let Some((_, keys)) = sections.iter().find(|(name, _)| name == section) else {
            let known = sections.iter().map(|(name, _)| *name);
            return Err(wrong(format!("there is no section `{section}`; {}", hint(section, known))));
        };
        if !keys.contains(&self.path[1].as_str()) {
            let known = hint(&self.path[1], keys.iter().copied());
            return Err(wrong(format!("there is no key `{}` under [{section}]; {known}", self.path[1])));
        }
        let Some(value) = &self.value else {
            job.get_mut(section).and_then(Value::as_table_mut).and_then(|table| table.remove(&self.path[1]));
            return Ok(());
        };
        let table = job.entry(section).or_insert_with(|| Table::new().into());
        put(table, &self.path[1..], value).map_err(wrong)
    }
}

/// Puts a value where a path leads, from a value on.
fn put(at: &mut Value, path: &[String], value: &Value) -> Result<(), String> {
    let [part, rest @ ..] = path else {
        *at = value.clone();
        return Ok(());
    };
    // `optimizer = "adam"` is a class without arguments.
    if let Value::String(class) = at {
        *at = Table::from_iter([("class".to_owned(), Value::from(class.as_str()))]).into();
    }
    match at {
        Value::Table(table) => {
            // As Keras writes it, arguments stand in a table of their own.
            let holds_config = table.contains_key("class_name") && part != "config" && part != "class_name";
            let table = match table.get_mut("config") {
                Some(Value::Table(_)) if holds_config => {
                    table.get_mut("config").and_then(Value::as_table_mut).expect("seen above")
                }
                Some(_) | None => table,
            };
            put(table.entry(part).or_insert_with(|| Table::new().into()), rest, value)
        }
        Value::Array(list) => {
            let count = list.len();
            let item = part.parse().ok().and_then(|place: usize| list.get_mut(place));
            let item =
                item.ok_or_else(|| format!("`{part}` is none of {count} in the list; count from 0"))?;
            put(item, rest, value)
        }
        Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {
            Err(format!("`{part}` is looked for in {at}, which has no keys"))
        }
    }
}

/// The sections of a job and their keys.
fn sections() -> Vec<(&'static str, &'static [&'static str])> {
    let of = |section: &&'static str| {
        let keys = match *section {
            "model" => keys::<ModelSection>(),
            "train" => keys::<TrainSection>(),
            "data" => keys::<DataSection>(),
            "memory" => keys::<MemorySection>(),
            "checkpoint" => keys::<CheckpointSection>(),
            other => panic!("the section `{other}` of a job has keys; list it here"),
        };
        (*section, keys)
    };
    keys::<Job>().iter().map(of).collect()
}

/// The keys that a section is read from.
fn keys<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut keys: &'static [&'static str] = &[];
    // Always an error: nothing but the names is wanted.
    let _ = T::deserialize(Names(&mut keys));
    keys
}

/// Takes the names of a struct's fields and reads nothing.
struct Names<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Self::Error> {
        Err(Self::Error::custom("only the names of a struct's fields are wanted"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = r#"
        [model]
        layers = [{ class = "Input", shape = [4] }, { class = "Dense", units = 3 }]
        [train]
        loss = "mse"
        optimizer = "adam"
        batch = 8
    "#;

    fn set(settings: &[&str]) -> Result<Table, String> {
        let mut job: Table = toml::from_str(JOB).unwrap();
        for text in settings {
            let setting: Setting = text.parse()?;
            setting.apply(&mut job).map_err(|error| error.to_string())?;
        }
        Ok(job)
    }

    #[test]
    fn a_key_takes_the_value_that_is_typed() {
        let cases: [(&[&str], &str, &str); 9] = [
            (&["train.batch=64"], "train.batch", "64"),
            (
                &["train.optimizer.learning_rate=0.1"],
                "train.optimizer",
                r#"{class = "adam", learning_rate = 0.1}"#,
            ),
            (
                &["train.optimizer=sgd", "train.optimizer.momentum=0.9"],
                "train.optimizer",
                r#"{class = "sgd", momentum = 0.9}"#,
            ),
            (
                &[
                    r#"train.optimizer={class_name = "Adam", config = {beta_1 = 0.8}}"#,
                    "train.optimizer.beta_2=0.9",
                ],
                "train.optimizer",
                r#"{class_name = "Adam", config = {beta_1 = 0.8, beta_2 = 0.9}}"#,
            ),
            (&["model.layers.1.units=5"], "model.layers.1.units", "5"),
            (&["memory.budget=2GiB"], "memory.budget", r#""2GiB""#),
            (&["data.shuffle = false"], "data.shuffle", "false"),
            (&["train.metrics=['mae', 'mse']"], "train.metrics", "['mae', 'mse']"),
            (&["train.output=a=b.keras"], "train.output", r#""a=b.keras""#),
        ];
        for (settings, key, wanted) in cases {
            let job = set(settings).unwrap();
            let wanted: Table = toml::from_str(&format!("value = {wanted}")).unwrap();
            let found = key.split('.').fold(Value::from(job), |at, part| match part.parse::<usize>() {
                Ok(place) => at[place].clone(),
                Err(_) => at[part].clone(),
            });
            assert_eq!(found, wanted["value"], "{settings:?}");
        }
    }

    #[test]
    fn unknown_keys_are_refused_with_the_nearest() {
        let cases = [
            ("trian.batch=1", "there is no section `trian`; did you mean `train`?"),
            ("zzz.batch=1", "there is no section `zzz`; use one of model, train, data, memory, checkpoint"),
            ("train.bacth=1", "there is no key `bacth` under [train]; did you mean `batch`?"),
            ("data.shufle=1", "did you mean `shuffle`?"),
            ("train.batch.size=1", "`size` is looked for in 8, which has no keys"),
            ("model.layers.7.units=1", "`7` is none of 2 in the list; count from 0"),
            ("train=1", "names no key of a section"),
            ("train..batch=1", "names no key of a section"),
            ("train.batch", "expected KEY=VALUE"),
        ];
        for (setting, wanted) in cases {
            let answer = set(&[setting]).unwrap_err();
            assert!(answer.contains(wanted), "{setting}: {answer}");
        }
    }

    #[test]
    fn every_section_of_a_job_is_known() {
        let names: Vec<&str> = sections().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, *keys::<Job>());
        assert!(sections().iter().all(|(_, keys)| !keys.is_empty()));
    }
}
