//! Models in which each layer follows the one before it.

use super::layer::Layer;
use super::{Definition, KerasTensor, Model, Source};
use crate::Error;

/// A model in which each layer follows the one before it.
///
/// ```
/// use memfit::prelude::*;
/// let model = Sequential::new(Input::shape([28, 28, 1]))
///     .add(Conv2D::new(32, 3).activation(Relu))
///     .add(MaxPooling2D::new(2))
///     .add(Flatten::new())
///     .add(Dense::new(10).activation(Softmax));
/// ```
#[derive(Clone, Debug)]
pub struct Sequential {
    input: KerasTensor,
    layers: Vec<Layer>,
}

impl Sequential {
    /// A model of no layers on this input.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let model = Sequential::new(Input::shape([4])).add(Dense::new(1));
    /// ```
    pub fn new(input: impl Into<KerasTensor>) -> Sequential {
        Sequential { input: input.into(), layers: Vec::new() }
    }

    /// The model with a layer more.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let mut model = Sequential::new(Input::shape([4]));
    /// for _ in 0..3 {
    ///     model = model.add(Dense::new(16).activation(Relu));
    /// }
    /// ```
    #[expect(clippy::should_implement_trait, reason = "this is the name that Keras gives it")]
    pub fn add(mut self, layer: impl Into<Layer>) -> Sequential {
        self.layers.push(layer.into());
        self
    }

    /// The model, as the functional form gives it.
    ///
    /// ```
    /// use memfit::prelude::*;
    /// let model: Model = Sequential::new(Input::shape([4])).add(Dense::new(1)).model();
    /// ```
    pub fn model(&self) -> Model {
        Model::of(Source::Sequential(self.clone()))
    }
}

/// The definition of a Sequential model.
pub(super) fn definition(model: &Sequential) -> Result<Definition, Error> {
    let input = model.input.layer();
    if input.class != "Input" {
        let problem =
            "a Sequential model begins with what `Input::shape` gives, and not with what a layer gives";
        return Err(Error::job("model", problem));
    }
    let layers = std::iter::once(input).chain(&model.layers).map(Layer::listed).collect();
    Ok(Definition::Layers { layers, outputs: None })
}

impl From<&Sequential> for Model {
    fn from(model: &Sequential) -> Model {
        model.model()
    }
}

impl From<Sequential> for Model {
    fn from(model: Sequential) -> Model {
        model.model()
    }
}
