//! A layer as a program writes it down: Keras's class with its arguments, read by the reader of Keras's own files.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value, json};

use super::builders::ActivationName;
use super::functional::{CallInputs, KerasTensor};

/// A value of an argument: a number, a text, a list of them, or a layer.
///
/// ```
/// use memfit::prelude::*;
/// let kernel_size: ArgumentValue = [3, 1].into();
/// let layer = Conv2D::new(8, kernel_size).padding("same");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ArgumentValue(Value);

impl ArgumentValue {
    /// As JSON.
    pub(crate) fn into_json(self) -> Value {
        self.0
    }
}

macro_rules! argument_values {
    ($($from:ty),*) => {
        $(impl From<$from> for ArgumentValue {
            fn from(value: $from) -> ArgumentValue {
                ArgumentValue(Value::from(value))
            }
        })*
    };
}

argument_values!(bool, i32, i64, u32, u64, usize, f32, f64, &str, String, Value);

impl<T: Into<ArgumentValue>> From<Option<T>> for ArgumentValue {
    fn from(value: Option<T>) -> ArgumentValue {
        value.map_or(ArgumentValue(Value::Null), Into::into)
    }
}

impl<T: Into<ArgumentValue>> From<Vec<T>> for ArgumentValue {
    fn from(values: Vec<T>) -> ArgumentValue {
        ArgumentValue(values.into_iter().map(|value| value.into().0).collect())
    }
}

impl<T: Into<ArgumentValue>, const N: usize> From<[T; N]> for ArgumentValue {
    fn from(values: [T; N]) -> ArgumentValue {
        Vec::from(values).into()
    }
}

impl<A: Into<ArgumentValue>, B: Into<ArgumentValue>> From<(A, B)> for ArgumentValue {
    fn from((first, second): (A, B)) -> ArgumentValue {
        ArgumentValue(Value::Array(vec![first.into().0, second.into().0]))
    }
}

impl From<ActivationName> for ArgumentValue {
    fn from(name: ActivationName) -> ArgumentValue {
        name.name().into()
    }
}

/// A layer within a layer, as [`Bidirectional`](super::builders::Bidirectional) has one, or as an activation.
impl From<Layer> for ArgumentValue {
    fn from(layer: Layer) -> ArgumentValue {
        let mut config = layer.arguments;
        if let Some(name) = layer.name {
            config.insert("name".to_owned(), Value::from(name));
        }
        ArgumentValue(json!({"class_name": layer.class, "config": config}))
    }
}

/// Tells layers apart: a layer that is called twice has one set of weights.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The next number of the program, of a layer or of a call.
pub(super) fn next_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A layer by the name of its class in Keras, with Keras's arguments. The usual classes have builders of their own, with the same
/// arguments as methods; `memfit layers` and `docs/supported.md` list all classes.
///
/// What is wrong with a class or an argument is an answer when the model is planned. A clone is another layer with the same arguments.
///
/// ```
/// use memfit::prelude::*;
/// let pool = Layer::new("AdaptiveAveragePooling2D").arg("output_size", [4, 4]).name("pool");
/// let model = Sequential::new(Input::shape([28, 28, 1])).add(pool);
/// ```
#[derive(Debug)]
pub struct Layer {
    pub(super) class: String,
    pub(super) name: Option<String>,
    pub(super) arguments: Map<String, Value>,
    pub(super) number: u64,
}

impl Clone for Layer {
    fn clone(&self) -> Layer {
        Layer { number: next_number(), ..self.same() }
    }
}

impl Layer {
    /// A layer of this class of Keras's.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let layer = Layer::new("UnitNormalization");
    /// ```
    pub fn new(class: &str) -> Layer {
        Layer { class: class.to_owned(), name: None, arguments: Map::new(), number: next_number() }
    }

    /// The layer with an argument by Keras's name.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let layer = Layer::new("GaussianNoise").arg("stddev", 0.1);
    /// ```
    pub fn arg(mut self, name: &str, value: impl Into<ArgumentValue>) -> Layer {
        self.arguments.insert(name.to_owned(), value.into().0);
        Layer { number: next_number(), ..self }
    }

    /// The layer under this name, in place of the one that Keras gives.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let layer = Layer::new("Identity").name("features");
    /// ```
    pub fn name(self, name: &str) -> Layer {
        Layer { name: Some(name.to_owned()), number: next_number(), ..self }
    }

    /// What the layer gives for these tensors: one, or a list. A layer that is called several times has one set of weights.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let x = Input::shape([8]);
    /// let noisy = Layer::new("GaussianNoise").arg("stddev", 0.1).call(&x);
    /// ```
    pub fn call(&self, inputs: impl CallInputs) -> KerasTensor {
        KerasTensor::of(self.same(), inputs.tensors())
    }

    /// The same layer, not another one.
    pub(super) fn same(&self) -> Layer {
        Layer {
            class: self.class.clone(),
            name: self.name.clone(),
            arguments: self.arguments.clone(),
            number: self.number,
        }
    }

    /// As a list of layers has it.
    pub(super) fn listed(&self) -> Value {
        let mut object = Map::from_iter([("class".to_owned(), Value::from(self.class.as_str()))]);
        if let Some(name) = &self.name {
            object.insert("name".to_owned(), Value::from(name.as_str()));
        }
        object.extend(self.arguments.iter().map(|(name, value)| (name.clone(), value.clone())));
        Value::Object(object)
    }
}
