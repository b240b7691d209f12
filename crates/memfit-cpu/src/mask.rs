//! Masks: 1 at places that count, else 0.

use std::ops::Range;

use memfit_ir::Operand::{SampleWeights, X, Y};
use memfit_ir::{DType, Mask, Operand};

use super::operands::Operands;
use super::sums::{self, Part, sum, sum_parts};
use super::tasks::Cut;

/// Writes a mask.
pub(crate) fn launch(operands: &Operands, mask: Mask) {
    match (mask, operands.dtype(X)) {
        (Mask::NotZero, DType::I32) => {
            let ids: &[i32] = operands.input(X);
            write(operands, 1, |place| ids[place] != 0);
        }
        (Mask::NotZero, _) => {
            let ids: &[f32] = operands.input(X);
            // Floats are cut to whole numbers, as where they name entries.
            write(operands, 1, |place| ids[place].trunc() != 0.0);
        }
        (Mask::OtherClass(class), _) => {
            let numbers: &[i32] = operands.input(X);
            write(operands, 1, |place| numbers[place] != class);
        }
        (Mask::AnyOther(value), _) => {
            let x: &[f32] = operands.input(X);
            let features = operands.shape(X).last();
            write(operands, features, |place| {
                x[place * features..(place + 1) * features].iter().any(|x| *x != value)
            });
        }
    }
}

/// Doubles of workspace that `balance` needs.
pub(crate) const BALANCE_WORKSPACE: usize = sums::PARTS_WORKSPACE;

/// Weights times their count over their sum; all 0 where that sum is.
pub(crate) fn balance(operands: &Operands) {
    let weights: &[f32] = operands.input(SampleWeights);
    let workspace = operands.workspace().take_doubles(BALANCE_WORKSPACE);
    let total = sum_parts(operands.threads, weights.len(), 1, &Total(weights), workspace);
    let factor = if total == 0.0 { 0.0 } else { (weights.len() as f64 / total) as f32 };
    for (y, weight) in operands.output(Y).iter_mut().zip(weights) {
        *y = factor * weight;
    }
}

struct Total<'a>(&'a [f32]);

impl Part for Total<'_> {
    #[inline(always)]
    fn part(&self, range: Range<usize>) -> f64 {
        sum(&self.0[range], |weight| weight)
    }
}

fn write(operands: &Operands, features: usize, counts: impl Fn(usize) -> bool + Sync) {
    let y: &mut [f32] = operands.output(Operand::Mask);
    let size = Cut::items(y.len(), features).range(0).len().max(1);
    operands.threads.for_each_chunk(y, size, |chunk, y| {
        for (index, y) in y.iter_mut().enumerate() {
            *y = f32::from(u8::from(counts(chunk * size + index)));
        }
    });
}
