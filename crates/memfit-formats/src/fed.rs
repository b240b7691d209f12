//! What an input is fed as: whole numbers stay whole only where something looks them up.

use crate::model::{Body, Layer, Model};
use crate::table::Class;

impl Model {
    /// Whether whole numbers from an input are looked up, as an Embedding does. All other layers compute with
    /// floats, so that images of bytes are fed as floats.
    pub(crate) fn looks_up(&self, input: usize) -> bool {
        let mut open = vec![input];
        let mut seen = vec![false; self.layers.len()];
        while let Some(from) = open.pop() {
            if std::mem::replace(&mut seen[from], true) {
                continue;
            }
            for (index, layer) in self.layers.iter().enumerate() {
                let reads = layer.calls.iter().flat_map(|call| call.iter().enumerate());
                let mut places =
                    reads.filter(|(_, read)| read.layer == from).map(|(place, _)| place).peekable();
                if places.peek().is_some() && hands_on(layer) {
                    open.push(index);
                }
                if places.any(|place| looks_up_at(layer, place)) {
                    return true;
                }
            }
        }
        false
    }
}

/// Whether a layer gives the numbers as they are.
fn hands_on(layer: &Layer) -> bool {
    match &layer.body {
        Body::Single { row, .. } => matches!(row.class, Class::Flatten | Class::Reshape),
        Body::Operation(_) | Body::Nested(_) | Body::Distributed(_) | Body::Implied => false,
    }
}

/// Whether a layer looks up what it is given at a place.
fn looks_up_at(layer: &Layer, place: usize) -> bool {
    match &layer.body {
        Body::Single { row, settings } if row.class == Class::TimeDistributed => {
            settings.inner("layer").is_some_and(|inner| inner.row.class == Class::Embedding)
        }
        Body::Single { row, .. } => row.class == Class::Embedding,
        Body::Nested(model) | Body::Distributed(model) => {
            model.inputs.get(place).is_some_and(|input| model.looks_up(*input))
        }
        // Sums of whole numbers may wrap around in Keras: functions but for the cast are refused.
        Body::Operation(operation) => operation.name != "Cast",
        Body::Implied => false,
    }
}
