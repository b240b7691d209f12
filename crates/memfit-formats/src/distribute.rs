//! A model on every step of a sequence by itself.

use memfit_ir::{LayerId, Op, TensorId};

use crate::argument::ArgumentError;
use crate::build::Builder;
use crate::error::FormatError;
use crate::layers::MOST_STEPS;
use crate::model::{Body, Built, Layer};

/// Keras's name of the layer.
const CLASS: &str = "TimeDistributed";

impl Builder {
    /// Calls the model within a layer on one step after the other, as Keras does.
    pub(crate) fn distribute(
        &mut self,
        layer: &mut Layer,
        operands: &[TensorId],
        training: bool,
    ) -> Result<Vec<TensorId>, FormatError> {
        let id = match &layer.built {
            Some(built) => built.layer,
            None => self.declare(&layer.path),
        };
        layer.built = Some(Built { layer: id, weights: Vec::new(), calls: 0 });
        let path = layer.path.as_str();
        let Body::Distributed(model) = &mut layer.body else { return Err(FormatError::NoInput) };
        let &[x] = operands else {
            let (layer, expected) = (path.to_owned(), "one input".to_owned());
            return Err(FormatError::InputCount { layer, class: CLASS, expected, got: operands.len() });
        };
        let refuse = |argument: &str, value: String, supported: &str| FormatError::Argument {
            layer: path.to_owned(),
            class: CLASS,
            argument: argument.to_owned(),
            fault: ArgumentError::unsupported(value, supported).fault,
        };
        let dims = self.dims(x).to_vec();
        let Some((steps, rest)) = dims.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            let supported = "a sequence [batch,steps,…]";
            return Err(refuse("input", format!("[batch] followed by {dims:?}"), supported));
        };
        if MOST_STEPS < *steps {
            let supported = format!("at most {MOST_STEPS} steps");
            return Err(refuse("layer", format!("a model on {steps} steps"), &supported));
        }
        if self.has_mask(x) {
            return Err(refuse("mask", "given".to_owned(), "none for a model within the layer"));
        }
        if self.is_whole(x) {
            let supported = "floats: put the Embedding in front of the layer";
            return Err(refuse("input", "of whole numbers".to_owned(), supported));
        }
        let mut made = Vec::with_capacity(*steps);
        for start in 0..*steps {
            let one = self.put(Op::Slice { axis: 0, start, length: 1 }, &[x], id, path)?;
            let one = self.put(Op::Reshape(rest.to_vec()), &[one], id, path)?;
            let outputs = self.run(model, path, &[one], training)?.0;
            let &[y] = &outputs[..] else {
                let value = format!("a model of {} outputs", outputs.len());
                return Err(refuse("layer", value, "a model of one output"));
            };
            let whole: Vec<usize> = std::iter::once(1).chain(self.dims(y).iter().copied()).collect();
            made.push(self.put(Op::Reshape(whole), &[y], id, path)?);
        }
        match made[..] {
            [only] => Ok(vec![only]),
            _ => Ok(vec![self.put(Op::Concat(0), &made, id, path)?]),
        }
    }

    fn put(&mut self, op: Op, inputs: &[TensorId], id: LayerId, path: &str) -> Result<TensorId, FormatError> {
        let made = self.graph.push(op, inputs, id);
        let made =
            made.map_err(|mismatch| FormatError::Shape { layer: path.to_owned(), class: CLASS, mismatch });
        made.map(|outputs| outputs[0])
    }
}
