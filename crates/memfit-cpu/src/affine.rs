//! Values times and plus numbers that repeat along the last axes: weights, or constants.

use memfit_ir::Operand::{DScale, Dy, Offset, Scale, X, Y};

use super::floats::Floats;
use super::lanes::{Lanes, load};
use super::operands::Operands;
use super::sums::{Columns, Terms, add_or_overwrite};
use super::tasks::{self, BLOCK, Cut, Tasks, blocks};

/// `y = x · scale + offset`, with weights.
pub(crate) fn forward(operands: &Operands) {
    apply(operands, operands.input_if_given(Scale), operands.input_if_given(Offset));
}

/// `y = x · scale + offset`, with constants.
pub(crate) fn constant(operands: &Operands, scale: &[f32], offset: &[f32]) {
    apply(operands, Some(scale), Some(offset));
}

fn apply(operands: &Operands, scale: Option<&[f32]>, offset: Option<&[f32]>) {
    let (x, y) = (operands.input_floats(X), operands.output_floats(Y));
    let cut = Cut::items(x.len(), 1);
    tasks::run(operands.threads, cut.count(), &Affine { cut, x, y, scale, offset });
}

struct Affine<'a> {
    cut: Cut,
    x: Floats<'a>,
    y: Floats<'a>,
    scale: Option<&'a [f32]>,
    offset: Option<&'a [f32]>,
}

impl Tasks for Affine<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let (mut wide, mut result) = ([0.0; BLOCK], [0.0; BLOCK]);
        for block in blocks(self.cut.range(task)) {
            // SAFETY: the only write to the block is this task's own, after the read.
            let x = unsafe { self.x.load(block.clone(), &mut wide) };
            let result = &mut result[..block.len()];
            result.copy_from_slice(x);
            if let Some(scale) = self.scale {
                periods(result, block.start, scale, |value, scale| *value *= scale);
            }
            if let Some(offset) = self.offset {
                periods(result, block.start, offset, |value, offset| *value += offset);
            }
            // SAFETY: the block belongs to this task, and the slice that read it is gone.
            unsafe { self.y.store(block, result) };
        }
    }
}

/// Pairs values, the first of them at `start`, with numbers that repeat.
#[inline(always)]
fn periods(values: &mut [f32], start: usize, numbers: &[f32], pair: impl Fn(&mut f32, f32)) {
    let (mut rest, mut column) = (values, start % numbers.len());
    while !rest.is_empty() {
        let (part, next) = rest.split_at_mut(rest.len().min(numbers.len() - column));
        part.iter_mut().zip(&numbers[column..]).for_each(|(value, number)| pair(value, *number));
        (rest, column) = (next, 0);
    }
}

/// Doubles of workspace that `grad_scale` needs for `weights` weights.
pub(crate) fn grad_scale_workspace(weights: usize) -> usize {
    Columns::workspace(Columns::width(weights), 1)
}

/// `dscale += Σ x · dy` over every axis that the scale has not.
pub(crate) fn grad_scale(operands: &Operands) {
    let (x, dy, dscale) = (operands.input(X), operands.input(Dy), operands.update(DScale));
    let columns = Columns::folded(x.len(), dscale.len());
    let workspace = operands.workspace().take_doubles(grad_scale_workspace(dscale.len()));
    columns.sum(operands.threads, &Products { x, dy }, workspace, |column, [sum]| {
        add_or_overwrite(&mut dscale[column], sum, operands.fresh);
    });
}

struct Products<'a> {
    x: &'a [f32],
    dy: &'a [f32],
}

impl Terms<1> for Products<'_> {
    #[inline(always)]
    unsafe fn terms<L: Lanes>(&self, _row: usize, element: usize, _column: usize, count: usize) -> [L; 1] {
        let (x, dy) = (self.x[element..].as_ptr(), self.dy[element..].as_ptr());
        // SAFETY: the elements lie inside both.
        unsafe { [load::<L>(x, count).mul(load(dy, count))] }
    }
}
