//! Losses with their gradients: one pass writes the slope of every prediction and sums the loss in double precision.

mod classes;
mod elements;

use memfit_ir::{Loss, LossKind};

use super::operands::{Floats, Operands};
use super::sums::{self, settle};

/// Probabilities are kept this far from 0 and 1, as in Keras.
const EPSILON: f32 = 1e-7;

/// What all losses share.
struct Samples<'a> {
    prediction: Floats<'a>,
    slopes: Floats<'a>,
    /// One weight a row.
    weights: Option<&'a [f32]>,
    /// What a sample of weight 1 counts in the total: the loss's own weight over all samples of the batch.
    share: f64,
    /// Samples of one row: the product of all dimensions but the last.
    in_row: usize,
    /// Elements of one sample: the last dimension.
    classes: usize,
}

impl Samples<'_> {
    /// What a row's samples count.
    #[inline(always)]
    fn share(&self, row: usize) -> f64 {
        self.share * self.weights.map_or(1.0, |weights| f64::from(weights[row]))
    }
}

/// Doubles of workspace that a loss wants.
pub(crate) const WORKSPACE: usize = sums::PARTS_WORKSPACE;

/// Writes the gradient of the prediction and adds the loss of this piece.
pub(crate) fn launch(operands: &Operands, loss: &Loss) {
    let shape = operands.input_shape(0);
    let classes = shape.last().max(1);
    let in_row = shape.elements_per_row() / classes;
    let samples = Samples {
        prediction: operands.input_floats(0),
        slopes: operands.output_floats(0),
        weights: operands.input_if(operands.node.inputs.len() == 3, 2),
        share: f64::from(loss.weight) / (operands.context.rows_total * in_row) as f64,
        in_row,
        classes,
    };
    let workspace = operands.workspace().take_doubles(WORKSPACE);
    let total = match loss.kind {
        LossKind::MeanSquaredError
        | LossKind::MeanAbsoluteError
        | LossKind::Huber { .. }
        | LossKind::BinaryCrossentropy { .. } => {
            elements::run(operands.threads, &samples, &loss.kind, operands.input(1), workspace)
        }
        LossKind::CategoricalCrossentropy { from_logits, label_smoothing } => {
            let targets = classes::Soft { targets: operands.input(1), smoothing: label_smoothing };
            classes::run(operands.threads, &samples, &targets, from_logits, workspace)
        }
        LossKind::SparseCategoricalCrossentropy { from_logits } => {
            let targets = classes::Numbers(operands.input(1));
            classes::run(operands.threads, &samples, &targets, from_logits, workspace)
        }
    };
    settle(&mut operands.update(0)[0], total, operands.fresh);
}
