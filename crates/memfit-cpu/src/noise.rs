//! Noise: draws are a function of seed, step and place, so that they need not be stored, and neighbours may
//! share one.

use memfit_ir::Operand::{X, Y};
use memfit_ir::{Noise, NoiseKind, random};

use super::floats::Floats;
use super::lanes::Lanes;
use super::operands::Operands;
use super::tasks::{self, BLOCK, Cut, Tasks, blocks};

/// Changes values by noise.
pub(crate) fn launch(operands: &Operands, noise: &Noise) {
    let (x, y) = (operands.input_floats(X), operands.output_floats(Y));
    let (context, dims) = (operands.context, &operands.shape(X).dims);
    // Axes after this one either all share a draw or all have their own.
    let shared = dims.last() != noise.dims.last();
    let alike = dims.iter().zip(&noise.dims).rev().take_while(|(own, drawn)| (own != drawn) == shared);
    let axes = alike.count();
    let run = dims[dims.len() - axes..].iter().product::<usize>().max(1);
    let cut = Cut::items(x.len() / run, run);
    let work = Work {
        kind: noise.kind,
        seed: random::derive(random::derive(context.seed, noise.seed), context.step),
        dims: &dims[..dims.len() - axes],
        drawn: &noise.dims[..dims.len() - axes],
        shared,
        run,
        row_start: context.row_start,
        cut,
        x,
        y,
    };
    tasks::run(operands.threads, cut.count(), &work);
}

struct Work<'a> {
    kind: NoiseKind,
    seed: u64,
    /// Axes before those of a run: of the values, and of what is drawn.
    dims: &'a [usize],
    drawn: &'a [usize],
    /// Whether a run shares one draw.
    shared: bool,
    /// Elements of a run.
    run: usize,
    /// Rows of the batch before this micro-batch: draws belong to places in the batch, however it is split.
    row_start: usize,
    cut: Cut,
    x: Floats<'a>,
    y: Floats<'a>,
}

impl Work<'_> {
    /// The first draw of a run.
    #[inline(always)]
    fn first_draw(&self, run: usize) -> u64 {
        let (mut place, mut rest, mut stride) = (0, run, if self.shared { 1 } else { self.run });
        for (size, drawn) in self.dims.iter().zip(self.drawn).rev() {
            if *drawn == *size {
                place += rest % size * stride;
                stride *= size;
            }
            rest /= size;
        }
        (place + (self.row_start + rest) * stride) as u64
    }

    /// What a draw makes of a value, as factor and term.
    #[inline(always)]
    fn draw(&self, index: u64) -> (f32, f32) {
        let kept = |rate: f32| rate <= random::unit(self.seed, index);
        match self.kind {
            NoiseKind::Dropout { rate } if kept(rate) => (1.0 / (1.0 - rate), 0.0),
            NoiseKind::Dropout { .. } => (0.0, 0.0),
            NoiseKind::Add { stddev } => (1.0, stddev * random::normal(self.seed, index)),
            NoiseKind::Multiply { stddev } => (1.0 + stddev * random::normal(self.seed, index), 0.0),
            NoiseKind::Alpha { rate } => {
                let (lowest, scale, shift) = NoiseKind::alpha_constants(rate);
                if kept(rate) { (scale as f32, shift as f32) } else { (0.0, (scale * lowest + shift) as f32) }
            }
            NoiseKind::AlphaGrad { rate } if kept(rate) => (NoiseKind::alpha_constants(rate).1 as f32, 0.0),
            NoiseKind::AlphaGrad { .. } => (0.0, 0.0),
        }
    }
}

impl Tasks for Work<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, _worker: usize) {
        let (mut wide, mut result) = ([0.0; BLOCK], [0.0; BLOCK]);
        for run in self.cut.range(task) {
            let first = self.first_draw(run);
            let common = self.shared.then(|| self.draw(first));
            let start = run * self.run;
            for block in blocks(start..start + self.run) {
                // SAFETY: the only write to the block is this task's own, after the read.
                let x = unsafe { self.x.load(block.clone(), &mut wide) };
                for (index, (to, x)) in result.iter_mut().zip(x).enumerate() {
                    let own = || self.draw(first + (block.start - start + index) as u64);
                    let (factor, term) = common.unwrap_or_else(own);
                    *to = if factor == 0.0 { term } else { x * factor + term };
                }
                // SAFETY: the block belongs to this task, and the slice that read it is gone.
                unsafe { self.y.store(block.clone(), &result[..block.len()]) };
            }
        }
    }
}
