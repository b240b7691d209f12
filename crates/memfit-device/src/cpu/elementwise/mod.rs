//! Elementwise chains: a block of every operand at a time, one tight loop for each link.

mod functions;

use std::ops::Range;

use memfit_ir::{Chain, Link};

use super::operands::{Floats, Operands};
use super::tasks::{self, BLOCK, Cut, Tasks, blocks};
use functions::{binary, unary};

/// Inputs that are looked up once a launch; most chains have no more.
const FIRST: usize = 4;

/// Floats of workspace that a chain wants: every worker keeps a block of each value between two links.
pub(crate) fn workspace(chain: &Chain, threads: usize) -> usize {
    threads * (chain.links.len() - 1) * BLOCK
}

/// Runs a chain.
pub(crate) fn launch(operands: &Operands, chain: &Chain) {
    let result = operands.output_floats(0);
    let workspace = operands.workspace().take_floats(workspace(chain, operands.threads.count()));
    let cut = Cut::items(result.len(), 1);
    let first = std::array::from_fn(|input| operands.input_floats(input.min(chain.inputs - 1)));
    let run = Run { operands, first, chain, cut, result, values: Floats::over(workspace) };
    tasks::run(operands.threads, cut.count(), &run);
}

struct Run<'a> {
    operands: &'a Operands<'a>,
    first: [Floats<'a>; FIRST],
    chain: &'a Chain,
    cut: Cut,
    result: Floats<'a>,
    values: Floats<'a>,
}

impl Tasks for Run<'_> {
    #[inline(always)]
    fn task(&self, task: usize, worker: usize) {
        let mut buffer = [0.0; BLOCK];
        for block in blocks(self.cut.range(task)) {
            self.block(block, worker, &mut buffer);
        }
    }
}

impl Run<'_> {
    #[inline(always)]
    fn block(&self, block: Range<usize>, worker: usize, buffer: &mut [f32; BLOCK]) {
        let result = &mut buffer[..block.len()];
        let links = Links { chain: self.chain, values: self.values };
        links.run(worker, result, |input| {
            let input = self.first.get(input).copied().unwrap_or_else(|| self.operands.input_floats(input));
            // SAFETY: the only write to the block is this task's own, behind the last read.
            unsafe { input.read(block.clone()) }
        });
        // SAFETY: the block belongs to this task, and the slices that read operands are gone.
        unsafe { self.result.write(block) }.copy_from_slice(result);
    }
}

/// The links of a chain, with room for the values between them.
pub(crate) struct Links<'a> {
    pub(crate) chain: &'a Chain,
    /// As much as [`workspace`] says.
    pub(crate) values: Floats<'a>,
}

impl<'a> Links<'a> {
    /// Runs the links over one block of every input, at most `BLOCK` elements.
    #[inline(always)]
    pub(crate) fn run<'b>(&self, worker: usize, result: &mut [f32], input: impl Fn(usize) -> &'b [f32])
    where
        'a: 'b,
    {
        let length = result.len();
        let operand = |value: usize| match value.checked_sub(self.chain.inputs) {
            None => input(value),
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
                Link::Unary(function, a) => unary(function, operand(a), target),
                Link::Binary(function, a, b) => binary(function, operand(a), operand(b), target),
            }
        }
    }

    /// Where a worker keeps a link's value.
    #[inline(always)]
    fn value(&self, link: usize, worker: usize, length: usize) -> Range<usize> {
        let start = (worker * (self.chain.links.len() - 1) + link) * BLOCK;
        start..start + length
    }
}
