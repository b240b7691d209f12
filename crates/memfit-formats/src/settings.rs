//! The arguments of one layer, read as the table says.

use memfit_ir::{Pads, Regularizer};
use serde_json::{Map, Value};

use crate::activation::Activation;
use crate::argument::{Argument, ArgumentError, Expects, SIDE_LIMIT, SIZE_LIMIT, brief};
use crate::error::Fault;
use crate::hint::{hint, nearest};
use crate::initializer::Start;
use crate::listed::snake_case;
use crate::precision::Precision;
use crate::recurrent_table::Cells;
use crate::table::{self, LayerClass};
use crate::weight_rules::{self, Stay};

/// The argument that speaks of what a layer gives, and of no weight.
const ACTIVITY: &str = "activity_regularizer";

/// Arguments that every layer has.
const COMMON: &[Argument] = &[
    Argument::optional("name", Expects::Maybe(&Expects::Text), "null"),
    Argument::optional("trainable", Expects::Flag, "true"),
    Argument::optional("dtype", Expects::Policy, "null"),
    Argument::of_weight_or_refused(ACTIVITY),
];

/// A value that was read as its row of the table says.
#[derive(Clone, Debug)]
enum Setting {
    Nothing,
    Size(usize),
    Pair([usize; 2]),
    Triple([usize; 3]),
    Sides([[usize; 2]; 3]),
    Margins(Pads),
    Number(f64),
    Range([f32; 2]),
    Numbers(Vec<f64>),
    Flag(bool),
    Text(String),
    Choice(&'static str),
    Axis(i64),
    Integers(Vec<i64>),
    Activation(Activation),
    Initializer(Start),
    Seed(Option<u64>),
    Policy(Precision),
    Layer(Box<Inner>),
    Cells(Cells),
    Regularizer(Regularizer),
    Constraint(Stay),
}

/// A layer within a layer.
#[derive(Clone, Debug)]
pub(crate) struct Inner {
    pub row: &'static LayerClass,
    pub settings: Settings,
}

impl Inner {
    /// Its own name, or the one that Keras gives to its class.
    pub fn name(&self) -> String {
        self.settings.text("name").map_or_else(|| snake_case(self.row.name), str::to_owned)
    }

    /// From `{"class_name": …, "config": {…}}`, or from a class among its arguments, as a list of layers has it.
    fn read(value: &Value) -> Result<Inner, ArgumentError> {
        Inner::read_from(table::LAYERS, value)
    }

    /// The same by a table of its own.
    pub fn read_from(rows: &'static [LayerClass], value: &Value) -> Result<Inner, ArgumentError> {
        let wrong = || ArgumentError::wrong(Expects::Layer.describe(), value);
        let object = value.as_object().ok_or_else(wrong)?;
        let (class, arguments) = match (object.get("class_name"), object.get("config")) {
            (Some(class), Some(Value::Object(config))) => (class, config.clone()),
            _ => {
                let class = object.get("class").ok_or_else(wrong)?;
                (
                    class,
                    object
                        .iter()
                        .filter(|(key, _)| *key != "class")
                        .map(|(key, value)| (key.clone(), value.clone()))
                        .collect(),
                )
            }
        };
        let class = class.as_str().ok_or_else(wrong)?;
        let near = || match nearest(class, rows.iter().map(|row| row.name)) {
            Some(name) => ArgumentError::unsupported(class, format!("`{name}`")),
            None => ArgumentError::unsupported(class, "one that `memfit layers` lists"),
        };
        let row = rows.iter().find(|row| row.name == class).ok_or_else(near)?;
        Ok(Inner { row, settings: Settings::read(row.arguments, &arguments)? })
    }
}

/// All arguments of one layer, given or by default.
///
/// The getters know from the table what stands where: a mismatch between the two is a bug and stops the program.
#[derive(Clone, Debug)]
pub(crate) struct Settings(Vec<(&'static str, Setting)>);

impl Settings {
    /// Reads given arguments by their rows; a row of the class hides a common one of its name.
    pub fn read(rows: &'static [Argument], given: &Map<String, Value>) -> Result<Settings, ArgumentError> {
        let common = COMMON.iter().filter(|row| rows.iter().all(|own| own.name != row.name));
        let all: Vec<&Argument> = rows.iter().chain(common).collect();
        for (name, value) in given {
            // A newer Keras writes arguments that this table has not seen; null says that they are not used.
            if !value.is_null() && all.iter().all(|row| row.name != name) {
                let hint = hint(name, rows.iter().map(|row| row.name));
                return Err(ArgumentError { argument: name.clone(), fault: Fault::Unknown { hint } });
            }
        }
        let read_row = |row: &&Argument| {
            let setting = match (given.get(row.name), row.default) {
                (Some(value), _) => read(&row.expects, value),
                (None, Some(default)) => {
                    let value = serde_json::from_str(default).expect("defaults in the table are JSON");
                    read(&row.expects, &value)
                }
                (None, None) => {
                    let fault = Fault::Missing { expected: row.expects.describe() };
                    Err(ArgumentError { argument: String::new(), fault })
                }
            };
            setting.map(|setting| (row.name, setting)).map_err(|error| error.within(row.name))
        };
        all.iter().map(read_row).collect::<Result<_, _>>().map(Settings)
    }

    fn get(&self, name: &str) -> &Setting {
        let found = self.0.iter().find(|(known, _)| *known == name);
        &found.expect("builders ask for arguments of the table").1
    }

    pub fn size(&self, name: &str) -> usize {
        let Setting::Size(value) = self.get(name) else { panic!("`{name}` is no size in the table") };
        *value
    }

    pub fn pair(&self, name: &str) -> [usize; 2] {
        let Setting::Pair(value) = self.get(name) else { panic!("`{name}` is no pair in the table") };
        *value
    }

    /// A pair, or nothing where it is null.
    pub fn maybe_pair(&self, name: &str) -> Option<[usize; 2]> {
        if let Setting::Pair(value) = self.get(name) { Some(*value) } else { None }
    }

    pub fn triple(&self, name: &str) -> [usize; 3] {
        let Setting::Triple(value) = self.get(name) else { panic!("`{name}` is no triple in the table") };
        *value
    }

    /// A triple, or nothing where it is null.
    pub fn maybe_triple(&self, name: &str) -> Option<[usize; 3]> {
        if let Setting::Triple(value) = self.get(name) { Some(*value) } else { None }
    }

    pub fn sides(&self, name: &str) -> [[usize; 2]; 3] {
        let Setting::Sides(value) = self.get(name) else { panic!("`{name}` has no sides in the table") };
        *value
    }

    pub fn margins(&self, name: &str) -> Pads {
        let Setting::Margins(value) = self.get(name) else { panic!("`{name}` is no margin in the table") };
        *value
    }

    pub fn number(&self, name: &str) -> f64 {
        let Setting::Number(value) = self.get(name) else { panic!("`{name}` is no number in the table") };
        *value
    }

    /// A number, or nothing where it is null.
    pub fn maybe_number(&self, name: &str) -> Option<f64> {
        if let Setting::Number(value) = self.get(name) { Some(*value) } else { None }
    }

    pub fn range(&self, name: &str) -> [f32; 2] {
        let Setting::Range(value) = self.get(name) else { panic!("`{name}` is no range in the table") };
        *value
    }

    /// A range, or nothing where it is null.
    pub fn maybe_range(&self, name: &str) -> Option<[f32; 2]> {
        if let Setting::Range(value) = self.get(name) { Some(*value) } else { None }
    }

    /// Numbers, one for all or one for each index of an axis; nothing where they are null.
    pub fn numbers(&self, name: &str) -> Option<&[f64]> {
        if let Setting::Numbers(values) = self.get(name) { Some(values) } else { None }
    }

    pub fn flag(&self, name: &str) -> bool {
        let Setting::Flag(value) = self.get(name) else { panic!("`{name}` is no flag in the table") };
        *value
    }

    /// Sets a flag that was given in another place than the arguments.
    pub fn set_flag(&mut self, name: &str, value: bool) {
        if let Some((_, setting)) = self.0.iter_mut().find(|(known, _)| *known == name) {
            *setting = Setting::Flag(value);
        }
    }

    /// A text, or nothing where it is null.
    pub fn text(&self, name: &str) -> Option<&str> {
        if let Setting::Text(value) = self.get(name) { Some(value) } else { None }
    }

    /// A size, or nothing where it is null.
    pub fn maybe_size(&self, name: &str) -> Option<usize> {
        if let Setting::Size(value) = self.get(name) { Some(*value) } else { None }
    }

    pub fn choice(&self, name: &str) -> &'static str {
        let Setting::Choice(value) = self.get(name) else { panic!("`{name}` is no choice in the table") };
        value
    }

    pub fn axis(&self, name: &str) -> i64 {
        let Setting::Axis(value) = self.get(name) else { panic!("`{name}` is no axis in the table") };
        *value
    }

    /// Dimensions or axes; nothing where they are null.
    pub fn integers(&self, name: &str) -> Option<&[i64]> {
        if let Setting::Integers(values) = self.get(name) { Some(values) } else { None }
    }

    pub fn activation(&self, name: &str) -> Activation {
        let Setting::Activation(value) = self.get(name) else { panic!("`{name}` is no activation") };
        *value
    }

    pub fn initializer(&self, name: &str) -> &Start {
        let Setting::Initializer(value) = self.get(name) else { panic!("`{name}` is no initializer") };
        value
    }

    /// The layer's own dtype policy; an input has a type instead.
    pub fn precision(&self) -> Option<Precision> {
        if let Setting::Policy(policy) = self.get("dtype") { Some(*policy) } else { None }
    }

    /// A layer within the layer, or nothing where it is null.
    pub fn inner(&self, name: &str) -> Option<&Inner> {
        if let Setting::Layer(inner) = self.get(name) { Some(inner) } else { None }
    }

    /// What an RNN runs.
    pub fn cells(&self, name: &str) -> &Cells {
        let Setting::Cells(cells) = self.get(name) else { panic!("`{name}` is no cell in the table") };
        cells
    }

    /// These arguments, and of others those that have no name of these.
    pub fn with(&self, others: &Settings) -> Settings {
        let more = others.0.iter().filter(|(name, _)| self.0.iter().all(|(own, _)| own != name));
        Settings(self.0.iter().chain(more).cloned().collect())
    }

    /// What a weight of this name adds to the loss.
    pub fn regularizer_of(&self, weight: &str) -> Option<Regularizer> {
        let names = weight_rules::arguments_of(weight, "regularizer");
        self.0.iter().filter(|(known, _)| names.iter().any(|name| name == known)).find_map(|(_, setting)| {
            if let Setting::Regularizer(found) = setting { Some(*found) } else { None }
        })
    }

    /// What the layer's output adds to the loss.
    pub fn activity(&self) -> Option<Regularizer> {
        if let Setting::Regularizer(found) = self.get(ACTIVITY) { Some(*found) } else { None }
    }

    /// Where a weight of this name must stay, with the argument that says so.
    pub fn constraint_of(&self, weight: &str) -> Option<(&'static str, &Stay)> {
        let names = weight_rules::arguments_of(weight, "constraint");
        self.0.iter().filter(|(known, _)| names.iter().any(|name| name == known)).find_map(
            |(known, setting)| {
                if let Setting::Constraint(found) = setting { Some((*known, found)) } else { None }
            },
        )
    }

    /// Regularizers and constraints that speak of none of these weights.
    pub fn rules_without_weight(&self, weights: &[&str]) -> Option<&'static str> {
        let speaks_of = |name: &str, what: &str| {
            weights
                .iter()
                .any(|weight| weight_rules::arguments_of(weight, what).iter().any(|own| own == name))
        };
        let of_weights = self.0.iter().filter(|(name, _)| *name != ACTIVITY);
        of_weights.into_iter().find_map(|(name, setting)| {
            let is_lost = matches!(setting, Setting::Regularizer(_)) && !speaks_of(name, "regularizer")
                || matches!(setting, Setting::Constraint(_)) && !speaks_of(name, "constraint");
            is_lost.then_some(*name)
        })
    }

    pub fn seed(&self, name: &str) -> Option<u64> {
        let Setting::Seed(value) = self.get(name) else { panic!("`{name}` is no seed in the table") };
        *value
    }
}

fn read(expects: &Expects, value: &Value) -> Result<Setting, ArgumentError> {
    let wrong = || ArgumentError::wrong(expects.describe(), value);
    Ok(match expects {
        Expects::Size => Setting::Size(whole(value, 1, SIZE_LIMIT).ok_or_else(wrong)?),
        Expects::Pair => Setting::Pair(pair(value, 1).ok_or_else(wrong)?),
        Expects::Triple => {
            Setting::Triple(triple(value, |size| whole(size, 1, SIDE_LIMIT)).ok_or_else(wrong)?)
        }
        Expects::Sides => Setting::Sides(triple(value, |side| pair(side, 0)).ok_or_else(wrong)?),
        Expects::Single => match value.as_array().map(Vec::as_slice) {
            Some([size]) => Setting::Size(whole(size, 1, SIDE_LIMIT).ok_or_else(wrong)?),
            Some(_) => return Err(wrong()),
            None => Setting::Size(whole(value, 1, SIDE_LIMIT).ok_or_else(wrong)?),
        },
        Expects::Ends => Setting::Pair(pair(value, 0).ok_or_else(wrong)?),
        Expects::Numbers => Setting::Numbers(numbers(value).ok_or_else(wrong)?),
        Expects::Margins => Setting::Margins(margins(value).ok_or_else(wrong)?),
        Expects::Number { least, below } => {
            let number = value.as_f64().ok_or_else(wrong)?;
            // Every number ends as an f32.
            let fits = *least <= number && number < *below && number.abs() <= f64::from(f32::MAX);
            Setting::Number(if fits { number } else { return Err(wrong()) })
        }
        Expects::Range => Setting::Range(range(value).ok_or_else(wrong)?),
        Expects::Flag => Setting::Flag(value.as_bool().ok_or_else(wrong)?),
        Expects::Text => Setting::Text(value.as_str().ok_or_else(wrong)?.to_owned()),
        Expects::OneOf(texts) => {
            let text = value.as_str().ok_or_else(wrong)?;
            let choice = texts.iter().find(|known| **known == text);
            Setting::Choice(choice.ok_or_else(|| ArgumentError::unsupported(text, expects.describe()))?)
        }
        Expects::Dims => Setting::Integers(dims(value).ok_or_else(wrong)?),
        Expects::DimsOrOne => Setting::Integers(
            match value.as_array() {
                Some(_) => dims(value),
                None => dims(&Value::Array(vec![value.clone()])),
            }
            .ok_or_else(wrong)?,
        ),
        Expects::Axis => match axes(value).as_deref() {
            Some([axis]) => Setting::Axis(*axis),
            Some(_) | None => return Err(wrong()),
        },
        Expects::Axes => Setting::Integers(axes(value).ok_or_else(wrong)?),
        Expects::Activation | Expects::Gate => Setting::Activation(Activation::read(value)?),
        Expects::ShareAtInference => {
            let share = value.as_f64().filter(|share| (0.0..1.0).contains(share));
            Setting::Number(share.ok_or_else(wrong)?)
        }
        Expects::Initializer => Setting::Initializer(Start::read(value)?),
        Expects::Layer => Setting::Layer(Box::new(Inner::read(value)?)),
        Expects::Cells => Setting::Cells(Cells::read(value)?),
        Expects::Seed => Setting::Seed(seed(value).ok_or_else(wrong)?),
        Expects::Policy if value.is_null() => Setting::Nothing,
        Expects::Policy => {
            let name = value.get("config").and_then(|config| config.get("name")).unwrap_or(value);
            let text = name.as_str().map_or_else(|| brief(value), str::to_owned);
            match text.parse() {
                Ok(policy) => Setting::Policy(policy),
                Err(_) => return Err(ArgumentError::unsupported(text, expects.describe())),
            }
        }
        Expects::Regularizer => {
            weight_rules::regularizer(value)?.map_or(Setting::Nothing, Setting::Regularizer)
        }
        Expects::Constraint => weight_rules::constraint(value)?.map_or(Setting::Nothing, Setting::Constraint),
        Expects::Maybe(_) if value.is_null() => Setting::Nothing,
        Expects::Maybe(inner) => read(inner, value)?,
        Expects::Nothing if value.is_null() || *value == Value::Bool(false) => Setting::Nothing,
        Expects::Nothing => return Err(ArgumentError::unsupported(brief(value), "null")),
    })
}

fn whole(value: &Value, least: u64, limit: u64) -> Option<usize> {
    let number = value.as_u64().filter(|number| (least..limit).contains(number))?;
    usize::try_from(number).ok()
}

fn pair(value: &Value, least: u64) -> Option<[usize; 2]> {
    match value.as_array().map(Vec::as_slice) {
        Some([height, width]) => Some([whole(height, least, SIDE_LIMIT)?, whole(width, least, SIDE_LIMIT)?]),
        Some(_) => None,
        None => whole(value, least, SIDE_LIMIT).map(|size| [size, size]),
    }
}

/// One of something for each of three axes, or one for all.
fn triple<T: Copy>(value: &Value, read: impl Fn(&Value) -> Option<T>) -> Option<[T; 3]> {
    match value.as_array().map(Vec::as_slice) {
        Some([depth, height, width]) => Some([read(depth)?, read(height)?, read(width)?]),
        Some(_) => None,
        None => read(value).map(|one| [one; 3]),
    }
}

/// Two numbers in ascending order; one stands for itself below and above 0.
fn range(value: &Value) -> Option<[f32; 2]> {
    let number = |value: &Value| {
        value.as_f64().filter(|number| number.abs() <= f64::from(f32::MAX)).map(|number| number as f32)
    };
    match value.as_array().map(Vec::as_slice) {
        Some([low, high]) => {
            let (low, high) = (number(low)?, number(high)?);
            Some([low.min(high), low.max(high)])
        }
        Some(_) => None,
        None => number(value).map(|number| [-number.abs(), number.abs()]),
    }
}

fn margins(value: &Value) -> Option<Pads> {
    let ([top, bottom], [left, right]) = match value.as_array().map(Vec::as_slice) {
        Some([rows, columns]) => (pair(rows, 0)?, pair(columns, 0)?),
        Some(_) => return None,
        None => (pair(value, 0)?, pair(value, 0)?),
    };
    Some(Pads { top, bottom, left, right })
}

fn dims(value: &Value) -> Option<Vec<i64>> {
    let dim = |value: &Value| match value.as_i64() {
        Some(-1) => Some(-1),
        None if value.is_null() => Some(-1),
        Some(_) | None => whole(value, 1, SIZE_LIMIT).and_then(|size| i64::try_from(size).ok()),
    };
    value.as_array()?.iter().map(dim).collect()
}

/// A number, or the numbers of a list.
fn numbers(value: &Value) -> Option<Vec<f64>> {
    let number = |value: &Value| value.as_f64().filter(|number| number.abs() <= f64::from(f32::MAX));
    match value.as_array() {
        Some(list) if !list.is_empty() => list.iter().map(number).collect(),
        Some(_) => None,
        None => number(value).map(|number| vec![number]),
    }
}

fn axes(value: &Value) -> Option<Vec<i64>> {
    match value.as_array() {
        Some(list) if !list.is_empty() => list.iter().map(Value::as_i64).collect(),
        Some(_) => None,
        None => value.as_i64().map(|axis| vec![axis]),
    }
}

/// A seed, or the one that a serialised `SeedGenerator` began with.
fn seed(value: &Value) -> Option<Option<u64>> {
    let value = value.get("config").and_then(|config| config.get("seed")).unwrap_or(value);
    if value.is_null() { Some(None) } else { value.as_u64().map(Some) }
}
