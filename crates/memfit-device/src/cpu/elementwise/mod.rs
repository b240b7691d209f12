//! Elementwise chains: a block of every operand at a time, one tight loop for each link.

mod functions;

use std::ops::Range;

use memfit_ir::{Chain, Link};

use super::lanes::Lanes;
use super::operands::{Floats, Operands};
use super::tasks::{self, BLOCK, Cut, Tasks, blocks};
use functions::{binary, unary};

/// Inputs that are looked up once a launch; most chains have no more.
const FIRST: usize = 4;

/// Floats of workspace that a chain wants: every worker keeps a block of each value between two links, and of each
/// input where these are halves.
pub(crate) fn workspace(chain: &Chain, halves: bool, threads: usize) -> usize {
    threads * kept(chain, halves) * BLOCK
}

/// Blocks that a worker keeps: inputs in single precision, where they are halves, then values between links.
fn kept(chain: &Chain, halves: bool) -> usize {
    chain.links.len() - 1 + if halves { chain.inputs } else { 0 }
}

/// Runs a chain.
pub(crate) fn launch(operands: &Operands, chain: &Chain) {
    let result = operands.output_floats(0);
    let halves = result.is_half();
    let workspace = operands.workspace().take_floats(workspace(chain, halves, operands.threads.count()));
    let cut = Cut::items(result.len(), 1);
    let first = std::array::from_fn(|input| operands.input_floats(input.min(chain.inputs - 1)));
    let links = Links { chain, halves, values: Floats::over(workspace) };
    let run = Run { operands, first, links, cut, result };
    tasks::run(operands.threads, cut.count(), &run);
}

struct Run<'a> {
    operands: &'a Operands<'a>,
    first: [Floats<'a>; FIRST],
    links: Links<'a>,
    cut: Cut,
    result: Floats<'a>,
}

impl Tasks for Run<'_> {
    #[inline(always)]
    fn task<L: Lanes>(&self, task: usize, worker: usize) {
        let mut buffer = [0.0; BLOCK];
        for block in blocks(self.cut.range(task)) {
            self.block::<L>(block, worker, &mut buffer);
        }
    }
}

impl Run<'_> {
    #[inline(always)]
    fn block<L: Lanes>(&self, block: Range<usize>, worker: usize, buffer: &mut [f32; BLOCK]) {
        let result = &mut buffer[..block.len()];
        // SAFETY: the only write to the block is this task's own, behind the last read.
        let read = |input: usize| unsafe { self.input(input).read(block.clone()) };
        // SAFETY: as for `read`.
        let load = |input: usize, to: &mut [f32]| {
            unsafe { self.input(input).load(block.clone(), to) };
        };
        self.links.run::<L>(worker, result, read, load);
        // SAFETY: the block belongs to this task, and the slices that read operands are gone.
        unsafe { self.result.store(block, result) };
    }

    #[inline(always)]
    fn input(&self, index: usize) -> Floats<'_> {
        self.first.get(index).copied().unwrap_or_else(|| self.operands.input_floats(index))
    }
}

/// The links of a chain, with room for the values between them.
pub(crate) struct Links<'a> {
    pub(crate) chain: &'a Chain,
    /// Whether inputs are halves.
    pub(crate) halves: bool,
    /// As much as [`workspace`] says.
    pub(crate) values: Floats<'a>,
}

impl<'a> Links<'a> {
    /// Runs the links over one block of every input, at most `BLOCK` elements: read where they stand, or widened first.
    #[inline(always)]
    pub(crate) fn run<'b, L: Lanes>(
        &self,
        worker: usize,
        result: &mut [f32],
        read: impl Fn(usize) -> &'b [f32],
        load: impl Fn(usize, &mut [f32]),
    ) where
        'a: 'b,
    {
        let length = result.len();
        if self.halves {
            for input in 0..self.chain.inputs {
                // SAFETY: a worker runs one task at a time, and nobody reads its blocks yet.
                load(input, unsafe { self.values.write(self.kept(input, worker, length)) });
            }
        }
        let operand = |value: usize| match value.checked_sub(self.chain.inputs) {
            // SAFETY: the block was widened before the links, by this worker.
            None if self.halves => unsafe { self.values.read(self.kept(value, worker, length)) },
            None => read(value),
            // SAFETY: the value is written before the links that read it, by this worker.
            Some(link) => unsafe { self.values.read(self.value(link, worker, length)) },
        };
        let last = self.chain.links.len() - 1;
        for (index, link) in self.chain.links.iter().enumerate() {
            let target = if index == last {
                &mut *result
            } else {
                // SAFETY: a worker runs one task at a time, and a link reads only values before its own.
                unsafe { self.values.write(self.value(index, worker, length)) }
            };
            match *link {
                Link::Unary(function, a) => unary::<L>(function, operand(a), target),
                Link::Binary(function, a, b) => binary::<L>(function, operand(a), operand(b), target),
            }
        }
    }

    /// Where a worker keeps a link's value.
    #[inline(always)]
    fn value(&self, link: usize, worker: usize, length: usize) -> Range<usize> {
        self.kept(link + if self.halves { self.chain.inputs } else { 0 }, worker, length)
    }

    /// One of the blocks that a worker keeps.
    #[inline(always)]
    fn kept(&self, index: usize, worker: usize, length: usize) -> Range<usize> {
        let start = (worker * kept(self.chain, self.halves) + index) * BLOCK;
        start..start + length
    }
}
