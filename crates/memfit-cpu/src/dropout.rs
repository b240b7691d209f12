//! Dropout: which elements stay is a function of seed, step and place, so that it need not be stored.

use memfit_ir::Operand::{X, Y};
use memfit_ir::random;

use super::floats::Floats;
use super::lanes::Lanes;
use super::operands::Operands;
use super::tasks::{self, BLOCK, Cut, Tasks, blocks};

/// Sets a share of elements to 0 and scales the others, so that the expected value stays.
pub(crate) fn launch(operands: &Operands, rate: f32, seed: u64) {
    let (x, y) = (operands.input_floats(X), operands.output_floats(Y));
    let context = operands.context;
    let before = context.row_start * operands.shape(X).elements_per_row();
    let cut = Cut::items(x.len(), 4);
    let work = Dropout {
        cut,
        x,
        y,
        seed: random::derive(random::derive(context.seed, seed), context.step),
        before: before as u64,
        rate,
        scale: 1.0 / (1.0 - rate),
    };
    tasks::run(operands.threads, cut.count(), &work);
}

struct Dropout<'a> {
    cut: Cut,
    x: Floats<'a>,
    y: Floats<'a>,
    seed: u64,
    /// Elements of the batch before this micro-batch: draws belong to places in the batch, however it is
    /// split.
    before: u64,
    rate: f32,
    scale: f32,
}

impl Tasks for Dropout<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let (mut kept, mut wide) = ([0.0; BLOCK], [0.0; BLOCK]);
        for block in blocks(self.cut.range(task)) {
            let first = self.before + block.start as u64;
            // SAFETY: the only write to the block is this task's own, after the read.
            let x = unsafe { self.x.load(block.clone(), &mut wide) };
            for (index, (kept, x)) in kept.iter_mut().zip(x).enumerate() {
                let draw = random::unit(self.seed, first + index as u64);
                *kept = if draw >= self.rate { *x * self.scale } else { 0.0 };
            }
            // SAFETY: the block belongs to this task, and the slice that read it is gone.
            unsafe { self.y.store(block.clone(), &kept[..block.len()]) };
        }
    }
}
