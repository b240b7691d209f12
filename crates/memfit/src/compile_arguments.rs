//! Arguments of what a model is compiled with: as a job file or a Keras configuration writes them.

use serde_json::{Map, Value};

use crate::Error;

/// `CategoricalCrossentropy` and `categorical_crossentropy` are one name.
pub(crate) fn plain(name: &str) -> String {
    name.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

/// The arguments of one object, taken one after the other so that what is left over is unknown.
pub(crate) struct Arguments {
    /// The name of the class.
    pub(crate) class: String,
    /// Where it stands, for errors.
    pub(crate) place: String,
    rest: Map<String, Value>,
}

impl Arguments {
    /// From a name; from `{class_name, config}`, as Keras writes it; or from `{class, …arguments}`, as a job file does.
    pub(crate) fn new(value: &Value, place: &str) -> Result<Arguments, Error> {
        let place = place.to_owned();
        if let Value::String(class) = value {
            return Ok(Arguments { class: class.clone(), place, rest: Map::new() });
        }
        let Value::Object(object) = value else {
            return Err(Error::job(place, format!("expected a name or a table with `class`, got {value}")));
        };
        let mut rest = object.clone();
        let class = ["class_name", "class"].iter().find_map(|key| rest.remove(*key));
        let Some(Value::String(class)) = class else {
            return Err(Error::job(place, "expected a key `class` with the name"));
        };
        if let Some(Value::Object(config)) = rest.remove("config") {
            rest = config;
        }
        Ok(Arguments { class, place, rest })
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.rest.remove(name)
    }

    pub(crate) fn optional(&mut self, name: &str) -> Result<Option<f64>, Error> {
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) if number.is_finite() => Ok(Some(number)),
                _ => Err(self.wrong(name, "a number", &value)),
            },
        }
    }

    pub(crate) fn optional_float(&mut self, name: &str) -> Result<Option<f32>, Error> {
        Ok(self.optional(name)?.map(|number| number as f32))
    }

    pub(crate) fn float(&mut self, name: &str, default: f64) -> Result<f32, Error> {
        Ok(self.optional(name)?.unwrap_or(default) as f32)
    }

    pub(crate) fn required(&mut self, name: &str) -> Result<f64, Error> {
        let class = self.class.clone();
        self.optional(name)?
            .ok_or_else(|| Error::job(&self.place, format!("{class} needs the argument `{name}`")))
    }

    /// A whole number that is not negative.
    pub(crate) fn count(&mut self, name: &str) -> Result<Option<usize>, Error> {
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64().and_then(|number| usize::try_from(number).ok()) {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(name, "a whole number", &value)),
            },
        }
    }

    pub(crate) fn truth(&mut self, name: &str, default: bool) -> Result<bool, Error> {
        match self.take(name) {
            None => Ok(default),
            Some(Value::Bool(truth)) => Ok(truth),
            Some(value) => Err(self.wrong(name, "true or false", &value)),
        }
    }

    pub(crate) fn text(&mut self, name: &str, default: &str) -> Result<String, Error> {
        match self.take(name) {
            None => Ok(default.to_owned()),
            Some(Value::String(text)) => Ok(text),
            Some(value) => Err(self.wrong(name, "a text", &value)),
        }
    }

    pub(crate) fn list(&mut self, name: &str) -> Result<Vec<f64>, Error> {
        let value = self.take(name).unwrap_or(Value::Null);
        let numbers =
            value.as_array().map(|items| items.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>());
        numbers.flatten().ok_or_else(|| self.wrong(name, "a list of numbers", &value))
    }

    /// An argument that is known and accepted at its default alone.
    pub(crate) fn only(&mut self, name: &str, default: &Value) -> Result<(), Error> {
        match self.take(name) {
            Some(value) if value != *default && !value.is_null() => Err(Error::job(
                &self.place,
                format!("{}: `{name} = {value}` is not supported; leave it at {default}", self.class),
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.take(name);
        }
    }

    pub(crate) fn finish(self) -> Result<(), Error> {
        match self.rest.keys().next() {
            None => Ok(()),
            Some(name) => {
                Err(Error::job(&self.place, format!("{} has no argument `{name}`; remove it", self.class)))
            }
        }
    }

    pub(crate) fn wrong(&self, name: &str, expected: &str, got: &Value) -> Error {
        Error::job(&self.place, format!("{}: `{name}` must be {expected}, got {got}", self.class))
    }
}
