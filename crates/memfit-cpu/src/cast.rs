//! Floats of one type as floats of another.

use memfit_ir::Operand::{X, Y};

use super::floats::Floats;
use super::lanes::Lanes;
use super::operands::Operands;
use super::tasks::{self, BLOCK, Cut, Tasks, blocks};

/// Copies every element, rounded where the new type is the smaller.
pub(crate) fn launch(operands: &Operands) {
    let (x, y) = (operands.input_floats(X), operands.output_floats(Y));
    let cut = Cut::items(x.len(), 1);
    tasks::run(operands.threads, cut.count(), &Cast { cut, x, y });
}

struct Cast<'a> {
    cut: Cut,
    x: Floats<'a>,
    y: Floats<'a>,
}

impl Tasks for Cast<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let mut buffer = [0.0; BLOCK];
        for block in blocks(self.cut.range(task)) {
            // SAFETY: the input is not written, and the block of the output belongs to this task.
            unsafe { self.y.store(block.clone(), self.x.load(block, &mut buffer)) };
        }
    }
}
