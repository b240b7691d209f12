//! One call of one layer, as the code that builds a layer sees it.

use memfit_ir::{Binary, Chain, DType, Graph, Kind, LayerId, Op, Shape, ShapeError, TensorId, random};

use crate::argument::ArgumentError;
use crate::error::FormatError;
use crate::initializer::Start;
use crate::model::BuiltWeight;
use crate::settings::Settings;

/// The most elements that a row of a tensor, or a weight, may have.
const MOST_ELEMENTS: usize = 1 << 40;

/// One call of one layer: what it is called with, and the graph it adds itself to.
pub(crate) struct Site<'a> {
    pub graph: &'a mut Graph,
    pub settings: &'a Settings,
    pub path: &'a str,
    pub class: &'static str,
    pub layer: LayerId,
    /// Whether its weights learn.
    pub trainable: bool,
    /// Whether it runs as in training.
    pub training: bool,
    /// How often the layer was called before.
    pub call: u64,
    /// The run's seed.
    pub seed: u64,
    /// What stands before the names of weights: the layers within this layer that are being called.
    pub within: String,
    pub weights: &'a mut Vec<BuiltWeight>,
    /// The mask of each operand, where it has one.
    pub masks: Vec<Option<TensorId>>,
    /// What it gives after its first output: states, where they are asked for.
    pub further: &'a mut Vec<TensorId>,
}

impl Site<'_> {
    /// The dimensions of a tensor after its batch.
    pub fn dims(&self, tensor: TensorId) -> &[usize] {
        &self.graph.tensors[tensor.0].shape.dims
    }

    /// The mask of an operand.
    pub fn mask(&self, operand: usize) -> Option<TensorId> {
        self.masks.get(operand).copied().flatten()
    }

    /// A mask of steps in the type and the dimensions of a tensor, so that the two can be multiplied.
    pub fn spread_mask(&mut self, mask: TensorId, over: TensorId) -> Result<TensorId, FormatError> {
        let (dims, dtype) = (self.dims(over).to_vec(), self.graph.tensors[over.0].dtype);
        let mut column = self.dims(mask).to_vec();
        column.resize(dims.len(), 1);
        let column = self.push(Op::Reshape(column), &[mask])?;
        let column = if dtype == DType::F32 { column } else { self.push(Op::Cast(dtype), &[column])? };
        self.push(Op::Broadcast(dims), &[column])
    }

    /// A tensor with 0 where a mask of its steps says so.
    pub fn masked(&mut self, x: TensorId, mask: TensorId) -> Result<TensorId, FormatError> {
        let mask = self.spread_mask(mask, x)?;
        self.push(Op::Elementwise(Chain::binary(Binary::Multiply)), &[x, mask])
    }

    /// Height, width and channels of an image.
    pub fn image(&self, tensor: TensorId) -> Result<[usize; 3], FormatError> {
        match self.dims(tensor) {
            [height, width, channels] => Ok([*height, *width, *channels]),
            _ => Err(self.mismatch("an image [batch,height,width,channels]", tensor)),
        }
    }

    /// Steps and features of a sequence.
    pub fn sequence(&self, tensor: TensorId) -> Result<[usize; 2], FormatError> {
        match self.dims(tensor) {
            [steps, features] => Ok([*steps, *features]),
            _ => Err(self.mismatch("a sequence [batch,steps,features]", tensor)),
        }
    }

    /// Adds a node and returns its first output.
    pub fn push(&mut self, op: Op, inputs: &[TensorId]) -> Result<TensorId, FormatError> {
        self.push_all(op, inputs).map(|outputs| outputs[0])
    }

    /// Adds a node and returns all its outputs.
    pub fn push_all(&mut self, op: Op, inputs: &[TensorId]) -> Result<Vec<TensorId>, FormatError> {
        let (layer, class) = (self.path, self.class);
        let outputs = self.graph.push(op, inputs, self.layer).map_err(|mismatch| FormatError::Shape {
            layer: layer.to_owned(),
            class,
            mismatch,
        })?;
        for output in &outputs {
            self.require_size(&self.graph.tensors[output.0].shape)?;
        }
        Ok(outputs)
    }

    /// A weight of the layer that learns if the layer does.
    pub fn weight(&mut self, name: &str, dims: &[usize], start: &Start) -> Result<TensorId, FormatError> {
        self.weight_as(name, dims, dims, start, self.trainable)
    }

    /// A weight that the first call creates and later calls find: its dimensions here, and those Keras gives
    /// it, which decide how it begins.
    pub fn weight_as(
        &mut self,
        name: &str,
        dims: &[usize],
        keras_dims: &[usize],
        start: &Start,
        trainable: bool,
    ) -> Result<TensorId, FormatError> {
        let name = format!("{}{name}", self.within);
        if let Some(known) = self.weights.iter().find(|known| known.name == name) {
            return Ok(known.tensor);
        }
        let shape = Shape::fixed(dims);
        self.require_size(&shape)?;
        let path = format!("{}/{name}", self.path);
        let seed = random::derive(self.seed, random::purpose(&path));
        let weight = self.graph.tensor(path, shape, DType::F32, Kind::Weight { trainable }, self.layer);
        self.graph.initial.push((weight, start.initializer(keras_dims, seed)));
        if let Some(regularizer) = self.settings.regularizer_of(&name) {
            if regularizer.orthogonal.is_some() && (keras_dims.len() != 2 || dims != keras_dims) {
                let expected = "L1, L2 or L1L2: the weight is no matrix";
                return Err(self.unsupported(&format!("{name}_regularizer"), "orthogonal", expected));
            }
            self.graph.penalties.push((weight, regularizer));
        }
        if let Some((argument, stay)) = self.settings.constraint_of(&name) {
            // Norms are taken over Keras's axes, which must be those of the tensor.
            let same_axes = dims == keras_dims || stay.is_elementwise();
            let Some(constraint) = stay.of(dims).filter(|_| same_axes) else {
                let expected = "axes of the weight that are neighbours, outside depthwise kernels";
                return Err(self.unsupported(argument, "its axis", expected));
            };
            self.graph.constraints.push((weight, constraint));
        }
        self.weights.push(BuiltWeight { name, tensor: weight, dims: keras_dims.to_vec() });
        Ok(weight)
    }

    /// A whole number that Keras stores with the layer's weights; it begins at 0.
    pub fn count(&mut self, name: &'static str) {
        if self.weights.iter().any(|known| known.name == name) {
            return;
        }
        let (path, kind) = (format!("{}/{name}", self.path), Kind::Weight { trainable: false });
        let tensor = self.graph.tensor(path, Shape::fixed([]), DType::I64, kind, self.layer);
        self.weights.push(BuiltWeight { name: name.to_owned(), tensor, dims: Vec::new() });
    }

    /// A weight of the layer that begins as one of other dimensions would: what is summed over, and what comes of it.
    pub fn weight_begun_as(
        &mut self,
        name: &'static str,
        dims: &[usize],
        begun_as: &[usize],
        start: &Start,
    ) -> Result<TensorId, FormatError> {
        let tensor = self.weight_as(name, dims, begun_as, start, self.trainable)?;
        for known in self.weights.iter_mut().filter(|known| known.tensor == tensor) {
            known.dims = dims.to_vec();
        }
        Ok(tensor)
    }

    /// Refuses tensors that no machine holds, so that no count of bytes overflows later.
    pub fn require_size(&self, shape: &Shape) -> Result<(), FormatError> {
        let elements = shape.dims.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        match elements {
            Some(elements) if elements <= MOST_ELEMENTS => Ok(()),
            Some(_) | None => Err(FormatError::TooLarge {
                layer: self.path.to_owned(),
                class: self.class,
                shape: shape.clone(),
                limit: MOST_ELEMENTS,
            }),
        }
    }

    /// The answer that a tensor does not suit the layer.
    pub fn mismatch(&self, expected: &str, tensor: TensorId) -> FormatError {
        let got = &self.graph.tensors[tensor.0];
        FormatError::Shape {
            layer: self.path.to_owned(),
            class: self.class,
            mismatch: ShapeError {
                op: "input",
                expected: expected.to_owned(),
                got: format!("{}{}", got.dtype, got.shape),
            },
        }
    }

    /// The answer that the value of an argument is not supported.
    pub fn unsupported(&self, argument: &str, value: impl ToString, supported: &str) -> FormatError {
        FormatError::Argument {
            layer: self.path.to_owned(),
            class: self.class,
            argument: argument.to_owned(),
            fault: ArgumentError::unsupported(value.to_string(), supported).fault,
        }
    }
}
