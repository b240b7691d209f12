//! Elementwise chains: a block of every operand at a time, one tight loop for each link.

mod functions;

use std::ops::Range;

use memfit_ir::Operand::{X, Y};
use memfit_ir::{Chain, Link};

use super::floats::Floats;
use super::lanes::Lanes;
use super::operands::Operands;
use super::tasks::{self, BLOCK, Cut, Tasks, blocks};
use functions::binary;
pub(crate) use functions::unary;

/// Inputs that are looked up once a launch; most chains have no more.
const FIRST: usize = 4;

/// Floats of workspace that a chain needs: every worker keeps a block of each value between two links, and of
/// each input that is f16 or bf16.
pub(crate) fn workspace(chain: &Chain, half: bool, threads: usize) -> usize {
    threads * kept(chain, half) * BLOCK
}

/// Blocks that a worker keeps: inputs in single precision, where they are f16 or bf16, then values between
/// links.
fn kept(chain: &Chain, half: bool) -> usize {
    chain.links.len() - 1 + if half { chain.inputs } else { 0 }
}

/// Runs a chain.
pub(crate) fn launch(operands: &Operands, chain: &Chain) {
    let result = operands.output_floats(Y);
    let half = result.is_half();
    let workspace = operands.workspace().take_floats(workspace(chain, half, operands.threads.count()));
    let cut = Cut::items(result.len(), 1);
    let first = std::array::from_fn(|input| operands.input_floats((X, input.min(chain.inputs - 1))));
    let links = Links { chain, half, values: Floats::over(workspace) };
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
        let (length, half) = (block.len(), self.links.half);
        let read = |input: usize| self.input(input).place(&block).cast_const();
        // SAFETY: the only write to the block is this task's own, after the last read.
        let load = |input: usize, to: &mut [f32]| {
            unsafe { self.input(input).load(block.clone(), to) };
        };
        if half {
            // SAFETY: the buffer holds a block.
            unsafe { self.links.run::<L>(worker, buffer.as_mut_ptr(), length, read, load) };
            // SAFETY: the block belongs to this task, and the slices that read operands are gone.
            return unsafe { self.result.store(block, &buffer[..length]) };
        }
        // SAFETY: the block belongs to this task; an operand shares all of it or nothing.
        unsafe { self.links.run::<L>(worker, self.result.place(&block), length, read, load) };
    }

    #[inline(always)]
    fn input(&self, index: usize) -> Floats<'_> {
        self.first.get(index).copied().unwrap_or_else(|| self.operands.input_floats((X, index)))
    }
}

/// The links of a chain, with room for the values between them.
pub(crate) struct Links<'a> {
    pub(crate) chain: &'a Chain,
    /// Whether inputs are f16 or bf16.
    pub(crate) half: bool,
    /// As much as [`workspace`] says.
    pub(crate) values: Floats<'a>,
}

impl Links<'_> {
    /// Runs the links over one block of every input, at most `BLOCK` elements: read where they stand, or
    /// widened first.
    ///
    /// # Safety
    /// Blocks of every input can be read and that of the result written, `length` elements each. The result
    /// may stand where an input does: every link has read an element before it writes it, and the last one
    /// alone writes.
    #[inline(always)]
    pub(crate) unsafe fn run<L: Lanes>(
        &self,
        worker: usize,
        result: *mut f32,
        length: usize,
        read: impl Fn(usize) -> *const f32,
        load: impl Fn(usize, &mut [f32]),
    ) {
        if self.half {
            for input in 0..self.chain.inputs {
                // SAFETY: a worker runs one task at a time, and its blocks are not read yet.
                load(input, unsafe { self.values.write(self.kept(input, worker, length)) });
            }
        }
        let operand = |value: usize| match value.checked_sub(self.chain.inputs) {
            // SAFETY: the block was widened before the links, by this worker.
            None if self.half => unsafe { self.values.read(self.kept(value, worker, length)) }.as_ptr(),
            None => read(value),
            // SAFETY: the value is written before the links that read it, by this worker.
            Some(link) => unsafe { self.values.read(self.value(link, worker, length)) }.as_ptr(),
        };
        let last = self.chain.links.len() - 1;
        for (index, link) in self.chain.links.iter().enumerate() {
            let target = if index == last {
                result
            } else {
                // SAFETY: a worker runs one task at a time, and a link reads only values before its own.
                unsafe { self.values.write(self.value(index, worker, length)) }.as_mut_ptr()
            };
            // SAFETY: all of them have `length` elements.
            unsafe {
                match *link {
                    Link::Unary(function, a) => unary::<L>(function, operand(a), target, length),
                    Link::Binary(function, a, b) => {
                        binary::<L>(function, operand(a), operand(b), target, length);
                    }
                }
            }
        }
    }

    /// Where a worker keeps a link's value.
    #[inline(always)]
    fn value(&self, link: usize, worker: usize, length: usize) -> Range<usize> {
        self.kept(link + if self.half { self.chain.inputs } else { 0 }, worker, length)
    }

    /// One of the blocks that a worker keeps.
    #[inline(always)]
    fn kept(&self, index: usize, worker: usize, length: usize) -> Range<usize> {
        let start = (worker * kept(self.chain, self.half) + index) * BLOCK;
        start..start + length
    }
}
