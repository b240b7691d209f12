//! Masks: 1 at places that count, else 0.

use memfit_ir::{DType, Mask};

use super::operands::Operands;
use super::tasks::Cut;

/// Writes a mask.
pub(crate) fn launch(operands: &Operands, mask: Mask) {
    match (mask, operands.input_type(0)) {
        (Mask::NotZero, DType::I32) => {
            let ids: &[i32] = operands.input(0);
            write(operands, 1, |place| ids[place] != 0);
        }
        (Mask::NotZero, _) => {
            let ids: &[f32] = operands.input(0);
            // Floats are cut to whole numbers, as where they name entries.
            write(operands, 1, |place| ids[place].trunc() != 0.0);
        }
        (Mask::AnyOther(value), _) => {
            let x: &[f32] = operands.input(0);
            let features = operands.input_shape(0).last();
            write(operands, features, |place| {
                x[place * features..(place + 1) * features].iter().any(|x| *x != value)
            });
        }
    }
}

fn write(operands: &Operands, features: usize, counts: impl Fn(usize) -> bool + Sync) {
    let y: &mut [f32] = operands.output(0);
    let size = Cut::items(y.len(), features).range(0).len().max(1);
    operands.threads.for_each_chunk(y, size, |chunk, y| {
        for (index, y) in y.iter_mut().enumerate() {
            *y = f32::from(u8::from(counts(chunk * size + index)));
        }
    });
}
